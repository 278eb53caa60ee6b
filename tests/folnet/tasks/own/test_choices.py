"""Choices: every way to name the right one, questions with fewer of them, one line for every mistake."""

import json

import numpy as np
import pytest

from folnet.tasks import NO_LABEL, own, tables
from folnet.tasks.own import choices as own_choices
from folnet.tasks.own.choices import NEVER
from tests.folnet import small_tasks
from tests.folnet.tasks.own.files import lines, opened

CHOICES = ["a dog", "a cat", "a man"]


def row(label, choices: object = CHOICES, **more):
    return {"question": "who sat", "choices": choices, "label": label, **more}


@pytest.mark.parametrize(
    ("label", "choices"),
    [
        (1, CHOICES),
        ("1", CHOICES),
        ("a cat", CHOICES),
        ("B", CHOICES),
        ("1", json.dumps(CHOICES)),
        ("9", {"text": CHOICES, "label": ["8", "9", "10"]}),
        ("C", {"text": CHOICES, "label": ["B", "C", "D"]}),
        (2, {"text": CHOICES, "label": [1, 2, 3]}),
        ("1", ["2", "1", "0"]),  # the text of a choice, before its number
        (1, ["1", "2", "3"]),  # an integer is the number
        (9, ["8", "9", "10"]),  # unless no choice has it
        (2, {"text": ["2", "3", "1"], "label": ["1", "2", "3"]}),
    ],
)
def test_the_right_one_by_name_text_number_or_letter(tmp_path, label, choices):
    task = opened(tmp_path, lines([row(label, choices)]))
    assert task.columns == ("question", "choices", "label")
    (example,) = task.examples(".", "train")
    assert (example.label, len(example.choices), example.question) == (1, 3, "who sat")


def test_usual_names_of_columns(tmp_path):
    text = 'ctx,endings,answerKey\nwho,"[""a"", ""b""]",A\n'
    task = opened(tmp_path, text, name="a.csv")
    assert task.columns == ("ctx", "endings", "answerKey")
    assert task.examples(".", "train") == (own.Choice("0", "who", ("a", "b"), 0),)


@pytest.mark.parametrize(
    ("header", "second", "columns"),
    [
        ("goal,sol1,sol2,label", "", ("goal", "sol1,sol2", "label")),
        ("question,choice0,choice1,answer", "", ("question", "choice0,choice1", "answer")),
        ("text,left,right,label", "left, right", ("text", "left, right", "label")),
    ],
)
def test_choices_in_columns_of_their_own(tmp_path, header, second, columns):
    """The right one is a number, a letter, the text or the column."""
    name = header.split(",")[2]
    rows = "".join(f"who,a dog,a cat,{label}\n" for label in ("1", "B", "a cat", name))
    task = opened(tmp_path, f"{header}\n{rows}", name="a.csv", second=second)
    assert (task.columns, type(task)) == (columns, own.ChoiceTask)
    examples = task.examples(".", "train")
    assert {(e.question, e.choices, e.label) for e in examples} == {("who", ("a dog", "a cat"), 1)}
    (tmp_path / "new.csv").write_text(f"{header.removesuffix(',' + columns[-1])}\nwho,a dog,a cat\n")
    (new,) = own.reopened(tmp_path / "new.csv", "choices", (), second=second).examples(".", "test")
    assert (new.choices, new.label) == (("a dog", "a cat"), None)


def test_columns_of_json_lines_are_those_of_all_rows(tmp_path):
    """An integer is the number of a choice here, too."""
    first = {"question": "who", "choice1": "1", "choice2": "2", "label": 1}
    second = {"question": "who", "choice1": "u", "choice2": "v", "choice3": "w", "label": 2}
    task = opened(tmp_path, lines([first, second]))
    assert task.columns.second == "choice1,choice2,choice3"
    examples = task.examples(".", "train")
    assert [(e.choices, e.label) for e in examples] == [(("1", "2"), 1), (("u", "v", "w"), 2)]


def test_the_last_columns_may_be_empty(tmp_path):
    header = "question,option1,option2,option3,label\n"
    task = opened(tmp_path, f"{header}who,a,b,,1\nwho,a,b,c,2\n", name="a.csv")
    assert [len(example.choices) for example in task.examples(".", "train")] == [2, 3]
    for row, column in (("who,a,,c,0", "option2"), ("who,,,,0", "option1"), ("who,a,,,0", "option2")):
        task = opened(tmp_path, f"{header}{row}\n", name="a.csv")
        expected = f"a.csv, line 2: {column}: the text is empty, expected at least two, the first ones"
        with pytest.raises(ValueError, match=expected):
            task.examples(".", "train")
    task = opened(tmp_path, f"{header}who,a,b,a,0\n", name="a.csv")
    with pytest.raises(ValueError, match=r"a\.csv, line 2: option1,option2,option3: got the same choice"):
        task.examples(".", "train")
    with pytest.raises(ValueError, match=r"second: got 'option1,option9', expected one of the columns"):
        opened(tmp_path, f"{header}who,a,b,,1\n", name="a.csv", second="option1,option9", kind="choices")


