"""array_record files: random access, atomic writes, detection of damage."""

import pickle

import pytest

from folnet.pretraining.records import Records, is_record_file, record_files, write_records


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"r-{number}.array_record" for number in range(3)]
    for path, count in zip(paths, (10, 1, 25), strict=True):
        made = (f"{path.name} {number}".encode() for number in range(count))
        assert write_records(str(path), made) == count
    return paths


def test_records_in_any_order(files):
    """Across several files, with one record requested twice."""
    records = pickle.loads(pickle.dumps(Records(files)))
    assert len(records) == 36
    assert records.sizes == [10, 1, 25]
    wanted = [35, 0, 10, 11, 9, 0]
    expected = [b"r-2.array_record 24", b"r-0.array_record 0", b"r-1.array_record 0"]
    expected += [b"r-2.array_record 0", b"r-0.array_record 9", b"r-0.array_record 0"]
    assert records.read(wanted) == expected
    assert records.read([]) == []
    assert records.where(11) == f"{files[2]}, record 0"
    assert len(Records([])) == 0


def test_files_of_a_folder(files):
    """Sorted by name, without temporary and other files."""
    folder = files[0].parent
    (folder / ".r-9.array_record.1.tmp").write_bytes(b"")
    (folder / "other.txt").write_bytes(b"")
    assert record_files(folder) == files
    assert record_files(folder, "r-2") == files[2:]
    assert is_record_file(folder / "x.array_record-00000-of-00002")


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    """An interrupted write leaves no file; neither does one without records."""

    def records():
        yield b"one"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_records(tmp_path / "x.array_record", records())
    assert write_records(tmp_path / "y.array_record", []) == 0
    assert list(tmp_path.iterdir()) == []


def test_damage(files):
    """Missing, of another kind, truncated or changed files are named."""
    good = files[2].read_bytes()
    with pytest.raises(ValueError, match=r"nothing\.array_record: got no such file"):
        Records([files[0].parent / "nothing.array_record"])
    for content in (b"", b"not records at all" * 100, good[: len(good) // 2]):
        files[2].write_bytes(content)
        with pytest.raises(ValueError, match=r"r-2\.array_record: not an array_record file, or damaged"):
            Records(files)
    place = good.index(b"r-2.array_record 1") if b"r-2.array_record 1" in good else 200
    files[2].write_bytes(
        good[:place] + bytes(byte ^ 255 for byte in good[place : place + 64]) + good[place + 64 :]
    )
    with pytest.raises(ValueError, match=r"r-2\.array_record: "):
        Records(files).read(list(range(36)))
