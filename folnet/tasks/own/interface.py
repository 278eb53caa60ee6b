"""What tasks of your own data share: where their splits are, and which columns they read."""

import abc
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from folnet.tasks import tables
from folnet.tasks.files import damaged
from folnet.tasks.interface import Task
from folnet.tasks.tables import Source, Table

NAME = "own"
SPLITS = ("train", "validation", "test")
LENGTH = 128
"""Tokens per example unless another number is given."""


class Columns(NamedTuple):
    """Names of the columns that are read; `second` is None where there is one text."""

    first: str
    second: str | None
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTask[E, F](Task[E, F]):
    """A task of your own data; `open_own` finds columns and classes."""

    files: tuple[tuple[str, Source], ...]
    """Where each split is."""
    columns: Columns
    stride: int = 0
    """Tokens from the start of one window to the start of the next, of texts longer than a window."""
    query_length: int = 0
    """Maximum number of tokens of a text that all windows share."""

    def find(self, directory: Path, split: str) -> Source | None:
        """Returns where a split is, wherever `directory` is."""
        del directory
        found = dict(self.files)[split]
        return None if tables.missing(found) else found

    def looked_for(self, split: str) -> str:
        """Returns the name of the file or data set."""
        return str(dict(self.files)[split])

    def check(self, directory: str | os.PathLike[str], splits: Sequence[str] | None = None) -> None:
        """Checks that the splits exist, wherever `directory` is; see `Task.check`."""
        for split, found in self.files:
            if (splits is None or split in splits) and (wanted := tables.missing(found)):
                raise ValueError(f"{split}: got {found}, expected {wanted}")

    def examples(self, directory: str | os.PathLike[str], split: str) -> Sequence[E]:
        """Reads a split; see `Task`."""
        return self.of_table(tables.read(self.place(directory, split)), labelled=split != "test")

    @abc.abstractmethod
    def of_table(self, table: Table, *, labelled: bool) -> Sequence[E]:
        """Returns the rows of a table as examples; unless `labelled`, they may lack labels.

        Raises:
            ValueError: a value is missing or unknown, with file and line.
        """

    def label_of(self, table: Table, line: int, value: Any) -> int:
        """Returns the number of a label's class; raises ValueError with file and line if it is unknown."""
        if (name := class_name(value)) not in self.classes:
            few = self.classes[:8]
            more = f" or {len(self.classes) - 8} more" if len(self.classes) > 8 else ""
            raise damaged(
                table.path,
                line,
                f"got the label {name!r}, expected {' or '.join(map(repr, few))}{more}, "
                "the labels of the training split",
            )
        return self.classes.index(name)


def named(table: Table, **columns: str) -> None:
    """Checks that the columns that are named exist; raises ValueError that names the role if one does not."""
    shown = ", ".join(map(repr, table.names))
    for role, name in columns.items():
        if name and name not in table.names:
            raise ValueError(f"{role}: got {name!r}, expected one of the columns {shown} of {table.path}")


def usual(table: Table, role: str, given: str, names: Sequence[str]) -> str:
    """Returns the column of a role: the one that is named, or one of usual names.

    Raises:
        ValueError: none is named, and there is none of the usual names.
    """
    found = given or next((name for name in names if name in table.names), "")
    if not found:
        shown = ", ".join(map(repr, table.names))
        raise ValueError(
            f"{role}: got none of {', '.join(map(repr, names))} among the columns {shown} of {table.path}, "
            "expected the name of a column"
        )
    return found


def ordered(names: set[str]) -> tuple[str, ...]:
    """Returns names of classes in the order of their numbers: integers by value, others by name."""
    integers = all(name.removeprefix("-").isdecimal() for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if integers else None))


def class_name(value: str | int | float | bool) -> str:
    """Returns the name of a class; 1 and 1.0 are the same."""
    return str(int(value)) if isinstance(value, float) and value == int(value) else str(value)
