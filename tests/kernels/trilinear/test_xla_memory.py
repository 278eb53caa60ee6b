"""The memory of the compiled blockwise path, arguments and results excepted, as the compiler reports it."""

import jax
import jax.numpy as jnp
import pytest

from kernels.trilinear import shapes
from kernels.trilinear.api import trilinear_attention
from kernels.trilinear.shapes import Shape


def temporary_bytes(function, *arrays):
    analysis = jax.jit(function).lower(*arrays).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def gradients(function):
    return jax.grad(lambda *x: (function(*x) ** 2).sum(), argnums=range(5))


def needed(length, window2):
    """Forward and backward, by the compiler's own account; the first window is 8 positions."""
    shape = Shape("", 1, length, 4, 2, 16, window1=8, window2=window2)
    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in (shape.query, *[shape.key] * 4)]
    options = {"window1": 8, "window2": window2, "causal": True}
    return temporary_bytes(gradients(lambda *x: trilinear_attention(*x, **options)), *arrays)


@pytest.mark.slow
def test_memory_grows_with_positions_and_not_with_pairs():
    short, long, longer = needed(1024, 64), needed(2048, 64), needed(4096, 64)
    assert longer - long < 2.2 * (long - short)
    # A window four times as large makes tiles larger, not what is kept.
    assert needed(4096, 256) < 1.2 * longer


def test_no_array_over_triples_nor_with_windows_over_pairs():
    shape = shapes.CPU[2]
    arrays = [jax.ShapeDtypeStruct(s, jnp.float32) for s in (shape.query, *[shape.key] * 4)]
    blockwise = gradients(lambda *x: trilinear_attention(*x, causal=True))
    assert temporary_bytes(blockwise, *arrays) < 4 * shape.length**3 * shape.heads / 10
    assert needed(4096, 64) < 4 * 4096**2 * 4 / 20
