"""Files of tasks: lines with numbers, errors that name both, predictions written whole or not at all."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from folnet.writing import write_whole

HEADER = ("index", "prediction")
"""The first line of GLUE's submission files."""


def damaged(path: Path, line: int, problem: str) -> ValueError:
    """The error for a row that cannot be read."""
    return ValueError(f"{path}, line {line}: {problem}")


def text_of(path: Path) -> str:
    """The text of a file without a byte order mark; raises ValueError, with the line, if it is not UTF-8."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    if not data.strip():
        raise damaged(path, 1, "the file is empty")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise damaged(path, line, f"not UTF-8 ({error.reason})") from error


def lines_of(path: Path) -> list[str]:
    """The lines of a file; line n is at place n - 1; raises as `text_of` does.

    Only a line feed ends a line: sentences of these data sets have characters, such as U+0085 or U+2028,
    that `str.splitlines` would take for ends.
    """
    lines = text_of(path).split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


class Table(NamedTuple):
    """A table whose columns are separated by tabs."""

    names: list[str]
    """Of the columns."""
    rows: list[tuple[int, list[str]]]
    """Line number and fields of each; they may be more or fewer than the names."""


def tab_separated(path: Path, names: Sequence[str] | None = None) -> Table:
    """Reads a table, with the columns' names if its first line does not have them; raises as `text_of` does.

    A quote is a character like any other.
    """
    rows = [(number, line.split("\t")) for number, line in enumerate(lines_of(path), start=1)]
    return Table(rows[0][1], rows[1:]) if names is None else Table(list(names), rows)


def write_predictions(path: str | os.PathLike[str], rows: Iterable[tuple[str, str]]) -> Path:
    """Writes a table of predictions as GLUE's server reads it: `index` and `prediction`, a tab between."""
    return write_whole(path, "".join("\t".join(row) + "\n" for row in (HEADER, *rows)))


def read_predictions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads such a table again; raises ValueError, with the line, if it is none or an index is repeated."""
    path, found = Path(path).expanduser(), {}
    table = tab_separated(path)
    if tuple(table.names) != HEADER:
        raise damaged(path, 1, f"the header is {table.names}, expected {list(HEADER)}")
    for number, fields in table.rows:
        if len(fields) != len(HEADER):
            raise damaged(path, number, f"{len(fields)} fields, expected {len(HEADER)}")
        if fields[0] in found:
            raise damaged(path, number, f"index {fields[0]} is there twice")
        found[fields[0]] = fields[1]
    return found
