"""Questions about a text whose answers, if any, are parts of it: question, context and answer a row."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from folnet.tasks import windows
from folnet.tasks.files import damaged
from folnet.tasks.own.interface import Columns, OwnTask, named, usual
from folnet.tasks.squad import SquadTask
from folnet.tasks.squad_features import SpanFeatures
from folnet.tasks.squad_questions import Gold, Question
from folnet.tasks.tables import Source, Table, text_at
from folnet.tokenization import WordPieceTokenizer

QUESTIONS = ("question",)
CONTEXTS = ("context", "passage", "paragraph")
ANSWERS = ("answers", "answer")
"""Usual names of columns, the more usual first."""
ID, START = "id", "answer_start"
"""Columns of a question's id, another for each, and of the place of an answer that is a text.

Either may be missing.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanTask(OwnTask[Question, SpanFeatures], SquadTask):
    """Parts of a context that answer a question. Contexts are read in windows, as those of SQuAD."""

    def of_table(self, table: Table, *, labelled: bool) -> tuple[Question, ...]:
        """Returns the rows of a table as questions; see `OwnTask`."""
        known = labelled or all(self.columns.label in row for _, row in table.rows)
        found: dict[str, Question] = {}
        for number, (line, row) in enumerate(table.rows):
            asked = text_at(table.path, line, row, self.columns.first)
            context = context_at(table.path, line, row, self.columns)
            golds = _golds(table.path, line, row, self.columns.label, context) if known else ()
            index = str(number if row.get(ID) in (None, "") else row[ID])
            if index in found:  # answers and scores are by id
                raise damaged(table.path, line, f"{ID}: got {index!r} again, expected another for each row")
            found[index] = Question(index, asked, context, golds, labelled=known)
        return tuple(found.values())

    def features(
        self, examples: Sequence[Question], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> SpanFeatures:
        """Returns windows as those of SQuAD, with shorter strides and questions where windows are small."""
        length = self.max_length if max_length is None else max_length
        stride, query_length = windows.fitted(length, self.stride, self.query_length)
        smaller = dataclasses.replace(self, stride=stride, query_length=query_length)
        return SquadTask.features(smaller, examples, tokenizer, length)


def context_at(path: Source, line: int, row: Mapping[str, Any], columns: Columns) -> str:
    """Returns the context of a row as it is, since answers are places in it."""
    assert columns.second is not None
    text_at(path, line, row, columns.second)  # checks it
    return row[columns.second]


def columns_of(
    table: Table, first: str = "", second: str = "", label: str = "", *, labelled: bool = True
) -> Columns:
    """Returns the columns of questions, contexts (`second`) and answers; see `texts.columns_of`."""
    named(table, first=first, second=second, label=label if labelled else "")
    label = label or next((name for name in ANSWERS if name in table.names), "")
    if labelled:
        label = usual(table, "label", label, ANSWERS)
    question = usual(table, "first", first, QUESTIONS)
    return Columns(question, usual(table, "second", second, CONTEXTS), label or ANSWERS[0])


def learned(table: Table, columns: Columns, kind: str) -> dict[str, Any]:
    """Returns the metrics; raises ValueError with file and line if an answer of the training split is bad.

    A training split without any answer is refused, too.
    """
    del kind
    found = False
    for line, row in table.rows:
        text_at(table.path, line, row, columns.first)
        context = context_at(table.path, line, row, columns)
        found |= bool(_golds(table.path, line, row, columns.label, context))
    if not found:
        raise ValueError(
            f"{table.path}: got no answer in all {len(table.rows)} rows, expected some in the column "
            f"{columns.label!r}"
        )
    return known(())


def known(classes: tuple[str, ...]) -> dict[str, Any]:
    """Returns the metrics."""
    del classes
    return {"metrics": ("f1", "exact")}


def _golds(path: Source, line: int, row: Mapping[str, Any], column: str, context: str) -> tuple[Gold, ...]:
    """The answers of a row.

    They are a text; a list of texts; or, as in copies of SQuAD, lists of texts and of their places, or a list
    of pairs of them. No text, an empty one and no list element are no answer. An answer without a place is
    the first part of the context that equals it.
    """
    if column not in row:
        raise damaged(path, line, f"missing {column!r}, expected the answer, or '' if there is none")
    value = row[column]
    pairs: list[tuple[Any, Any]]
    match value:
        case None | "":
            pairs = []
        case str():
            pairs = [(value, row.get(START))]
        case {"text": list(texts), **rest}:
            places = rest.get(START, [None] * len(texts))
            if not isinstance(places, list) or len(places) != len(texts):
                raise damaged(
                    path,
                    line,
                    f"{column}: got {len(texts)} texts and {START}={places!r:.40}, expected as many",
                )
            pairs = list(zip(texts, places, strict=True))
        case list():
            pairs = [
                (each.get("text"), each.get(START)) if isinstance(each, dict) else (each, None)
                for each in value
            ]
        case _:
            raise damaged(path, line, f"{column}: got {value!r:.40}, expected a text or a list of texts")
    return tuple(_gold(path, line, column, context, *pair) for pair in pairs)


def _gold(path: Source, line: int, column: str, context: str, text: Any, place: Any) -> Gold:
    if not isinstance(text, str) or not text.strip():
        raise damaged(path, line, f"{column}: got {text!r:.40}, expected a text of the context")
    if isinstance(place, str) and place.strip().isdecimal():  # from CSV
        place = int(place)
    if place is None or place == "":
        if (place := context.find(text)) < 0:
            raise damaged(path, line, f"{column}: got {text!r:.60}, expected a part of the context")
    elif not isinstance(place, int) or context[place : place + len(text)] != text:
        raise damaged(path, line, f"{column}: got {text!r:.60}, expected it in the context at {place!r:.20}")
    return Gold(text, place)
