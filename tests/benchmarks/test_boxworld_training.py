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


def test_what_is_counted_is_the_agent_s_arithmetic():
    """The relational agent by hand: 14 x 15 tiles; forward to act, forward and twice backward to learn."""
    config = benchmark.config_of("relational", "float32")
    board = config.board.make()
    tiles, d = board.rows * (board.cols + 1), config.agent.features
    attention = 2 * config.agent.blocks * 2 * d * tiles**2  # logits and values
    found = benchmark.operations(config)
    assert found is not None
    assert found > 4 * attention
    other = benchmark.operations(benchmark.config_of("simplicial", "bfloat16"))
    assert other is not None
    assert 1.2 < other / found < 1.6  # 20.4 against 14.6 MFLOP with gradients, by XLA's count


@pytest.mark.slow
def test_a_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(presets, "paper", lambda: small(seeds=1))
    out = tmp_path / "new" / "speed.json"
    rows = benchmark.measure(
        str(out), blocks=2, block_seconds=0.01, seeds=2, large=16, only="relational", matrix=16, budget=0
    )
    assert json.loads(out.read_text())["rows"] == rows
    assert [row["case"] for row in rows] == ["relational, paper, float32"]
    assert rows[0]["steps_per_second"]["least"] > 0
    assert rows[0]["utilisation"] > 0
    assert rows[0]["peak_bytes"] > 0
    assert capsys.readouterr().out.count("steps/s") == 1
