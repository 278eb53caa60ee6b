"""Training of linear logic RNNs, measured as it is run."""

import dataclasses
from typing import Any

import pytest

from benchmarks import accelerator_summary, steps
from benchmarks.training import llrnn as benchmark
from experiments.llrnn import config as presets


def test_presets_are_of_three_cells_and_the_authors_sizes():
    configs: list[Any] = [presets.get_config(name) for name in benchmark.PRESETS]
    assert {config.cell.name for config in configs} == {"ntm", "second_order", "higher_order"}
    assert (configs[0].batch_size, configs[0].cell.memory_size) == (250, 128)


@pytest.mark.slow
def test_a_row(monkeypatch):
    config = dataclasses.replace(
        presets.get_config("word_problem"), batch_size=4, log_every=3, checkpoint_every=3, eval_every=3
    )
    monkeypatch.setattr(benchmark, "PRESETS", ("word",))
    monkeypatch.setattr(benchmark.llrnn, "get_config", lambda name: config)
    rate, found = steps.rows(benchmark.cases(), benchmark.measure, matrix=16, seconds=1e-3, budget=0)
    assert rate["operations_per_second"] > 0
    assert found["name"] == "word, second_order 32"
    assert found["steps_per_second"] == pytest.approx(3 / found["seconds"]["median"])
    assert found["symbols_per_second"] == pytest.approx(4 * found["symbols"] * found["steps_per_second"])
    # A product of [32, 32, I] with state and input a symbol, forward and twice backward, is the most of it.
    assert found["gflop_a_call"] * 1e9 > 3 * 3 * 4 * found["symbols"] * 2 * 32 * 32
    assert found["peak_bytes"] > 0
    assert "symbols/s" in accelerator_summary.training(found)
