"""Documents in text files and array_record files."""

import pickle

import pytest

from folnet.pretraining.records import write_records
from folnet.pretraining.sources import ArrayRecordTexts, TextFiles, open_documents


def test_a_file_is_a_document(tmp_path, monkeypatch):
    """Sorted by name, including subfolders; paragraphs are unwrapped; a byte order mark is removed."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two.txt").write_bytes("zwei\nWörter\r\n\r\nund mehr".encode("utf-8-sig"))
    (tmp_path / "a.txt").write_text("one", encoding="utf-8")
    (tmp_path / "notes.md").write_text("not text", encoding="utf-8")
    documents = TextFiles(tmp_path)
    assert [document.text for document in documents] == ["one", "zwei Wörter\nund mehr"]
    assert documents[1].name == str(tmp_path / "b" / "two.txt")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [document.text for document in TextFiles("~/a.txt")] == ["one"]
    with pytest.raises(ValueError, match=r"path: got .*nowhere\.txt, expected a text file or a folder"):
        TextFiles(tmp_path / "nowhere.txt")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_blank_lines_between_documents(tmp_path, newline, end):
    """Lines are kept.

    Documents are separated by any number of blank lines, which may contain white space and occur at both ends
    of a file.
    """
    text = f"\n \nA first. Line\nsecond líne\n\t \n\n\nB\n\nC one\nC two{end}"
    (tmp_path / "x.txt").write_bytes(text.replace("\n", newline).encode())
    (tmp_path / "y.txt").write_text("D", encoding="utf-8")
    documents = pickle.loads(pickle.dumps(TextFiles(tmp_path, blank_lines=True)))
    texts = [document.text.strip() for document in documents]
    assert texts == ["A first. Line\nsecond líne", "B", "C one\nC two", "D"]
    assert documents[2].name == f"{tmp_path / 'x.txt'}, document 2"
    assert documents[3].name == f"{tmp_path / 'y.txt'}, document 0"


def test_array_records(tmp_path, monkeypatch):
    """One text per record, across several files; another process opens new readers."""
    texts = [f"text {number}\nof ☃" for number in range(23)]
    write_records(tmp_path / "t.array_record-00000-of-00002", (text.encode() for text in texts[:20]))
    write_records(tmp_path / "t.array_record-00001-of-00002", (text.encode() for text in texts[20:]))
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    documents = pickle.loads(pickle.dumps(ArrayRecordTexts(f"~/{tmp_path.name}")))
    assert [document.text for document in documents] == texts
    assert documents[21].name == f"{tmp_path / 't.array_record-00001-of-00002'}, record 1"


def test_opened_by_what_lies_there(tmp_path):
    """Without any documents there is an error."""
    (tmp_path / "one.txt").write_text("a\n\nb", encoding="utf-8")
    assert len(open_documents(tmp_path)) == 1
    assert len(open_documents(tmp_path, blank_lines=True)) == 2
    assert len(open_documents(tmp_path / "one.txt")) == 2
    assert len(open_documents(tmp_path / "one.txt", blank_lines=False)) == 1
    (tmp_path / "records").mkdir()
    path = tmp_path / "records" / "t.array_record"
    write_records(path, [b"x", b"y", b"z"])
    assert len(open_documents(path)) == len(open_documents(tmp_path / "records")) == 3
    assert open_documents("python").name == "the Python language reference"
    with pytest.raises(ValueError, match=r"source: got .*nowhere, which does not exist, expected 'python'"):
        open_documents(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"path: got .*empty, expected a text file or a folder"):
        open_documents(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"path: got .*empty, expected an array_record file"):
        ArrayRecordTexts(tmp_path / "empty")


def test_damaged_text_is_named_by_file_and_line(tmp_path):
    """On reading, with and without blank lines between documents."""
    (tmp_path / "bad.txt").write_bytes(b"one\n\ntwo\nthr\xffee\n")
    for blank_lines, index in ((False, 0), (True, 1)):
        with pytest.raises(ValueError, match=r"bad\.txt, line 4: not UTF-8"):
            TextFiles(tmp_path, blank_lines=blank_lines)[index]
    (tmp_path / "bad.txt").write_bytes(b" \n\n")
    with pytest.raises(ValueError, match=r"path: got .*bad\.txt, which is empty, expected some text"):
        TextFiles(tmp_path / "bad.txt", blank_lines=True)
    write_records(tmp_path / "bad.array_record", [b"fine", b"b\xffd"])
    with pytest.raises(ValueError, match=r"bad\.array_record, record 1: not UTF-8 .* at byte 1"):
        ArrayRecordTexts(tmp_path / "bad.array_record")[1]
