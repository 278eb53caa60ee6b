"""What all tasks have in common, and what those have that put one or two texts into a class.

    task = tasks.TASKS["rte"]
    task.check("data", ["train", "validation"])            # before anything is compiled
    train = task.examples("data", "train")
    features = task.features(train, tokenizer, 128)
    ...                                                     # logits [N, C] of a sequence classifier
    task.score(train, task.predict(logits))                 # {"accuracy": ...}

N examples, T tokens, C classes.
"""

import abc
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from jaxtyping import Bool, Float, Int32

from folnet.tasks import files as task_files
from folnet.tasks import metrics as task_metrics
from folnet.tokenization import WordPieceTokenizer

NO_LABEL = -1
"""The label of an example whose label is not published; losses ignore it. Of numbers it is NaN."""

_CHUNK = 4096  # examples cut into tokens at once


class Example(NamedTuple):
    """One or two texts."""

    index: str
    """Its name in the benchmark: what a submission calls it."""
    first: str
    second: str | None = None
    """What stands behind [SEP]; None for a single text."""
    label: int | float | None = None
    """The number of the class, or the number to be predicted; None if it is not published."""
    group: str = ""
    """A part of the split that is also scored alone, such as CLUTRR's clause length."""


class Examples(Sequence[Example]):
    """Examples of a split."""

    def __init__(self, rows: Sequence[Example], skipped: Sequence[str] = ()):
        self._rows = tuple(rows)
        self.skipped: tuple[str, ...] = tuple(skipped)
        """Rows that are left out, as by all who read these files: file, line and what is wrong."""

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> "Examples": ...

    def __getitem__(self, index: int | slice) -> "Example | Examples":
        """One, or some of them; rows left out stay with the whole."""
        return Examples(self._rows[index]) if isinstance(index, slice) else self._rows[index]


