"""Files of your own: one or two texts a row, with a class or a number: JSON lines, CSV, TSV, Parquet.

    task = own.open_own({"train": Path("train.jsonl"), "validation": Path("dev.jsonl")})
    task.columns                                    # Columns(first="text", second=None, label="label")
    task.classes                                    # ("negative", "positive"); () if labels are numbers

Everything is found in the training split: columns by their usual names, or the only ones there are; classes
by their names. Other splits must have the same columns and no other labels; a test split may lack labels.
"""

import csv
import dataclasses
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import logic_zoo
from folnet.tasks.files import damaged, lines_of, text_of
from folnet.tasks.interface import Example, Examples, SequenceTask

NAME = "own"
ENDINGS = ".jsonl, .csv, .tsv or .parquet"
SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")
SPLITS = ("train", "validation", "test")
Kind = Literal["", "class", "number"]
PAIRS = (
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "answer"),
    ("first", "second"),
)
SINGLES = ("text", "sentence", "content", "first")
LABELS = ("label", "labels", "class", "target", "score")
"""Usual names of columns, the more usual first."""
MOST_CLASSES = 200
"""A column with more different values than this, or than half of the rows, is not believed to be labels."""
LENGTH = 128
"""Tokens per example unless told otherwise."""


class Columns(NamedTuple):
    """Names of the columns that are read; `second` is None for single texts."""

    first: str
    second: str | None
    label: str


class Table(NamedTuple):
    """The rows of a file, as texts or, from JSON, as any values."""

    path: Path
    names: tuple[str, ...]
    """Names of the columns, those of the first row for JSON lines."""
    rows: Sequence[tuple[int, Mapping[str, Any]]]
    """The line and the values of each row."""


def read(path: Path) -> Table:
    """Reads a file by its ending.

    It is one of .jsonl, .csv (fields may be quoted), .tsv (quotes are plain characters) and .parquet, whose
    rows count as lines. Blank lines are left out.

    Raises:
        ValueError: another ending; or the file is missing, empty, not UTF-8 or damaged, with the line.
    """
    match path.suffix:
        case ".jsonl":
            rows = [(n, _record(path, n, line)) for n, line in enumerate(lines_of(path), 1) if line.strip()]
            return Table(path, tuple(rows[0][1]), rows)
        case ".csv":
            return _fields(path, csv.reader(io.StringIO(text_of(path), newline=""), strict=True))
        case ".tsv":
            text = io.StringIO(text_of(path), newline="")
            return _fields(path, csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE))
        case ".parquet":
            return _columnar(path)
    raise ValueError(f"{path}: got the ending {path.suffix!r}, expected {ENDINGS}")


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise damaged(path, number, f"not JSON ({error})") from error
    if not isinstance(found, dict) or not found:
        raise damaged(path, number, f'got {line.strip():.40}, expected an object such as {{"text": ...}}')
    return found


def _columnar(path: Path) -> Table:
    with logic_zoo.extra("data"):
        import pyarrow.parquet as parquet  # lazily: few files need it

    try:
        file = parquet.ParquetFile(path)
        rows = file.read().to_pylist()
    except FileNotFoundError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (OSError, ValueError) as error:  # which Arrow's errors are
        raise ValueError(f"{path}: not Parquet ({str(error).strip()})") from error
    if not rows:
        raise damaged(path, 1, "the file has no rows")
    return Table(path, tuple(rows[0]), list(enumerate(rows, 1)))


def _fields(path: Path, reader: Any) -> Table:
    rows, line = [], 1
    try:
        for row in reader:
            if any(field.strip() for field in row):
                rows.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        raise damaged(path, line, str(error)) from error
    if not rows:
        raise damaged(path, 1, "all fields are empty")
    (first, names), *rest = rows
    names = [name.strip() for name in names]
    if len(set(names)) < len(names) or not all(names):
        raise damaged(path, first, f"got the header {names}, expected a different name for each column")
    if not rest:
        raise damaged(path, first, "no rows follow the header")
    for line, row in rest:
        if len(row) != len(names):
            raise damaged(path, line, f"got {len(row)} fields, expected {len(names)} as in the header")
    return Table(path, tuple(names), [(line, dict(zip(names, row, strict=True))) for line, row in rest])


