"""Words with classes: windows, scores of whole names, and one line for every mistake."""

import dataclasses

import numpy as np
import pytest

from folnet.tasks import NO_LABEL, own
from folnet.tasks.own import words
from tests.folnet import small_tasks
from tests.folnet.tasks.own.files import lines, opened, read_all

ROWS = [
    {"tokens": ["Jason", "Lewis", "saw", "unbelievable"], "ner_tags": ["B-P", "I-P", "O", "O"]},
    {"tokens": ["Scott"], "ner_tags": ["B-P"]},
]


def test_lists_and_words_between_spaces(tmp_path):
    task = opened(tmp_path, lines(ROWS))
    assert (task.columns, task.classes) == (("tokens", None, "ner_tags"), ("B-P", "I-P", "O"))
    assert task.metrics == ("f1", "accuracy")
    first, second = task.examples(".", "train")
    assert first == own.Words("0", ("Jason", "Lewis", "saw", "unbelievable"), (0, 1, 2, 2))
    assert second.tags == (0,)
    text = "words,tags\nthe dog sat,10 9 9\na cat,10 9\n"
    task = opened(tmp_path, text, name="a.csv", kind="words")
    assert (task.columns, task.classes, task.metrics) == (("words", None, "tags"), ("9", "10"), ("accuracy",))
    assert task.examples(".", "train")[1] == own.Words("1", ("a", "cat"), (1, 0))
    numbers = [{"tokens": ["a", 2], "tags": [0, 1]}]
    assert opened(tmp_path, lines(numbers)).examples(".", "train")[0].words == ("a", "2")


@pytest.mark.parametrize("length", [6, 9, 40])
def test_every_word_has_its_class_once_at_its_first_piece(tmp_path, length):
    """A word of many pieces may cross windows; a word that the tokenizer drops is unknown."""
    rows = [*ROWS, {"tokens": ["dog", "\u200b", "xyzzyxyzzy", *"abcdefgh"], "ner_tags": ["O"] * 10 + ["B-P"]}]
    task = dataclasses.replace(opened(tmp_path, lines(rows)), stride=4)
    tokenizer, examples = small_tasks.tokenizer(), task.examples(".", "train")
    found = task.features(examples, tokenizer, length)
    said = [word for example in examples for word in example.words]
    there = found.word >= 0
    assert sorted(found.word[there].tolist()) == list(range(len(said)))
    np.testing.assert_array_equal(found.tags[~there], NO_LABEL)
    assert found.input_ids.shape[1] == length
    for number, token, tag in zip(found.word[there], found.input_ids[there], found.tags[there], strict=True):
        pieces = tokenizer.ids([said[number]])[0]
        assert token == (pieces[0] if pieces else tokenizer.unk_id)
        assert tag == task.tags(examples)[number]
    whole = [(tokenizer.ids([word])[0] or [tokenizer.unk_id]) for word in rows[0]["tokens"]]
    if length == 40:
        expected = [tokenizer.cls_id, *(piece for word in whole for piece in word), tokenizer.sep_id]
        assert found.input_ids[0, : len(expected)].tolist() == expected
        assert found.attention_mask[0].sum() == len(expected)
    logits = np.random.default_rng(0).normal(size=(*found.word.shape, 3))
    of_words = task.of_words(found, logits)
    for row, column in zip(*np.nonzero(there), strict=True):
        np.testing.assert_array_equal(of_words[found.word[row, column]], logits[row, column])


def test_scores(tmp_path):
    task = opened(tmp_path, lines(ROWS))
    examples = task.examples(".", "train")
    assert task.score(examples, np.asarray([0, 1, 2, 2, 0])) == {"accuracy": 1, "f1": 1}
    half = task.score(examples, np.asarray([0, 2, 2, 2, 0]))  # the first name ends too early
    assert half == {"accuracy": 0.8, "f1": 0.5}
    assert task.score(examples, np.asarray([2] * 5)) == {"accuracy": 0.4, "f1": 0}
    with pytest.raises(ValueError, match="predictions: got 4, expected one for each of 5 words"):
        task.score(examples, np.zeros(4, int))
    unknown = [example._replace(tags=None) for example in examples]
    assert not task.labelled(unknown)
    with pytest.raises(ValueError, match="examples: got some without tags"):
        task.score(unknown, np.zeros(5, int))
    assert task.tags(unknown).tolist() == [NO_LABEL] * 5
    assert not task.labelled([examples[0], unknown[1]])