class Features(NamedTuple):
    """Examples as the model reads them."""

    input_ids: Int32[np.ndarray, "N T"]
    token_type_ids: Int32[np.ndarray, "N T"]
    attention_mask: Bool[np.ndarray, "N T"]
    """True at tokens. The released models are not given it: there padding takes part."""
    label: Int32[np.ndarray, "N"] | Float[np.ndarray, "N"]
    """int32 classes, or float32 numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task[E, F](abc.ABC):
    """A data set with its files, metrics and format of predictions: examples E, features F."""

    name: str
    """How it is called on a command line."""
    splits: tuple[str, ...]
    """Published parts: train, validation, test."""
    metrics: tuple[str, ...]
    """What is reported; the first is that of Tables 3 and 4. All are fractions, not percents."""
    max_length: int
    """Tokens, as in Table 9."""
    download: str
    """How to get the files."""
    classes: tuple[str, ...] = ()
    """Names of the classes by number; none if it is no classification."""

    @abc.abstractmethod
    def find(self, directory: Path, split: str) -> Any:
        """Where a split is, None if nowhere."""

    @abc.abstractmethod
    def looked_for(self, split: str) -> str:
        """What `find` looks for, to be told to those who have not got it."""

    @abc.abstractmethod
    def examples(self, directory: str | os.PathLike[str], split: str) -> Sequence[E]:
        """Reads a split; raises ValueError if it is missing or damaged: the file and the line."""

    @abc.abstractmethod
    def features(
        self, examples: Sequence[E], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> F:
        """Arrays of fixed shape for the model, of T = `max_length` tokens, by default the paper's."""

    def place(self, directory: str | os.PathLike[str], split: str) -> Any:
        """Where a split is; raises ValueError as `check` does."""
        self.check(directory, [split])
        return self.find(Path(directory).expanduser(), split)

    def check(self, directory: str | os.PathLike[str], splits: Sequence[str] | None = None) -> None:
        """Looks whether the files of some splits, by default of all, are there, and reads none of them.

        Raises:
            ValueError: there is no such split, or one is not there: what is missing and how to get it.
        """
        wanted = self.splits if splits is None else splits
        if unknown := [split for split in wanted if split not in self.splits]:
            raise ValueError(
                f"split must be one of {', '.join(self.splits)} for {self.name}, got {unknown[0]!r}"
            )
        directory = Path(directory).expanduser()
        missing = [split for split in wanted if self.find(directory, split) is None]
        if missing:
            what = "; ".join(f"{split}: {self.looked_for(split)}" for split in missing)
            state = "lacks" if directory.is_dir() else "does not exist; it lacks"
            raise ValueError(f"directory {directory} {state} {self.name}'s {what}. Get it: {self.download}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceTask(Task[Example, Features]):
    """A task that puts a text, or a pair, into a class or gives it a number."""

    bounds: tuple[float, float] | None = None
    """Of the number to be predicted; None if it is a class."""

    @abc.abstractmethod
    def examples(self, directory: str | os.PathLike[str], split: str) -> Examples:
        """Reads a split; see `Task`."""

    def features(
        self, examples: Sequence[Example], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> Features:
        """[CLS] first [SEP], or [CLS] first [SEP] second [SEP]; the longer of a pair is cut first.

        Raises:
            ValueError: some examples are pairs and some are not, or T has no room for the special tokens.
        """
        length = self.max_length if max_length is None else max_length
        pairs = {example.second is not None for example in examples}
        if len(pairs) > 1:
            raise ValueError("examples must all be single texts or all be pairs, got both")
        ids = np.full((len(examples), length), tokenizer.pad_id, np.int32)
        segments, mask = np.zeros_like(ids), np.zeros(ids.shape, bool)
        for start in range(0, len(examples), _CHUNK):
            some = examples[start : start + _CHUNK]
            second = [str(example.second) for example in some] if pairs == {True} else None
            rows = slice(start, start + len(some))
            ids[rows], segments[rows], mask[rows] = tokenizer(
                [example.first for example in some], second, length=length
            )
        return Features(ids, segments, mask, self.labels(examples))

    def labels(self, examples: Sequence[Example]) -> Int32[np.ndarray, "N"] | Float[np.ndarray, "N"]:
        """Labels as the losses want them; `NO_LABEL` or NaN where they are not published."""
        dtype, none = (np.int32, NO_LABEL) if self.classes else (np.float32, np.nan)
        return np.asarray([none if e.label is None else e.label for e in examples], dtype)

    def predict(self, logits: Float[np.ndarray, "N C"]) -> np.ndarray:
        """Predictions [N] from a model's logits: the class of the greatest, or the number as it is.

        A number may be out of its bounds: cut off there, numbers would become equal in rank.

        Raises:
            ValueError: the logits are of another number of classes, or not finite.
        """
        logits = np.asarray(logits)
        count = len(self.classes) or 1
        if logits.ndim != 2 or logits.shape[1] != count:
            raise ValueError(f"logits have shape {logits.shape}, expected [N, {count}] for {self.name}")
        if not np.isfinite(logits).all():
            raise ValueError(f"logits must be finite, got {logits[~np.isfinite(logits)][0]} for {self.name}")
        if self.bounds is not None:
            return logits[:, 0].astype(np.float32)
        return np.argmax(logits, axis=1).astype(np.int32)

    def score(self, examples: Sequence[Example], predictions: np.ndarray) -> dict[str, float]:
        """The task's metrics over examples with labels, as fractions, and `metric/group` of the first.

        Raises:
            ValueError: there are no examples, one has no label, or the lengths differ.
        """
        if not examples or len(examples) != len(predictions):
            raise ValueError(
                f"predictions must be as many as examples, got {len(predictions)} and {len(examples)}"
            )
        if hidden := [example.index for example in examples if example.label is None]:
            raise ValueError(
                f"examples must have labels to be scored, {len(hidden)} have none ({hidden[0]} ...)"
            )
        labels, predictions = self.labels(examples), np.asarray(predictions)
        scores = {name: task_metrics.METRICS[name](labels, predictions) for name in self.metrics}
        groups, first = np.asarray([example.group for example in examples]), self.metrics[0]
        for group in filter(None, dict.fromkeys(groups.tolist())):
            rows = groups == group
            scores[f"{first}/{group}"] = task_metrics.METRICS[first](labels[rows], predictions[rows])
        return scores

    def write_predictions(
        self,
        directory: str | os.PathLike[str],
        split: str,
        examples: Sequence[Example],
        predictions: np.ndarray,
    ) -> Path:
        """Writes predictions, in order of `examples`, to a file as the benchmark wants it submitted.

        Raises:
            ValueError: the lengths differ, or a class is not one of the task's.
        """
        if len(examples) != len(predictions):
            raise ValueError(
                f"predictions must be as many as examples, got {len(predictions)} and {len(examples)}"
            )
        rows = ((e.index, self.written(p)) for e, p in zip(examples, predictions, strict=True))
        return task_files.write_predictions(Path(directory) / self.submission(split), rows)

    def read_predictions(
        self, path: str | os.PathLike[str], examples: Sequence[Example]
    ) -> Int32[np.ndarray, "N"] | Float[np.ndarray, "N"]:
        """Reads predictions again, in order of `examples`.

        Raises:
            ValueError: the file is damaged, one is missing, or one is no class of the task.
        """
        table = task_files.read_predictions(path)
        if missing := [example.index for example in examples if example.index not in table]:
            raise ValueError(
                f"{path}: {len(missing)} predictions are missing, the first of index {missing[0]}"
            )
        found = [self.parsed(table[example.index]) for example in examples]
        if None in found:
            wrong = examples[found.index(None)].index
            raise ValueError(
                f"{path}: the prediction of index {wrong} is {table[wrong]!r}, expected {self.expected}"
            )
        return np.asarray(found, np.int32 if self.classes else np.float32)

    def submission(self, split: str) -> str:
        """The name of the file of a split's predictions."""
        return f"{self.name}_{split}.tsv"

    @property
    def labels_in_files(self) -> tuple[str, ...]:
        """How files and submissions write the classes, by number."""
        return self.classes

    @property
    def expected(self) -> str:
        """What a label may be, for errors."""
        if self.bounds is not None:
            return f"a number from {self.bounds[0]:g} to {self.bounds[1]:g}"
        return " or ".join(self.labels_in_files)

    def written(self, prediction: int | float | np.generic) -> str:
        """How a submission writes a class, or a number within its bounds; other classes raise ValueError."""
        if self.bounds is not None:
            return f"{float(np.clip(prediction, *self.bounds)):.5f}"
        if not 0 <= int(prediction) < len(self.classes):
            raise ValueError(
                f"predictions must be 0 .. {len(self.classes) - 1} for {self.name}, got {prediction}"
            )
        return self.labels_in_files[int(prediction)]

    def parsed(self, label: str) -> int | float | None:
        """A label as files write it; None if it is none."""
        if self.bounds is None:
            return self.labels_in_files.index(label) if label in self.labels_in_files else None
        try:
            number = float(label)
        except ValueError:
            return None
        return number if self.bounds[0] <= number <= self.bounds[1] else None
