"""The benchmark of training measures the paper's proportions, and records what it measured."""

import json

import pytest

from benchmarks import boxworld_training as benchmark
from experiments.configs import boxworld as presets
from tests.experiments.small_boxworld import small


def test_cases_are_the_papers_proportions():
    on_cpu = benchmark.cases("cpu", seeds=4, large=4096)
    assert list(on_cpu) == ["relational, paper, float32", "simplicial, paper, float32"]
    for config in on_cpu.values():
        config.validate()
        assert (config.environments, config.updates, config.unroll) == (512, 16, 40)
    on_gpu = benchmark.cases("gpu", seeds=4, large=4096)
    assert len(on_gpu) == 12
    for config in on_gpu.values():
        config.validate()
    assert on_gpu["simplicial, large, bfloat16"].environments == 4096
    assert on_gpu["relational, 4 seeds, float32"].seeds == 4


@pytest.mark.slow
def test_a_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(presets, "paper", lambda: small(seeds=1))
    out = tmp_path / "new" / "speed.json"
    rows = benchmark.measure(
        str(out), blocks=2, block_seconds=0.01, seeds=2, large=16, only="relational", budget=0
    )
    assert json.loads(out.read_text())["rows"] == rows
    assert [row["case"] for row in rows] == ["relational, paper, float32"]
    assert rows[0]["steps_per_second"]["least"] > 0
    assert capsys.readouterr().out.count("steps/s") == 1
