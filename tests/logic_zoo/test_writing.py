"""Atomic writes of text and bytes."""

import os

import pytest

from logic_zoo.writing import whole, write_whole


def test_text_and_bytes(tmp_path):
    """Missing folders are created; the path is returned."""
    path = write_whole(tmp_path / "new" / "a.txt", "\u00e9\r\n")
    assert path == tmp_path / "new" / "a.txt"
    assert path.read_bytes() == b"\xc3\xa9\r\n"
    assert write_whole(str(path), b"\x00").read_bytes() == b"\x00"


def test_the_content_is_on_the_disk_before_the_name(tmp_path, monkeypatch):
    """All of it is synchronized, while the file still has its temporary name."""
    seen = []

    def sync(descriptor):
        seen.append((os.fstat(descriptor).st_size, (tmp_path / "a.txt").exists()))

    monkeypatch.setattr("os.fsync", sync)
    write_whole(tmp_path / "a.txt", "abc")
    assert seen == [(3, False)]


def test_the_folder_of_the_user(tmp_path, monkeypatch):
    """A tilde stands for it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write_whole("~/a.txt", "a") == tmp_path / "a.txt"
    assert (tmp_path / "a.txt").read_text() == "a"


def test_what_was_there_stays_if_writing_fails(tmp_path):
    """No other file is left."""
    path = write_whole(tmp_path / "a.txt", "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_that_another_writes(tmp_path):
    """It has its own name when it is complete, and never if the block raises."""
    path = tmp_path / "a.txt"
    with whole(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    with pytest.raises(UnicodeEncodeError), whole(path) as temporary:
        temporary.write_text("newer \ud800")
    assert path.read_text() == "new"
    with pytest.raises(FileNotFoundError), whole(path):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
