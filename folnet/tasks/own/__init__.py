"""Data of your own: JSON lines, CSV, TSV, Parquet, or a data set of TFDS or Hugging Face by its name.

    task = own.open_own({"train": Path("train.jsonl"), "validation": Path("dev.jsonl")})
    task.columns                                    # Columns(first="text", second=None, label="label")
    task.classes                                    # ("negative", "positive"); () if labels are numbers

`texts` has classes or numbers of one or two texts, `words` classes of words, `spans` answers that are parts
of a context, and `choices` the right one of several texts. Everything is found in the training split: columns
by their usual names, or the only ones there are; classes by their names. Other splits must have the same
columns and no other labels; a test split may lack labels.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Literal, get_args

from folnet.tasks import tables
from folnet.tasks.own import choices, spans, texts, words
from folnet.tasks.own.choices import Choice, ChoiceFeatures, ChoiceTask
from folnet.tasks.own.interface import LENGTH, NAME, SPLITS, Columns, OwnTask
from folnet.tasks.own.spans import SpanTask
from folnet.tasks.own.texts import TextTask
from folnet.tasks.own.words import WordFeatures, Words, WordTask
from folnet.tasks.tables import ENDINGS, Source, Table

__all__ = [
    "ENDINGS",
    "LENGTH",
    "NAME",
    "SPLITS",
    "Choice",
    "ChoiceFeatures",
    "ChoiceTask",
    "Columns",
    "Kind",
    "OwnTask",
    "SpanTask",
    "TextTask",
    "WordFeatures",
    "WordTask",
    "Words",
    "open_own",
    "reopened",
]

Kind = Literal["", "class", "number", "words", "spans", "choices"]
_KINDS: Mapping[str, tuple[ModuleType, type[OwnTask[Any, Any]]]] = {
    "class": (texts, TextTask),
    "number": (texts, TextTask),
    "words": (words, WordTask),
    "spans": (spans, SpanTask),
    "choices": (choices, ChoiceTask),
}


def open_own(
    files: Mapping[str, Source],
    *,
    first: str = "",
    second: str = "",
    label: str = "",
    kind: Kind = "",
) -> OwnTask[Any, Any]:
    """Returns the task of some files or data sets.

    Args:
        files: where each split is: "train" and "validation", and optionally "test"; see `tables.source`.
        first: column of the texts, words or questions; "" finds it.
        second: column of the second texts of pairs, of contexts or of choices, or the columns of the first,
            second, ... choice with commas between them.
        label: column of the labels, tags, answers or right choices; "" finds it.
        kind: what labels are: "class" or "number" of texts, classes of "words", "spans" of a context, or
            "choices"; "" finds it by the names of the columns. Numbers of texts are then those that are not
            all integers, and as many classes as names or identifiers would be are refused.

    Raises:
        ValueError: a file cannot be read (with file and line), columns are missing or ambiguous, or all
            labels are equal.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"kind: got {kind!r}, expected one of {', '.join(map(repr, get_args(Kind)))}")
    table = tables.read(files["train"])
    found = kind or _kind_of(table, first, second, label)
    module, cls = _KINDS[found]
    columns = module.columns_of(table, first, second, label)
    learned = module.learned(table, columns, kind)
    return _task(cls, files, columns, learned)


def reopened(
    source: Source,
    kind: Kind,
    classes: tuple[str, ...],
    *,
    first: str = "",
    second: str = "",
    label: str = "",
) -> OwnTask[Any, Any]:
    """Returns a task whose test split has new rows, with optional labels, for a model that was trained.

    Args:
        source: where the rows are.
        kind: what the model answers; see `open_own`.
        classes: names of its classes, in their order; () if there are none.
        first: column of the texts, words or questions; "" finds it.
        second: column of the second texts of pairs, of contexts or of choices.
        label: column of the labels, tags, answers or right choices.

    Raises:
        ValueError: the source cannot be read, a named column is missing, or several may be one
            that is not named.
    """
    module, cls = _KINDS[kind]
    columns = module.columns_of(tables.read(source), first, second, label, labelled=False)
    return _task(cls, {"test": source}, columns, module.known(classes))


def _task(
    cls: type[OwnTask[Any, Any]], files: Mapping[str, Source], columns: Columns, known: Mapping[str, Any]
) -> OwnTask[Any, Any]:
    return cls(
        name=NAME,
        splits=tuple(files),
        files=tuple(files.items()),
        columns=columns,
        max_length=LENGTH,
        download="it is data of yours",
        **known,
    )


def _kind_of(table: Table, first: str, second: str, label: str) -> str:
    """The kind that the names of the columns and the values of the first row show."""
    _, row = table.rows[0]
    if not second and any(isinstance(row.get(name), list) for name in ((first,) if first else words.WORDS)):
        return "words"
    options = [row.get(name) for name in ((second,) if second else choices.CHOICES)]
    if choices.separate(table, second) or (not second and choices.numbered(table)):
        return "choices"
    if any(isinstance(value, list | dict) or str(value).startswith("[") for value in options):
        return "choices"
    usual = (
        (first or name for name in spans.QUESTIONS),
        (second or name for name in spans.CONTEXTS),
        (label or name for name in spans.ANSWERS),
    )
    found = [next((name for name in names if name in row), None) for names in usual]
    plain = not label and any(name in row for name in texts.LABELS)
    if None in found or plain or (label and label not in spans.ANSWERS):
        return "class"
    return "spans" if isinstance(row[str(found[-1])], str | list | dict | None) else "class"
