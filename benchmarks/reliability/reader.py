"""Description of a reader for the fuzz: how to make its files, how to call it, and what it may write."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader of files, as the fuzz calls it."""

    name: str  # the files that it reads, in words
    code: str  # the module that reads them
    make: Callable[[Path], Any]  # writes small valid files into an empty folder
    damaged: Sequence[str]  # patterns of the files to damage
    read: Callable[[Path], Any]  # reads the files and returns their meaning
    checked: bool = (
        False  # whether the format has a checksum, so that every change of meaning must be noticed
    )
    # whether two meanings, of the valid files and of the damaged ones, are equal
    same: Callable[[Any, Any], bool] = lambda valid, found: canonical(valid) == canonical(found)
    errors: tuple[type[Exception], ...] = ()  # documented exceptions for unreadable files, besides ValueError
    writes: Sequence[str] = ()  # patterns of files that it may write into the folder, but never in part
    # raises if the written files are incomplete; None: it must write nothing when it raises an error
    whole: Callable[[Path], None] | None = None
    # contents that would run a program if the reader executed them
    planted: Callable[[Path], Sequence[bytes]] = lambda folder: ()

    def files(self, folder: Path) -> list[Path]:
        """Returns the files to damage, sorted by name."""
        return sorted({path for pattern in self.damaged for path in folder.glob(pattern) if path.is_file()})


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Writes one JSON document per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def canonical(value: Any) -> str:
    """Returns a hash of any result of a reader; it depends on the exact values, dtypes and shapes."""
    digest = hashlib.sha256()
    _add(digest, value)
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        array = np.asarray(value)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        digest.update(type(value).__name__.encode())
        _add(digest, {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    elif isinstance(value, Mapping):
        digest.update(b"{")
        for name in sorted(value, key=repr):
            _add(digest, name)
            _add(digest, value[name])
        digest.update(b"}")
    elif isinstance(value, list | tuple):
        digest.update(b"[")
        for item in value:
            _add(digest, item)
        digest.update(b"]")
    else:
        digest.update(f"{type(value).__name__}:{value!r};".encode("utf-8", "surrogatepass"))
