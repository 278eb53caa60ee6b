"""Checkpoints are exact on any sharding, and damaged files never give a wrong state."""

import gc
import itertools
import logging
import shutil
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import SingleDeviceSharding

from experiments.runtime import checkpoints as module
from experiments.runtime.checkpoints import CheckpointError, Checkpoints, checksum
from experiments.runtime.training import TrainState

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def make_state(step: int) -> TrainState:
    """Returns a state with all kinds of leaves: floats, halves, integers, booleans, None, named tuples."""
    key = jax.random.key(step)
    params = {
        "dense": {"kernel": jax.random.normal(key, (64, 50)), "bias": jnp.full((50,), step, jnp.bfloat16)},
        "scale": jnp.float32(0.5 * step),
    }
    extra = {"board": jnp.arange(6, dtype=jnp.uint8) + step, "done": jnp.array([True, False])}
    return TrainState(jnp.int32(step), params, optax.adam(1e-3).init(params), extra)


def abstract_of(state):
    sharding = SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), state)


def assert_same(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.fixture(scope="module", autouse=True)
def _little_garbage():
    """Leaves what earlier tests left out of the collection after each failed read, which takes as long."""
    gc.freeze()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A directory with checkpoints of steps 10 and 20 (step 5 was dropped, since two are kept)."""
    directory = tmp_path_factory.mktemp("saved") / "checkpoints"
    checkpoints = Checkpoints(directory, every=10, keep=2)
    for step in (5, 10, 20):
        checkpoints.save(step, make_state(step), {"train_seconds": step / 4})
    checkpoints.close()
    return directory


def restore(checkpoints) -> Any:
    return checkpoints.restore(abstract_of(make_state(0)))


def reopen(directory):
    checkpoints = Checkpoints(directory, every=10, keep=2)
    try:
        return restore(checkpoints)
    finally:
        checkpoints.close()


def test_restores_the_last_exactly_and_keeps_as_many_as_asked(saved):
    restored = reopen(saved)
    assert restored.step == 20
    assert restored.progress == {"train_seconds": 5.0}
    assert_same(restored.state, make_state(20))
    assert sorted(entry.name for entry in saved.iterdir()) == ["10", "20"]


def test_an_empty_directory_restores_nothing(tmp_path):
    assert reopen(tmp_path / "none") is None


def test_due_at_the_interval_or_when_forced_but_once(tmp_path):
    checkpoints = Checkpoints(tmp_path, every=10, keep=2)
    assert [step for step in range(1, 31) if checkpoints.due(step)] == [10, 20, 30]
    assert checkpoints.due(7, force=True)
    checkpoints.save(7, make_state(7), {})
    assert not checkpoints.due(7, force=True)
    assert checkpoints.latest_path() == tmp_path / "7"
    checkpoints.close()


KINDS = ("delete", "truncate", "flip")


def damages(directory):
    """Yields every file of the last checkpoint and a kind: deleted, truncated, or with one bit changed."""
    files = sorted(path for path in (directory / "20").rglob("*") if path.is_file())
    yield from itertools.product((path.relative_to(directory) for path in files), KINDS)


def damage(path, kind):
    content = path.read_bytes()
    if kind == "delete":
        path.unlink()
    elif kind == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif content:
        place = len(content) // 2
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])


# When one of several concurrent reads fails, tensorstore answers the others' closed event loop from its
# threads.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_whatever_happens_to_a_file_the_state_is_exact_or_the_one_before_is_used(
    saved, tmp_path, caplog, thorough
):
    """In every second file one kind of damage, in turn; when thorough, all kinds in each."""
    fallen_back = 0
    for number, (name, kind) in enumerate(damages(saved)):
        file, of_kind = divmod(number, len(KINDS))
        if not thorough and (file % 2 or of_kind != file // 2 % len(KINDS)):
            continue
        directory = tmp_path / str(number) / "checkpoints"
        shutil.copytree(saved, directory)
        damage(directory / name, kind)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "absl"):
            restored = reopen(directory)
        reported = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        case = f"{kind} {name}"
        assert_same(restored.state, make_state(restored.step))
        assert restored.progress == {"train_seconds": restored.step / 4}, case
        if restored.step == 20:
            assert not any("damaged" in line for line in reported), case
            continue
        fallen_back += 1
        assert restored.step == 10, case
        assert any(str(directory / "20") in line and "damaged" in line for line in reported), case
        assert not (directory / "20").exists()
        assert (tmp_path / str(number) / "checkpoints_damaged" / "20").is_dir(), case
    assert fallen_back > (15 if thorough else 3)


def test_a_directory_emptied_whole_is_damage_too_and_its_step_can_be_saved_again(saved, tmp_path):
    directory = tmp_path / "checkpoints"
    shutil.copytree(saved, directory)
    shutil.rmtree(directory / "20")
    (directory / "20").mkdir()
    checkpoints = Checkpoints(directory, every=10, keep=2)
    assert restore(checkpoints).step == 10
    assert checkpoints.due(20)
    checkpoints.save(20, make_state(20), {})
    checkpoints.close()
    assert_same(reopen(directory).state, make_state(20))


def test_when_all_are_damaged_the_error_names_each_and_nothing_is_moved(saved, tmp_path):
    directory = tmp_path / "checkpoints"
    shutil.copytree(saved, directory)
    for step in ("10", "20"):
        shutil.rmtree(directory / step / "state")
    with pytest.raises(CheckpointError) as caught:
        reopen(directory)
    assert str(directory / "10") in str(caught.value)
    assert str(directory / "20") in str(caught.value)
    assert sorted(entry.name for entry in directory.iterdir()) == ["10", "20"]


def test_a_state_of_another_shape_is_not_restored(saved, tmp_path):
    directory = tmp_path / "checkpoints"
    shutil.copytree(saved, directory)
    checkpoints = Checkpoints(directory, every=10, keep=2)
    abstract = abstract_of(make_state(0))
    abstract.params["dense"]["kernel"] = jax.ShapeDtypeStruct((64, 51), jnp.float32)
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints"):
        checkpoints.restore(abstract)
    checkpoints.close()


def test_leftovers_of_an_interrupted_save_are_ignored_and_cleared(saved, tmp_path):
    directory = tmp_path / "checkpoints"
    shutil.copytree(saved, directory)
    leftover = directory / "30.orbax-checkpoint-tmp"
    shutil.copytree(directory / "20", leftover)
    checkpoints = Checkpoints(directory, every=10, keep=2)
    assert restore(checkpoints).step == 20
    checkpoints.save(30, make_state(30), {})
    checkpoints.close()
    assert sorted(entry.name for entry in directory.iterdir()) == ["20", "30"]
    assert reopen(directory).step == 30


def mixed(word, place):
    """Mixes a word by its definition, in Python integers."""
    word = (word + 0x9E3779B9 * place) % 2**32
    word = (word ^ word >> 16) * 0x7FEB352D % 2**32
    word = (word ^ word >> 15) * 0x846CA68B % 2**32
    return word ^ word >> 16


def multiplied(word, place):
    """Does what checksums did before words were mixed."""
    return word * (2 * place + 1)


def reference_checksum(tree, of_word=mixed):
    """Computes the checksum by its definition, word by word, in Python integers."""
    total = 0
    for index, leaf in enumerate(jax.tree.leaves(tree)):
        value = np.asarray(leaf).reshape(-1)
        value = value.astype(np.uint8) if value.dtype == bool else value
        words = value.view(f"uint{8 * min(value.dtype.itemsize, 4)}")
        total += (2 * index + 1) * sum(of_word(int(word), place) for place, word in enumerate(words))
    return total % 2**32


@pytest.mark.parametrize(
    ("addressable", "platforms", "on_host"),
    [(True, ["cpu"], True), (True, ["cpu", "gpu"], False), (True, ["gpu"], False), (False, ["cpu"], False)],
)
def test_arrays_on_accelerators_or_of_other_processes_stay_there(addressable, platforms, on_host):
    devices = mock.Mock(return_value={mock.Mock(platform=platform) for platform in platforms})
    array = mock.Mock(spec=jax.Array, is_fully_addressable=addressable, devices=devices)
    assert module._is_on_host(array) is on_host


@pytest.mark.parametrize("where", ["host", "host, in blocks", "devices"])
def test_checksum_is_its_definition(where, monkeypatch):
    if where == "devices":
        monkeypatch.setattr("experiments.runtime.checkpoints._is_on_host", lambda leaf: False)
    elif where == "host, in blocks":
        monkeypatch.setattr("experiments.runtime.checkpoints.BLOCK", 3)
    assert checksum(make_state(3)) == reference_checksum(make_state(3))
    assert checksum(make_state(3), mix=False) == reference_checksum(make_state(3), multiplied)


@pytest.mark.parametrize(
    "change",
    [
        lambda kernel: kernel.at[3, 4].set(-kernel[3, 4]),
        lambda kernel: kernel.at[jnp.array([0, 1])].set(kernel[jnp.array([1, 0])]),
        lambda kernel: kernel.at[0, 0].set(jnp.nextafter(kernel[0, 0], jnp.float32(9))),
        lambda kernel: -kernel,
        lambda kernel: kernel.at[3, jnp.array([4, 7])].multiply(-1),
    ],
    ids=["sign", "rows exchanged", "last bit", "all signs", "two signs"],
)
def test_checksum_shows_changed_bits_and_exchanged_rows(change):
    state = make_state(1)
    other = make_state(1)
    other.params["dense"]["kernel"] = change(other.params["dense"]["kernel"])
    assert checksum(state) != checksum(other)


def test_checksum_shows_changes_of_words_that_end_in_zero_bits():
    """Products with the place are the same at many places, and sums of them even."""
    ones = np.ones(4096, np.float32)
    lost, doubled, moved, negated = ones.copy(), ones.copy(), ones.copy(), ones.copy()
    lost[1024:2048] = 0  # an aligned block of 4 KiB
    doubled[0] = moved[1024] = 2
    exchanged = ones.copy()
    negated[700] = exchanged[3] = -1
    different = [ones, lost, 0 * ones, doubled, moved, negated, exchanged]
    assert len({checksum([array]) for array in different}) == len(different)


@pytest.fixture
def plainly_saved(tmp_path, monkeypatch):
    """A directory with a checkpoint of step 20 as they were before words were mixed."""
    computed = module.checksum_with
    checkpoints = Checkpoints(tmp_path / "checkpoints", every=10, keep=2)
    with monkeypatch.context() as before:
        before.setattr(module, "MIXED", "checksum")
        before.setattr(module, "checksum_with", lambda *of: computed(*of, mix=False))
        checkpoints.save(20, make_state(20), {"train_seconds": 5.0})
    checkpoints.close()
    return tmp_path / "checkpoints"


@pytest.mark.parametrize("directory", ["saved", "plainly_saved"])
def test_content_that_differs_from_what_was_saved_is_damage(directory, monkeypatch, request):
    """Of files that can be read; what is computed of it is not what was recorded."""
    saved, computed = request.getfixturevalue(directory), module.checksum_with
    assert_same(reopen(saved).state, make_state(20))
    monkeypatch.setattr(module, "checksum_with", lambda *of, mix: computed(*of, mix=mix) ^ 1)
    with pytest.raises(CheckpointError, match=r"checksum mismatch"):
        reopen(saved)
    with pytest.raises(CheckpointError, match=r"/20: the checkpoint cannot be read: .*checksum mismatch"):
        Checkpoints(saved, every=10, keep=2).read(20, abstract_of(make_state(0)))
