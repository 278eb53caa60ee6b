"""One or two texts a row, with a class or a number."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from folnet.tasks import windows
from folnet.tasks.files import damaged
from folnet.tasks.interface import Example, Examples, Features, SequenceTask
from folnet.tasks.own.interface import Columns, OwnTask, class_name, named, ordered, usual
from folnet.tasks.tables import Source, Table, text_at
from folnet.tokenization import WordPieceTokenizer

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTask(OwnTask[Example, Features], SequenceTask):
    """Classes of texts or of pairs of texts, or numbers for them.

    With `stride`, long texts are read in windows: the answer to a text is that of the mean of their logits.
    Of a pair the second text is divided. Without, texts are truncated, the longer of a pair first.
    """

    def of_table(self, table: Table, *, labelled: bool) -> Examples:
        """Returns the rows of a table as examples; see `OwnTask`."""
        found = []
        for number, (line, row) in enumerate(table.rows):
            text = text_at(table.path, line, row, self.columns.first)
            second = self.columns.second
            pair = None if second is None else text_at(table.path, line, row, second)
            label = None
            if labelled or row.get(self.columns.label) not in (None, ""):
                label = self._label(table, line, row)
            found.append(Example(str(number), text, pair, label))
        if not labelled and any(example.label is None for example in found):
            found = [example._replace(label=None) for example in found]
        return Examples(found)

    def _label(self, table: Table, line: int, row: Mapping[str, Any]) -> int | float:
        value = label_value(table.path, line, row, self.columns.label)
        if self.classes:
            return self.label_of(table, line, value)
        if (number := _number(value)) is None:
            raise damaged(table.path, line, f"got the label {value!r}, expected a number")
        return number

    def features(
        self, examples: Sequence[Example], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> Features:
        """Returns windows [CLS] text [SEP] or [CLS] first [SEP] second [SEP]; see the class."""
        length = self.max_length if max_length is None else max_length
        pairs = self.columns.second is not None
        first = tokenizer.ids([example.first for example in examples])
        second = tokenizer.ids([str(example.second) for example in examples]) if pairs else None
        behind = [0] * len(first) if second is None else [len(row) + 1 for row in second]
        sizes = [len(row) + more + 2 for row, more in zip(first, behind, strict=True)]
        labels, numbers = self.labels(examples), np.arange(len(examples), dtype=np.int32)
        if not self.stride:
            inputs = tokenizer.assemble(first, second, length=length)
            return Features(*inputs, labels, numbers, sum(size > length for size in sizes))
        stride, query = windows.fitted(length, self.stride, self.query_length if pairs else 0)
        left, right, owner = [], [], []
        for number, row in enumerate(first):
            divided = row if second is None else second[number]
            room = length - 2 if second is None else length - min(len(row), query) - 3
            for start in windows.starts(len(divided), room, stride):
                owner.append(number)
                left.append(row[:query] if pairs else divided[start : start + room])
                right.append(divided[start : start + room])
        inputs = tokenizer.assemble(left, right if pairs else None, length=length)
        numbers = np.asarray(owner, np.int32)
        return Features(*inputs, labels[numbers], numbers, 0)

    def of_windows(self, features: Features, logits: Float[np.ndarray, "W C"]) -> Float[np.ndarray, "N C"]:
        """Returns the logits of texts, the means over their windows."""
        if features.example is None:
            return logits
        count = np.bincount(features.example)
        sums = np.zeros((len(count), logits.shape[1]), np.float64)
        np.add.at(sums, features.example, logits)
        return (sums / count[:, None]).astype(logits.dtype)


def columns_of(
    table: Table, first: str = "", second: str = "", label: str = "", *, labelled: bool = True
) -> Columns:
    """Returns the columns to read: those that are named, and others by their usual names.

    Raises:
        ValueError: a named column is missing, or several may be one that is not named. Without `labelled`,
            labels may be missing.
    """
    names = table.names
    named(table, first=first, second=second, label=label if labelled else "")
    if labelled:
        label = usual(table, "label", label, LABELS)
    label = label or next((name for name in LABELS if name in names), LABELS[0])
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
            f"first: got the columns {', '.join(map(repr, names))} of {table.path}, expected the name of the "
            "one with texts, and for pairs also that of the second"
        )
    return Columns((singles or rest)[0], None, label)


def learned(table: Table, columns: Columns, kind: str) -> dict[str, Any]:
    """Returns the classes or the bounds of the labels of a training split, and the metrics.

    Args:
        table: the split.
        columns: its columns.
        kind: what labels are: "class" or "number"; "" takes numbers that are not all integers as numbers, and
            refuses as many classes as names or identifiers would be.

    Raises:
        ValueError: a label is missing or not of the kind, or all are equal.
    """
    values = [label_value(table.path, line, row, columns.label) for line, row in table.rows]
    numbers = [_number(value) for value in values]
    if not (given := kind):
        fractions = None not in numbers and any(float(n) != int(n) for n in numbers if n is not None)
        kind = "number" if fractions else "class"
    if kind == "number":
        for (line, _), number, value in zip(table.rows, numbers, values, strict=True):
            if number is None:
                raise damaged(table.path, line, f"got the label {value!r}, expected a number")
        bounds = min(n for n in numbers if n is not None), max(n for n in numbers if n is not None)
        check_several(table, columns, {class_name(value) for value in values}, len(set(numbers)))
        return known((), bounds)
    names = {class_name(value) for value in values}
    check_several(table, columns, names)
    if not given and len(names) > min(MOST_CLASSES, max(2, len(values) // 2)):
        raise ValueError(
            f"{table.path}: got {len(names)} different labels in {len(values)} rows of the column "
            f"{columns.label!r}, expected few; name another column, or say which kind they are: 'class' or "
            "'number'"
        )
    return known(ordered(names))


def known(classes: tuple[str, ...], bounds: tuple[float, float] = (-math.inf, math.inf)) -> dict[str, Any]:
    """Returns classes and metrics; without classes, the bounds of the numbers."""
    if classes:
        return {"classes": classes, "metrics": ("accuracy",)}
    return {"bounds": bounds, "metrics": ("pearson", "spearman")}


def check_several(table: Table, columns: Columns, names: set[str], count: int | None = None) -> None:
    """Raises ValueError if all labels are one."""
    if (len(names) if count is None else count) < 2:
        raise ValueError(
            f"{table.path}: got the label {min(names)!r} in all {len(table.rows)} rows, expected at "
            f"least two different ones in the column {columns.label!r}"
        )


def label_value(path: Source, line: int, row: Mapping[str, Any], column: str) -> str | int | float | bool:
    """Returns the label of a row; raises ValueError with file and line if it is no text and no number."""
    value = row.get(column)
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "":
        raise damaged(path, line, f"missing the label {column!r}")
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise damaged(path, line, f"{column}: got {value!r:.40}, expected a text or a number")
    return value


def _number(value: str | int | float | bool) -> float | None:
    """A label as a finite number; None if it is not one."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
