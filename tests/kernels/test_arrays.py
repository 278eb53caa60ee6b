"""What the operations share: types, sizes and padding."""

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
