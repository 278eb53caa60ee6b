"""Models in a directory, in the layout of the Hugging Face ecosystem: config.json and model.safetensors.

What the papers' packages share to save and load such directories: files, settings, and the messages about
parameters that do not fit.
"""

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from logic_zoo.writing import write_whole

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TYPE, CLASSES = "model_type", "architectures"
"""Keys of `CONFIG_FILE`: the kind of model, and the classes it was saved from."""

Shape = tuple[int, ...]


def write(
    directory: str | os.PathLike[str],
    model_type: str,
    architecture: str,
    settings: Mapping[str, Any],
    weights: bytes,
) -> None:
    """Writes config.json and model.safetensors; creates the directory if it does not exist."""
    described = {TYPE: model_type, CLASSES: [architecture], **settings}
    # The settings come last: their presence makes the directory a model.
    write_whole(Path(directory) / WEIGHTS_FILE, weights)
    write_whole(Path(directory) / CONFIG_FILE, json.dumps(described, indent=2) + "\n")


def kinds(cls: type[Any]) -> dict[str, type[Any]]:
    """Returns a class and all classes derived from it, by name; of one name a base, or else the newest."""
    found = {cls.__name__: cls}
    for derived in cls.__subclasses__():
        found |= kinds(derived)
    return found | {cls.__name__: cls}


def family(cls: type[Any]) -> frozenset[str]:
    """Returns the names of a class, of those that it derives from, and of those derived from it."""
    return frozenset(kinds(cls)) | {base.__name__ for base in cls.__mro__}


def read(
    directory: str | os.PathLike[str], model_types: Collection[str], what: str
) -> tuple[str, str, dict[str, Any]]:
    """Reads config.json: the type of the model, the class that saved it ("" if unknown), and its settings.

    Args:
      directory: contains the file.
      model_types: types that are accepted.
      what: kind of model in messages, such as "a FOLNet".

    Raises:
      ValueError: If the file is missing, damaged or of another kind of model; names the file.
    """
    path = Path(directory) / CONFIG_FILE
    with naming(path, f"the settings of {what}"):
        described = json.loads(path.read_text(encoding="utf-8"))
    found = described.get(TYPE) if isinstance(described, dict) else described
    if not isinstance(described, dict) or found not in model_types:
        raise ValueError(f"{path}: got model_type {found!r}, expected {' or '.join(map(repr, model_types))}")
    settings = {name: value for name, value in described.items() if name not in (TYPE, CLASSES)}
    classes = described.get(CLASSES)
    return str(found), str(classes[0]) if isinstance(classes, list) and classes else "", settings


@contextlib.contextmanager
def naming(path: Path, expected: str, *errors: type[Exception]) -> Iterator[None]:
    """Turns an error of reading a file, or one of `errors`, into a ValueError with its path."""
    try:
        yield
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, *errors) as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "got no such file" if missing else f"got a damaged file ({error})"
        raise ValueError(f"{path}: {reason}, expected {expected}") from error


def misfits(expected: Mapping[str, Shape], given: Mapping[str, Shape]) -> list[str]:
    """Returns one line for each mismatch between expected and given names and shapes."""
    lines = [f"{name}: missing, expected {shape}" for name, shape in expected.items() if name not in given]
    lines += [
        f"{name}: got {shape}, expected no such parameter"
        for name, shape in given.items()
        if name not in expected
    ]
    lines += [
        f"{name}: got shape {shape}, expected {expected[name]}"
        for name, shape in given.items()
        if name in expected and tuple(shape) != tuple(expected[name])
    ]
    return lines


def complain(what: str, model: object, lines: list[str]) -> None:
    """Raises ValueError listing all lines, if there are any."""
    if lines:
        raise ValueError(f"{what}: does not fit {type(model).__name__}:\n  " + "\n  ".join(lines))