def test_pairs_of_the_question_and_each_choice(tmp_path):
    """In place of a choice that a question lacks its first one is read, and never chosen."""
    rows = [row(1), row(1, ["a book", "it is a good book"])]
    task, tokenizer = opened(tmp_path, lines(rows)), small_tasks.tokenizer()
    examples = task.examples(".", "train")
    found = task.features(examples, tokenizer, 9)
    assert found.exists.tolist() == [[True] * 3, [True, True, False]]
    assert found.label.tolist() == [1, 1]
    assert found.cut_off == 1
    texts = [*CHOICES, "a book", "it is a good book", "a book"]
    expected = tokenizer(["who sat"] * 6, texts, length=9)
    for name, array in zip(expected._fields, expected, strict=True):
        np.testing.assert_array_equal(getattr(found, name), array.reshape(2, 3, 9))
    assert task.features(examples, tokenizer, 6).cut_off == 5
    logits = task.of_choices(found, np.asarray([[0, 2, 1], [0, 1, 9]], np.float32))
    assert logits.dtype == np.float32
    np.testing.assert_array_equal(logits, [[0, 2, 1], [0, 1, NEVER]])
    assert task.score(examples, np.asarray([1, 0])) == {"accuracy": 0.5}
    with pytest.raises(ValueError, match=r"logits: got shape \(2, 2\), expected \(2, 3\)"):
        task.of_choices(found, np.zeros((2, 2)))
    with pytest.raises(ValueError, match="logits: got nan, expected finite numbers"):
        task.of_choices(found, np.asarray([[0, np.nan, 0], [0, 0, 0]]))
    with pytest.raises(ValueError, match="predictions: got 1, expected one for each of 2 examples"):
        task.score(examples, np.zeros(1, int))


def test_new_questions_may_lack_the_right_choice(tmp_path):
    (tmp_path / "new.jsonl").write_text(json.dumps({"question": "who", "choices": CHOICES}) + "\n")
    task = own.reopened(tmp_path / "new.jsonl", "choices", ())
    examples = task.examples(".", "test")
    assert examples[0].label is None
    assert not task.labelled(examples)
    assert not task.labelled([*examples, examples[0]._replace(label=1)])
    features = task.features(examples, small_tasks.tokenizer(), 16)
    assert features.label.tolist() == [NO_LABEL]
    (tmp_path / "new.jsonl").write_text(lines([row(2), row(None)]))
    found = own.reopened(tmp_path / "new.jsonl", "choices", ()).examples(".", "test")
    assert [example.label for example in found] == [None, None]
    (tmp_path / "new.jsonl").write_text(lines([row(2), row(0)]))
    found = own.reopened(tmp_path / "new.jsonl", "choices", ()).examples(".", "test")
    assert [example.label for example in found] == [2, 0]


def test_one_column_has_no_choices_of_its_own(tmp_path):
    (tmp_path / "a.csv").write_text("question,choice1,label\nwho,a,0\n")
    table = tables.read(tmp_path / "a.csv")
    assert own_choices.numbered(table) == ""
    assert own_choices.separate(table, " choice1 ") == ()


def test_no_questions_have_features_of_none(tmp_path):
    task = opened(tmp_path, lines([row(0)]))
    found = task.features([], small_tasks.tokenizer(), 9)
    assert (found.input_ids.shape, found.exists.shape, found.cut_off) == ((0, 2, 9), (0, 2), 0)


BAD = [
    (row(3), r"label: got 3, expected the text of a choice or a number from 0 to 2"),
    (row("a bird"), r"label: got 'a bird', expected the text of a choice or a number from 0 to 2"),
    (
        row("D", {"text": CHOICES, "label": ["X", "Y", "Z"]}),
        r"label: got 'D', .* one of the names X, Y, Z",
    ),
    (row(""), r"missing the label 'label'"),
    (row(0, ["a"]), r"choices: got \['a'\], expected a list of at least two texts"),
    (row(0, "a dog"), r"choices: got 'a dog', expected a list, in JSON"),
    (row(0, ["a", 2]), r"choices: got 2 among the choices, expected texts"),
    (row(0, ["a", "a"]), r"choices: got the same choice twice, expected different ones"),
    (row(0, {"text": CHOICES, "label": ["A"]}), r"choices: got 1 names of 3 choices, expected as many"),
    (row(0, question=""), r"question: the text is empty"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_every_mistake_is_one_line(tmp_path, bad, message):
    task = opened(tmp_path, lines([row(0), bad]))
    with pytest.raises(ValueError, match=rf"train\.jsonl, line 2: {message}") as error:
        task.examples(".", "train")
    assert "\n" not in str(error.value)
