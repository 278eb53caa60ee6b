"""Released agents: packed, loaded, trained on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.boxworld import EXPERIMENT, load
from experiments.boxworld.config import BoardConfig, Config, get_config
from experiments.boxworld.engine import Impala
from experiments.runtime import packing
from tests.experiments.boxworld.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def workdir(boxworld_run):
    """A run of four steps, with checkpoints at two and four."""
    return boxworld_run[0]


def test_an_agent_is_loaded_from_a_run_and_from_a_release(workdir, tmp_path):
    packing.pack(workdir, Impala(small()).abstract_state(), tmp_path / "folder")
    one, other = (load.load(path, seed=1) for path in (workdir, tmp_path / "folder"))
    assert (
        (one.step, one.frames, one.name)
        == (4, 640, "simplicial agent")
        == (other.step, other.frames, other.name)
    )
    assert runtime.params_sha256(one.params) == runtime.params_sha256(other.params)
    assert one.config.horizon == 12
    picture = jnp.zeros((3, 5, 7, 3), jnp.uint8)
    assert jax.eval_shape(one.policy, one.params, picture).logits.shape == (3, 4)
    assert load.steps(workdir) == [2, 4]
    assert load.steps(tmp_path / "folder") == [4]
    first = load.load(workdir, step=2, seed=1)
    assert first.step == 2
    assert runtime.params_sha256(first.params) != runtime.params_sha256(one.params)


@pytest.mark.slow  # trains twice
def test_a_release_is_trained_on(workdir, tmp_path):
    """A run resumed from the folder equals the one that was never packed."""
    whole = runtime.loop(small(steps=6), Impala(small(steps=6)), workdir=tmp_path / "whole", quiet=True)
    packing.pack(workdir, Impala(small()).abstract_state(), tmp_path / "folder")
    packing.unpack(tmp_path / "folder", Impala(small()).abstract_state(), tmp_path / "again")
    again = runtime.loop(small(steps=6), Impala(small(steps=6)), workdir=tmp_path / "again", quiet=True)
    assert again.summary["params_sha256"] == whole.summary["params_sha256"]
    for one, other in zip(
        jax.tree.leaves(whole.state.actors), jax.tree.leaves(again.state.actors), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    records = runtime.metrics.read(tmp_path / "again" / "metrics.jsonl")
    assert [record["step"] for record in records] == [2, 4, 6]


def test_a_released_agent_is_loaded_by_its_name():
    assert load.load("boxworld/quick_simplicial").step == 480


def test_an_agent_to_export_is_chosen_by_step_and_seed(workdir):
    opened = load.open_model(workdir, step=2, seed=1)
    assert (opened.source["step"], opened.source["seed"]) == (2, small().seed + 1)
    assert runtime.params_sha256(opened.params) == runtime.params_sha256(
        load.load(workdir, step=2, seed=1).params
    )


def test_what_is_not_there_is_named(workdir, tmp_path):
    with pytest.raises(ValueError, match=r"not a run of experiments\.boxworld"):
        load.load(tmp_path)
    with pytest.raises(ValueError, match="seed: got 2, expected the index of one of the run's 2"):
        load.load(workdir, seed=2)
    with pytest.raises(runtime.CheckpointError, match="no such checkpoint; available steps: 4, 2"):
        load.load(workdir, step=3)
    (tmp_path / "config.json").write_text('{"task": "copy"}')
    with pytest.raises(ValueError, match="got field 'task', expected a field of Config"):
        load.load(tmp_path)


@pytest.mark.parametrize(
    ("config", "title", "limits"),
    [
        (get_config("quick"), "a simplicial agent for a small BoxWorld", "A small board with one key"),
        (get_config("demonstrations"), "a simplicial agent for bridge BoxWorld", "It imitates a solver"),
        (get_config("paper_standard"), "a relational agent for BoxWorld", "with far fewer steps"),
        (Config(init_from=".first"), "a simplicial agent for bridge BoxWorld", "from weights of another run"),
        (
            Config(board=BoardConfig(max_length=2)),
            "a simplicial agent for bridge BoxWorld",
            "that differ from",
        ),
    ],
)
def test_a_card_says_what_an_agent_was_trained_on(config, title, limits):
    card: Any = EXPERIMENT.card
    assert card.title(config) == title
    assert limits in card.limits(config)
