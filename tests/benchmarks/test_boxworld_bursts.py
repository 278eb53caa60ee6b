"""A burst begins a run or goes on with the released one, and leaves what replaces it."""

import dataclasses

import pytest

from benchmarks import boxworld_bursts as bursts
from experiments import boxworld_weights
from experiments.configs import boxworld as presets
from tests.experiments.small_boxworld import small


@pytest.mark.slow  # trains and measures twice
def test_a_burst_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(presets, "get_config", lambda _: small(steps=100_000, seeds=1))
    released = tmp_path / "results"
    bursts.burst("relational", released / "relational", 8.0, tmp_path / "first")
    first = boxworld_weights.load(tmp_path / "first")
    assert (first.run.agent.kind, first.agent.num_virtual_entities) == ("relational", 0)
    assert first.step > 0
    assert {path.name for path in (tmp_path / "first").iterdir()} >= {
        "config.json", "metrics.jsonl", "summary.json", "state.safetensors", "types.png",
    }  # fmt: skip
    (tmp_path / "first").rename(tmp_path / "relational")
    bursts.burst("relational", tmp_path / "relational", 8.0, tmp_path / "second")
    second = boxworld_weights.load(tmp_path / "second")
    assert second.step > first.step
    assert dataclasses.replace(second.run, session_seconds=0.0) == dataclasses.replace(
        first.run, session_seconds=0.0
    )
