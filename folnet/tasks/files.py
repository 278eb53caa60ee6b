"""Files of tasks: numbered lines, errors that name file and line, and predictions written atomically."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from logic_zoo.writing import write_whole

HEADER = ("index", "prediction")
"""The first line of GLUE's submission files."""


def damaged(path: object, line: int, problem: str) -> ValueError:
    """Returns the error for a row of a file, or of what `path` names, that cannot be read."""
    return ValueError(f"{path}, line {line}: {problem}")


def text_of(path: Path) -> str:
    """Returns a file's text without a byte order mark; raises ValueError with the line if it is not UTF-8."""
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
    """Returns the lines of a file, line n at index n - 1; raises like `text_of`.

    Only a line feed ends a line: sentences of these data sets contain characters such as U+0085 or U+2028, at
    which `str.splitlines` would split.
    """
    lines = text_of(path).split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


class Table(NamedTuple):
    """A table with tab-separated columns."""

    names: list[str]
    """Names of the columns."""
    rows: list[tuple[int, list[str]]]
    """Line number and fields of each row; the number of fields may differ from that of the names."""


def tab_separated(path: Path, names: Sequence[str] | None = None) -> Table:
    """Reads a table; `names` are the columns' if the first line is not a header. Raises like `text_of`.

    Quotes are ordinary characters.
    """
    rows = [(number, line.split("\t")) for number, line in enumerate(lines_of(path), start=1)]
    return Table(rows[0][1], rows[1:]) if names is None else Table(list(names), rows)


def write_predictions(path: str | os.PathLike[str], rows: Iterable[tuple[str, str]]) -> Path:
    """Writes predictions in the format of GLUE's server: `index` and `prediction`, separated by a tab."""
    return write_whole(path, "".join("\t".join(row) + "\n" for row in (HEADER, *rows)))


def read_predictions(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads such a table; raises ValueError with the line if it is malformed or repeats an index."""
    path, found = Path(path).expanduser(), {}
    table = tab_separated(path)
    if tuple(table.names) != HEADER:
        raise damaged(path, 1, f"got the header {table.names}, expected {list(HEADER)}")
    for number, fields in table.rows:
        if len(fields) != len(HEADER):
            raise damaged(path, number, f"got {len(fields)} fields, expected {len(HEADER)}")
        if fields[0] in found:
            raise damaged(path, number, f"duplicate index {fields[0]}")
        found[fields[0]] = fields[1]
    return found
