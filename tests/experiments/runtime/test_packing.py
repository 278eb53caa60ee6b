"""Runs packed into a folder and unpacked again."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from experiments import runtime
from experiments.runtime import packing
from experiments.runtime.checkpoints import Checkpoints, Restored, checksum_with
from experiments.runtime.workdir import write_json

STATE: dict[str, Any] = {
    "params": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "small": np.float32(2.5)},
    "keys": None,
    "board": np.asarray([[-1, 3]], np.int8),
    "half": None,
}

OTHERS = ("thesis", "notes", "figures", "letter", "abstract", "proof", "index", "tables")
"""Names that are not sorted, and come from a set or a folder in the right order only by chance."""
KINDS = ("rbg", "unsafe_rbg")


def state():
    made = {**STATE, "keys": jax.random.split(jax.random.key(3), 2), "half": jnp.asarray([1.5], jnp.bfloat16)}
    return jax.tree.map(jnp.asarray, made)


def abstract():
    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), state())


def words(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


@pytest.fixture
def workdir(tmp_path):
    """A run with checkpoints at steps 3 and 5."""
    path = tmp_path / "run"
    checkpoints = Checkpoints(path / "checkpoints", every=1, keep=2)
    earlier = state()
    earlier["board"] += 1
    checkpoints.save(3, earlier, {"train_seconds": 1.0})
    checkpoints.save(5, state(), {"train_seconds": 2.5})
    checkpoints.close()
    write_json(path / "config.json", {"steps": 9})
    (path / "metrics.jsonl").write_text('{"step": 5}\n')
    (path / "solved.png").write_bytes(b"not packed")
    return path


def test_a_run_comes_out_as_it_went_in(workdir, tmp_path):
    file = packing.pack(workdir, abstract(), tmp_path / "folder")
    assert file.stat().st_mode & 0o777 == 0o644
    assert {path.name for path in (tmp_path / "folder").iterdir()} == {
        "config.json", "metrics.jsonl", "state.safetensors",
    }  # fmt: skip
    restored = packing.unpack(tmp_path / "folder", abstract(), tmp_path / "again")
    again = Checkpoints(tmp_path / "again" / "checkpoints", every=1, keep=2).restore(abstract())
    assert again is not None
    for found in (restored, again):
        assert (found.step, found.progress) == (5, {"train_seconds": 2.5})
        for one, other in zip(jax.tree.leaves(found.state), jax.tree.leaves(state()), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(words(one), words(other))
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == {"steps": 9}
    assert (tmp_path / "again" / "metrics.jsonl").read_text() == '{"step": 5}\n'


def test_anyone_can_read_the_file(workdir, tmp_path):
    arrays = load_file(packing.pack(workdir, abstract(), tmp_path / "folder"))
    assert set(arrays) == {"params/kernel", "params/small", "keys", "board", "half"}
    np.testing.assert_array_equal(arrays["params/kernel"], STATE["params"]["kernel"])


def test_an_earlier_step_and_another_packing(workdir, tmp_path):
    packing.pack(workdir, abstract(), tmp_path / "folder")
    (tmp_path / "folder").mkdir(exist_ok=True)
    (tmp_path / "folder" / f".{packing.STATE}.123.tmp").touch()  # a packing that was killed
    packing.pack(workdir, abstract(), tmp_path / "folder", step=3)
    assert packing.read_state(tmp_path / "folder", abstract()).step == 3
    with pytest.raises(runtime.CheckpointError, match=r"/4: no such checkpoint; available steps: 5, 3"):
        packing.pack(workdir, abstract(), tmp_path / "folder", step=4)


def test_what_cannot_be_packed_or_unpacked_is_named(workdir, tmp_path):
    with pytest.raises(runtime.CheckpointError, match="got no checkpoint"):
        packing.pack(tmp_path / "nothing", abstract(), tmp_path / "folder")
    with pytest.raises(runtime.CheckpointError, match=r"/3: no such checkpoint; available steps: none"):
        packing.pack(tmp_path / "nothing", abstract(), tmp_path / "folder", step=3)
    (tmp_path / "other").mkdir()
    for name in OTHERS:
        (tmp_path / "other" / f"{name}.tex").touch()
    with pytest.raises(runtime.WorkdirError, match=r"got 'abstract.tex', expected a packed run"):
        packing.pack(workdir, abstract(), tmp_path / "other")
    with pytest.raises(runtime.CheckpointError, match=r"state.safetensors: cannot be read"):
        packing.unpack(tmp_path / "other", abstract(), tmp_path / "again")
    packing.pack(workdir, abstract(), tmp_path / "folder")
    with pytest.raises(runtime.WorkdirError, match="is not empty"):
        packing.unpack(tmp_path / "folder", abstract(), workdir)


def test_a_state_that_does_not_fit_is_named(workdir, tmp_path):
    packing.pack(workdir, abstract(), tmp_path / "folder")
    wanted = abstract()
    board = wanted.pop("board")
    for more, message in (({}, "an unexpected board"), (dict.fromkeys(OTHERS, board), "no abstract")):
        with pytest.raises(runtime.CheckpointError, match=f"it has {message}$"):
            packing.read_state(tmp_path / "folder", wanted | more)
    for dtype, shape in (("int8", (2, 1)), ("uint8", (1, 2)), ("bfloat16", (1,))):
        other = jax.ShapeDtypeStruct(shape, dtype, sharding=board.sharding)
        with pytest.raises(runtime.CheckpointError) as caught:
            packing.read_state(tmp_path / "folder", wanted | {"board": other})
        assert str(caught.value).endswith(f": board: got int8[1, 2], expected {dtype}{list(shape)}")


def test_random_keys_of_another_generator_are_refused(tmp_path):
    """Their words look alike."""
    drawn = {
        kind: {"key": jax.random.wrap_key_data(jnp.arange(4, dtype=jnp.uint32), impl=kind)} for kind in KINDS
    }
    packing.write_state(tmp_path / packing.STATE, Restored(1, drawn["rbg"], {}))
    with jax.default_prng_impl("rbg"):
        assert packing.read_state(tmp_path, drawn["rbg"]).step == 1
        with pytest.raises(runtime.CheckpointError, match=r"got random keys of key<rbg>, expected key<urbg>"):
            packing.read_state(tmp_path, drawn["unsafe_rbg"])


def test_a_torn_file_is_refused(workdir, tmp_path):
    file = packing.pack(workdir, abstract(), tmp_path / "folder")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(runtime.CheckpointError, match="cannot be read"):
        packing.read_state(tmp_path / "folder", abstract())


def test_a_packing_that_was_killed_leaves_no_state_with_other_records(workdir, tmp_path, monkeypatch):
    file = packing.pack(workdir, abstract(), tmp_path / "folder", step=3)

    def killed(*_):
        raise KeyboardInterrupt

    write = packing.write_state
    monkeypatch.setattr(packing, "write_state", killed)
    with pytest.raises(KeyboardInterrupt):
        packing.pack(workdir, abstract(), tmp_path / "folder")
    assert not file.exists()
    monkeypatch.setattr(packing, "write_state", write)
    packing.pack(workdir, abstract(), tmp_path / "folder")
    assert packing.read_state(tmp_path / "folder", abstract()).step == 5


@pytest.mark.parametrize("name", ["mixed_checksum", "checksum"])
def test_any_changed_bit_is_found(workdir, tmp_path, name):
    """The format has no checksum; the one in the metadata covers arrays, step and progress.

    That of earlier files has another name.
    """
    file = packing.pack(workdir, abstract(), tmp_path / "folder")
    if name == "checksum":
        record = {"step": "5", "progress": '{"train_seconds": 2.5}'}
        record[name] = str(checksum_with(state(), [5, {"train_seconds": 2.5}], mix=False))
        save_file(load_file(file), file, record)
        assert packing.read_state(tmp_path / "folder", abstract()).step == 5
    whole = file.read_bytes()
    values = len(whole) - sum(array.nbytes for array in load_file(file).values())
    step, word = whole.index(b'"step":"5"') + 8, whole.index(f'"{name}"'.encode()) + 2
    for place in (values, values + 9, len(whole) - 1, step, word):
        changed = bytearray(whole)
        changed[place] ^= 1
        file.write_bytes(changed)
        with pytest.raises(runtime.CheckpointError, match=r"state.safetensors: .*damaged"):
            packing.read_state(tmp_path / "folder", abstract())
    file.write_bytes(whole)
    (tmp_path / "folder" / "config.json").write_text("{")
    with pytest.raises(runtime.WorkdirError, match=r"config.json: not JSON"):
        packing.unpack(tmp_path / "folder", abstract(), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_files_from_before_there_was_a_checksum_are_read(workdir, tmp_path):
    file = packing.pack(workdir, abstract(), tmp_path / "folder")
    with safe_open(file, framework="numpy") as opened:
        record = {name: value for name, value in opened.metadata().items() if name != "mixed_checksum"}
    save_file(load_file(file), file, record)
    assert packing.read_state(tmp_path / "folder", abstract()).step == 5
