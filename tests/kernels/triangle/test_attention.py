"""Triangle attention: the definition against loops, blocks of rows against the definition, memory, errors."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import triangle_attention
from kernels.triangle import attention, reference
from kernels.triangle.attention import by_rows

pytestmark = pytest.mark.usefixtures("compiled_quickly")
B, N, H, Q, K, D = 2, 5, 2, 4, 6, 3
NAMES = ("q", "k", "v", "bias")


def make(dtype=np.float64, factor=1.0):
    draw = np.random.default_rng(0).normal
    shapes = (B, N, H, Q, D), (B, N, H, K, D), (B, N, H, K, D), (B, 1, H, Q, K)
    return [(factor * draw(size=shape)).astype(dtype) for shape in shapes]


_mask = np.random.default_rng(1).random((B, N, 1, 1, K)) < 0.6
_mask[1, 2] = False
MASK = jnp.asarray(_mask)


def loops(q, k, v, bias, mask, scale):
    """Algorithm 13 of AlphaFold's supplement, lines 5 to 7, query by query."""
    out, lse, top = np.zeros_like(q), np.zeros((B, N, H, Q, 1)), np.zeros((B, N, H, Q, 1))
    for b, n, h, i in np.ndindex(B, N, H, Q):
        there = np.asarray(mask)[b, n, 0, 0]
        if not there.any():
            continue
        logits = scale * k[b, n, h, there] @ q[b, n, h, i] + bias[b, 0, h, i, there]
        top[b, n, h, i] = logits.max()
        lse[b, n, h, i] = np.log(np.exp(logits - logits.max()).sum())
        weights = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        out[b, n, h, i] = weights @ v[b, n, h, there]
    return out, lse, top


