"""Tables: files of every format, data sets by their names, and errors that name file and line."""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import tensorflow_datasets as tfds

from folnet.tasks import own, tables
from tests.folnet.tasks.own.files import opened

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


def test_names_of_columns_have_no_spaces_around_them(tmp_path):
    (tmp_path / "a.csv").write_text(" text , label\na,1\n")
    table = tables.read(tmp_path / "a.csv")
    assert tuple(table.names) == ("text", "label")
    assert [dict(row) for _, row in table.rows] == [{"text": "a", "label": "1"}]


def test_columns_of_json_lines_are_those_of_all_rows(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"b": 1}\n{"c": 1, "b": 2}\n{"a": 1}\n')
    assert tables.read(tmp_path / "a.jsonl").names == ("b", "c", "a")


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
    task: Any = own.open_own({"train": scores, "validation": scores})
    assert task.bounds == (0.5, 2.0)
    missing = written("missing.parquet", text=texts, label=["a", "b", None])
    with pytest.raises(ValueError, match=r"missing\.parquet, line 3: missing the label 'label'"):
        own.open_own({"train": missing, "validation": missing})
    assert tables.read(written("one.parquet", text=texts[:1])).rows == [(1, {"text": texts[0]})]
    with pytest.raises(ValueError, match=r"empty\.parquet, line 1: the file has no rows"):
        tables.read(written("empty.parquet", text=pyarrow.array([], pyarrow.string())))
    (tmp_path / "broken.parquet").write_bytes(train.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"broken\.parquet: not Parquet \("):
        tables.read(tmp_path / "broken.parquet")
    with pytest.raises(ValueError, match=r"none\.parquet: .*No such file"):
        tables.read(tmp_path / "none.parquet")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n\xff\xfe\n')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: not UTF-8"):
        tables.read(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match=r"b\.csv: No such file"):
        tables.read(tmp_path / "b.csv")


@pytest.mark.parametrize(
    ("name", "library", "called", "part"),
    [
        ("tfds:glue/rte:validation", "tfds", "glue/rte", "validation"),
        ("tfds:imdb_reviews", "tfds", "imdb_reviews", "test"),
        ("datasets:nyu-mll/glue,rte:train[:90%]", "datasets", "nyu-mll/glue,rte", "train[:90%]"),
    ],
)
def test_names_of_data_sets(name, library, called, part):
    found = tables.source(name, "test", "data")
    assert found == tables.Named(library, called, part, Path("data"))
    assert str(found) == f"{library}:{called}:{part}"


def test_other_names_are_files(tmp_path):
    assert tables.source("~/a.csv") == Path("~/a.csv").expanduser()
    assert tables.source("s3:bucket/a.csv") == Path("s3:bucket/a.csv")
    assert tables.source("tfds") == Path("tfds")
    with pytest.raises(ValueError, match=r"got 'tfds::train', expected tfds:NAME or tfds:NAME:SPLIT"):
        tables.source("tfds::train")
    found: Any = tables.source("tfds:x")
    assert found.directory == Path("~/tensorflow_datasets").expanduser()


with tfds.core.registered.skip_registration():

    class Reviews(tfds.core.GeneratorBasedBuilder):
        """Texts with a class, one of which is missing, and words with classes."""

        VERSION = tfds.core.Version("1.0.0")
        url_infos = {}  # noqa: RUF012 -- nothing is downloaded

        def _info(self):
            features = {
                "text": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["no", "yes"]),
                "tags": tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-X"])),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for number, label in enumerate((1, 0, -1)):
                yield number, {"text": f"text {number}", "label": label, "tags": [1, 0]}


