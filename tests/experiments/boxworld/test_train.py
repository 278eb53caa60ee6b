"""The BoxWorld experiment as a user starts it: a run and its files, interruption."""

import dataclasses
import json
import types

import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.boxworld import train
from experiments.boxworld.engine import Impala
from tests.experiments.boxworld.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_a_run_leaves_its_record_and_pictures(boxworld_run):
    workdir, result = boxworld_run
    files = {path.name for path in workdir.iterdir() if not path.name.startswith(".")}
    assert files == {"config.json", "metrics.jsonl", "summary.json", "checkpoints", "types.png"}
    records = runtime.metrics.read(workdir / "metrics.jsonl")
    assert [record["step"] for record in records] == [2, 4]
    assert records[-1]["frames"] == 4 * 160
    assert set(records[-1]) >= {"eval/solved", "eval/capped", "seed/0/solved", "type/1/episodes"}
    results = json.loads((workdir / "summary.json").read_text())["results"]
    assert set(results) == {"agent", "chance", "seed 0", "seed 1"}
    for name, found in results.items():
        assert found["episodes"] == (60 if name == "agent" else 30)
        low, high = found["interval"]
        assert low <= found["solved"] <= high
        assert found["solved"] + found["died"] + found["capped"] == pytest.approx(1)
        assert found["types"]["1"]["episodes"] == found["episodes"]  # but other boards
    assert results["agent"]["solved"] == pytest.approx(
        (results["seed 0"]["solved"] + results["seed 1"]["solved"]) / 2
    )
    assert result.results == results


def test_an_interrupted_run_continues_the_same_trajectories(boxworld_run, tmp_path):
    """Bit for bit: parameters, optimiser, environments, the pool of boards, keys, and the record."""
    workdir, whole = boxworld_run
    train.train(small(steps=2), tmp_path / "run")
    parts = train.train(small(), tmp_path / "run")
    for one, other in zip(jax.tree.leaves(whole.state), jax.tree.leaves(parts.state), strict=True):
        if jax.numpy.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)
    lines = [
        [{name: value for name, value in line.items() if name != "train_seconds"} for line in found]
        for found in (
            runtime.metrics.read(workdir / "metrics.jsonl"),
            runtime.metrics.read(tmp_path / "run" / "metrics.jsonl"),
        )
    ]
    assert [line["step"] for line in lines[1]] == [2, 4]
    assert lines[0][1] == lines[1][1]


def test_a_run_after_another(tmp_path, monkeypatch):
    """The first is made below the workdir and continued there; both end with the session."""
    made = []

    def make(config, workdir, parallel):
        made.append((config, workdir, parallel))
        return types.SimpleNamespace(step=done.get(config.learn_from, config.steps))

    monkeypatch.setattr(train, "_train", make)
    config = small(seeds=1, first="demonstrations", first_steps=30, session_seconds=1000.0)
    done = {"demonstrations": 20}
    assert train.train(config, tmp_path, "shard_map").step == 20
    assert made == [(config.first_config(), tmp_path / train.FIRST, "shard_map")]
    done = {}
    assert train.train(config, tmp_path, "jit").step == config.steps
    assert made[1] == (config.first_config(), tmp_path / train.FIRST, "jit")
    after, workdir, _ = made[2]
    assert workdir == tmp_path
    assert 900 < after.session_seconds < 1000
    expected = small(seeds=1, init_from=train.FIRST)
    assert dataclasses.replace(after, session_seconds=0.0) == expected
    after.validate()
    train.train(dataclasses.replace(config, session_seconds=0.0), None)
    assert made[3][1].name == train.FIRST
    assert made[4][1] / made[4][0].init_from == made[3][1]
    assert made[4][0].session_seconds == 0
    train.train(small(), tmp_path)
    assert made[5:] == [(small(), tmp_path, "jit")]


def test_environments_differ_and_so_do_seeds():
    state = Impala(small()).initial()
    palettes = np.asarray(state.actors.environment.episodes.palette)  # [S, G, B, ...]
    boards = palettes.reshape(-1, *palettes.shape[-2:])
    assert len(np.unique(boards, axis=0)) == len(boards)
    kernels = np.asarray(state.params["embed"]["kernel"])
    assert not np.array_equal(kernels[0], kernels[1])
    alone = Impala(small(seed=1, seeds=1)).initial()  # the second of two runs that begin with seed 0
    np.testing.assert_array_equal(alone.actors.environment.episodes.palette[0], palettes[1])
    np.testing.assert_allclose(alone.params["embed"]["kernel"][0], kernels[1], rtol=1e-6)
