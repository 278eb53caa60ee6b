"""Files that PyTorch saved, read without PyTorch and without executing anything that is in them; and written.

A saved file is a pickle with its tensors' bytes beside it: in a zip archive since PyTorch 1.6, one after the
other before. A pickle is a program. This one may only name what is in `ALLOWED`, nothing of which runs
anything: types of storages, dictionaries, and the functions that put a tensor together, which here only take
notes. All else is refused.

`load` gives what was saved, made of plain containers, numbers, strings and `Tensor`. Structure and sizes are
checked then; a tensor's bytes are read when it is asked for its array, so that weights come out of a training
checkpoint without its optimizer's state.
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
    """Numbers that one or several tensors are views of.

    Attributes:
      path: of the file.
      dtype: of the numbers.
      count: how many there are.
      big: whether their bytes are big-endian.
      raw: gets their bytes; in a legacy file the place of these is known later.
    """

    path: str | os.PathLike[str]
    dtype: np.dtype
    count: int
    big: bool
    raw: Any = None

    def read(self) -> np.ndarray:
        """Gets the numbers [count], in the machine's own byte order; raises as `Tensor.numpy` does."""
        try:
            data = self.raw()
            _check_bytes("a storage", len(data), self.dtype, self.count)
        except Exception as error:  # zipfile has many; where it is sent to a place that is none, OSError too
            if isinstance(error, OSError) and error.filename is not None:
                raise
            raise ValueError(f"{self.path}: damaged: {error or type(error).__name__}") from error
        words = np.frombuffer(data, np.dtype(f"{'>' if self.big else '<'}u{self.dtype.itemsize}"))
        return words.astype(words.dtype.newbyteorder("=")).view(self.dtype)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A view of a storage.

    Attributes:
      storage: the numbers.
      offset: of the first, in numbers.
      shape: of the array.
      strides: in numbers.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def numpy(self) -> np.ndarray:
        """The array, a copy.

        Raises:
          ValueError: the file has changed or its bytes are damaged.
        """
        numbers = self.storage.read()
        strides = [stride * numbers.itemsize for stride in self.strides]
        view = np.lib.stride_tricks.as_strided(numbers[self.offset :], self.shape, strides, writeable=False)
        return np.array(view, order="C")


def load(path: str | os.PathLike[str]) -> Any:
    """What was saved in a file, in either of PyTorch's formats.

    Raises:
      ValueError: not such a file, a damaged one, or one that names what may not be named; the file is told.
    """
    with open(path, "rb") as file:
        try:
            if file.read(4) == b"PK\x03\x04":
                return _load_zip(path, file)
            # Mapped, so that a damaged length reads up to the file's end, not memory that is not there.
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                return _load_legacy(path, mapped)
        except Exception as error:  # whatever the unpickler stumbles over: its input is anybody's
            raise ValueError(f"{path}: cannot be read as a file that PyTorch saved: {error}") from error


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The state dict of a file that PyTorch saved: by itself, or as "model" of a training checkpoint.

    Raises:
        ValueError: not such a file, a damaged one, or one that would have to be executed; the file is named.
    """
    saved = load(path)
    found = f"a {type(saved).__name__}"
    if isinstance(saved, Mapping):
        for state in (saved, saved.get("model"), saved.get("state_dict")):
            tensors = dict(state) if isinstance(state, Mapping) else {}
            if tensors and all(isinstance(tensor, Tensor) for tensor in tensors.values()):
                return {name: tensor.numpy() for name, tensor in tensors.items()}
        found = f"a mapping of {', '.join(map(repr, list(saved)[:8]))}" if saved else "an empty mapping"
    raise ValueError(f"{path}: holds {found}, expected a state dict, or one named 'model' or 'state_dict'")


def _load_zip(path: str | os.PathLike[str], file: BinaryIO) -> Any:
    """PyTorch >= 1.6: ROOT/data.pkl, and ROOT/data/KEY for each storage."""
    with zipfile.ZipFile(file) as archive:
        sizes = {}
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED:
                raise pickle.UnpicklingError(f"{info.filename} is compressed, which PyTorch never does")
            sizes[info.filename] = info.file_size
        pickles = [name for name in sizes if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise pickle.UnpicklingError(f"{len(pickles)} entries named */data.pkl, expected 1")
        root = pickles[0].split("/")[0]
        order = archive.read(f"{root}/byteorder") if f"{root}/byteorder" in sizes else b"little"
        if order not in (b"little", b"big"):
            raise pickle.UnpicklingError(f"byte order {order[:20]!r}, expected little or big")

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
    """PyTorch < 1.6: magic number, version, machine, the pickle, the storages' keys, each count and bytes."""

    def nothing(dtype: np.dtype, key: str, count: int) -> Storage:
        raise pickle.UnpicklingError("a storage before the saved object")

    if _unpickled(file, nothing) != LEGACY_MAGIC:
        raise pickle.UnpicklingError("it starts neither as a zip archive nor with PyTorch's number")
    if (version := _unpickled(file, nothing)) != LEGACY_PROTOCOL:
        raise pickle.UnpicklingError(f"format version {version}, expected {LEGACY_PROTOCOL}")
    big = not _unpickled(file, nothing).get("little_endian", True)
    storages: dict[str, Storage] = {}

    def storage(dtype: np.dtype, key: str, count: int) -> Storage:
        found = storages.setdefault(key, Storage(path, dtype, count, big))
        if (found.dtype, found.count) != (dtype, count):
            raise pickle.UnpicklingError(f"storage {key!r} is named with two types or sizes")
        return found

    saved = _unpickled(file, storage)
    keys = _unpickled(file, nothing)
    if not isinstance(keys, list) or sorted(keys) != sorted(storages):
        raise pickle.UnpicklingError("the list of storages is not that of those named")
    for key in keys:
        _place(path, file, storages[key], key)
    return saved


