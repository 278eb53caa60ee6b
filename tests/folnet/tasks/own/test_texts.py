"""Texts of your own with labels: what is found in files, windows, and one line for every mistake."""

import dataclasses

import numpy as np
import pytest

from folnet.tasks import tables
from folnet.tasks.interface import Example
from folnet.tasks.own import texts
from tests.folnet import small_tasks
from tests.folnet.tasks.own.files import lines, opened, read_all

ROWS = [{"text": "good film", "label": "yes"}, {"text": " bad film ", "label": "no"}] * 2


def test_texts_with_names_of_classes(tmp_path):
    task = opened(tmp_path, lines(ROWS))
    assert (task.columns, task.classes, task.metrics) == (
        ("text", None, "label"),
        ("no", "yes"),
        ("accuracy",),
    )
    assert list(task.examples(".", "train"))[:2] == [
        Example("0", "good film", None, 1),
        Example("1", "bad film", None, 0),
    ]
    features = task.features(task.examples(".", "validation"), small_tasks.tokenizer(), 8)
    assert features.label.tolist() == [1, 0, 1, 0]
    assert task.written(1) == "yes"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'premise,hypothesis,label\n"a, ""b""\nc",d,10\n\ne,f,9\n'),
        ("a.tsv", 'premise\thypothesis\tlabel\na, "b" c\td\t10\ne\tf\t9\n'),
        ("a.jsonl", lines([{"premise": 'a, "b" c', "hypothesis": "d", "label": 10},
                           {"label": 9.0, "premise": "e", "hypothesis": "f"}])),
    ],
)  # fmt: skip
def test_pairs_with_numbers_of_classes_in_every_format(tmp_path, name, text):
    """Classes that are integers are in their order; a quoted field may have commas, quotes and lines."""
    task = opened(tmp_path, text, name=name)
    assert task.classes == ("9", "10")
    one, other = task.examples(".", "train")
    assert (one.first.replace("\n", " "), one.second, one.label) == ('a, "b" c', "d", 1)
    assert (other.first, other.second, other.label) == ("e", "f", 0)


def test_numbers_that_are_not_all_integers(tmp_path):
    rows = [{"sentence": f"text {n}", "score": score} for n, score in enumerate((0, "2.5", 1.25, 4))]
    task = opened(tmp_path, lines(rows))
    assert (task.classes, task.bounds, task.metrics) == ((), (0, 4), ("pearson", "spearman"))
    assert [example.label for example in task.examples(".", "train")] == [0, 2.5, 1.25, 4]
    assert task.written(7.0) == "4.00000"
    integers = opened(tmp_path, lines([{"sentence": "a", "score": n} for n in (1, 2, 3)]), kind="number")
    assert integers.bounds == (1, 3)
    as_classes = opened(tmp_path, lines(rows), kind="class")
    assert as_classes.classes == ("0", "1.25", "2.5", "4")


def test_columns_are_those_that_are_named_or_the_only_one_left(tmp_path):
    rows = [{"id": "7", "body": "a", "title": "b", "verdict": True}, {"id": "8", "body": "c", "title": "d",
            "verdict": False}]  # fmt: skip
    task = opened(tmp_path, lines(rows), first="title", second="body", label="verdict")
    assert task.columns == ("title", "body", "verdict")
    assert task.classes == ("False", "True")
    task = opened(tmp_path, "body,label\na,0\nb,1\n", name="a.csv")
    assert task.columns == ("body", None, "label")
    table = tables.read(tmp_path / "a.csv")
    assert texts.columns_of(table._replace(names=("body",)), labelled=False) == ("body", None, "label")
    pair = table._replace(names=("premise", "hypothesis"))
    assert texts.columns_of(pair, labelled=False) == ("premise", "hypothesis", "label")


