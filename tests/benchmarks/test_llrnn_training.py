"""Training of linear logic RNNs, measured as it is run."""

import dataclasses

import pytest

from benchmarks import llrnn_training as benchmark
from experiments.llrnn import config as presets


def test_presets_are_of_three_cells_and_the_authors_sizes():
    configs = [presets.get_config(name) for name in benchmark.PRESETS]
    assert {config.cell.name for config in configs} == {"ntm", "second_order", "higher_order"}
    assert (configs[0].batch_size, configs[0].cell.memory_size) == (250, 128)


@pytest.mark.slow
def test_a_row():
    config = dataclasses.replace(
        presets.get_config("word_problem"), batch_size=4, log_every=3, checkpoint_every=3, eval_every=3
    )
    rate, found = benchmark.rows({"word": config}, matrix=16, seconds=1e-3, budget=0)
    assert rate["operations_per_second"] > 0
    assert found["name"] == "word, second_order 32"
    assert found["steps_per_second"] == pytest.approx(3 / found["seconds"]["median"])
    assert found["symbols_per_second"] == pytest.approx(4 * found["symbols"] * found["steps_per_second"])
    # A product of [32, 32, I] with state and input a symbol, forward and twice backward, is the most of it.
    assert found["gflop_a_call"] * 1e9 > 3 * 3 * 4 * found["symbols"] * 2 * 32 * 32
    assert found["peak_bytes"] > 0
    assert "symbols/s" in benchmark.told(found)