def columns_of(
    table: Table, first: str = "", second: str = "", label: str = "", *, labelled: bool = True
) -> Columns:
    """Returns the columns to read: those that are named, and others by their usual names.

    Raises:
        ValueError: a named column is missing, or one that is not named cannot be told from others. Without
            `labelled`, there need not be labels.
    """
    names = table.names
    shown = ", ".join(map(repr, names))
    for role, name in (("first", first), ("second", second), ("label", label if labelled else "")):
        if name and name not in names:
            raise ValueError(f"{role}: got {name!r}, expected one of the columns {shown} of {table.path}")
    label = label or next((name for name in LABELS if name in names), "")
    if labelled and not label:
        raise ValueError(
            f"label: got none of {', '.join(map(repr, LABELS))} among the columns {shown} of {table.path}, "
            "expected the name of the column with labels"
        )
    label = label or LABELS[0]
    if first:
        return Columns(first, second or None, label)
    if second:
        raise ValueError(f"second: got {second!r}, expected the column of the first texts, too")
    for pair in PAIRS:
        if set(pair) <= set(names):
            return Columns(*pair, label)
    singles = [name for name in SINGLES if name in names]
    rest = [name for name in names if name != label]
    if not singles and len(rest) != 1:
        raise ValueError(
            f"first: got the columns {shown} of {table.path}, expected the name of the one with texts, and "
            "for pairs also that of the second"
        )
    return Columns((singles or rest)[0], None, label)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTask(SequenceTask):
    """A task of files of your own; `open_own` finds columns and classes."""

    files: tuple[tuple[str, Path], ...]
    """The file of each split."""
    columns: Columns

    def find(self, directory: Path, split: str) -> Path | None:
        """Returns the file of a split, wherever `directory` is."""
        del directory
        path = dict(self.files)[split]
        return path if path.is_file() else None

    def looked_for(self, split: str) -> str:
        """Returns the name of the file."""
        return str(dict(self.files)[split])

    def check(self, directory: str | os.PathLike[str], splits: Sequence[str] | None = None) -> None:
        """Checks that the files exist, wherever `directory` is; see `Task.check`."""
        for split, path in self.files:
            if (splits is None or split in splits) and not path.is_file():
                raise ValueError(f"{split}: got {path}, expected an existing file")

    def examples(self, directory: str | os.PathLike[str], split: str) -> Examples:
        """Reads a split; see `SequenceTask`."""
        return self.of_table(read(self.place(directory, split)), labelled=split != "test")

    def of_table(self, table: Table, *, labelled: bool) -> Examples:
        """Returns the rows of a table as examples; unless `labelled`, they may lack labels.

        Raises:
            ValueError: a text or a label is missing or unknown, with file and line.
        """
        found = []
        for number, (line, row) in enumerate(table.rows):
            text = text_at(table.path, line, row, self.columns.first)
            second = self.columns.second
            pair = None if second is None else text_at(table.path, line, row, second)
            label = None
            if labelled or row.get(self.columns.label) not in (None, ""):
                label = self._label(table.path, line, row)
            found.append(Example(str(number), text, pair, label))
        if not labelled and any(example.label is None for example in found):
            found = [example._replace(label=None) for example in found]
        return Examples(found)

    def _label(self, path: Path, line: int, row: Mapping[str, Any]) -> int | float:
        value = _label_value(path, line, row, self.columns.label)
        if self.classes:
            if (name := _name(value)) not in self.classes:
                few = self.classes[:8]
                more = f" or {len(self.classes) - 8} more" if len(self.classes) > 8 else ""
                raise damaged(
                    path,
                    line,
                    f"got the label {name!r}, expected {' or '.join(map(repr, few))}{more}, "
                    "the labels of the training split",
                )
            return self.classes.index(name)
        if (number := _number(value)) is None:
            raise damaged(path, line, f"got the label {value!r}, expected a number")
        return number