def test_half_as_many_classes_as_rows_are_not_too_many(tmp_path):
    """Nor are as many as the most; one more is."""
    for count in (3, texts.MOST_CLASSES):
        rows = [{"text": "a", "label": n} for n in range(count)] * 2
        assert len(opened(tmp_path, lines(rows)).classes) == count
    for count, missing in ((3, 1), (texts.MOST_CLASSES + 1, 0)):
        rows = [{"text": "a", "label": n} for n in [*range(count), *range(count - missing)]]
        with pytest.raises(ValueError, match=f"got {count} different labels in {len(rows)} rows"):
            opened(tmp_path, lines(rows))


def test_a_test_split_may_lack_labels(tmp_path):
    task = opened(tmp_path, lines(ROWS))
    for text in (lines([{"text": "a"}]), lines([{"text": "a", "label": None}, {"text": "b", "label": "no"}])):
        (tmp_path / "new.jsonl").write_text(text, encoding="utf-8")
        found = task.of_table(tables.read(tmp_path / "new.jsonl"), labelled=False)
        assert {example.label for example in found} == {None}
    (tmp_path / "new.jsonl").write_text(lines(ROWS), encoding="utf-8")
    found = task.of_table(tables.read(tmp_path / "new.jsonl"), labelled=False)
    assert [example.label for example in found] == [1, 0, 1, 0]


BAD = [
    ("", "", {}, r"train\.jsonl, line 1: the file is empty"),
    ("not json\n", "", {}, r"train\.jsonl, line 1: not JSON"),
    ('{"text": "a", "label": 1}\n[1]\n', "", {}, r"train\.jsonl, line 2: got \[1\], expected an object"),
    ("[" * 100_000 + "\n", "", {}, r"train\.jsonl, line 1: not JSON"),
    (lines([{"text": "a"}]), "", {}, r"label: got none of 'label', .* the columns 'text' of .*train\.jsonl"),
    (lines([{"x": "a", "y": "b", "label": 1}]), "", {}, r"first: got the columns 'x', 'y', 'label' of"),
    (lines(ROWS), "", {"first": "body"}, r"first: got 'body', expected one of the columns 'text', 'label'"),
    (lines(ROWS), "", {"second": "body"}, r"second: got 'body', expected one of the columns"),
    (lines(ROWS), "", {"second": "text"}, r"second: got 'text', expected the column of the first texts, too"),
    (lines(ROWS), "", {"label": "class"}, r"label: got 'class', expected one of the columns"),
    (lines([*ROWS, {"label": "no"}]), "", {}, r"train\.jsonl, line 5: missing 'text'"),
    (lines([*ROWS, {"text": "a"}]), "", {}, r"train\.jsonl, line 5: missing the label 'label'"),
    (lines([*ROWS, {"text": "a", "label": " "}]), "", {}, r"line 5: missing the label 'label'"),
    (lines([*ROWS, {"text": 3, "label": "no"}]), "", {}, r"line 5: text: got 3, expected a text"),
    (lines([*ROWS, {"text": " ", "label": "no"}]), "", {}, r"line 5: text: the text is empty"),
    (lines([*ROWS, {"text": "a", "label": ["no"]}]), "", {}, r"line 5: label: got \['no'\], expected a text"),
    (lines([*ROWS, {"text": "a", "label": float("nan")}]), "", {}, r"line 5: label: got nan, expected"),
    (lines(ROWS[:1] * 3), "", {}, r"train\.jsonl: got the label 'yes' in all 3 rows, expected at least two"),
    (lines([{"text": "a", "label": n} for n in range(9)]), "", {}, r"got 9 different labels in 9 rows of"),
    (lines(ROWS), "", {"kind": "number"}, r"line 1: got the label 'yes', expected a number"),
    (lines([{"text": "a", "label": 10**400}] * 2), "", {"kind": "number"}, r"line 1: got the label 10+"),
    (lines([{"text": "a", "label": 2.5}] * 2), "", {}, r"got the label '2\.5' in all 2 rows"),
    (lines(ROWS), lines([{"text": "a", "label": "maybe"}]), {},
     r"dev\.jsonl, line 1: got the label 'maybe', expected 'no' or 'yes', the labels of the training split"),
    (lines(ROWS), lines([{"text": "a"}]), {}, r"dev\.jsonl, line 1: missing the label 'label'"),
    (lines(ROWS), lines([{"sentence": "a", "label": "no"}]), {}, r"dev\.jsonl, line 1: missing 'text'"),
    (lines([{"text": "a", "label": n / 2} for n in range(4)]), lines([{"text": "a", "label": "x"}]), {},
     r"dev\.jsonl, line 1: got the label 'x', expected a number"),
]  # fmt: skip


