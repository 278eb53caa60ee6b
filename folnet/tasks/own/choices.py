"""Questions with choices, one of which is right: a question, its choices and the right one a row.

Choices are a list in one column, or texts in columns of their own.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Int32

from folnet.tasks.files import damaged
from folnet.tasks.interface import NO_LABEL
from folnet.tasks.own.interface import Columns, OwnTask, named, usual
from folnet.tasks.tables import Source, Table, text_at
from folnet.tokenization import WordPieceTokenizer

QUESTIONS = ("question", "question_stem", "prompt", "goal", "context", "ctx", "text", "premise")
CHOICES = ("choices", "options", "endings")
LABELS = ("label", "answerKey", "answer", "correct")
"""Usual names of columns, the more usual first."""
STEMS = ("choice", "option", "ending", "sol")
"""Usual names, before a number from 0 or 1, of columns with a choice each."""
NEVER = -1e9
"""The logit of a choice that a question lacks."""


class Choice(NamedTuple):
    """A question, its choices, and the number of the right one if it is known."""

    index: str
    question: str
    choices: tuple[str, ...]
    label: int | None = None


class ChoiceFeatures(NamedTuple):
    """Questions in the form the model reads: K pairs of the question and a choice."""

    input_ids: Int32[np.ndarray, "N K T"]
    token_type_ids: Int32[np.ndarray, "N K T"]
    attention_mask: Bool[np.ndarray, "N K T"]
    label: Int32[np.ndarray, "N"]
    exists: Bool[np.ndarray, "N K"]
    """Which choices a question has; in place of others its first one is read."""
    cut_off: int
    """How many pairs are longer than T and were truncated, the longer text first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceTask(OwnTask[Choice, ChoiceFeatures]):
    """Choices among texts."""

    def of_table(self, table: Table, *, labelled: bool) -> tuple[Choice, ...]:
        """Returns the rows of a table as examples; see `OwnTask`."""
        found = []
        for number, (line, row) in enumerate(table.rows):
            question = text_at(table.path, line, row, self.columns.first)
            column = str(self.columns.second)
            if several := separate(table, column):
                choices, names = _texts(table.path, line, row, several), several
            else:
                choices, names = _choices(table.path, line, row, column)
            label = None
            if labelled or row.get(self.columns.label) not in (None, ""):
                label = _label(table.path, line, row, self.columns.label, choices, names)
            found.append(Choice(str(number), question, choices, label))
        if not labelled and any(example.label is None for example in found):
            found = [example._replace(label=None) for example in found]
        return tuple(found)

    def labelled(self, examples: Sequence[Choice]) -> bool:
        """Returns whether the right choices are known; see `Task`."""
        return all(example.label is not None for example in examples)

    def features(
        self, examples: Sequence[Choice], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> ChoiceFeatures:
        """Returns [CLS] question [SEP] choice [SEP] for each choice; see `ChoiceFeatures`."""
        length = self.max_length if max_length is None else max_length
        most = max((len(example.choices) for example in examples), default=2)
        filled = [(*e.choices, *e.choices[:1] * (most - len(e.choices))) for e in examples]
        asked = [ids for ids in tokenizer.ids([e.question for e in examples]) for _ in range(most)]
        choices = tokenizer.ids([choice for row in filled for choice in row])
        ids, segments, mask = tokenizer.assemble(asked, choices, length=length)
        exists = np.arange(most) < np.asarray([len(e.choices) for e in examples])[:, None]
        long = np.asarray([len(a) + len(b) + 3 > length for a, b in zip(asked, choices, strict=True)], bool)
        shape = (len(examples), most, length)
        return ChoiceFeatures(
            ids.reshape(shape),
            segments.reshape(shape),
            mask.reshape(shape),
            self.labels(examples),
            exists,
            int((long.reshape(exists.shape) & exists).sum()),
        )

    def labels(self, examples: Sequence[Choice]) -> Int32[np.ndarray, "N"]:
        """Returns the numbers of the right choices; `NO_LABEL` if unknown."""
        return np.asarray([NO_LABEL if e.label is None else e.label for e in examples], np.int32)

    def of_choices(
        self, features: ChoiceFeatures, logits: Float[np.ndarray, "N K"]
    ) -> Float[np.ndarray, "N K"]:
        """Returns the logits, `NEVER` for choices that a question lacks; raises ValueError for bad ones."""
        if logits.shape != features.exists.shape:
            raise ValueError(f"logits: got shape {logits.shape}, expected {features.exists.shape}")
        if not np.isfinite(logits).all():
            raise ValueError(f"logits: got {logits[~np.isfinite(logits)][0]}, expected finite numbers")
        return np.where(features.exists, logits, np.asarray(NEVER, logits.dtype))

    def score(self, examples: Sequence[Choice], predictions: Int[np.ndarray, "N"]) -> dict[str, float]:
        """Returns the accuracy.

        Raises:
            ValueError: there are no examples, one has no label, or the numbers differ.
        """
        if not examples or len(examples) != len(predictions) or not self.labelled(examples):
            raise ValueError(
                f"predictions: got {len(predictions)}, expected one for each of {len(examples)} examples, "
                "which have labels"
            )
        return {"accuracy": float(np.mean(self.labels(examples) == predictions))}


def columns_of(
    table: Table, first: str = "", second: str = "", label: str = "", *, labelled: bool = True
) -> Columns:
    """Returns the columns of questions, choices (`second`) and right choices; see `texts.columns_of`.

    Where each choice has a column of its own, `second` is their names with commas between them.
    """
    named(table, first=first, label=label if labelled else "")
    if not separate(table, second):
        named(table, second=second)
        second = second or numbered(table)
    if labelled:
        label = usual(table, "label", label, LABELS)
    label = label or next((name for name in LABELS if name in table.names), LABELS[0])
    question = usual(table, "first", first, QUESTIONS)
    return Columns(question, usual(table, "second", second, CHOICES), label)


def separate(table: Table, names: str) -> tuple[str, ...]:
    """Returns the columns that have a choice each; none if `names` is one column, or has one that is none."""
    several = tuple(map(str.strip, names.split(",")))
    return () if len(several) < 2 or names in table.names or set(several) - set(table.names) else several


def numbered(table: Table) -> str:
    """Returns columns with usual names and numbers, commas between them; "" if fewer than two exist."""
    for stem, start in itertools.product(STEMS, (0, 1)):
        names = (f"{stem}{number}" for number in itertools.count(start))
        if len(found := tuple(itertools.takewhile(table.names.__contains__, names))) > 1:
            return ",".join(found)
    return ""


def learned(table: Table, columns: Columns, kind: str) -> dict[str, Any]:
    """Returns the metrics; see `texts.learned`."""
    del table, columns, kind
    return known(())


def known(classes: tuple[str, ...]) -> dict[str, Any]:
    """Returns the metrics."""
    del classes
    return {"metrics": ("accuracy",)}


def _texts(path: Source, line: int, row: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    """The choices of a row that has each in a column of its own; the last ones may be empty."""
    texts = tuple(
        itertools.takewhile(lambda text: text not in (None, ""), (row.get(name) for name in columns))
    )
    if len(texts) < 2 or any(row.get(name) not in (None, "") for name in columns[len(texts) :]):
        raise damaged(
            path, line, f"{columns[len(texts)]}: the text is empty, expected at least two, the first ones"
        )
    return _different(path, line, ",".join(columns), texts)


def _different(path: Source, line: int, column: str, choices: Sequence[Any]) -> tuple[str, ...]:
    if wrong := [each for each in choices if not isinstance(each, str) or not each.strip()]:
        raise damaged(path, line, f"{column}: got {wrong[0]!r:.40} among the choices, expected texts")
    if len(set(choices)) < len(choices):
        raise damaged(path, line, f"{column}: got the same choice twice, expected different ones")
    return tuple(choices)


def _choices(
    path: Source, line: int, row: Mapping[str, Any], column: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The choices of a row, and their names if they have any: lists, also as JSON in a text."""
    value, names = row.get(column), ()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise damaged(path, line, f"{column}: got {value!r:.40}, expected a list, in JSON") from error
    if isinstance(value, dict):
        names, value = value.get("label", ()), value.get("text")
    if not isinstance(value, list) or len(value) < 2:
        raise damaged(path, line, f"{column}: got {value!r:.40}, expected a list of at least two texts")
    choices = _different(path, line, column, value)
    if names and len(names) != len(value):
        raise damaged(
            path, line, f"{column}: got {len(names)} names of {len(value)} choices, expected as many"
        )
    return choices, tuple(map(str, names))


def _label(
    path: Source, line: int, row: Mapping[str, Any], column: str, choices: Sequence[str], names: Sequence[str]
) -> int:
    """The number of the right choice, given by its name, its text, its number from 0, or a letter from A.

    An integer is a number before it is a text.
    """
    value = row.get(column)
    written = str(value).strip()
    if value is None or written == "":
        raise damaged(path, line, f"missing the label {column!r}")
    numbers = [str(number) for number in range(len(choices))]
    letters = [chr(ord("A") + number) for number in range(len(choices))]
    texts = (numbers, choices) if isinstance(value, int) else (choices, numbers)
    for known in (names, *texts, letters):
        if written in known:
            return list(known).index(written)
    expected = f"one of the names {', '.join(names)}" if names else f"a number from 0 to {len(choices) - 1}"
    raise damaged(path, line, f"{column}: got {value!r:.40}, expected the text of a choice or {expected}")
