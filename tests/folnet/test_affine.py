"""Affine maps of predicates, and activations, against float64 NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet.affine import Affine, activate, implication, over_features, over_predicates

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("biased", [True, False])
def test_maps_of_the_last_and_of_the_second_axis(biased):
    """Compared with plain Python."""
    weight, bias = RNG.normal(size=(3, 5)), RNG.normal(size=5)
    affine = Affine(jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32) if biased else None)
    pairs = RNG.normal(size=(2, 3, 4, 6))
    want = np.zeros((2, 5, 4, 6))
    for b, x, y in np.ndindex(2, 4, 6):
        want[b, :, x, y] = pairs[b, :, x, y] @ weight + (bias if biased else 0)
    got = over_predicates(jnp.asarray(pairs, jnp.float32), affine)
    np.testing.assert_allclose(got, want, atol=1e-5)
    moved = over_features(jnp.asarray(np.moveaxis(pairs, 1, -1), jnp.float32), affine)
    np.testing.assert_allclose(moved, np.moveaxis(want, 1, -1), atol=1e-5)


def test_the_type_of_the_inputs_is_kept():
    """Parameters are cast to the compute dtype, not the inputs to theirs."""
    affine = Affine(jnp.ones((3, 5)), jnp.ones(5))
    assert over_predicates(jnp.ones((1, 3, 2, 2), jnp.bfloat16), affine).dtype == jnp.bfloat16
    assert over_features(jnp.ones((1, 3), jnp.bfloat16), affine).dtype == jnp.bfloat16


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gelu_is_exact(dtype):
    """Compared with the normal distribution of Python's math module."""
    z = jnp.linspace(-6, 6, 97).astype(dtype)
    want = [float(x) * 0.5 * math.erfc(-float(x) / math.sqrt(2)) for x in z]
    # 1 + erf is exact to half a unit of 1, which z up to 6 multiplies.
    tolerance = {"rtol": 1e-2 if dtype == jnp.bfloat16 else 1e-6, "atol": 4e-7}
    np.testing.assert_allclose(np.asarray(activate(z, "gelu"), np.float64), want, **tolerance)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_derivative_of_gelu(dtype):
    """The normal distribution plus z times its density, also far out, where both are 0 or 1."""
    z = jnp.asarray([-30.0, -4.0, -1.0, -0.0, 0.25, 2.0, 30.0], dtype)
    slope = jax.jit(jax.vmap(jax.grad(lambda z: activate(z, "gelu"))))(z)
    assert slope.dtype == dtype
    expected = [
        0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        for x in np.asarray(z, np.float64)
    ]
    np.testing.assert_allclose(
        np.asarray(slope, np.float64), expected, atol=1e-6 if dtype == jnp.float32 else 4e-3
    )


def test_implication_is_modus_ponens():
    """Equation (24): the head is true if the body is, and in half the cases otherwise."""
    z = jnp.linspace(-30, 30, 41)
    body = 1 / (1 + np.exp(-np.asarray(z, np.float64)))
    head = jax.nn.sigmoid(implication(z))
    np.testing.assert_allclose(head, body + 0.5 * (1 - body), rtol=1e-6)
    np.testing.assert_allclose(
        activate(z, "implication"), np.log1p(2 * np.exp(np.asarray(z, float))), rtol=1e-5
    )
    assert np.isfinite(implication(jnp.asarray([1e4, -1e4]))).all()
    half = z.astype(jnp.bfloat16)
    assert implication(half).dtype == jnp.bfloat16
    want = np.log1p(2 * np.exp(np.asarray(half, np.float64)))
    np.testing.assert_allclose(np.asarray(implication(half), np.float64), want, rtol=2**-8)


def test_other_activations():
    """One more activation by name, and an unknown name."""
    np.testing.assert_array_equal(activate(jnp.asarray([-1.0, 2.0]), "relu"), [0, 2])
    with pytest.raises(ValueError, match="activation: got 'tanh', expected one of 'gelu', 'relu', 'impl"):
        activate(jnp.zeros(3), "tanh")  # pyrefly: ignore
