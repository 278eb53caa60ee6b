"""Files saved by PyTorch: dtypes, strides, sharing, both formats; damaged and hostile files are errors."""

import collections
import io
import os
import pickle
import zipfile
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.runtime import torch_files
from tests.experiments.runtime import torch_pickles
from tests.experiments.runtime.torch_pickles import TYPES, Storage, Tensor, legacy, tensor, zipped

FORMATS = (zipped, legacy)


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes bytes to a file and returns its path."""

    def put(data):
        path = tmp_path / "saved.pt"
        path.write_bytes(data)
        return path

    return put


def array(dtype, *shape):
    """Returns distinct numbers of any dtype."""
    numbers = np.arange(np.prod(shape, dtype=int)) % 100
    return (numbers % 2 if dtype == "bool" else numbers).reshape(shape).astype(dtype)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("big", [False, True])
def test_every_type(write, form, big):
    """Numbers, shapes and dtypes are preserved, for files from machines of either byte order."""
    want = {name: array(ml_dtypes.bfloat16 if name == "bfloat16" else name, 2, 3) for name in TYPES}
    saved = torch_files.load(write(form({name: tensor(x) for name, x in want.items()}, big=big)))
    assert list(saved) == list(want)
    for name, found in saved.items():
        assert found.numpy().dtype == want[name].dtype
        assert found.numpy().dtype.isnative
        np.testing.assert_array_equal(found.numpy(), want[name])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("protocol", [2, 4])
def test_views_of_one_storage(write, form, protocol):
    """Transposed, offset, strided, scalar, empty and parameter tensors, two of them tied."""
    numbers = np.arange(12, dtype=np.float32)
    storage = Storage(numbers)
    table = numbers.reshape(3, 4)
    views = collections.OrderedDict(
        whole=(Tensor(storage, (3, 4), (4, 1)), table),
        transposed=(Tensor(storage, (4, 3), (1, 4)), table.T),
        column=(Tensor(storage, (3,), (4,), 2), table[:, 2]),
        scalar=(Tensor(storage, (), (), 7), numbers[7]),
        empty=(Tensor(storage, (0, 4), (4, 1), 99), numbers[:0].reshape(0, 4)),
        parameter=(Tensor(storage, (3, 4), (4, 1), parameter=True), table),
    )
    value = collections.OrderedDict((name, view) for name, (view, _) in views.items())
    saved = torch_files.load(write(form(value, protocol=protocol)))
    for name, (_, want) in views.items():
        found = saved[name].numpy()
        assert found.shape == want.shape
        assert found.flags.owndata or found.base.flags.owndata
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, want)
    assert saved["whole"].storage.read() is not None
    found[0, 0] = -1  # a copy: the next reading has the file's number
    np.testing.assert_array_equal(saved["whole"].numpy(), table)


@pytest.mark.parametrize("form", FORMATS)
def test_a_dozen_storages(write, form):
    """Their keys are text, of which "10" comes before "2"."""
    saved = torch_files.load(write(form({str(n): tensor(np.float32(n)) for n in range(12)})))
    assert {name: float(found.numpy()) for name, found in saved.items()} == {str(n): n for n in range(12)}


@pytest.mark.parametrize("form", FORMATS)
def test_a_training_checkpoint(write, form):
    """Containers, numbers and strings next to tensors, and the metadata of a state dict."""
    state = collections.OrderedDict(weight=tensor(np.eye(2, dtype=np.float32)))
    vars(state)["_metadata"] = collections.OrderedDict({"": {"version": 1}})
    value = {
        "global_step": 1_700_000,
        "model": state,
        "optimizer": {
            "state": {0: {"step": 3, "exp_avg": tensor(np.ones(2))}},
            "param_groups": [{"lr": 1e-4}],
        },
        "best_eval_loss": tensor(np.float32(0.25)),
        "best_eval_acc": float("inf"),
        "betas": (0.9, 0.995),
        "none": None,
    }
    saved = torch_files.load(write(form(value)))
    assert saved["global_step"] == 1_700_000
    assert saved["optimizer"]["param_groups"] == [{"lr": 1e-4}]
    assert saved["betas"] == (0.9, 0.995)
    np.testing.assert_array_equal(saved["model"]["weight"].numpy(), np.eye(2))
    np.testing.assert_array_equal(saved["optimizer"]["state"][0]["exp_avg"].numpy(), [1, 1])
    assert saved["best_eval_loss"].numpy() == np.float32(0.25)


def test_a_state_dict_is_the_object_or_one_of_its_parts(write):
    """It has tensors only: a checkpoint that has some of them beside its model is none."""
    state = {"weight": tensor(np.eye(2))}
    part = {"loss": tensor(np.float32(1)), "step": 3}
    for saved in (state, {**part, "model": state}, {**part, "model": part, "state_dict": state}):
        found = torch_files.read_state_dict(write(zipped(saved)))
        assert list(found) == ["weight"]
        np.testing.assert_array_equal(found["weight"], np.eye(2))
    for saved, what in ((part, "a mapping of 'loss', 'step'"), ({}, "an empty mapping"), ([part], "a list")):
        with pytest.raises(ValueError, match=rf"saved\.pt: got {what}, expected a state dict"):
            torch_files.read_state_dict(write(zipped(saved)))


def test_an_old_file_has_its_storages_in_any_order(write):
    """All that are listed must be those of the object."""
    numbers = [np.arange(4), 4 + np.arange(4)]
    data, keys = legacy([tensor(x) for x in numbers]), pickle.dumps(["0", "1"], 2)
    assert data.count(keys) == 1
    first, second = torch_files.load(write(data.replace(keys, pickle.dumps(["1", "0"], 2))))
    np.testing.assert_array_equal([second.numpy(), first.numpy()], numbers)
    for other in (["0"], ["0", "2"], ["0", "1", "1"], ("0", "1"), None):
        with pytest.raises(ValueError, match="the list of storages does not match the saved object"):
            torch_files.load(write(data.replace(keys, pickle.dumps(other, 2))))


@pytest.mark.parametrize("other", [np.arange(5, dtype=np.int32), np.arange(4, dtype=np.float32)])
def test_a_storage_of_an_old_file_is_one(write, other):
    """Two references to it have the same dtype and size."""
    program = torch_pickles._pickled(
        [Storage(np.arange(4, dtype=np.int32)), Storage(other)], {}, True, 2
    ).replace(b"X\x01\x00\x00\x001", b"X\x01\x00\x00\x000")
    data = [pickle.dumps(x, 2) for x in (torch_files.LEGACY_MAGIC, torch_files.LEGACY_PROTOCOL, {})]
    with pytest.raises(ValueError, match="storage '0' has two different dtypes or sizes"):
        torch_files.load(write(b"".join([*data, program])))


def test_a_view_in_an_old_file(write):
    """PyTorch 0.x stored views of storages as key, offset and size."""
    storages = {}
    program = torch_pickles._pickled({"a": tensor(np.arange(6, dtype=np.int32))}, storages, True, 2)
    # The place of None in the reference, "no view", put a tuple in; and three numbers are looked at, not six.
    view = b"(X\x01\x00\x00\x00vJ\x02\x00\x00\x00J\x03\x00\x00\x00t"
    assert program.count(b"K\x06N") == 1
    program = program.replace(b"K\x06N", b"K\x06" + view).replace(b"K\x06\x85", b"K\x03\x85")
    parts = legacy({"a": tensor(np.arange(6, dtype=np.int32))})
    original = torch_pickles._pickled({"a": tensor(np.arange(6, dtype=np.int32))}, {}, True, 2)
    saved = torch_files.load(write(parts.replace(original, program)))
    np.testing.assert_array_equal(saved["a"].numpy(), [2, 3, 4])


class Evil:
    """Pickles as a call of an arbitrary function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        """Returns the function and its arguments."""
        return self.call


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Evil(os.system, "touch ran"), "system"),
        (Evil(eval, "open('ran', 'w')"), "eval"),
        (Evil(getattr, collections.OrderedDict, "fromkeys"), "getattr"),
        (Evil(pickle.loads, b"N."), "loads"),
        (io.BytesIO(b""), "BytesIO"),
        (np.arange(3), "numpy"),
        (dict, "dict"),
    ],
)
def test_nothing_is_executed(write, tmp_path, monkeypatch, form, value, name):
    """A forbidden name is reported and nothing is executed, however deeply it is nested."""
    monkeypatch.chdir(tmp_path)
    path = write(form({"model": {"weight": [value]}}))
    with pytest.raises(ValueError, match=rf"saved\.pt: cannot be read .* refers to .*{name}.* not allowed"):
        torch_files.load(path)
    assert not (tmp_path / "ran").exists()


