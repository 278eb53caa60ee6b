"""The BoxWorld experiment as a user starts it: presets, mistakes, a run and its files, interruption."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.boxworld import config as presets
from experiments.boxworld import tour
from experiments.boxworld import train as boxworld
from experiments.boxworld.config import AgentConfig, BoardConfig
from experiments.boxworld.engine import Impala
from tests.experiments.boxworld.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = Path(__file__).parents[3]
PRESETS = ("quick", "paper", "paper_standard", "paper_depth", "burst")


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset):
    presets.get_config(preset).validate()


def test_the_papers_settings():
    """Section 5 and Appendix: 5.5e9 steps, 512 environments, 1280 steps in an update."""
    config = presets.get_config("paper")
    assert config.frames_per_step == 20480
    assert config.steps * config.frames_per_step == pytest.approx(5.5e9, rel=1e-3)
    assert config.batch_size * config.unroll == 1280
    assert config.board.is_the_papers
    depth = presets.get_config("paper_depth")
    assert (depth.agent.make().num_blocks, depth.agent.make().num_virtual_entities) == (4, 0)
    assert presets.get_config("paper_standard").board.make() == presets.WORLDS["standard"]


def test_a_burst_goes_on_with_a_run_of_the_paper():
    """The two presets differ in what may differ between sessions only."""
    burst, paper = presets.get_config("burst"), presets.get_config("paper")
    different = [
        field.name
        for field in dataclasses.fields(presets.Config)
        if getattr(burst, field.name) != getattr(paper, field.name)
    ]
    assert different == ["session_seconds"]
    fields = {field.name: field for field in dataclasses.fields(presets.Config)}
    assert fields["session_seconds"].metadata["resumable"]


def test_parameter_counts_of_the_presets():
    def count(agent):
        picture = jax.ShapeDtypeStruct((1, 7, 10, 3), np.uint8)
        return sum(
            leaf.size for leaf in jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0), picture))
        )

    assert count(presets.get_config("paper").agent.make()) == 365_513
    assert count(AgentConfig(kind="relational").make()) == 239_241


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent": AgentConfig(kind="cubic")}, r"agent.kind='cubic' is not one of simplicial, relational"),
        ({"agent": AgentConfig(dtype="float8")}, r"agent.dtype='float8' is not one of float32, bfloat16"),
        ({"agent": AgentConfig(virtual_entities=0)}, r"agent.virtual_entities=0 must be at least 1"),
        ({"agent": AgentConfig(features=63)}, r"features.*63"),
        ({"board": BoardConfig(world="flat")}, r"board.world='flat' is not one of bridge, standard"),
        ({"board": BoardConfig(max_length=9)}, r"board: .*max_length"),
        ({"groups": 3}, r"groups=3 must divide batch_size=16"),
        ({"unroll": 1}, r"unroll=1 must be at least 2"),
        ({"epsilon": 0.0}, r"epsilon=0.0 must be above 0"),
        ({"discount": 1.5}, r"discount=1.5 must be at most 1"),
        ({"session_seconds": -1.0}, r"session_seconds=-1.0 must be at least 0"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_config_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change).validate()


def test_a_mistake_on_the_command_line_ends_in_one_line_before_anything_is_written(tmp_path):
    command = [
        sys.executable, "-m", "experiments.boxworld", "--config=quick",
        "--config.board.max_length=9", f"--workdir={tmp_path / 'run'}",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "error: board: " in done.stderr
    assert not (tmp_path / "run").exists()


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
    boxworld.train(small(steps=2), tmp_path / "run")
    parts = boxworld.train(small(), tmp_path / "run")
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


def test_environments_differ_and_so_do_seeds():
    state = Impala(small()).initial()
    palettes = np.asarray(state.actors.environment.episodes.palette)  # [S, G, B, ...]
    boards = palettes.reshape(-1, *palettes.shape[-2:])
    assert len(np.unique(boards, axis=0)) == len(boards)
    kernels = np.asarray(state.params["embed"]["kernel"])
    assert not np.array_equal(kernels[0], kernels[1])


def test_rows_of_a_table(boxworld_run):
    rows = tour.rows_of(boxworld_run[1].results)
    assert [row["policy"] for row in rows] == ["agent", "seed 0", "seed 1", "chance"]
    assert all(len(row) == len(rows[0]) for row in rows)
