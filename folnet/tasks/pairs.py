"""Files of inputs and targets, for models that write a text given another: JSON lines, CSV, TSV, Parquet.

    pairs = read("train.jsonl")  # [Pair("2 + 3", "5"), ...], from the columns "input" and "target"

A column of usual name is found; others are named.
"""

from pathlib import Path
from typing import NamedTuple

from folnet.tasks import tables

COLUMNS = (
    ("input", "target"),
    ("source", "target"),
    ("input", "output"),
    ("prompt", "completion"),
    ("question", "answer"),
    ("document", "summary"),
)
"""Usual names of the columns, the more usual first."""


class Pair(NamedTuple):
    """An input and its target."""

    input: str
    target: str


def read(path: Path, input: str = "", target: str = "") -> list[Pair]:
    """Reads the rows of a file; see `tables.read`.

    Args:
        path: the file.
        input: column of the inputs; "" finds both columns by their usual names.
        target: column of the targets.

    Raises:
        ValueError: the file is missing or damaged (with the line), a column is missing, or a text is.
    """
    table = tables.read(path)
    columns = columns_of(table, input, target)
    return [Pair(*(tables.text_at(path, line, row, name) for name in columns)) for line, row in table.rows]


def columns_of(table: tables.Table, input: str, target: str) -> tuple[str, str]:
    """Returns the columns of inputs and targets; raises ValueError unless both are named or usual."""
    names = set(table.names)
    found = next((pair for pair in COLUMNS if set(pair) <= names), ("", ""))
    if bool(input) != bool(target):
        missing, given = ("target", "input") if input else ("input", "target")
        raise ValueError(f"{missing}: got none, expected a column, as {given} is named")
    found = (input, target) if input else found
    shown = ", ".join(map(repr, table.names))
    for role, name in zip(Pair._fields, found, strict=True):
        if name not in names:
            usual = "" if name else f" or usual names such as {' and '.join(map(repr, COLUMNS[0]))}"
            raise ValueError(
                f"{role}: got {name!r}, expected one of the columns {shown} of {table.path}{usual}"
            )
    return found