def test_nothing_let_in_can_be_called_into_running():
    """Allowed are names of storages, which cannot be called, containers, and our own functions."""
    for (module, _), value in torch_files.ALLOWED.items():
        if isinstance(value, str):
            assert not callable(value)
        else:
            assert value in (collections.OrderedDict, tuple) or value.__module__ == torch_files.__name__
        assert module in ("collections", "torch", "torch._utils")


FOUR = Storage(np.arange(4, dtype=np.float32))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Tensor(FOUR, (5,), (1,)), "expected it to fit the 4 numbers"),
        (Tensor(FOUR, (2, 2), (2, 1), 1), "to fit the"),
        (Tensor(FOUR, (2,), (-1,), 1), "invalid shape or strides"),
        (Tensor(FOUR, (2,), (1,), -1), "invalid shape"),
        (Tensor(FOUR, (2,), (1, 1)), "invalid shape"),
        (Tensor(FOUR, (10**9, 10**9), (0, 0)), "to fit the"),
        (Tensor(FOUR, (True, 2), (1, 1)), "invalid shape"),
        (Tensor(Storage(np.arange(4), count=5), (5,), (1,)), "expected 5"),
    ],
)
def test_impossible_tensors(write, form, value, message):
    """Shapes, strides and sizes are checked before any tensor data are read."""
    with pytest.raises(ValueError, match=message):
        torch_files.load(write(form([value])))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty file"),
        (b"\x80\x02Nr\xff\xff\xff\xff.", "got memo index 4294967295"),
        (b"some text", "cannot be read as a file saved by PyTorch"),
        (pickle.dumps({"a": 1}), "neither with a zip header nor with PyTorch's magic number"),
        (pickle.dumps(torch_files.LEGACY_MAGIC) + pickle.dumps(1000), "version 1000, expected 1001"),
        (zipped([FOUR])[:-30], "zip"),
        (legacy([tensor(np.arange(4))])[:-1], "got 31 bytes, expected 4 numbers"),
        (legacy([tensor(np.arange(4))])[:-33], "cannot be read"),
    ],
)
def test_damaged_files(write, data, message):
    """The message has the file and the reason."""
    with pytest.raises(ValueError, match=rf"saved\.pt: .*{message}"):
        torch_files.load(write(data))