def test_new_rows_may_lack_tags(tmp_path):
    """If one does, those of the others are not used, either."""
    (tmp_path / "new.jsonl").write_text(lines(ROWS))
    known = ("B-P", "I-P", "O")
    found = own.reopened(tmp_path / "new.jsonl", "words", known, label="ner_tags").examples(".", "test")
    assert [example.tags for example in found] == [(0, 1, 2, 2), (0,)]
    (tmp_path / "new.jsonl").write_text(lines([*ROWS, {"tokens": ["a"], "ner_tags": None}]))
    found = own.reopened(tmp_path / "new.jsonl", "words", known, label="ner_tags").examples(".", "test")
    assert [example.tags for example in found] == [None] * 3


@pytest.mark.parametrize(
    ("tags", "names"),
    [
        ("O O", []),
        ("B-A I-A O B-A", [(0, 1, "A"), (3, 3, "A")]),
        ("B-A B-A I-A", [(0, 0, "A"), (1, 2, "A")]),
        ("I-A I-A I-B O I-B", [(0, 1, "A"), (2, 2, "B"), (4, 4, "B")]),
        ("B-A I-B", [(0, 0, "A"), (1, 1, "B")]),
        ("", []),
    ],
)
def test_names_are_those_of_conlls_script(tags, names):
    assert list(words.names_in(tags.split())) == names


def test_one_tag_that_is_none_of_names_leaves_accuracy():
    assert words.known(("B-A", "I-A", "O"))["metrics"] == ("f1", "accuracy")
    assert words.known(("B-A", "NOUN", "O"))["metrics"] == ("accuracy",)


def test_the_f1_counts_names_of_all_rows():
    """Two of three names are found, with one that is none, and a name counts in its own row only."""
    rows = [["B-A", "O", "B-B"], ["B-A", "I-A"]]
    found = [["B-A", "B-A", "B-B"], ["B-A", "O"]]
    assert words.f1_of_names(rows, found) == pytest.approx(2 * 2 / (3 + 4))
    assert words.f1_of_names([["O"]], [["O"]]) == 0
    assert words.f1_of_names([["B-A"], ["O"]], [["O"], ["B-A"]]) == 0


BAD = [
    (lines([{"tokens": ["a"], "tags": ["x", "y"]}]), "", {}, r"train\.jsonl, line 1: got 2 tags of 1 words"),
    (lines([*ROWS, {"tokens": "", "ner_tags": ["O"]}]), "", {}, r"line 3: tokens: got '', expected a list"),
    (lines([*ROWS, {"tokens": ["a"], "ner_tags": None}]), "", {}, r"line 3: ner_tags: got None, expected a"),
    (lines([*ROWS, {"tokens": [None], "ner_tags": ["O"]}]), "", {}, r"line 3: tokens: got None in the list"),
    (lines([*ROWS, {"tokens": ["a"], "ner_tags": [True]}]), "", {}, r"line 3: ner_tags: got True in the"),
    (lines([{"tokens": ["a"], "tags": ["O"]}] * 2), "", {}, r"got the label 'O' in all 2 rows, expected at"),
    (lines([{"tokens": ["a"], "x": ["O"]}]), "", {}, r"label: got none of 'tags', .*, expected the name"),
    (lines(ROWS), "", {"second": "ner_tags", "kind": "words"}, r"second: got 'ner_tags', expected none"),
    (lines(ROWS), "", {"label": "pos"}, r"label: got 'pos', expected one of the columns 'tokens', 'ne"),
    (lines(ROWS), lines([{"tokens": ["a"], "ner_tags": ["B-Q"]}]), {},
     r"dev\.jsonl, line 1: got the label 'B-Q', expected 'B-P' or 'I-P' or 'O', the labels of the training"),
]  # fmt: skip


@pytest.mark.parametrize(("train", "dev", "options", "message"), BAD)
def test_every_mistake_is_one_line(tmp_path, train, dev, options, message):
    with pytest.raises(ValueError, match=message) as error:
        read_all(tmp_path, train, dev, **options)
    assert "\n" not in str(error.value)


def test_logits_that_do_not_fit(tmp_path):
    task = opened(tmp_path, lines(ROWS))
    found = task.features(task.examples(".", "train"), small_tasks.tokenizer(), 30)
    with pytest.raises(ValueError, match=r"logits: got shape \(2, 30, 4\), expected \(2, 30, 3\)"):
        task.of_words(found, np.zeros((2, 30, 4)))
    with pytest.raises(ValueError, match="logits: got inf, expected finite numbers"):
        task.of_words(found, np.where(np.arange(3) == 1, np.inf, np.zeros((2, 30, 3))))