def test_a_data_set_that_tfds_prepared(tmp_path, monkeypatch):
    """Classes have their names; an unknown one, -1, is missing; rows may come from several chunks."""
    monkeypatch.setattr("folnet.tasks.tfds._CHUNK", 2)
    Reviews(data_dir=tmp_path, file_format="array_record").download_and_prepare()
    source = tables.source("tfds:reviews:train", directory=tmp_path)
    assert tables.missing(source) == ""
    table = tables.read(source)
    assert set(table.names) == {"text", "label", "tags"}
    rows = {row["text"]: (row["label"], row["tags"]) for _, row in table.rows}
    assert rows == {
        "text 0": ("yes", ["B-X", "O"]), "text 1": ("no", ["B-X", "O"]), "text 2": (None, ["B-X", "O"]),
    }  # fmt: skip
    assert [line for line, _ in table.rows] == [1, 2, 3]
    with pytest.raises(ValueError, match=r"tfds:reviews:train, line \d: missing the label 'label'"):
        own.open_own({"train": source, "validation": source}, first="text", label="label", kind="class")
    with pytest.raises(ValueError, match=r"split: got 'dev', expected one of those of "):
        tables.read(tables.source("tfds:reviews:dev", directory=tmp_path))
    other = tables.source("tfds:other:train", directory=tmp_path)
    wanted = f"other prepared in {tmp_path}. Get it: tfds build other --file_format=array_record"
    assert tables.missing(other).startswith(wanted)
    with pytest.raises(ValueError, match=r"tfds:other:train: not found, expected other prepared in"):
        tables.read(other)


@pytest.fixture
def hub(monkeypatch):
    """Stands for the package `datasets`; returns its calls."""
    calls: list[Any] = []

    class Found(list):
        def __init__(self, rows):
            super().__init__(rows)
            self.features = {
                "text": types.SimpleNamespace(),
                "label": types.SimpleNamespace(names=["no", "yes"]),
                "tags": types.SimpleNamespace(feature=types.SimpleNamespace(names=["O", "B-X"])),
            }

    def load_dataset(name, config, *, split):
        calls.append((name, config, split))
        if name == "none":
            raise FileNotFoundError("Couldn't find 'none'\nmore")
        return Found([] if name == "empty" else [{"text": "a", "label": 1, "tags": [0, 1]},
                                                 {"text": "b", "label": -1, "tags": [1]},
                                                 {"text": "c", "label": 2, "tags": [2]}])  # fmt: skip

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    return calls


def test_a_data_set_of_a_hub(hub):
    table = tables.read(tables.source("datasets:user/reviews,small:test[:2]"))
    assert hub == [("user/reviews", "small", "test[:2]")]
    assert [row for _, row in table.rows] == [
        {"text": "a", "label": "yes", "tags": ["O", "B-X"]},
        {"text": "b", "label": None, "tags": ["B-X"]},
        {"text": "c", "label": None, "tags": [None]},
    ]
    tables.read(tables.source("datasets:reviews", "validation"))
    assert hub[1] == ("reviews", None, "validation")
    with pytest.raises(ValueError, match=r"datasets:none:train: not found by the .*: Couldn't find 'none'$"):
        tables.read(tables.source("datasets:none"))
    with pytest.raises(ValueError, match=r"datasets:empty:train, line 1: the data set has no rows"):
        tables.read(tables.source("datasets:empty"))


def test_the_package_itself_reads_a_folder(tmp_path, monkeypatch):
    """Where `datasets` is installed: its own classes of features, its own words for what it lacks."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    features = {
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["no", "yes"]),
        "tags": datasets.List(datasets.ClassLabel(names=["O", "B-X"])),
        "answers": {"text": datasets.List(datasets.Value("string"))},
    }
    rows = [
        {"text": "a", "label": 1, "tags": [0, 1], "answers": {"text": ["a"]}},
        {"text": "b", "label": -1, "tags": [1], "answers": {"text": []}},
    ]
    made = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    made.to_parquet(str(tmp_path / "data" / "train.parquet"))
    table = tables.read(tables.source(f"datasets:{tmp_path}/data:train[:50%]"))
    assert table.rows == [(1, {**rows[0], "label": "yes", "tags": ["O", "B-X"]})]
    second = tables.read(tables.source(f"datasets:{tmp_path}/data")).rows[1][1]
    assert second == {**rows[1], "label": None, "tags": ["B-X"]}
    with pytest.raises(ValueError, match=r'data:dev: not found by the .*: Unknown split "dev"'):
        tables.read(tables.source(f"datasets:{tmp_path}/data:dev"))


def test_without_the_package_of_the_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"datasets:a:train: the package .*: pip install datasets"):
        tables.read(tables.source("datasets:a"))
