"""What all tasks share, and the base class of tasks that classify one or two texts.

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
"""Label of an example whose label is not published; losses ignore it. For regression it is NaN."""

_CHUNK = 4096  # examples tokenized at a time


class Example(NamedTuple):
    """One or two texts, with an optional label."""

    index: str
    """Identifier used in submissions to the benchmark."""
    first: str
    second: str | None = None
    """Text that follows [SEP]; None for a single text."""
    label: int | float | None = None
    """Number of the class, or the target of regression; None if not published."""
    group: str = ""
    """A part of the split that is also scored separately, such as CLUTRR's chain length."""


class Examples(Sequence[Example]):
    """The examples of a split, as a sequence."""

    def __init__(self, rows: Sequence[Example], skipped: Sequence[str] = ()):
        self._rows = tuple(rows)
        self.skipped: tuple[str, ...] = tuple(skipped)
        """Rows that are left out, as is customary for these files: file, line and problem."""

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Example: ...

    @overload
    def __getitem__(self, index: slice) -> "Examples": ...

    def __getitem__(self, index: int | slice) -> "Example | Examples":
        """Returns one example or a slice of them; a slice has no `skipped` rows."""
        return Examples(self._rows[index]) if isinstance(index, slice) else self._rows[index]


class Features(NamedTuple):
    """Examples in the form the model reads."""

    input_ids: Int32[np.ndarray, "N T"]
    token_type_ids: Int32[np.ndarray, "N T"]
    attention_mask: Bool[np.ndarray, "N T"]
    """True at tokens. The released models do not use it: there, padding takes part."""
    label: Int32[np.ndarray, "N"] | Float[np.ndarray, "N"]
    """int32 classes, or float32 targets of regression."""
    example: Int32[np.ndarray, "N"] | None = None
    """The number of each row's example, if long texts are read in several windows."""
    cut_off: int = 0
    """How many texts are known to have been truncated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task[E, F](abc.ABC):
    """A data set with its files, metrics and format of predictions: examples E, features F."""

    name: str
    """Name on a command line."""
    splits: tuple[str, ...]
    """Published parts: train, validation, test."""
    metrics: tuple[str, ...]
    """Metrics to report; the first is that of Tables 3 and 4. All are fractions, not percentages."""
    max_length: int
    """Maximum number of tokens, from Table 9."""
    download: str
    """Command or instructions to get the files."""
    classes: tuple[str, ...] = ()
    """Names of the classes by number; empty unless the task is a classification."""

    @abc.abstractmethod
    def find(self, directory: Path, split: str) -> Any:
        """Returns where a split is, None if it was not found."""

    @abc.abstractmethod
    def looked_for(self, split: str) -> str:
        """Returns what `find` looks for, for error messages."""

    @abc.abstractmethod
    def examples(self, directory: str | os.PathLike[str], split: str) -> Sequence[E]:
        """Reads a split; raises ValueError with file and line if it is missing or damaged."""

    @abc.abstractmethod
    def features(
        self, examples: Sequence[E], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> F:
        """Returns model inputs of fixed shape, T = `max_length` tokens (by default the paper's)."""

    @abc.abstractmethod
    def labelled(self, examples: Sequence[E]) -> bool:
        """Returns whether all examples have labels; those of most test splits are not published."""

    def place(self, directory: str | os.PathLike[str], split: str) -> Any:
        """Returns where a split is; raises ValueError like `check`."""
        self.check(directory, [split])
        return self.find(Path(directory).expanduser(), split)

    def check(self, directory: str | os.PathLike[str], splits: Sequence[str] | None = None) -> None:
        """Checks that the files of some splits (by default all) exist, without reading them.

        Raises:
            ValueError: If there is no such split, or files are missing; names them and how to get them.
        """
        wanted = self.splits if splits is None else splits
        if unknown := [split for split in wanted if split not in self.splits]:
            raise ValueError(
                f"split: got {unknown[0]!r}, expected one of {', '.join(map(repr, self.splits))} "
                f"for {self.name}"
            )
        directory = Path(directory).expanduser()
        missing = [split for split in wanted if self.find(directory, split) is None]
        if missing:
            what = "; ".join(f"{split}: {self.looked_for(split)}" for split in missing)
            state = "" if directory.is_dir() else " (no such directory)"
            raise ValueError(
                f"directory: got {directory}{state}, expected {self.name}'s {what}. Get it: {self.download}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceTask(Task[Example, Features]):
    """A task that classifies a text or a pair of texts, or predicts a number for it."""

    bounds: tuple[float, float] | None = None
    """Range of the number to predict; None for a classification."""

    @abc.abstractmethod
    def examples(self, directory: str | os.PathLike[str], split: str) -> Examples:
        """Reads a split; see `Task`."""

    def features(
        self, examples: Sequence[Example], tokenizer: WordPieceTokenizer, max_length: int | None = None
    ) -> Features:
        """Returns [CLS] first [SEP] or [CLS] first [SEP] second [SEP]; the longer text is truncated first.

        Raises:
            ValueError: If only some examples are pairs, or T is too small for the special tokens.
        """
        length = self.max_length if max_length is None else max_length
        pairs = {example.second is not None for example in examples}
        if len(pairs) > 1:
            raise ValueError("examples: got both single texts and pairs, expected only one of them")
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

    def labelled(self, examples: Sequence[Example]) -> bool:
        """Returns whether all examples have labels; see `Task`."""
        return all(example.label is not None for example in examples)

    def labels(self, examples: Sequence[Example]) -> Int32[np.ndarray, "N"] | Float[np.ndarray, "N"]:
        """Returns labels as the losses expect them; `NO_LABEL` or NaN where they are not published."""
        dtype, none = (np.int32, NO_LABEL) if self.classes else (np.float32, np.nan)
        return np.asarray([none if e.label is None else e.label for e in examples], dtype)

    def predict(self, logits: Float[np.ndarray, "N C"]) -> np.ndarray:
        """Computes predictions [N] from logits: the class with the greatest, or the number itself.

        Numbers are not clipped to their bounds, as that would create ties in rank correlations.

        Raises:
            ValueError: If the number of classes does not match, or logits are not finite.
        """
        logits = np.asarray(logits)
        count = len(self.classes) or 1
        if logits.ndim != 2 or logits.shape[1] != count:
            raise ValueError(f"logits: got shape {logits.shape}, expected [N, {count}] for {self.name}")
        if not np.isfinite(logits).all():
            wrong = logits[~np.isfinite(logits)][0]
            raise ValueError(f"logits: got {wrong}, expected finite numbers for {self.name}")
        if self.bounds is not None:
            return logits[:, 0].astype(np.float32)
        return np.argmax(logits, axis=1).astype(np.int32)

    def score(self, examples: Sequence[Example], predictions: np.ndarray) -> dict[str, float]:
        """Returns the task's metrics over labelled examples, and the first metric by group (`metric/group`).

        Raises:
            ValueError: If there are no examples, one has no label, or the lengths differ.
        """
        if not examples or len(examples) != len(predictions):
            raise ValueError(
                f"predictions: got {len(predictions)}, expected one for each of {len(examples)} examples"
            )
        if hidden := [example.index for example in examples if example.label is None]:
            raise ValueError(
                f"examples: got {len(hidden)} without label ({hidden[0]} ...), expected labels to score"
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
        """Writes predictions, in order of `examples`, to a file in the benchmark's submission format.

        Raises:
            ValueError: If the lengths differ, or a class is not one of the task's.
        """
        if len(examples) != len(predictions):
            raise ValueError(
                f"predictions: got {len(predictions)}, expected one for each of {len(examples)} examples"
            )
        rows = ((e.index, self.written(p)) for e, p in zip(examples, predictions, strict=True))
        return task_files.write_predictions(Path(directory) / self.submission(split), rows)

    def read_predictions(
        self, path: str | os.PathLike[str], examples: Sequence[Example]
    ) -> Int32[np.ndarray, "N"] | Float[np.ndarray, "N"]:
        """Reads such predictions, in order of `examples`.

        Raises:
            ValueError: If the file is damaged, or a prediction is missing or not one of the task's classes.
        """
        table = task_files.read_predictions(path)
        if missing := [example.index for example in examples if example.index not in table]:
            raise ValueError(
                f"{path}: {len(missing)} predictions are missing, the first for index {missing[0]}"
            )
        found = [self.parsed(table[example.index]) for example in examples]
        if None in found:
            wrong = examples[found.index(None)].index
            raise ValueError(
                f"{path}: got the prediction {table[wrong]!r} for index {wrong}, expected {self.expected}"
            )
        return np.asarray(found, np.int32 if self.classes else np.float32)

    def submission(self, split: str) -> str:
        """Returns the file name of a split's predictions."""
        return f"{self.name}_{split}.tsv"

    @property
    def labels_in_files(self) -> tuple[str, ...]:
        """Names of the classes in files and submissions, by number."""
        return self.classes

    @property
    def expected(self) -> str:
        """Description of valid labels, for error messages."""
        if self.bounds is not None:
            return f"a number from {self.bounds[0]:g} to {self.bounds[1]:g}"
        return " or ".join(self.labels_in_files)

    def written(self, prediction: int | float | np.generic) -> str:
        """Formats a class, or a number clipped to its bounds; raises ValueError for other classes."""
        if self.bounds is not None:
            return f"{float(np.clip(prediction, *self.bounds)):.5f}"
        if not 0 <= int(prediction) < len(self.classes):
            raise ValueError(
                f"predictions: got {prediction}, expected 0 to {len(self.classes) - 1} for {self.name}"
            )
        return self.labels_in_files[int(prediction)]

    def parsed(self, label: str) -> int | float | None:
        """Parses a label as written in files; returns None if it is invalid."""
        if self.bounds is None:
            return self.labels_in_files.index(label) if label in self.labels_in_files else None
        try:
            number = float(label)
        except ValueError:
            return None
        return number if self.bounds[0] <= number <= self.bounds[1] else None
