"""What is said of a reader that the fuzz tries: how its files are made, how it is called, what it may do."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np


def _equal(valid: Any, found: Any) -> bool:
    return canonical(valid) == canonical(found)


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader of files."""

    name: str  # of what is read
    code: str  # where it is done
    make: Callable[[Path], None]  # writes small valid files into an empty folder
    damaged: Sequence[str]  # patterns of those that come to harm
    read: Callable[[Path], Any]  # reads them; what it gives is what they mean
    checked: bool = False  # whether no change of meaning may go unnoticed, since the format has a checksum
    same: Callable[[Any, Any], bool] = _equal  # whether what was read means the same as the valid files
    errors: tuple[type[Exception], ...] = ()  # what it raises, besides ValueError, for files it cannot read
    writes: Sequence[str] = ()  # patterns of what it may write into the folder, if it can read; never in part
    # raises if what it has written is not whole; by default all that it writes goes with success
    whole: Callable[[Path], None] | None = None
    # contents that would run something if they were let
    planted: Callable[[Path], Sequence[bytes]] = lambda folder: ()

    def files(self, folder: Path) -> list[Path]:
        """Those that come to harm, by name."""
        return sorted({path for pattern in self.damaged for path in folder.glob(pattern) if path.is_file()})


def canonical(value: Any) -> str:
    """A hash of anything that a reader gives; numbers that are not equal are not alike."""
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
