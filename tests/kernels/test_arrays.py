"""What the operations share: types, sizes and padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import arrays


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [(("bfloat16",), "float32"), (("float16", "bfloat16"), "float32"), (("float32", "bfloat16"), "float32")],
)
def test_sums_have_float32_at_least(dtypes, expected):
    assert arrays.accumulator(*(jnp.zeros(1, dtype) for dtype in dtypes)) == expected
    assert arrays.accumulator(*(jnp.dtype(dtype) for dtype in dtypes)) == expected


def test_divisors_and_multiples():
    assert [arrays.divisor(12, limit) for limit in (0, 1, 5, 11, 12, 99)] == [1, 1, 4, 6, 12, 12]
    assert [arrays.round_up(size, 8) for size in (0, 1, 8, 9)] == [0, 8, 8, 16]


@pytest.mark.parametrize(("x", "value"), [(np.ones((2, 3)), -np.inf), (np.ones((2, 3), bool), 0.0)])
def test_filled(x, value):
    x = jnp.asarray(x)
    assert arrays.filled(x, 1, 3) is x
    want = np.concatenate([x, np.full((2, 2), value, x.dtype)], axis=1)
    np.testing.assert_array_equal(arrays.filled(x, 1, 5, value), want)


@pytest.mark.parametrize(("count", "bits"), [(1, 8), (2, 16), (3, 24)])
def test_bfloat16_parts_add_up(count, bits):
    numbers = jnp.asarray(np.random.default_rng(0).standard_normal(1000), jnp.float32)
    parts = arrays.bfloat16_parts(numbers, count)
    assert [part.dtype for part in parts] == [jnp.bfloat16] * count
    total = sum(np.asarray(part, np.float64) for part in parts)
    assert np.max(np.abs(total - numbers) / np.abs(numbers)) <= 2.0**-bits


def test_bfloat16_parts_are_rounded_by_an_operation_that_xla_keeps():
    """On accelerators XLA takes x for `x.astype(bfloat16).astype(float32)`: the second part was 0."""
    lowered = jax.jit(lambda x: arrays.bfloat16_parts(x, 3)).lower(jnp.zeros(8)).as_text()
    assert lowered.count("reduce_precision") == 2
    assert "tensor<8xbf16>) -> tensor<8xf32>" not in lowered