def _place(path: str | os.PathLike[str], file: mmap.mmap, storage: Storage, key: str) -> None:
    """Notes where the bytes of the next storage of a legacy file are, and goes past them."""
    (count,) = struct.unpack("<q", file.read(8))
    if count != storage.count:
        raise pickle.UnpicklingError(f"storage {key!r} has {count} numbers, expected {storage.count}")
    start, length = file.tell(), count * storage.dtype.itemsize
    _check_bytes(f"storage {key!r}", min(length, len(file) - start), storage.dtype, count)

    def raw() -> bytes:
        with open(path, "rb") as again:
            again.seek(start)
            return again.read(length)

    storage.raw = raw
    file.seek(length, os.SEEK_CUR)


def _unpickled(file: io.BytesIO | mmap.mmap, storage: Callable[[np.dtype, str, int], Storage]) -> Any:
    """The next pickle of a file."""
    start = file.tell()
    for opcode, argument, place in pickletools.genops(cast(BinaryIO, file)):
        # Python makes a table as long as the greatest number that something is remembered under: a program of
        # ten bytes could ask for all memory there is.
        if opcode.name.endswith("PUT") and cast(int, argument) > cast(int, place):
            raise pickle.UnpicklingError(f"it remembers something as number {argument}, at byte {place}")
    file.seek(start)
    return _Unpickler(file, storage).load()


class _Unpickler(pickle.Unpickler):
    """Knows the names in `ALLOWED` and no other."""

    def __init__(self, file: Any, storage: Callable[[np.dtype, str, int], Storage]):
        super().__init__(file, encoding="utf-8")  # names written under Python 2 are bytes
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        """What a name stands for."""
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not let in") from None

    def persistent_load(self, pid: Any) -> Storage:
        """A storage: ("storage", type, key, device, count) and, in legacy files, a view of one."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise pickle.UnpicklingError("it refers to something that is not a storage")
        _, kind, key, _, count, *view = pid
        if kind not in STORAGES or not isinstance(key, str) or not _natural(count):
            raise pickle.UnpicklingError("a storage without type, key or size")
        storage = self._storage(STORAGES[kind], key, count)
        return storage if not view or view[0] is None else _part(storage, *view[0][1:])


def _part(whole: Storage, offset: int, count: int) -> Storage:
    """A storage that is some of the numbers of another: only PyTorch 0.x made such."""
    if not (_natural(offset) and _natural(count)) or offset + count > whole.count:
        raise pickle.UnpicklingError("a storage that goes past the one it is part of")
    begin, end = (number * whole.dtype.itemsize for number in (offset, offset + count))
    return dataclasses.replace(whole, count=count, raw=lambda: whole.raw()[begin:end])


def _tensor(
    storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> Tensor:
    """Takes note of a tensor: `torch._utils._rebuild_tensor` and its second version."""
    shape, strides = tuple(shape), tuple(strides)
    natural = all(map(_natural, (offset, *shape, *strides)))
    if not isinstance(storage, Storage) or not natural or len(shape) != len(strides):
        raise pickle.UnpicklingError("a tensor without storage, or of impossible shape or strides")
    count = math.prod(shape)
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if count and (last >= storage.count or count > storage.count):
        raise pickle.UnpicklingError(
            f"a tensor of shape {shape} and strides {strides} from {offset} on goes past the {storage.count} "
            "numbers of its storage"
        )
    return Tensor(storage, offset if count else 0, shape, strides)


def _parameter(data: Tensor, *_: Any) -> Tensor:
    """A parameter is its tensor: `torch._utils._rebuild_parameter`."""
    if not isinstance(data, Tensor):
        raise pickle.UnpicklingError("a parameter that is not a tensor")
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
    """Writes arrays as a state dict that `torch.load` reads, with `weights_only=True` too.

    Raises:
      ValueError: an array of a type that PyTorch has no storage for, by name.
    """
    storages = {dtype: name for name, dtype in STORAGES.items()}
    program = [b"\x80\x02", _DICTIONARY, b"("]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for key, (name, array) in enumerate(arrays.items()):
            array = np.asarray(array)
            dtype = array.dtype.newbyteorder("=")
            if dtype not in storages:
                raise ValueError(f"arrays[{name!r}] is of type {array.dtype}, expected one of {[*storages]}")
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
            f"{name} has {found or 0} bytes, expected {count} numbers of {dtype.itemsize} bytes"
        )


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