NUMBERS = np.arange(4, dtype=np.float32)


def archived(program, order="little"):
    """Returns an archive of a pickle and of the storage "0" of four numbers."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("a/data.pkl", program)
        archive.writestr("a/byteorder", order)
        archive.writestr("a/data/0", NUMBERS.tobytes())
    return out.getvalue()


def referring(reference):
    """Returns a pickle of a reference to an external object."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return reference if obj is NUMBERS else None

    out = io.BytesIO()
    Pickler(out, 2).dump(NUMBERS)
    return out.getvalue()


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (3, "not a storage"),
        (("storage", "FloatStorage", "0", "cpu"), "not a storage"),
        (("module", "FloatStorage", "0", "cpu", 4), "not a storage"),
        (("storage", "QuaternionStorage", "0", "cpu", 4), "invalid type, key or size"),
        (("storage", "FloatStorage", 0, "cpu", 4), "invalid type, key or size"),
        (("storage", "FloatStorage", "0", "cpu", -4), "invalid type, key or size"),
        (("storage", "FloatStorage", "0", "cpu", True), "invalid type, key or size"),
        (("storage", "FloatStorage", "0", "cpu", 4, ("1", 3, 2)), "extends past"),
        (("storage", "FloatStorage", "0", "cpu", 4, ("1", -1, 2)), "extends past"),
        (("storage", "FloatStorage", "0", "cpu", 4, ("1", 1, -1)), "extends past"),
    ],
)
def test_references_that_are_no_storages(write, reference, message):
    with pytest.raises(ValueError, match=message):
        torch_files.load(write(archived(referring(reference))))


