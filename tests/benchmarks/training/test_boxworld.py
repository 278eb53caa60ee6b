"""The benchmark of training measures the paper's proportions, and records what it measured."""

import pytest

from benchmarks import steps
from benchmarks.training import boxworld as benchmark
from experiments.boxworld import Config
from tests.experiments.boxworld.small import small


def test_cases_are_the_papers_proportions(monkeypatch):
    """Configs trace their agents to check them; those of several cases are traced once."""
    init, traced = Config.init_params, set()

    def init_once(config, key):
        new = repr(config.agent) not in traced
        traced.add(repr(config.agent))
        return init(config, key) if new else None

    monkeypatch.setattr(Config, "init_params", init_once)
    ((dtype, on_cpu),) = benchmark.cases("cpu").values()
    assert (dtype, list(on_cpu)) == ("float32", ["relational, paper, float32", "simplicial, paper, float32"])
    for config in on_cpu.values():
        config.validate()
        assert (config.environments, config.updates, config.unroll) == (512, 16, 40)
    on_gpu = {}
    for name, (dtype, group) in benchmark.cases("gpu").items():
        assert name.endswith(dtype)
        assert all(config.agent.dtype == dtype for config in group.values())
        on_gpu |= group
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
def test_a_record():
    configs: dict[str, Config] = {}
    for agent in benchmark.PUBLISHED:
        configs[agent] = small(seeds=1)
        configs[agent].agent.kind = agent
    cases: dict[str, tuple[str, dict[str, Config]]] = {"paper, float32": ("float32", configs)}
    _, *rows = steps.rows(cases, benchmark.measure, matrix=16, seconds=0.01, budget=0)
    assert [row["case"] for row in rows] == [row["name"] for row in rows] == ["relational", "simplicial"]
    for row in rows:
        assert row["steps_per_second"]["least"] > 0
        assert row["utilisation"] > 0
        assert row["peak_bytes"] > 0
