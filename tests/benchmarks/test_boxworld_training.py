"""The benchmark of training measures the paper's proportions, and records what it measured."""

import json

import pytest

from benchmarks import boxworld_training as benchmark
from experiments.boxworld import config as presets
from tests.experiments.boxworld.small import small


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
    """The relational agent by hand; once to act, and three times, with gradients, to learn."""
    config = benchmark.config_of("relational", "float32")
    rows, columns = 7, 10  # of the picture; each convolution of 2 x 2 takes one of both
    entities, d = (rows - 2) * (columns - 2), 64
    forward = 2 * (rows - 1) * (columns - 1) * 2 * 2 * 3 * 12 + 2 * entities * 2 * 2 * 12 * 24
    forward += 2 * entities * 24 * 62  # two more features are the place
    block = 2 * entities * d * 3 * d + 2 * 2 * entities**2 * d + 2 * 2 * entities * d * d
    forward += 2 * block + 2 * (d * 256 + 3 * 256 * 256 + 256 * (4 + 1))
    # The gradient of the picture is not needed.
    assert benchmark.operations(config) == pytest.approx(4 * forward, rel=2e-3)


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
