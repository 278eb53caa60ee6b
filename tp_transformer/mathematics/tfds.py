"""A prepared `math_dataset` of TensorFlow Datasets, read without TensorFlow."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from tp_transformer.mathematics.questions import Question, Questions
from tp_transformer.mathematics.vocabulary import CHARACTERS, MAX_ANSWER, MAX_QUESTION


@contextlib.contextmanager
def _reading(directory: Path) -> Iterator[None]:
    """Whatever TensorFlow Datasets stumbles over, in classes of its own, as a ValueError with the folder."""
    try:
        yield
    except Exception as error:  # of JSON, protocol buffers, array_record and the library itself
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        raise ValueError(
            f"{directory} is damaged, or not prepared by TensorFlow Datasets: {reason}"
        ) from error


class TFDSQuestions(Questions):
    """The questions of one split of one prepared module."""

    def __init__(self, directory: str | Path, split: str):
        """Opens the folder of one version, which has `dataset_info.json`, at TFDS's "train" or "test".

        Raises:
            ValueError: it is damaged, not prepared as array_record, or has no such split.
        """
        import tensorflow_datasets as tfds

        self._path, self._split = Path(directory), split
        with _reading(self._path):
            builder = tfds.builder_from_directory(str(directory))
        if split not in builder.info.splits:
            have = ", ".join(builder.info.splits) or "none"
            raise ValueError(f"split must be one of those of {directory} ({have}), got {split!r}")
        kind = builder.info.file_format
        if kind is None or kind.value != "array_record":
            raise ValueError(
                f"{directory} is prepared as {kind and kind.value}, expected array_record "
                "(tfds build math_dataset --file_format=array_record)"
            )
        with _reading(self._path):
            self._records: Any = builder.as_data_source(split=split)
        self._lengths: UInt8[np.ndarray, "N 2"] | None = None

    def __len__(self) -> int:
        """Number of questions."""
        return len(self._records)

    def _decode(self, index: int, record: dict[str, Any]) -> Question:
        where = f"{self._path}, {self._split}, record {index}"
        try:
            question, answer = (bytes(record[name]).decode("ascii") for name in ("question", "answer"))
        except (KeyError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"{where}: {error!r}") from error
        if not set(CHARACTERS).issuperset(question + answer):
            raise ValueError(f"{where}: {question!r}, {answer!r} has other characters than the dataset's")
        if not 0 < len(question) <= MAX_QUESTION or not 0 < len(answer) <= MAX_ANSWER:
            raise ValueError(
                f"{where}: the question and answer have {len(question)} and {len(answer)} characters, "
                f"expected 1 to {MAX_QUESTION} and {MAX_ANSWER}"
            )
        return Question(question, answer)

    def _at(self, index: int) -> Question:
        with _reading(self._path):
            record = self._records[index]
        return self._decode(index, record)

    def take(self, indices: Iterable[int]) -> list[Question]:
        """Questions at some indices, read at once."""
        indices = list(indices)
        with _reading(self._path):
            found = self._records.__getitems__(indices)
        return list(map(self._decode, indices, found))

    def lengths(self) -> UInt8[np.ndarray, "N 2"]:
        """Characters of every question and answer; the first call reads (and so checks) all of them."""
        if self._lengths is None:
            self._lengths = super().lengths()
        return self._lengths
