"""Reads and writes files saved by PyTorch, without PyTorch and without executing any code in them.

A saved file is a pickle and the bytes of its tensors: in a zip archive since PyTorch 1.6, and one after the
other before. A pickle is a program. Here it may refer only to the names in `ALLOWED`, none of which executes
anything: storage types, dictionaries, and stand-ins for the functions that assemble tensors. Any other name
is an error.

`load` returns the saved object, made of plain containers, numbers, strings and `Tensor`. It checks structure
and sizes; the bytes of a tensor are read only by `Tensor.numpy`, so that weights can be read from a training
checkpoint without its optimizer state.
"""

import collections
import dataclasses
import io
import math
import mmap
import os
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, cast

import ml_dtypes
import numpy as np

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001

STORAGES = {
    "DoubleStorage": np.dtype("float64"),
    "FloatStorage": np.dtype("float32"),
    "HalfStorage": np.dtype("float16"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("int64"),
    "IntStorage": np.dtype("int32"),
    "ShortStorage": np.dtype("int16"),
    "CharStorage": np.dtype("int8"),
    "ByteStorage": np.dtype("uint8"),
    "BoolStorage": np.dtype("bool"),
}


@dataclasses.dataclass
class Storage:
    """The numbers that one or more tensors are views of.

    Attributes:
      path: the file.
      dtype: dtype of the numbers.
      count: number of numbers.
      big: whether the bytes are big-endian.
      raw: function that returns the bytes; in a legacy file it is set later, when their position is known.
    """

    path: str | os.PathLike[str]
    dtype: np.dtype
    count: int
    big: bool
    raw: Any = None

    def read(self) -> np.ndarray:
        """Returns the numbers [count] in native byte order; raises the same errors as `Tensor.numpy`."""
        try:
            data = self.raw()
            _check_bytes("a storage", len(data), self.dtype, self.count)
        except (
            Exception
        ) as error:  # zipfile raises many kinds, for bad offsets an OSError without a file name
            if isinstance(error, OSError) and error.filename is not None:
                raise
            raise ValueError(f"{self.path}: damaged: {error or type(error).__name__}") from error
        words = np.frombuffer(data, np.dtype(f"{'>' if self.big else '<'}u{self.dtype.itemsize}"))
        return words.astype(words.dtype.newbyteorder("=")).view(self.dtype)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor, as a strided view of a storage.

    Attributes:
      storage: the numbers.
      offset: index of the first number in the storage.
      shape: shape of the array.
      strides: strides in numbers, not bytes.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def numpy(self) -> np.ndarray:
        """Reads the tensor from the file and returns it as a contiguous array.

        Raises:
          ValueError: if the file has changed or its bytes are damaged.
        """
        numbers = self.storage.read()
        strides = [stride * numbers.itemsize for stride in self.strides]
        view = np.lib.stride_tricks.as_strided(numbers[self.offset :], self.shape, strides)
        return np.array(view, order="C")


def load(path: str | os.PathLike[str]) -> Any:
    """Loads the object saved in a file, in either of PyTorch's formats.

    Raises:
      ValueError: with the path, if the file is not one of PyTorch's, damaged, or refers to a name that is not
        in `ALLOWED`.
    """
    with open(path, "rb") as file:
        try:
            if file.read(4) == b"PK\x03\x04":
                return _load_zip(path, file)
            # Mapped, so that a damaged length cannot read past the end of the file or exhaust the memory.
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                return _load_legacy(path, mapped)
        except Exception as error:  # unpickling untrusted input can raise anything
            raise ValueError(f"{path}: cannot be read as a file saved by PyTorch: {error}") from error


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the state dict of a PyTorch file: the saved object itself, or its "model" or "state_dict".

    Raises:
        ValueError: with the path, if the file is invalid (see `load`) or has no state dict.
    """
    saved = load(path)
    found = f"a {type(saved).__name__}"
    if isinstance(saved, Mapping):
        for state in (saved, saved.get("model"), saved.get("state_dict")):
            tensors = dict(state) if isinstance(state, Mapping) else {}
            if tensors and all(isinstance(tensor, Tensor) for tensor in tensors.values()):
                return {name: tensor.numpy() for name, tensor in tensors.items()}
        found = f"a mapping of {', '.join(map(repr, list(saved)[:8]))}" if saved else "an empty mapping"
    raise ValueError(f"{path}: got {found}, expected a state dict, or one named 'model' or 'state_dict'")


def _load_zip(path: str | os.PathLike[str], file: BinaryIO) -> Any:
    """Loads the format of PyTorch >= 1.6: a zip archive of ROOT/data.pkl and ROOT/data/KEY per storage."""
    with zipfile.ZipFile(file) as archive:
        sizes = {}
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED:
                raise pickle.UnpicklingError(
                    f"{info.filename}: got a compressed entry, expected a stored one"
                )
            sizes[info.filename] = info.file_size
        pickles = [name for name in sizes if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise pickle.UnpicklingError(f"got {len(pickles)} entries named */data.pkl, expected 1")
        root = pickles[0].split("/")[0]
        order = archive.read(f"{root}/byteorder") if f"{root}/byteorder" in sizes else b"little"
        if order not in (b"little", b"big"):
            raise pickle.UnpicklingError(f"got byte order {order[:20]!r}, expected little or big")

        def storage(dtype: np.dtype, key: str, count: int) -> Storage:
            name = f"{root}/data/{key}"
            _check_bytes(name, sizes.get(name), dtype, count)

            def raw() -> bytes:
                with zipfile.ZipFile(path) as again:
                    return again.read(name)

            return Storage(path, dtype, count, order == b"big", raw)

        with archive.open(pickles[0]) as program:
            return _unpickled(io.BytesIO(program.read()), storage)


def _load_legacy(path: str | os.PathLike[str], file: mmap.mmap) -> Any:
    """Loads the format of PyTorch < 1.6.

    The file is a sequence: magic number, version, machine, the pickle, the keys of the storages, and for each
    storage its count and bytes.
    """

    def nothing(dtype: np.dtype, key: str, count: int) -> Storage:
        raise pickle.UnpicklingError("got a storage before the saved object")

    if _unpickled(file, nothing) != LEGACY_MAGIC:
        raise pickle.UnpicklingError("it starts neither with a zip header nor with PyTorch's magic number")
    if (version := _unpickled(file, nothing)) != LEGACY_PROTOCOL:
        raise pickle.UnpicklingError(f"got format version {version}, expected {LEGACY_PROTOCOL}")
    big = not _unpickled(file, nothing).get("little_endian", True)
    storages: dict[str, Storage] = {}

    def storage(dtype: np.dtype, key: str, count: int) -> Storage:
        found = storages.setdefault(key, Storage(path, dtype, count, big))
        if (found.dtype, found.count) != (dtype, count):
            raise pickle.UnpicklingError(f"storage {key!r} has two different dtypes or sizes")
        return found

    saved = _unpickled(file, storage)
    keys = _unpickled(file, nothing)
    if not isinstance(keys, list) or sorted(keys) != sorted(storages):
        raise pickle.UnpicklingError("the list of storages does not match the saved object")
    for key in keys:
        _place(path, file, storages[key], key)
    return saved


def _place(path: str | os.PathLike[str], file: mmap.mmap, storage: Storage, key: str) -> None:
    """Records where the bytes of a legacy file's next storage are, and skips them."""
    (count,) = struct.unpack("<q", file.read(8))
    if count != storage.count:
        raise pickle.UnpicklingError(f"storage {key!r}: got {count} numbers, expected {storage.count}")
    start, length = file.tell(), count * storage.dtype.itemsize
    _check_bytes(f"storage {key!r}", min(length, len(file) - start), storage.dtype, count)

    def raw() -> bytes:
        with open(path, "rb") as again:
            again.seek(start)
            return again.read(length)

    storage.raw = raw
    file.seek(length, os.SEEK_CUR)


def _unpickled(file: io.BytesIO | mmap.mmap, storage: Callable[[np.dtype, str, int], Storage]) -> Any:
    """Loads the next pickle of a file, after checking its memo indices."""
    start = file.tell()
    for opcode, argument, place in pickletools.genops(cast(BinaryIO, file)):
        # Python's memo table is as long as the largest memo index, so that a pickle of ten bytes could
        # exhaust the memory.
        if opcode.name.endswith("PUT") and cast(int, argument) > cast(int, place):
            raise pickle.UnpicklingError(f"got memo index {argument} at byte {place}, expected a smaller one")
    file.seek(start)
    return _Unpickler(file, storage).load()


class _Unpickler(pickle.Unpickler):
    """An unpickler that accepts only the names in `ALLOWED`."""

    def __init__(self, file: Any, storage: Callable[[np.dtype, str, int], Storage]):
        super().__init__(file, encoding="utf-8")  # names written under Python 2 are bytes
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in for a name; raises `pickle.UnpicklingError` if it is not in `ALLOWED`."""
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not allowed") from None

    def persistent_load(self, pid: Any) -> Storage:
        """Returns the storage of ("storage", type, key, device, count), or, in legacy files, a view of it."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise pickle.UnpicklingError("it refers to an external object that is not a storage")
        _, kind, key, _, count, *view = pid
        if kind not in STORAGES or not isinstance(key, str) or not _natural(count):
            raise pickle.UnpicklingError("got a storage with an invalid type, key or size")
        storage = self._storage(STORAGES[kind], key, count)
        return storage if not view or view[0] is None else _part(storage, *view[0][1:])


def _part(whole: Storage, offset: int, count: int) -> Storage:
    """Returns a storage that is a slice of another, which only PyTorch 0.x wrote."""
    if not (_natural(offset) and _natural(count)) or offset + count > whole.count:
        raise pickle.UnpicklingError("got a storage that extends past the one it is part of")
    begin, end = (number * whole.dtype.itemsize for number in (offset, offset + count))
    return dataclasses.replace(whole, count=count, raw=lambda: whole.raw()[begin:end])


def _tensor(
    storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> Tensor:
    """Replaces `torch._utils._rebuild_tensor` and `_rebuild_tensor_v2`."""
    shape, strides = tuple(shape), tuple(strides)
    natural = all(map(_natural, (offset, *shape, *strides)))
    if not isinstance(storage, Storage) or not natural or len(shape) != len(strides):
        raise pickle.UnpicklingError("got a tensor without a storage, or with an invalid shape or strides")
    count = math.prod(shape)
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if count and (last >= storage.count or count > storage.count):
        raise pickle.UnpicklingError(
            f"got a tensor of shape {shape}, strides {strides} and offset {offset}, expected it to fit the "
            f"{storage.count} numbers of its storage"
        )
    return Tensor(storage, offset, shape, strides)


def _parameter(data: Tensor, *_: Any) -> Tensor:
    """Replaces `torch._utils._rebuild_parameter`; returns the parameter's tensor."""
    if not isinstance(data, Tensor):
        raise pickle.UnpicklingError("got a parameter that is not a tensor")
    return data


ALLOWED: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch", "Size"): tuple,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    **{("torch", name): name for name in STORAGES},
}


_DICTIONARY = b"ccollections\nOrderedDict\n)R"


def save(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays as a state dict that `torch.load` reads, also with `weights_only=True`.

    Raises:
      ValueError: with the name of an array whose dtype PyTorch has no storage for.
    """
    storages = {dtype: name for name, dtype in STORAGES.items()}
    program = [b"\x80\x02", _DICTIONARY, b"("]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for key, (name, array) in enumerate(arrays.items()):
            dtype = array.dtype.newbyteorder("=")
            if dtype not in storages:
                types = ", ".join(map(str, storages))
                raise ValueError(f"arrays[{name!r}]: got dtype {array.dtype}, expected one of {types}")
            numbers = np.ascontiguousarray(array, dtype)
            strides = [stride // dtype.itemsize for stride in numbers.reshape(array.shape).strides]
            program += [
                _text(name),
                b"ctorch._utils\n_rebuild_tensor_v2\n(",
                b"(" + _text("storage") + f"ctorch\n{storages[dtype]}\n".encode(),
                _text(str(key)) + _text("cpu") + _integer(array.size) + b"tQ",
                _integer(0) + _integers(array.shape) + _integers(strides),
                b"\x89" + _DICTIONARY + b"tR",
            ]
            archive.writestr(f"archive/data/{key}", numbers.astype(dtype.newbyteorder("<")).tobytes())
        archive.writestr("archive/data.pkl", b"".join((*program, b"u.")))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/version", "3\n")


def _text(value: str) -> bytes:
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _integer(value: int) -> bytes:
    if value < 2**31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def _integers(values: Any) -> bytes:
    return b"(" + b"".join(_integer(value) for value in values) + b"t"


def _check_bytes(name: str, found: int | None, dtype: np.dtype, count: int) -> None:
    if found != count * dtype.itemsize:
        raise pickle.UnpicklingError(
            f"{name}: got {found or 0} bytes, expected {count} numbers of {dtype.itemsize} bytes"
        )


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
