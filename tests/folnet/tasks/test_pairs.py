"""Files of inputs and targets: what is found in them, and one line for every mistake."""

import json

import pytest

from folnet.tasks import pairs
from folnet.tasks.pairs import Pair


def written(folder, text, name="a.jsonl"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("names", pairs.COLUMNS)
def test_columns_of_usual_names_are_found(tmp_path, names):
    rows = [dict(zip(names, ("2 + 3", " 5 "), strict=True)) | {"id": 1}]
    path = written(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    assert pairs.read(path) == [Pair("2 + 3", "5")]


def test_named_columns_of_a_csv_file(tmp_path):
    path = written(tmp_path, 'a,input,target,b\nw,x,y,"z, z"\n', "a.csv")
    assert pairs.read(path) == [Pair("x", "y")]
    assert pairs.read(path, "b", "a") == [Pair("z, z", "w")]
    assert pairs.read(written(tmp_path, "input\ttarget\n1\t2\n", "a.tsv")) == [Pair("1", "2")]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a,b\n1,2\n", ("", ""), "input: got '', expected one of the columns 'a', 'b' of .* or usual names"),
        ("a,b\n1,2\n", ("a", ""), "target: got none, expected a column, as input is named"),
        ("a,b\n1,2\n", ("", "b"), "input: got none, expected a column, as target is named"),
        ("a,b\n1,2\n", ("a", "c"), "target: got 'c', expected one of the columns 'a', 'b' of .*a.csv$"),
        ("a,b\n1,2\n3,\n", ("a", "b"), r"a\.csv, line 3: "),
        ("", ("", ""), r"a\.csv"),
    ],
)
def test_what_is_refused(tmp_path, text, columns, message):
    path = written(tmp_path, text, "a.csv")
    with pytest.raises(ValueError, match=message):
        pairs.read(path, *columns)
