"""array_record files: random access, and atomic writes."""

import bisect
import functools
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import logic_zoo
from logic_zoo.writing import whole

_KINDS = ("array_record", "arrayrecord")
_OPTIONS = "group_size:8"  # records compressed together: as fast to read as one by one, and a third smaller


def is_record_file(path: Path) -> bool:
    """Returns whether a name is that of an array_record file, such as `name.array_record-00001-of-00004`."""
    return any(kind in path.name for kind in _KINDS)


def record_files(folder: Path, prefix: str = "") -> list[Path]:
    """Returns the array_record files of a folder, sorted by name."""
    return sorted(
        file
        for file in folder.glob(f"{prefix}*")
        if file.is_file() and not file.name.startswith(".") and is_record_file(file)
    )


class Records:
    """The records of several array_record files, concatenated.

    Readers belong to a process; after pickling, another process opens its own.
    """

    def __init__(self, files: Sequence[Path]):
        """Counts the records; raises ValueError if a file is missing or not an array_record file."""
        self.files = [Path(file) for file in files]
        self.sizes: list[int] = [self._reader(number).num_records() for number in range(len(self.files))]
        """Number of records in each file."""
        self._ends: list[int] = np.cumsum(self.sizes).tolist()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def where(self, index: int) -> str:
        """Returns the file and record of an index, for error messages."""
        number, place = self._place(index)
        return f"{self.files[number]}, record {place}"

    def read(self, indices: Sequence[int]) -> list[bytes]:
        """Reads some records; raises ValueError if one cannot be read."""
        of_file: dict[int, list[int]] = {}
        places = [self._place(index) for index in indices]
        for number, place in places:
            of_file.setdefault(number, []).append(place)
        found = {}
        for number, wanted in of_file.items():
            try:
                found[number] = iter(self._reader(number).read(wanted))
            except (RuntimeError, ValueError, IndexError) as error:
                raise ValueError(f"{self.files[number]}: damaged ({error})") from error
        return [next(found[number]) for number, _ in places]

    def _place(self, index: int) -> tuple[int, int]:
        number = bisect.bisect_right(self._ends, index)
        return number, index - (self._ends[number - 1] if number else 0)

    @functools.cached_property
    def _readers(self) -> dict[int, Any]:
        return {}

    def _reader(self, number: int) -> Any:
        if number not in self._readers:
            with logic_zoo.extra("data"):
                from array_record.python import array_record_module

            file = self.files[number]
            if not file.is_file():
                raise ValueError(f"{file}: got no such file, expected an array_record file")
            try:
                reader = array_record_module.ArrayRecordReader(str(file))
            except (RuntimeError, ValueError) as error:
                raise ValueError(f"{file}: not an array_record file, or damaged ({error})") from error
            if not reader.ok():  # the only sign that a file is truncated
                raise ValueError(f"{file}: not an array_record file, or damaged (it has no footer)")
            self._readers[number] = reader
        return self._readers[number]

    def __getstate__(self) -> dict[str, Any]:
        """Excludes the open files."""
        return {key: value for key, value in self.__dict__.items() if key != "_readers"}


def write_records(path: str | os.PathLike[str], records: Iterable[bytes]) -> int:
    """Writes a file atomically and returns its number of records; without records it writes no file."""
    with logic_zoo.extra("data"):
        from array_record.python import array_record_module

    records = iter(records)
    first = list(itertools.islice(records, 1))
    if not first:
        return 0
    count = 0
    with whole(Path(path)) as temporary:
        writer = array_record_module.ArrayRecordWriter(str(temporary), _OPTIONS)
        try:
            for record in itertools.chain(first, records):
                writer.write(record)
                count += 1
        finally:
            writer.close()
    return count