@pytest.mark.parametrize(("train", "dev", "options", "message"), BAD)
def test_every_mistake_is_one_line(tmp_path, train, dev, options, message):
    with pytest.raises(ValueError, match=message) as error:
        read_all(tmp_path, train, dev, **options)
    assert "\n" not in str(error.value)


def test_a_missing_file_of_a_split(tmp_path):
    task = opened(tmp_path, lines(ROWS))
    (tmp_path / "dev.jsonl").unlink()
    with pytest.raises(ValueError, match=r"validation: got .*dev\.jsonl, expected an existing file"):
        task.check(".", ["train", "validation"])
    with pytest.raises(ValueError, match=r"validation: got .*dev\.jsonl"):
        task.examples(".", "validation")


LONG = "the dog sat on it . the cat sat on it . the man sat ."


@pytest.mark.parametrize(("question", "room"), [("", 10), ("is it a good book", 6), ("is it", 7)])
def test_long_texts_are_read_in_windows(tmp_path, question, room):
    """Windows have all pieces, half of each in the next one, too; a pair's first text is in all of them."""
    rows = [{"text": "a book", "label": 1}, {"text": LONG, "label": 2}]
    if pairs := bool(question):
        rows = [{"question": question, "answer": row["text"], "label": row["label"]} for row in rows]
    task = dataclasses.replace(opened(tmp_path, lines(rows)), stride=100, query_length=3)
    tokenizer = small_tasks.tokenizer()
    found = task.features(task.examples(".", "train"), tokenizer, 12)
    stride, begin = (3, 9 - room + 2) if pairs else (4, 1)
    pieces = tokenizer.ids([LONG])[0]
    asked = tokenizer.ids([question])[0][:3]
    assert found.example is not None
    assert found.example.tolist() == [0] + [1] * (len(found.example) - 1)
    np.testing.assert_array_equal(found.label, found.example)  # classes are in the order of their numbers
    seen: dict[int, int] = {}
    for number, row in enumerate(found.input_ids[1:]):
        part = pieces[number * stride : number * stride + room]
        middle = [tokenizer.cls_id, *asked, tokenizer.sep_id] if pairs else [tokenizer.cls_id]
        expected = [*middle, *part, tokenizer.sep_id]
        assert row[: len(expected)].tolist() == expected
        assert row[len(expected) :].tolist() == [tokenizer.pad_id] * (12 - len(expected))
        assert found.token_type_ids[number + 1, begin : begin + len(part)].tolist() == [int(pairs)] * len(
            part
        )
        seen |= dict.fromkeys(range(number * stride, number * stride + len(part)), number)
    assert sorted(seen) == list(range(len(pieces)))
    assert found.cut_off == 0
    logits = np.random.default_rng(0).normal(size=(len(found.example), 2)).astype(np.float32)
    means = task.of_windows(found, logits)
    np.testing.assert_allclose(means, [logits[0], logits[1:].mean(axis=0)], rtol=1e-6)


def test_texts_that_are_cut_off_are_counted(tmp_path):
    rows = [{"text": "a b c d e f", "label": 0}, {"text": "a b c d e f g", "label": 1}]
    task = opened(tmp_path, lines(rows))
    found = task.features(task.examples(".", "train"), small_tasks.tokenizer(), 8)
    assert found.cut_off == 1
    np.testing.assert_array_equal(task.of_windows(found, np.eye(2)), np.eye(2))
    pairs = [{"first": "a b", "second": "a b c", "label": n} for n in range(2)]
    task = opened(tmp_path, lines(pairs))
    for length, cut_off in ((8, 0), (7, 2)):
        assert task.features(task.examples(".", "train"), small_tasks.tokenizer(), length).cut_off == cut_off
