"""Writes files as PyTorch does, with Python's pickle and a PyTorch that consists of names only.

This writer is independent of `torch_files.save`: that one emits opcodes by hand, this one lets pickle choose
them.
"""

import collections
import contextlib
import dataclasses
import io
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

TYPES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}


@dataclasses.dataclass(eq=False)
class Storage:
    """A storage that tensors refer to."""

    numbers: np.ndarray
    count: int | None = None


@dataclasses.dataclass(eq=False)
class Tensor:
    """A view of a storage, which pickles like PyTorch's tensors."""

    storage: Storage
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    parameter: bool = False

    def __reduce__(self):
        """Returns the call that rebuilds the tensor."""
        utils = sys.modules["torch._utils"]
        hooks = collections.OrderedDict()
        arguments = (self.storage, self.offset, self.shape, self.strides, self.parameter, hooks)
        if not self.parameter:
            return utils._rebuild_tensor_v2, arguments
        plain = dataclasses.replace(self, parameter=False)
        return utils._rebuild_parameter, (plain, True, hooks)


def tensor(array: Any, **options: Any) -> Tensor:
    """Returns a tensor with its own storage."""
    array = np.asarray(array)
    strides = tuple(
        stride // array.itemsize for stride in np.ascontiguousarray(array).reshape(array.shape).strides
    )
    return Tensor(Storage(array.reshape(-1)), array.shape, strides, **options)


def _function(name: str) -> Any:
    def function(*_):
        raise AssertionError(f"{name} was called")

    function.__module__, function.__qualname__, function.__name__ = "torch._utils", name, name
    return function


@contextlib.contextmanager
def names() -> Iterator[types.ModuleType]:
    """Provides a module `torch` with the names that pickle looks up."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in TYPES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch", "__qualname__": name}))
    for name in ("_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_parameter"):
        setattr(utils, name, _function(name))
    sys.modules["torch"], sys.modules["torch._utils"] = torch, utils
    try:
        yield torch
    finally:
        del sys.modules["torch"], sys.modules["torch._utils"]


def _pickled(value: Any, storages: dict[str, Storage], legacy: bool, protocol: int) -> bytes:
    with names() as torch:

        class Pickler(pickle.Pickler):
            def persistent_id(self, obj):
                if not isinstance(obj, Storage):
                    return None
                keys = {id(storage): key for key, storage in storages.items()}
                key = keys.get(id(obj), str(len(storages)))
                storages[key] = obj
                kind = getattr(torch, TYPES[obj.numbers.dtype.name])
                count = obj.numbers.size if obj.count is None else obj.count
                return ("storage", kind, key, "cuda:0", count, *((None,) if legacy else ()))

        out = io.BytesIO()
        Pickler(out, protocol).dump(value)
        return out.getvalue()


def zipped(value: Any, *, big: bool = False, protocol: int = 2) -> bytes:
    """Writes the format of PyTorch since 1.6."""
    storages: dict[str, Storage] = {}
    program, out = _pickled(value, storages, False, protocol), io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("best_eval_model/data.pkl", program)
        if big:
            archive.writestr("best_eval_model/byteorder", "big")
        for key, storage in storages.items():
            archive.writestr(f"best_eval_model/data/{key}", _raw(storage, big))
        archive.writestr("best_eval_model/version", "3\n")
    return out.getvalue()


def legacy(value: Any, *, big: bool = False, protocol: int = 2) -> bytes:
    """Writes the format of PyTorch before 1.6."""
    storages: dict[str, Storage] = {}
    program = _pickled(value, storages, True, protocol)
    machine = {"protocol_version": 1001, "little_endian": not big, "type_sizes": {"int": 4}}
    parts = [pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, machine)]
    parts += [program, pickle.dumps(sorted(storages), 2)]
    for key in sorted(storages):
        parts += [struct.pack("<q", storages[key].numbers.size), _raw(storages[key], big)]
    return b"".join(parts)


def _raw(storage: Storage, big: bool) -> bytes:
    numbers = storage.numbers
    return (numbers.byteswap() if big else numbers).tobytes()
