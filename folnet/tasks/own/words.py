"""Words with a class each, such as names in a sentence: a list of words a row and a list of tags.

W windows, T tokens, C classes; N words of all rows.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Int32

from folnet.tasks import windows
from folnet.tasks.files import damaged
from folnet.tasks.interface import NO_LABEL
from folnet.tasks.own.interface import Columns, OwnTask, class_name, named, ordered, usual
from folnet.tasks.own.texts import check_several
from folnet.tasks.tables import Source, Table
from folnet.tokenization import WordPieceTokenizer

WORDS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "pos_tags", "labels", "label")
"""Usual names of columns, the more usual first."""
OUTSIDE, BEGINS, GOES_ON = "O", "B-", "I-"
"""Tags of names and the like: of no name, of a name's first word, and of its other words."""


class Words(NamedTuple):
    """The words of a row, and their classes if these are known."""

    index: str
    words: tuple[str, ...]
    tags: tuple[int, ...] | None = None


class WordFeatures(NamedTuple):
    """Words in the form the model reads, each row in one or more windows."""

    input_ids: Int32[np.ndarray, "W T"]
    token_type_ids: Int32[np.ndarray, "W T"]
    attention_mask: Bool[np.ndarray, "W T"]
    tags: Int32[np.ndarray, "W T"]
    """The class of a word at its first piece, in the window with most context; elsewhere `NO_LABEL`."""
    word: Int32[np.ndarray, "W T"]
    """The number of that word among the words of all rows; elsewhere -1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordTask(OwnTask[Words, WordFeatures]):
    """Classes of words. Long rows are read in windows."""

    def of_table(self, table: Table, *, labelled: bool) -> tuple[Words, ...]:
        """Returns the rows of a table as examples; see `OwnTask`."""
        found = []
        for number, (line, row) in enumerate(table.rows):
            words = listed(table.path, line, row, self.columns.first)
            tags = None
            if labelled or row.get(self.columns.label):
                tags = listed(table.path, line, row, self.columns.label)
                if len(tags) != len(words):
                    raise damaged(
                        table.path, line, f"got {len(tags)} tags of {len(words)} words, expected one of each"
                    )
                tags = tuple(self.label_of(table, line, tag) for tag in tags)
            found.append(Words(str(number), tuple(map(str, words)), tags))
        if not labelled and any(example.tags is None for example in found):
            found = [example._replace(tags=None) for example in found]
        return tuple(found)

    def labelled(self, examples: Sequence[Words]) -> bool:
        """Returns whether all rows have tags; see `Task`."""
        return all(example.tags is not None for example in examples)

    def features(
        self, examples: Sequence[Words], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> WordFeatures:
        """Returns windows [CLS] words [SEP]; a word without pieces is unknown, [UNK]."""
        length = self.max_length if max_length is None else max_length
        room, (stride, _) = length - 2, windows.fitted(length, self.stride or length)
        every = iter(tokenizer.ids([word for example in examples for word in example.words]))
        rows: list[np.ndarray] = []
        words: list[np.ndarray] = []
        where: list[tuple[int, int, int]] = []
        seen = 0
        for number, example in enumerate(examples):
            pieces = [next(every) or [tokenizer.unk_id] for _ in example.words]
            ids = np.concatenate([np.asarray(piece, np.int32) for piece in pieces])
            word = np.full(len(ids), -1, np.int32)
            word[np.cumsum([0, *map(len, pieces[:-1])])] = seen + np.arange(len(pieces))
            seen += len(pieces)
            for start in windows.starts(len(ids), room, stride):
                rows.append(ids[start : start + room])
                words.append(word[start : start + room])
                where.append((number, start, len(rows[-1])))
        inputs = tokenizer.assemble(rows, length=length)
        at = np.full(inputs.input_ids.shape, -1, np.int32)
        for window, word in enumerate(words):
            at[window, 1 : 1 + len(word)] = word
        owner, first, count = np.asarray(where, np.int32).reshape(-1, 3).T
        at[~windows.best(owner, first, count, np.ones_like(owner), length)] = -1
        tags = self.tags(examples)
        return WordFeatures(*inputs, np.where(at < 0, NO_LABEL, tags[at]), at)

    def tags(self, examples: Sequence[Words]) -> Int32[np.ndarray, "N"]:
        """Returns the classes of the words of all rows, one after the other; `NO_LABEL` if unknown."""
        rows = (e.tags if e.tags is not None else [NO_LABEL] * len(e.words) for e in examples)
        return np.asarray([tag for row in rows for tag in row], np.int32)

    def of_words(
        self, features: WordFeatures, logits: Float[np.ndarray, "W T C"]
    ) -> Float[np.ndarray, "N C"]:
        """Returns the logits of the words of all rows, one after the other.

        Raises:
            ValueError: the logits do not match the windows or the classes, or are not finite.
        """
        expected = (*features.input_ids.shape, len(self.classes))
        if logits.shape != expected:
            raise ValueError(f"logits: got shape {logits.shape}, expected {expected}")
        there = features.word >= 0
        found = np.zeros((int(there.sum()), logits.shape[-1]), logits.dtype)
        found[features.word[there]] = logits[there]
        if not np.isfinite(found).all():
            raise ValueError(f"logits: got {found[~np.isfinite(found)][0]}, expected finite numbers")
        return found

    def score(self, examples: Sequence[Words], predictions: Int[np.ndarray, "N"]) -> dict[str, float]:
        """Returns `accuracy` over words and, if tags are those of names, `f1` of whole names (CoNLL 2003).

        Raises:
            ValueError: there are no words, a row has no tags, or the numbers of words differ.
        """
        tags = self.tags(examples)
        if not len(tags) or len(tags) != len(predictions):
            raise ValueError(
                f"predictions: got {len(predictions)}, expected one for each of {len(tags)} words"
            )
        if not self.labelled(examples):
            raise ValueError("examples: got some without tags, expected tags to score")
        scores = {"accuracy": float(np.mean(tags == predictions))}
        if "f1" in self.metrics:
            scores["f1"] = f1_of_names(self._texts(examples, tags), self._texts(examples, predictions))
        return scores

    def _texts(self, examples: Sequence[Words], tags: Int[np.ndarray, "N"]) -> list[list[str]]:
        numbers = iter(tags.tolist())
        return [[self.classes[next(numbers)] for _ in example.words] for example in examples]


def columns_of(
    table: Table, first: str = "", second: str = "", label: str = "", *, labelled: bool = True
) -> Columns:
    """Returns the columns of words (`first`) and tags; see `texts.columns_of`."""
    if second:
        raise ValueError(f"second: got {second!r}, expected none, as rows have one list of words")
    named(table, first=first, label=label if labelled else "")
    if labelled:
        label = usual(table, "label", label, TAGS)
    return Columns(usual(table, "first", first, WORDS), None, label or TAGS[0])


def learned(table: Table, columns: Columns, kind: str) -> dict[str, Any]:
    """Returns the classes of the words of a training split, and the metrics; see `texts.learned`."""
    del kind
    names = {
        class_name(tag) for line, row in table.rows for tag in listed(table.path, line, row, columns.label)
    }
    check_several(table, columns, names)
    return known(ordered(names))


def known(classes: tuple[str, ...]) -> dict[str, Any]:
    """Returns classes and metrics; `f1` is the first if all tags are those of names."""
    of_names = all(name == OUTSIDE or name[:2] in (BEGINS, GOES_ON) for name in classes)
    return {"classes": classes, "metrics": ("f1", "accuracy") if of_names else ("accuracy",)}


def listed(path: Source, line: int, row: Mapping[str, Any], column: str) -> list[Any]:
    """Returns a list of texts or integers in a row, or the words of a text; else ValueError with the line."""
    value = row.get(column)
    found: Any = value.split() if isinstance(value, str) else value
    if not found or not isinstance(found, list):
        raise damaged(
            path, line, f"{column}: got {value!r:.40}, expected a list, or words with spaces between"
        )
    wrong = [each for each in found if not isinstance(each, str | int) or isinstance(each, bool)]
    if wrong:
        raise damaged(path, line, f"{column}: got {wrong[0]!r:.40} in the list, expected texts")
    return found


def names_in(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yields the names in the tags of a row: the first word, the last word and the kind.

    A name begins with "B-", or with "I-" after a word of no name or of another kind (CoNLL's script).
    """
    start, kind = 0, ""
    for place, tag in enumerate((*tags, OUTSIDE)):
        goes_on = tag.startswith(GOES_ON) and tag[2:] == kind
        if kind and not goes_on:
            yield start, place - 1, kind
        if not goes_on:
            start, kind = place, "" if tag == OUTSIDE else tag[2:]


def f1_of_names(rows: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Returns the harmonic mean of precision and recall of names, which must be right from end to end."""
    there, found = (
        {(number, *name) for number, tags in enumerate(side) for name in names_in(tags)}
        for side in (rows, predicted)
    )
    return 2 * len(there & found) / max(1, len(there) + len(found))
