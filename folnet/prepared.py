"""Readers of data sets prepared by TensorFlow Datasets; TensorFlow itself is not needed.

The library raises errors of many classes that do not name the file. Here they become ValueErrors that do.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import logic_zoo


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Converts any error raised in the block to a ValueError that names the folder."""
    try:
        yield
    except Exception as error:  # from JSON, protocol buffers, array_record or the library itself
        if isinstance(error, ValueError) and str(folder) in str(error):
            raise
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        message = f"{folder}: the data set is damaged or was not prepared by TensorFlow Datasets: {reason}"
        raise ValueError(message) from error


def features_of(folder: Path) -> dict[str, Any]:
    """Returns TFDS's features of a data set by name; raises ValueError if the data set is damaged."""
    builder = _builder(folder)
    with reading(folder):
        return dict(builder.info.features or {})


def open_split(folder: Path, split: str) -> tuple[Any, list[str]]:
    """Returns the records of a split, such as "train" or "train[:1000]", and the names of their features.

    Raises:
      ValueError: If the data set is damaged, is not in the array_record format, or lacks the split.
    """
    builder = _builder(folder)
    with reading(folder):
        kind = builder.info.file_format
    if split.partition("[")[0] not in builder.info.splits:
        have = ", ".join(builder.info.splits) or "none"
        raise ValueError(f"split: got {split!r}, expected one of those of {folder}: {have}")
    if kind is None or kind.value != "array_record":
        raise ValueError(
            f"{folder}: got the file format {kind and kind.value}, expected array_record "
            "(tfds build ... --file_format=array_record)"
        )
    with reading(folder):
        return builder.as_data_source(split=split), list(builder.info.features or ())


def _builder(folder: Path) -> Any:
    with logic_zoo.extra("data"):
        import tensorflow_datasets as tfds

    with reading(folder):
        return tfds.builder_from_directory(str(folder))
