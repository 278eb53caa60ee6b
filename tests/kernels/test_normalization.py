"""Normalization over an axis, compared with the definition in float64 and with Flax."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from kernels.normalization import LayerNorm, normalize

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.parametrize("axis", [1, -1])
def test_normalize(axis):
    """Mean 0 and variance 1 for numbers whose squares would lose precision; zeros stay zeros."""
    x = 300 + np.random.default_rng(0).normal(size=(2, 5, 3, 4)).astype(np.float32)
    x[1] = 0
    exact = x.astype(np.float64)
    exact -= exact.mean(axis=axis, keepdims=True)
    exact /= np.sqrt(np.square(exact).mean(axis=axis, keepdims=True) + 1e-12)
    got = np.asarray(jax.jit(lambda x: normalize(x, 1e-12, axis))(x))
    np.testing.assert_allclose(got, exact, atol=3e-4)
    assert not got[1].any()


def test_normalize_in_bfloat16():
    """Sums over a thousand numbers are in float32."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 1000)), jnp.bfloat16)
    got = jax.jit(lambda x: normalize(x, 1e-12))(x)
    assert got.dtype == jnp.bfloat16
    exact = np.asarray(x, np.float64)
    # The result is rounded once, to eight bits.
    np.testing.assert_allclose(
        np.asarray(got, np.float64), (exact - exact.mean()) / exact.std(), rtol=1.01 * 2.0**-8, atol=1e-4
    )


@pytest.mark.parametrize("axis", [1, -1])
def test_derivatives_of_normalize(axis):
    """Compared with differences in float64 along a line; forward and reverse mode agree."""
    rng = np.random.default_rng(1)
    x, line, out = (rng.normal(size=(2, 5, 3)) for _ in range(3))

    def exact(x):
        x = x - x.mean(axis=axis, keepdims=True)
        return x / np.sqrt(np.square(x).mean(axis=axis, keepdims=True) + 0.1)

    expected = (exact(x + 1e-6 * line) - exact(x - 1e-6 * line)) / 2e-6

    @jax.jit
    def both_modes(x, line, out):
        _, tangent = jax.jvp(lambda x: normalize(x, 0.1, axis), (x,), (line,))
        _, back = jax.vjp(lambda x: normalize(x, 0.1, axis), x)
        still = jax.grad(lambda x: normalize(x, 1e-12, axis).sum())(jnp.zeros_like(x))
        return tangent, back(out)[0], still

    x, line, out = (array.astype(np.float32) for array in (x, line, out))
    tangent, back, still = jax.device_get(both_modes(x, line, out))
    np.testing.assert_allclose(tangent, expected, atol=2e-6)
    np.testing.assert_allclose(np.sum(back * line), np.sum(out * tangent), rtol=1e-4)
    assert np.isfinite(still).all()  # where nothing varies


@pytest.mark.parametrize(
    ("of", "parameters", "dtype", "expected"),
    [
        (jnp.float32, jnp.float32, None, jnp.float32),
        (jnp.float32, jnp.float32, jnp.bfloat16, jnp.bfloat16),
        (jnp.bfloat16, jnp.float32, None, jnp.float32),
        (jnp.bfloat16, jnp.bfloat16, None, jnp.bfloat16),
    ],
)
def test_layer_norm_is_that_of_flax(of, parameters, dtype, expected):
    rng = np.random.default_rng(0)
    x, scale, bias = (jnp.asarray(3 + rng.normal(size=shape), of) for shape in ((2, 3, 40), (40,), (40,)))
    module = nn.LayerNorm(1e-5, dtype, use_fast_variance=False)
    params = {"scale": scale.astype(parameters), "bias": bias.astype(parameters)}

    def flax(x, params) -> Any:
        return module.apply({"params": params}, x)

    def ours(x, params) -> Any:
        return LayerNorm(dtype).apply({"params": params}, x)

    given = jax.jit(flax)(x, params), jax.jit(ours)(x, params)
    assert given[1].dtype == given[0].dtype == expected
    tolerance = 2.0**-7 if jnp.bfloat16 in (of, dtype) else 2e-6
    for theirs, found in zip(
        jax.tree.leaves((given[0], jax.jit(jax.grad(lambda *a: jnp.sum(flax(*a) ** 2), (0, 1)))(x, params))),
        jax.tree.leaves((given[1], jax.jit(jax.grad(lambda *a: jnp.sum(ours(*a) ** 2), (0, 1)))(x, params))),
        strict=True,
    ):
        theirs, found = np.asarray(theirs, np.float64), np.asarray(found, np.float64)
        np.testing.assert_allclose(found, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max())