def open_own(
    files: Mapping[str, Path], *, first: str = "", second: str = "", label: str = "", kind: Kind = ""
) -> OwnTask:
    """Returns the task of some files.

    Args:
        files: the file of each split: "train" and "validation", and optionally "test".
        first: column of the texts; "" finds it.
        second: column of the second texts of pairs.
        label: column of the labels; "" finds it.
        kind: what labels are: "class" or "number"; "" takes numbers that are not all integers as numbers, and
            refuses as many classes as names or identifiers would be.

    Raises:
        ValueError: a file cannot be read (with file and line), columns are missing or ambiguous, or all
            labels are equal.
    """
    table = read(files["train"])
    columns = columns_of(table, first, second, label)
    values = [_label_value(table.path, line, row, columns.label) for line, row in table.rows]
    numbers = [_number(value) for value in values]
    if not (given := kind):
        fractions = None not in numbers and any(float(n) != int(n) for n in numbers if n is not None)
        kind = "number" if fractions else "class"
    common: Any = {
        "name": NAME,
        "splits": tuple(files),
        "files": tuple(files.items()),
        "columns": columns,
        "max_length": LENGTH,
        "download": "it is a file of yours",
    }
    if kind == "number":
        for (line, _), number, value in zip(table.rows, numbers, values, strict=True):
            if number is None:
                raise damaged(table.path, line, f"got the label {value!r}, expected a number")
        bounds = min(n for n in numbers if n is not None), max(n for n in numbers if n is not None)
        _check_several(table, columns, len(set(numbers)), values[0])
        return OwnTask(bounds=bounds, metrics=("pearson", "spearman"), **common)
    names = {_name(value) for value in values}
    integers = all(_is_integer(name) for name in names)
    classes = tuple(sorted(names, key=int) if integers else sorted(names))
    _check_several(table, columns, len(classes), values[0])
    if not given and len(classes) > min(MOST_CLASSES, max(2, len(values) // 2)):
        raise ValueError(
            f"{table.path}: got {len(classes)} different labels in {len(values)} rows of the column "
            f"{columns.label!r}, expected few; name another column, or say which kind they are: 'class' or "
            "'number'"
        )
    return OwnTask(classes=classes, metrics=("accuracy",), **common)


def _check_several(table: Table, columns: Columns, count: int, label: Any) -> None:
    if count < 2:
        raise ValueError(
            f"{table.path}: got the label {_name(label)!r} in all {len(table.rows)} rows, expected at "
            f"least two different ones in the column {columns.label!r}"
        )


def text_at(path: Path, line: int, row: Mapping[str, Any], column: str) -> str:
    """Returns the text in a column of a row; raises ValueError with file and line if there is none."""
    if column not in row:
        raise damaged(path, line, f"missing {column!r}")
    if not isinstance(value := row[column], str):
        raise damaged(path, line, f"{column}: got {value!r:.40}, expected a text")
    if not value.strip():
        raise damaged(path, line, f"{column}: the text is empty")
    return value.strip()


def _label_value(path: Path, line: int, row: Mapping[str, Any], column: str) -> str | int | float | bool:
    value = row.get(column)
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "":
        raise damaged(path, line, f"missing the label {column!r}")
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise damaged(path, line, f"{column}: got {value!r:.40}, expected a text or a number")
    return value


def _name(value: str | int | float | bool) -> str:
    """The name of a class; 1 and 1.0 are the same."""
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)


def _number(value: str | int | float | bool) -> float | None:
    """A label as a finite number; None if it is not one."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is_integer(name: str) -> bool:
    return name.removeprefix("-").isdecimal()
