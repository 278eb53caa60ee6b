"""The benchmark of training at the paper's size: what it counts, and a small run of it."""

import dataclasses

import jax
import pytest

from benchmarks import accelerator_summary, steps
from benchmarks.training import mathematics as benchmark
from experiments.mathematics import config as presets
from tests.experiments.mathematics.small import with_data

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_what_is_counted_is_the_paper_s_arithmetic():
    """Matrix products by hand: those of the weights, and the attention's own; three times, with gradients.

    Of one layer: the paper's six take longer to trace.
    """
    config = presets.paper()
    source, target, d, f = 40, 20, 512, 2048
    model = dataclasses.replace(config.model, num_layers=1)
    config = dataclasses.replace(config, batch_size=2, model=model)
    layer = 5 * d * d + 2 * d * f  # query, key, value, role, output; the filter
    weights = 2 * (source * layer + target * layer)
    weights += 2 * (target * 3 * d * d + source * 2 * d * d)  # cross-attention, its keys of the question
    weights += 2 * (source + target) * d * d  # roles of the symbols themselves
    attention = 2 * 2 * d * (source**2 + target**2 + target * source)
    logits = 2 * target * d * 72
    # The last symbol of an answer is not given to the decoder, only asked for.
    params = jax.eval_shape(benchmark.train.make_init(config.model.make()), jax.random.key(0))
    gradient = jax.grad(benchmark.counted(config))
    found = steps.counted(gradient, params, *benchmark.given(config, source, target + 1))
    assert found == pytest.approx(6 * (weights + attention + logits), rel=0.02)


@pytest.mark.slow
def test_a_row_and_what_cannot_run(monkeypatch):
    config = with_data(buckets=("54x8",))
    monkeypatch.setattr(benchmark.mathematics, "get_config", lambda name: config)
    found = list(steps.rows(benchmark.cases(), benchmark.measure, matrix=32, seconds=0.01, budget=0))
    assert [row["model"] for row in found[1:]] == list(benchmark.MODELS)
    for row in found[1:]:
        assert row["tokens_per_second"] == pytest.approx(
            config.batch_size * (54 + 8) / row["seconds"]["median"]
        )
        assert row["utilisation"] > 0
        assert row["peak_bytes"] > row["temporary_bytes"] > 0
        assert "tokens/s" in accelerator_summary.training(row)
    assert "TFLOP/s" in accelerator_summary.training(found[0])
