"""Starting from the weights of another run: what fits is taken, what does not is named."""

import dataclasses
import json
import shutil
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from experiments import runtime
from experiments.runtime import packing, starting
from experiments.runtime.checkpoints import checksum
from tests.experiments.runtime import regression
from tests.experiments.runtime.regression_config import Config, DataConfig, quick

pytestmark = pytest.mark.usefixtures("compiled_quickly")

STILL: dict[str, Any] = {"steps": 10, "log_every": 10, "checkpoint_every": 10, "lr": 0.0}
"""Settings of a run whose parameters stay as they begin."""


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The workdir and the result of a run with Adam."""
    workdir = tmp_path_factory.mktemp("first") / "run"
    config = dataclasses.replace(quick(), optimizer="adam")
    return workdir, regression.main(config, workdir=workdir, quiet=True)


@pytest.fixture
def released(first, tmp_path):
    """The run, packed into a folder."""
    abstract = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), first[1].state
    )
    packing.pack(first[0], abstract, tmp_path / "released")
    return tmp_path / "released"


def begin(path, workdir=None, **fields):
    """Starts a run from weights; its config is that of `quick` with other fields."""
    changes: dict[str, Any] = {**STILL, "optimizer": "adam", **fields}
    config = dataclasses.replace(quick(), init_from=str(path), **changes)
    return regression.main(config, workdir=workdir, quiet=True)


def test_a_run_starts_from_a_runs_parameters(first, tmp_path):
    """Its step, its data and its optimizer are new; the record says what was taken."""
    result = begin(first[0], tmp_path / "run")
    chex.assert_trees_all_equal(result.params, first[1].params)
    assert result.step == 10
    assert int(result.state.opt_state[0].count) == 10
    record = json.loads((tmp_path / "run" / starting.RECORD).read_text())
    assert (record["init_from"], record["taken"], record["misfits"]) == (str(first[0]), 2, [])


def test_a_run_may_be_moved_with_the_one_that_it_started_from(first, tmp_path):
    """A path that is there below the workdir is recorded as it was given, and need not be anywhere else."""
    shutil.copytree(first[0], tmp_path / "run" / ".first")
    result = begin(".first", tmp_path / "run")
    chex.assert_trees_all_equal(result.params, first[1].params)
    record = json.loads((tmp_path / "run" / starting.RECORD).read_text())
    assert (record["init_from"], record["misfits"]) == (".first", [])
    (tmp_path / "run").rename(tmp_path / "moved")
    assert begin(".first", tmp_path / "moved").summary == result.summary
    with pytest.raises(ValueError, match=r"\.first"):
        begin(".first", tmp_path / "other")


def test_a_run_starts_from_a_released_folder_and_from_a_pretrained_one(first, released, tmp_path):
    chex.assert_trees_all_equal(begin(released).params, first[1].params)
    arrays = {name: np.asarray(array) for name, array in first[1].params.items()}
    (tmp_path / "pretrained").mkdir()
    safetensors.numpy.save_file(arrays, tmp_path / "pretrained" / "model.safetensors")
    chex.assert_trees_all_equal(begin(tmp_path / "pretrained").params, first[1].params)
    with pytest.raises(ValueError, match="without opt_state, expected a run's state with it"):
        begin(tmp_path / "pretrained", init_optimizer=True)


@pytest.mark.parametrize("kind", ["run", "released"])
def test_the_optimizer_continues_if_it_is_wanted(first, released, kind):
    path = first[0] if kind == "run" else released
    result, before = begin(path, init_optimizer=True), first[1].state.opt_state[0]
    assert int(result.state.opt_state[0].count) == 10 + int(before.count)
    begun = starting.read(str(path), result.state, optimizer=True).put(result.state)
    chex.assert_trees_all_equal(begun.opt_state[0].mu, before.mu)
    assert int(begun.step) == 10


def test_what_does_not_fit_is_named_and_keeps_its_initial_value(first, tmp_path, capsys):
    """Here the inputs have another width: the kernel is drawn, the bias taken."""
    wider: dict[str, Any] = {"data": DataConfig(inputs=5), "optimizer": "sgd"}
    config = dataclasses.replace(quick(), init_from=str(first[0]), **{**STILL, **wider})
    result = regression.main(config, workdir=tmp_path / "run")
    line = "params/kernel: got shape (4, 3), expected (5, 3)"
    assert f"does not fit: {line}" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / starting.RECORD).read_text())["misfits"] == [line]
    drawn = regression.main(dataclasses.replace(config, init_from=""), workdir=None, quiet=True)
    np.testing.assert_array_equal(result.params["kernel"], drawn.params["kernel"])
    np.testing.assert_array_equal(result.params["bias"], first[1].params["bias"])


def test_weights_of_something_else_are_refused_before_anything_is_written(first, tmp_path):
    other = {"data": DataConfig(inputs=5, outputs=2)}
    with pytest.raises(runtime.WorkdirError, match=r"(?s)none fits:.*params/bias: got shape"):
        begin(first[0], tmp_path / "run", **other)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        runtime.WorkdirError,
        match="empty: got no weights, expected a run with a ch",
    ):
        begin(tmp_path / "empty", tmp_path / "run")
    with pytest.raises(runtime.WorkdirError, match="init_from: weights: got 'nowhere', expected a path"):
        begin("nowhere", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="init_optimizer: got True, expected False without init_from"):
        Config(init_optimizer=True).validate()


def test_damaged_weights_are_refused(first, released, tmp_path):
    """By the checksum if the structure is the same."""
    path = released / packing.STATE
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(runtime.CheckpointError, match="checksum mismatch"):
        begin(released)
    path.write_bytes(content[:-20])
    with pytest.raises(runtime.CheckpointError, match="cannot be read"):
        begin(released)
    shutil.copytree(first[0], tmp_path / "copy")
    (step,) = max((int(entry.name), entry) for entry in (tmp_path / "copy" / "checkpoints").iterdir())[1:]
    for file in step.rglob("*"):
        if file.is_file() and file.stat().st_size:
            file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(runtime.CheckpointError, match="cannot be read"):
        begin(tmp_path / "copy")


@pytest.mark.parametrize("name", ["mixed_checksum", "checksum"])
def test_a_run_that_has_begun_needs_its_start_no_more(first, tmp_path, name):
    """It continues from its checkpoint; killed before it had one, it refuses to begin from other weights.

    The record of an earlier run has the checksum of before words were mixed.
    """
    shutil.copytree(first[0], tmp_path / "source")
    result = begin(tmp_path / "source", tmp_path / "run")
    shutil.rmtree(tmp_path / "source")
    again = begin(tmp_path / "source", tmp_path / "run", steps=20)
    assert again.step == 20
    chex.assert_trees_all_equal(again.params, result.params)
    if name == "checksum":
        path = tmp_path / "run" / starting.RECORD
        record = json.loads(path.read_text())
        del record["mixed_checksum"]
        taken = {f"params/{leaf}": array for leaf, array in first[1].params.items()}
        path.write_text(json.dumps(record | {name: checksum(taken, mix=False)}))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.copytree(first[0], tmp_path / "source")
    begin(tmp_path / "source", tmp_path / "run", steps=20)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    shutil.rmtree(tmp_path / "source")
    arrays = {leaf: np.asarray(array) + 1 for leaf, array in first[1].params.items()}
    (tmp_path / "source").mkdir()
    safetensors.numpy.save_file(arrays, tmp_path / "source" / "model.safetensors")
    with pytest.raises(runtime.WorkdirError, match=rf"init_from.json: got another start \({name}\)"):
        begin(tmp_path / "source", tmp_path / "run", steps=20)


def test_half_precision_is_converted(first, tmp_path):
    arrays = {name: np.asarray(array, np.float16) for name, array in first[1].params.items()}
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors")
    result = begin(tmp_path)
    assert result.params["kernel"].dtype == jnp.float32
    np.testing.assert_array_equal(result.params["kernel"], arrays["kernel"].astype(np.float32))
