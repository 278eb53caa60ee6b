"""Tasks' data sets prepared by TensorFlow Datasets, read without TensorFlow."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from folnet.prepared import features_of, open_split, reading

INFO = "dataset_info.json"
_CHUNK = 4096  # records read at once


def prepared(directory: Path, name: str) -> Path | None:
    """Returns the folder of the newest prepared version of a data set (with dataset_info.json), or None.

    `directory` is TFDS's data folder or the data set's folder in it; `name` is, for instance, "glue/rte".
    """
    dataset, _, config = name.partition("/")
    for folder in (directory / dataset / config, directory / config):
        versions = [path.parent for path in folder.glob(f"*/{INFO}")]
        if versions:
            return max(
                versions, key=lambda path: [int(n) if n.isdigit() else -1 for n in path.name.split(".")]
            )
    return None


def command(name: str) -> str:
    """Returns the shell command that prepares the data set."""
    return f"tfds build {name} --file_format=array_record"


def class_names(folder: Path) -> dict[str, tuple[str, ...]]:
    """Returns the names of the classes of the features that are classes, or lists of them.

    Raises:
        ValueError: If the data set is damaged.
    """
    found = {}
    for name, feature in features_of(folder).items():
        names = getattr(getattr(feature, "feature", feature), "names", None)
        if names:
            found[name] = tuple(names)
    return found


def records(folder: Path, split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields all records of a split with their names for error messages; texts are decoded.

    Records come in TFDS's order, which differs from that of the published files.

    Raises:
        ValueError: If the data set is damaged, is not in the array_record format, lacks the split, or
            contains a text that is not UTF-8.
    """
    source, _ = open_split(folder, split)
    for start in range(0, len(source), _CHUNK):
        rows = range(start, min(start + _CHUNK, len(source)))
        with reading(folder):
            found = source.__getitems__(list(rows))
        for number, record in zip(rows, found, strict=True):
            where = f"{folder}, {split}, record {number}"
            yield where, {key: _plain(value, f"{where}: {key}") for key, value in record.items()}


def _plain(value: Any, where: str) -> Any:
    """Converts texts to `str`, numbers to Python's and sequences to lists."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}: not UTF-8 ({error.reason})") from error
    if isinstance(value, Mapping):
        return {key: _plain(item, where) for key, item in value.items()}
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim):
        return [_plain(item, where) for item in value]
    return value.item() if isinstance(value, np.generic | np.ndarray) else value
