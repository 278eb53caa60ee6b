"""Affine maps of predicates, and activations, against float64 NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet.affine import Affine, activate, implication, over_features, over_predicates
from tests.folnet import small

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

    @small.quickly
    def run(pairs):
        return over_predicates(pairs, affine), over_features(jnp.moveaxis(pairs, 1, -1), affine)

    got, moved = run(pairs.astype(np.float32))
    np.testing.assert_allclose(got, want, atol=1e-5)
    np.testing.assert_allclose(moved, np.moveaxis(want, 1, -1), atol=1e-5)


def test_the_type_of_the_inputs_is_kept():
    """Parameters are cast to the compute dtype, not the inputs to theirs."""
    affine = Affine(jnp.asarray(np.ones((3, 5), np.float32)), jnp.asarray(np.ones(5, np.float32)))
    for run, shape in ((over_predicates, (1, 3, 2, 2)), (over_features, (1, 3))):
        half = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
        assert jax.eval_shape(lambda inputs, run=run: run(inputs, affine), half).dtype == jnp.bfloat16


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_gelu_is_exact(dtype):
    """Compared with the normal distribution of Python's math module."""
    z = jnp.asarray(np.linspace(-6, 6, 97), dtype)
    want = [x * 0.5 * math.erfc(-x / math.sqrt(2)) for x in np.asarray(z, np.float64).tolist()]
    # 1 + erf is exact to half a unit of 1, which z up to 6 multiplies.
    tolerance = {"rtol": 1e-2 if dtype == jnp.bfloat16 else 1e-6, "atol": 4e-7}
    got = small.quickly(lambda z: activate(z, "gelu"))(z)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, **tolerance)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_derivative_of_gelu(dtype):
    """The normal distribution plus z times its density, also far out, where both are 0 or 1."""
    z = jnp.asarray([-30.0, -4.0, -1.0, -0.0, 0.25, 2.0, 30.0], dtype)
    slope = small.quickly(jax.vmap(jax.grad(lambda z: activate(z, "gelu"))))(z)
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
    z = np.linspace(-30, 30, 41, dtype=np.float32)
    body = 1 / (1 + np.exp(-z.astype(np.float64)))
    run = small.quickly(
        lambda z: (jax.nn.sigmoid(implication(z)), activate(z, "implication"), implication(z))
    )
    head, named, _ = run(z)
    np.testing.assert_allclose(head, body + 0.5 * (1 - body), rtol=1e-6)
    np.testing.assert_allclose(named, np.log1p(2 * np.exp(z.astype(np.float64))), rtol=1e-5)
    z[:2] = 1e4, -1e4
    assert np.isfinite(run(z)[2]).all()
    half = jnp.asarray(z[2:], jnp.bfloat16)
    found = run(half)[2]
    assert found.dtype == jnp.bfloat16
    want = np.log1p(2 * np.exp(np.asarray(half, np.float64)))
    np.testing.assert_allclose(np.asarray(found, np.float64), want, rtol=2**-8)


def test_other_activations():
    """One more activation by name, and an unknown name."""
    np.testing.assert_array_equal(activate(jnp.asarray([-1.0, 2.0]), "relu"), [0, 2])
    with pytest.raises(ValueError, match="activation: got 'tanh', expected one of 'gelu', 'relu', 'impl"):
        activate(jnp.zeros(3), "tanh")  # pyrefly: ignore
