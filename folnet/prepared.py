"""Data sets prepared by TensorFlow Datasets, read without TensorFlow.

Its errors are of many classes and name no file; here they are ValueErrors that do.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Raises whatever is raised inside as a ValueError with the folder's name."""
    try:
        yield
    except Exception as error:  # of JSON, protocol buffers, array_record and the library itself
        if isinstance(error, ValueError) and str(folder) in str(error):
            raise
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        raise ValueError(f"{folder} is damaged, or not prepared by TensorFlow Datasets: {reason}") from error


def open_split(folder: Path, split: str) -> tuple[Any, list[str]]:
    """The records of a split, "train" or "train[:1000]", and the names of their features.

    Raises ValueError: it is damaged, not prepared as array_record, or has no such split.
    """
    import tensorflow_datasets as tfds

    with reading(folder):
        builder = tfds.builder_from_directory(str(folder))
        kind = builder.info.file_format
    if split.partition("[")[0] not in builder.info.splits:
        have = ", ".join(builder.info.splits) or "none"
        raise ValueError(f"split must be one of those of {folder} ({have}), got {split!r}")
    if kind is None or kind.value != "array_record":
        raise ValueError(
            f"{folder} is prepared as {kind and kind.value}, expected array_record "
            "(tfds build ... --file_format=array_record)"
        )
    with reading(folder):
        return builder.as_data_source(split=split), list(builder.info.features or ())
