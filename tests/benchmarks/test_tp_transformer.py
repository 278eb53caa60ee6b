"""The benchmark's floor counts the products that a training step has, and its rows are of one trace each."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import contractions
from benchmarks import tp_transformer as benchmark
from tp_transformer import TPTransformer, objective

SMALL = {"vocab_size": 20, "features": 32, "filter_features": 128, "num_heads": 4, "num_layers": 1}


def test_the_floor_has_nearly_all_of_the_step():
    """The contractions' operations are nearly all that XLA counts in the gradient of the loss."""
    model = TPTransformer(**{**SMALL, "features": 256, "filter_features": 1024})
    source, target = jax.ShapeDtypeStruct((4, 32), jnp.int32), jax.ShapeDtypeStruct((4, 16), jnp.int32)
    params = jax.eval_shape(model.init, jax.random.key(0), source, target)["params"]

    def loss(params, source, target):
        logits: Any = model.apply({"params": params}, source, target)
        return objective.next_symbol_sums(logits, target).loss

    analysis = jax.jit(jax.grad(loss)).lower(params, source, target).cost_analysis()
    assert analysis is not None
    ours = contractions.operations(contractions.of(jax.grad(loss), params, source, target))
    assert 0.97 < ours / analysis["flops"] <= 1


def test_a_call_continues_from_its_own_result():
    """What it started from stays as it was, though its buffers may be given away."""
    start = jnp.zeros(3)
    call = benchmark.running(jax.jit(lambda x: (x + 1,), donate_argnums=0), start)
    call()
    np.testing.assert_array_equal(call()[0], 2)
    np.testing.assert_array_equal(start, 0)


def test_nothing_is_compiled_anew():
    """A second shape is a second trace, which is reported."""
    function = jax.jit(benchmark.once(jnp.sin))
    function(jnp.zeros(2))
    function(jnp.ones(2))
    with pytest.raises(RuntimeError, match="sin: traced a second time"):
        function(jnp.zeros(3))


@pytest.mark.slow
def test_a_row_of_each_kind():
    """Numbers that fit together, and a line for each."""
    row = benchmark.training(TPTransformer(**SMALL), 2, 6, 4, blocks=1)
    assert row["tokens_per_second"] == pytest.approx(2 * (6 + 4) / row["seconds"]["step"])
    assert row["over_floor"]["median"] > 0
    assert "tokens/s" in benchmark.format_row({"what": "training", "model": "tp_transformer", **row})
    row = benchmark.decoding_speed(TPTransformer(**SMALL), 3, 6, 4, blocks=1)
    assert row["speedup"]["median"] > 0
    assert "times as fast" in benchmark.format_row({"what": "decoding", "model": "tp_transformer", **row})
