"""Reader for a `math_dataset` prepared by TensorFlow Datasets; does not need TensorFlow."""

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

import logic_zoo
from tp_transformer.mathematics.modules import TFDSSplit
from tp_transformer.mathematics.questions import Question, Questions
from tp_transformer.mathematics.vocabulary import CHARACTERS, MAX_ANSWER, MAX_QUESTION


@contextlib.contextmanager
def _reading(directory: Path) -> Iterator[None]:
    """Converts the various errors of TensorFlow Datasets to a ValueError that names the folder."""
    try:
        yield
    except Exception as error:  # from JSON, protocol buffers, array_record and the library itself
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        raise ValueError(f"{directory}: damaged, or not prepared by TensorFlow Datasets: {reason}") from error


class TFDSQuestions(Questions):
    """Questions of one split of one prepared module."""

    def __init__(self, directory: str | Path, split: TFDSSplit):
        """Opens the folder of one version, which contains `dataset_info.json`.

        Raises:
            ValueError: the folder is damaged, was not prepared as array_record, or lacks the split.
        """
        with logic_zoo.extra("data"):
            import tensorflow_datasets as tfds

        self._path, self._split = Path(directory), split
        with _reading(self._path):
            builder = tfds.builder_from_directory(str(directory))
        if split not in builder.info.splits:
            have = ", ".join(builder.info.splits) or "none"
            raise ValueError(f"split: got {split!r}, expected one of those of {directory}: {have}")
        kind = builder.info.file_format
        if kind is None or kind.value != "array_record":
            raise ValueError(
                f"{directory}: got format {kind and kind.value}, expected array_record "
                "(tfds build math_dataset --file_format=array_record)"
            )
        with _reading(self._path):
            self._records: Any = builder.as_data_source(split=split)
        self._lengths: UInt8[np.ndarray, "N 2"] | None = None

    def __len__(self) -> int:
        """Returns the number of questions, N."""
        return len(self._records)

    def _decode(self, index: int, record: dict[str, Any]) -> Question:
        where = f"{self._path}, {self._split}, record {index}"
        try:
            question, answer = (bytes(record[name]).decode("ascii") for name in ("question", "answer"))
        except (KeyError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"{where}: {error!r}") from error
        if not set(CHARACTERS).issuperset(question + answer):
            raise ValueError(f"{where}: got {question!r}, {answer!r}, expected the dataset's characters only")
        if not 0 < len(question) <= MAX_QUESTION or not 0 < len(answer) <= MAX_ANSWER:
            raise ValueError(
                f"{where}: got {len(question)} and {len(answer)} characters in question and answer, "
                f"expected 1 to {MAX_QUESTION} and {MAX_ANSWER}"
            )
        return Question(question, answer)

    def _at(self, index: int) -> Question:
        with _reading(self._path):
            record = self._records[index]
        return self._decode(index, record)

    def take(self, indices: Iterable[int]) -> list[Question]:
        """Returns the questions at the given indices, read in one request."""
        indices = list(indices)
        with _reading(self._path):
            found = self._records.__getitems__(indices)
        return list(map(self._decode, indices, found))

    def lengths(self) -> UInt8[np.ndarray, "N 2"]:
        """Returns the lengths of questions and answers; the first call reads, and so checks, all of them."""
        if self._lengths is None:
            self._lengths = super().lengths()
        return self._lengths