@pytest.mark.parametrize(("view", "want"), [((), range(4)), ((None,), range(4)), ((("1", 2, 2),), (2, 3))])
def test_references_to_storages_and_their_ends(write, view, want):
    reference = ("storage", "FloatStorage", "0", "cpu", 4, *view)
    np.testing.assert_array_equal(torch_files.load(write(archived(referring(reference)))).read(), want)


@pytest.mark.parametrize(
    ("program", "order", "message"),
    [
        (b"\x80\x02N.", "middle", "got byte order b'middle', expected little or big"),
        (b"ctorch._utils\n_rebuild_parameter\n(NtR.", "little", "got a parameter that is not a tensor"),
    ],
)
def test_other_contents_of_archives(write, program, order, message):
    with pytest.raises(ValueError, match=message):
        torch_files.load(write(archived(program, order)))


@pytest.mark.parametrize("value", [0, 2**31 - 1, 2**31, 2**40])
def test_large_sizes_are_written(value):
    assert pickle.loads(b"\x80\x02" + torch_files._integer(value) + b".") == value


def test_other_archives(write, tmp_path):
    """An archive without a pickle, one with two, and a compressed one."""
    for names, compression, message in (
        (["readme.txt"], zipfile.ZIP_STORED, "0 entries"),
        (["a/data.pkl", "b/data.pkl"], zipfile.ZIP_STORED, "2 entries"),
        (["a/data.pkl"], zipfile.ZIP_DEFLATED, "compressed"),
    ):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", compression) as archive:
            for name in names:
                archive.writestr(name, pickle.dumps({}) * 50)
        with pytest.raises(ValueError, match=message):
            torch_files.load(write(out.getvalue()))
    with pytest.raises(FileNotFoundError):
        torch_files.load(tmp_path / "none.pt")


@pytest.mark.parametrize("form", FORMATS)
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_damage_is_a_value_error(write, form, data):
    """If bytes are changed, removed or inserted, the file is either read or rejected with a ValueError."""
    saved = bytearray(form({"a": tensor(np.eye(2)), "b": [1, "x", tensor(np.arange(3, dtype=np.int32))]}))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(saved) - 1))
        saved[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    path = write(bytes(saved))

    def read(value):
        if isinstance(value, torch_files.Tensor):
            value.numpy()
        elif isinstance(value, (list, tuple)):
            for part in value:
                read(part)
        elif isinstance(value, dict):
            read(list(value.values()))

    message = "saved.pt"
    try:
        read(torch_files.load(path))
    except ValueError as error:
        message = str(error)
    assert "saved.pt" in message


def test_what_is_written_reads_again(tmp_path):
    """All dtypes, shapes and layouts; PyTorch's own strict reader accepts the pickle."""
    arrays: dict[str, Any] = {
        name: array(ml_dtypes.bfloat16 if name == "bfloat16" else name, 2, 3) for name in TYPES
    }
    arrays |= {
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "scalar": np.float32(3),
        "empty": np.zeros((0, 4), np.float32),
        "big": np.arange(3, dtype=">f4"),
        "größe": np.ones(1),
    }
    path = tmp_path / "ours.pt"
    torch_files.save(path, arrays)
    saved = torch_files.load(path)
    assert list(saved) == list(arrays)
    for name, want in arrays.items():
        np.testing.assert_array_equal(saved[name].numpy(), want)
        assert saved[name].numpy().dtype == np.asarray(want).dtype.newbyteorder("=")
    with pytest.raises(ValueError, match=r"arrays\['x'\]: got dtype complex128"):
        torch_files.save(path, {"x": np.zeros(1, complex)})


def test_a_place_before_the_file_is_a_damaged_file(tmp_path, monkeypatch):
    """The directory of a damaged archive can point there; the OSError then has no file name."""
    path = tmp_path / "model.pt"
    torch_files.save(path, {"weight": np.arange(3, dtype=np.float32)})
    saved = torch_files.load(path)

    def read(archive, name):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(zipfile.ZipFile, "read", read)
    with pytest.raises(ValueError, match=r"model\.pt: damaged: \[Errno 22\]"):
        saved["weight"].numpy()
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda archive, name: b"1234")
    with pytest.raises(ValueError, match=r"model\.pt: damaged: a storage: got 4 bytes, expected 3 numbers"):
        saved["weight"].numpy()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        saved["weight"].numpy()
