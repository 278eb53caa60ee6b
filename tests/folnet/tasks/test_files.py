"""Numbered lines and tables of predictions."""

import pytest

from folnet.tasks import files as task_files


def test_only_a_line_feed_ends_a_line(tmp_path):
    """Other Unicode line ends are kept as text; a byte order mark and carriage returns are removed."""
    path = tmp_path / "a.tsv"
    path.write_bytes("\ufeffa\tb\r\nc\x85d\u2028\x0be\tf\rg\n".encode())
    assert task_files.lines_of(path) == ["a\tb", "c\x85d\u2028\x0be\tf\rg"]
    assert task_files.tab_separated(path) == (["a", "b"], [(2, ["c\x85d\u2028\x0be", "f\rg"])])
    named = task_files.tab_separated(path, ("x", "y"))
    assert named.names == ["x", "y"]
    assert [number for number, _ in named.rows] == [1, 2]


def test_files_that_cannot_be_read(tmp_path):
    """The error names the file."""
    with pytest.raises(ValueError, match=r"none\.tsv: No such file"):
        task_files.text_of(tmp_path / "none.tsv")
    (tmp_path / "bytes.tsv").write_bytes(b"\n\xff\n")
    with pytest.raises(ValueError, match=r"bytes\.tsv, line 2: not UTF-8"):
        task_files.text_of(tmp_path / "bytes.tsv")
    (tmp_path / "empty.tsv").write_text(" \n")
    with pytest.raises(ValueError, match=r"empty\.tsv, line 1: the file is empty"):
        task_files.text_of(tmp_path / "empty.tsv")


def test_predictions_are_written_whole_or_not_at_all(tmp_path):
    """An interrupted write leaves the previous file and no other."""
    path = task_files.write_predictions(tmp_path / "new" / "RTE.tsv", [("0", "entailment"), ("1", "x")])
    assert path.read_bytes() == b"index\tprediction\n0\tentailment\n1\tx\n"

    def broken():
        yield "0", "y"
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        task_files.write_predictions(path, broken())
    assert task_files.read_predictions(path) == {"0": "entailment", "1": "x"}
    assert [file.name for file in path.parent.iterdir()] == ["RTE.tsv"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "id\tprediction\n",
            r"line 1: got the header \['id', 'prediction'\], expected \['index', 'prediction'\]",
        ),
        ("index\tprediction\n0\n", "line 2: got 1 fields, expected 2"),
        ("index\tprediction\n0\ta\n0\tb\n", "line 3: duplicate index 0"),
    ],
)
def test_damaged_predictions(tmp_path, text, error):
    """The error names the line."""
    path = tmp_path / "RTE.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=error):
        task_files.read_predictions(path)
