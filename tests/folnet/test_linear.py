"""Normalization, affine modules and their initial values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet.linear import Linear, PairLinear, normal, normalize
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.parametrize("axis", [1, -1])
def test_normalize(axis):
    """Mean 0 and variance 1 for numbers whose squares would lose precision; zeros stay zeros."""
    x = 300 + np.random.default_rng(0).normal(size=(2, 5, 3, 4)).astype(np.float32)
    x[1] = 0
    exact = x.astype(np.float64)
    exact -= exact.mean(axis=axis, keepdims=True)
    exact /= np.sqrt(np.square(exact).mean(axis=axis, keepdims=True) + 1e-12)
    got = np.asarray(small.quickly(lambda x: normalize(x, 1e-12, axis))(x))
    np.testing.assert_allclose(got, exact, atol=3e-4)
    assert not got[1].any()


def test_normalize_in_bfloat16():
    """Sums over a thousand numbers are in float32."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 1000)), jnp.bfloat16)
    got = small.quickly(lambda x: normalize(x, 1e-12))(x)
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

    @small.quickly
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


def test_initial_values():
    """N(0, .02^2), or by the shape for a negative range, as released."""
    module = Linear(small.config(initializer_range=0.5), 60, 80)

    @small.quickly
    def draws(key) -> Any:
        kinds = ((0.02, (300, 400)), (-1.0, (300, 500)), (0.0, (3, 5)))
        return [normal(scale)(key, shape) for scale, shape in kinds], module.init(key, jnp.ones((1, 60)))

    (draw, by_shape, none), drawn = jax.device_get(draws(small.key()))
    assert abs(draw.std() / 0.02 - 1) < 0.01
    assert abs(draw.mean()) < 3e-4
    assert abs(by_shape.std() / 0.05 - 1) < 0.01
    assert not none.any()
    assert abs(drawn["params"]["weight"].std() / 0.5 - 1) < 0.05
    assert not drawn["params"]["bias"].any()


@pytest.mark.parametrize("kind", [Linear, PairLinear])
def test_modules(kind):
    """A weight [inputs, outputs] and a bias, on the right axis."""
    module = kind(small.config(), 3, 5)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 3, 4, 3)), jnp.float32)
    rng = np.random.default_rng(1)
    weight, bias = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 5), (5,)))
    out = small.quickly(module.apply)({"params": {"weight": weight, "bias": bias}}, x)
    letters = "bixy,io->boxy" if kind is PairLinear else "bxyi,io->bxyo"
    add = bias[None, :, None, None] if kind is PairLinear else bias[None, None, None]
    np.testing.assert_allclose(out, np.einsum(letters, x, weight) + add, atol=1e-6)
    without = jax.eval_shape(kind(small.config(), 3, 5, use_bias=False).init, jax.random.key(0), x)
    assert list(without["params"]) == ["weight"]
