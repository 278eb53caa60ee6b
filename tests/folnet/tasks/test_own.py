"""Files of your own: what is found in them, and one line for every mistake."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from folnet.tasks import own
from folnet.tasks.interface import Example
from tests.folnet import small_tasks

ROWS = [{"text": "good film", "label": "yes"}, {"text": " bad film ", "label": "no"}] * 2


def lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def opened(folder: Path, train: str, dev: str = "", name: str = "train.jsonl", **options: Any) -> Any:
    """Writes the two files and opens the task; by default the second is as the first."""
    files = {"train": folder / name, "validation": folder / f"dev{Path(name).suffix}"}
    for path, text in zip(files.values(), (train, dev or train), strict=True):
        path.write_text(text, encoding="utf-8")
    return own.open_own(files, **options)


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
    table = own.read(tmp_path / "a.csv")
    assert own.columns_of(table._replace(names=("body",)), labelled=False) == ("body", None, "label")


def test_a_test_split_may_lack_labels(tmp_path):
    task = opened(tmp_path, lines(ROWS))
    for text in (lines([{"text": "a"}]), lines([{"text": "a", "label": None}, {"text": "b", "label": "no"}])):
        (tmp_path / "new.jsonl").write_text(text, encoding="utf-8")
        found = task.of_table(own.read(tmp_path / "new.jsonl"), labelled=False)
        assert {example.label for example in found} == {None}
    (tmp_path / "new.jsonl").write_text(lines(ROWS), encoding="utf-8")
    found = task.of_table(own.read(tmp_path / "new.jsonl"), labelled=False)
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


def read_all(*arguments: Any, **options: Any) -> None:
    task = opened(*arguments, **options)
    for split in task.splits:
        task.examples(".", split)


@pytest.mark.parametrize(("train", "dev", "options", "message"), BAD)
def test_every_mistake_is_one_line(tmp_path, train, dev, options, message):
    with pytest.raises(ValueError, match=message) as error:
        read_all(tmp_path, train, dev, **options)
    assert "\n" not in str(error.value)


BAD_TABLES = [
    ("a.csv", ",,\n , \n", r"a\.csv, line 1: all fields are empty"),
    ("a.csv", "text,label\n", r"a\.csv, line 1: no rows follow the header"),
    ("a.csv", "text,text\na,b\n", r"line 1: got the header \['text', 'text'\], expected a different name"),
    ("a.csv", "text,\na,b\n", r"line 1: got the header \['text', ''\], expected a different name"),
    ("a.csv", 'text,label\n"a\nb",1\nc\n', r"a\.csv, line 4: got 1 fields, expected 2 as in the header"),
    ("a.csv", 'text,label\na,1\n"b,1\n', r"a\.csv, line 3: unexpected end of data"),
    ("a.csv", 'text,label\n"a"b,1\n', r"a\.csv, line 2: ',' expected after '\"'"),
    ("a.tsv", "text\tlabel\na\t1\tb\n", r"a\.tsv, line 2: got 3 fields, expected 2"),
    ("a.txt", "text", r"a\.txt: got the ending '\.txt', expected \.jsonl, \.csv, \.tsv or \.parquet"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD_TABLES)
def test_a_damaged_table_is_named_with_its_line(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, text, name=name)


def test_parquet_files(tmp_path):
    """Values keep their types: numbers are numbers, and a missing one is named by its row."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")

    def written(name, **columns):
        parquet.write_table(pyarrow.table(columns), tmp_path / name)
        return tmp_path / name

    texts = ["a good film", "a dull film", "a film"]
    train = written("train.parquet", review=texts, label=[1, 0, 1])
    task = own.open_own({"train": train, "validation": train}, first="review")
    assert task.classes == ("0", "1")
    assert [example.first for example in task.examples(".", "train")] == texts
    assert [example.label for example in task.examples(".", "train")] == [1, 0, 1]
    scores = written("scores.parquet", text=texts, score=[0.5, 1.0, 2.0])
    assert own.open_own({"train": scores, "validation": scores}).bounds == (0.5, 2.0)
    missing = written("missing.parquet", text=texts, label=["a", "b", None])
    with pytest.raises(ValueError, match=r"missing\.parquet, line 3: missing the label 'label'"):
        own.open_own({"train": missing, "validation": missing})
    with pytest.raises(ValueError, match=r"empty\.parquet, line 1: the file has no rows"):
        own.read(written("empty.parquet", text=pyarrow.array([], pyarrow.string())))
    (tmp_path / "broken.parquet").write_bytes(train.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"broken\.parquet: not Parquet \("):
        own.read(tmp_path / "broken.parquet")
    with pytest.raises(ValueError, match=r"none\.parquet: .*No such file"):
        own.read(tmp_path / "none.parquet")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n\xff\xfe\n')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: not UTF-8"):
        own.read(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match=r"b\.csv: No such file"):
        own.read(tmp_path / "b.csv")
    task = opened(tmp_path, lines(ROWS))
    (tmp_path / "dev.jsonl").unlink()
    with pytest.raises(ValueError, match=r"validation: got .*dev\.jsonl, expected an existing file"):
        task.check(".", ["train", "validation"])
    with pytest.raises(ValueError, match=r"validation: got .*dev\.jsonl"):
        task.examples(".", "validation")