@pytest.mark.usefixtures("x64")
def test_values_are_those_of_the_loops():
    arrays = make()
    wanted = loops(*arrays, mask=MASK, scale=0.7)
    for function in (
        triangle_attention,
        reference.triangle_attention,
        functools.partial(by_rows, block=2),
    ):
        out, lse, top = jax.jit(functools.partial(function, mask=MASK, scale=0.7))(*arrays)
        some = np.asarray(MASK).any(axis=-1)[:, :, 0, 0]
        np.testing.assert_allclose(out, wanted[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(lse[some], wanted[1][some], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(top[some], wanted[2][some], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_and_gradients_are_those_of_the_definition(dtype):
    """In float64 at the same inputs; without a mask, and in blocks that do not divide N."""
    arrays = [jnp.asarray(x).astype(dtype) for x in make(factor=2.0)]
    probe = np.random.default_rng(2).normal(size=(B, N, H, Q, D))

    def all_of(function, arrays, **options):
        def loss(*x):
            out, lse, _ = function(*x, mask=None, scale=0.6, **options)
            return jnp.sum(out * probe) + jnp.sum(lse), out

        _, pull, out = jax.vjp(loss, *arrays, has_aux=True)
        return [out, *pull(jnp.ones(()))]

    with jax.enable_x64(True):
        wide = [np.asarray(x, np.float64) for x in arrays]
        wanted = jax.device_get(jax.jit(lambda x: all_of(reference.triangle_attention, x))(wide))
    probe = probe.astype(np.float32)
    got = jax.jit(lambda x: all_of(by_rows, x, block=3))(arrays)
    assert got[0].dtype == dtype
    for mine, theirs in zip(got, wanted, strict=True):
        error = np.linalg.norm(np.asarray(mine, np.float64) - theirs) / np.linalg.norm(theirs)
        assert error < {"float32": 1e-6, "bfloat16": 1e-2}[dtype], error


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("function", [functools.partial(by_rows, block=2), reference.triangle_attention])
def test_derivatives_of_all_results_are_differences(function):
    """Also of the largest logit, and of the log-sum-exp, from which it is subtracted."""
    arrays = make()
    step = [np.random.default_rng(3 + i).normal(size=x.shape) for i, x in enumerate(arrays)]
    run = jax.jit(functools.partial(function, mask=None, scale=0.7))
    _, slopes = jax.jvp(run, arrays, step)
    after, before = (run(*(x + h * d for x, d in zip(arrays, step, strict=True))) for h in (1e-6, -1e-6))
    for slope, high, low in zip(slopes, after, before, strict=True):
        assert np.abs(slope).max() > 0.1
        np.testing.assert_allclose(slope, (high - low) / 2e-6, rtol=1e-6, atol=1e-6)


def test_a_bias_larger_than_a_block_leaves_a_row_at_a_time(monkeypatch):
    arrays = make(np.float32)
    want = by_rows(*map(jnp.asarray, arrays), mask=None, scale=1.0)
    monkeypatch.setattr(attention, "BLOCK", 1)
    for got, expected in zip(by_rows(*map(jnp.asarray, arrays), mask=None, scale=1.0), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_gradients_of_16_bits_are_summed_over_blocks_in_32():
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(1, 300, 1, 2, 2)) + 1, jnp.bfloat16) for _ in range(3))
    bias = jnp.asarray(rng.normal(size=(1, 1, 1, 2, 2)), jnp.bfloat16)

    @functools.partial(jax.jit, static_argnums=1)
    def gradient(bias, block):
        return jax.grad(lambda bias: jnp.sum(by_rows(q, k, v, bias, None, 1.0, block=block)[0][..., 0]))(bias)

    np.testing.assert_allclose(*(gradient(bias, block).astype(np.float32) for block in (1, 300)), rtol=0.01)


def test_masked_keys_may_hold_anything():
    arrays = make(np.float32)
    hidden = [arrays[0], *(np.where(np.swapaxes(MASK, -1, -2), x, np.nan) for x in arrays[1:3]), arrays[3]]

    @jax.jit
    def value_and_grads(*arrays):
        return jax.value_and_grad(lambda x: jnp.sum(triangle_attention(*x, mask=MASK).out ** 2))(arrays)

    jax.tree.map(np.testing.assert_array_equal, value_and_grads(*hidden), value_and_grads(*arrays))


def test_memory_is_that_of_the_inputs():
    """With gradients: no array over rows, queries and keys, of which the definition has several."""
    n, features = 64, 4

    def needed(function):
        shapes = [(1, n, 2, n, features)] * 3 + [(1, 1, 2, n, n)]
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        gradients = jax.grad(lambda *x: jnp.sum(function(*x, mask=None, scale=0.5)[0] ** 2), argnums=range(4))
        analysis: Any = jax.jit(gradients).lower(*arrays).compile().memory_analysis()
        return analysis.temp_size_in_bytes

    logits = 4 * 2 * n**3
    assert needed(functools.partial(by_rows, block=1)) < 0.5 * logits
    assert needed(reference.triangle_attention) > 1.5 * logits


def test_batch_axes_and_arguments_by_position():
    q, k, v, bias = make(np.float32)
    compiled = jax.jit(triangle_attention, static_argnums=(5, 6))
    got = compiled(q, k, v, bias, MASK, 0.7, jax.lax.Precision.HIGHEST)
    one = compiled(q[0], k[0], v[0], bias[0], MASK[0], 0.7)
    more = compiled(q[None], k[None], v[None], bias[None], MASK[None], 0.7)
    for mine, first, spread in zip(got, one, more, strict=True):
        np.testing.assert_allclose(mine[0], first, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mine, spread[0], rtol=1e-5, atol=1e-6)
    default = compiled(q, k, v, bias).out
    wanted, *_ = loops(q, k, v, bias, np.ones_like(MASK), D**-0.5)
    np.testing.assert_allclose(default, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": np.ones((B, N, H, K, D + 1))}, "k: got shape (2, 5, 2, 6, 4), expected [..., N, H, K, D]"),
        ({"v": np.ones((B, N, H, Q, D))}, "v: got shape (2, 5, 2, 4, 3), expected [..., N, H, K, D]"),
        ({"bias": np.ones((B, N, H, Q, K))}, "bias: got shape (2, 5, 2, 4, 6), expected [..., 1, H, Q, K]"),
        ({"mask": np.ones((B, N, 1, Q, K), bool)}, "mask: got shape (2, 5, 1, 4, 6)"),
        ({"mask": np.ones((B, N, 1, 1, K))}, "mask: got dtype float"),
        ({"scale": -1.0}, "scale: got -1.0, expected a finite number greater than 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_errors(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        triangle_attention(**dict(zip(NAMES, make(np.float32), strict=True)) | change)
