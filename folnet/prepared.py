"""Errors of TensorFlow Datasets, which are of many classes and name no file, as ValueErrors that do."""

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[None]:
    """What is stumbled over in a prepared data set.

    Args:
        folder: that of its version.

    Raises:
        ValueError: whatever was raised inside, with the folder named.
    """
    try:
        yield
    except Exception as error:  # of JSON, protocol buffers, array_record and the library itself
        if isinstance(error, ValueError) and str(folder) in str(error):
            raise
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        raise ValueError(f"{folder} is damaged, or not prepared by TensorFlow Datasets: {reason}") from error
