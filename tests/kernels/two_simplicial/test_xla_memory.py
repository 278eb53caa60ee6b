"""The memory of the compiled blockwise path, arguments and results excepted, as the compiler reports it."""

import functools

import jax
import jax.numpy as jnp
import pytest

from kernels.two_simplicial import xla
from kernels.two_simplicial.reference import plain
from kernels.two_simplicial.shapes import Shape
from tests.kernels.two_simplicial import cases

UNSIGNED = cases.CONFIGS[0]


def temporary_bytes(function, shape: Shape, mask: tuple[int, ...] | None = None) -> int:
    """What the compiled `function(arrays, dout)` needs in addition to its arguments and results."""
    b, h, n, m, d = shape.batch, shape.heads, shape.queries, shape.keys, shape.features
    sizes = ((b, n, h, d), (b, m, h, d), (b, m, h, d), (b, m, h, shape.e), (h, shape.f, shape.e, shape.e))
    arrays = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]
    allowed = None if mask is None else jax.ShapeDtypeStruct(mask, jnp.bool)
    dout = jax.ShapeDtypeStruct((b, n, h, shape.f), jnp.float32)
    analysis = jax.jit(function).lower((*arrays, allowed), dout).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def blockwise(arrays, dout):
    out, lse = xla.forward(UNSIGNED, *arrays)
    return out, lse, xla.backward(UNSIGNED, *arrays, out, lse, dout)


def einsum_path(arrays, dout):
    out, pull = jax.vjp(functools.partial(plain, UNSIGNED), *arrays[:5])
    return out, pull(dout)


FULL = Shape("N = M = 256", 2, 4, 256, 256, 32)


def test_a_tenth_of_an_array_over_all_triples():
    assert temporary_bytes(blockwise, FULL) < 4 * FULL.triples / 10


@pytest.mark.slow
def test_memory_is_linear_in_the_queries():
    """And the tiles' share of it is constant: it grows no faster than the arguments do.

    The einsum path holds an array over all triples.
    """
    assert temporary_bytes(einsum_path, FULL) > 4 * FULL.triples
    small, large = (temporary_bytes(blockwise, Shape("M = 32", 1, 4, size, 32, 24)) for size in (1024, 4096))
    assert large < 4.2 * small
    per_query = (large - small) / 3072
    assert per_query < 4 * 20 * 4 * (32 + 24)  # a few arrays of H * (M + D) floats, not of H * M * M


@pytest.mark.slow
def test_a_broadcast_mask_stays_broadcast():
    shape = Shape("masked", 2, 2, 512, 32, 24)
    without = temporary_bytes(blockwise, shape)
    for mask in ((1, 1, 32, 32), (2, 1, 32, 1), (2, 512, 1, 1)):
        assert temporary_bytes(blockwise, shape, mask) < without + 2**20
    full = 2 * 512 * 32 * 32
    assert temporary_bytes(blockwise, shape, (2, 512, 32, 32)) < without + 2 * full
