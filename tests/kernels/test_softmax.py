"""The masked softmax, against its definition in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import masked_softmax


def test_softmax_over_what_is_allowed_and_0_elsewhere():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 6)).astype(np.float32)
    mask = rng.random((4, 6)) < 0.5
    mask[1] = False
    mask[2] = True
    powers = np.where(mask, np.exp(logits.astype(np.float64)), 0)
    sums = powers.sum(axis=-1, keepdims=True)
    expected = powers / np.where(sums == 0, 1, sums)
    found = masked_softmax(jnp.asarray(logits), jnp.asarray(mask))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not found[1].any()
    np.testing.assert_allclose(masked_softmax(jnp.asarray(logits))[2], expected[2], atol=1e-6)


def test_a_row_with_nothing_allowed_has_finite_gradients():
    gradient = jax.grad(lambda x: jnp.sum(masked_softmax(x, jnp.zeros((1, 3), bool)) ** 2))(jnp.ones((1, 3)))
    np.testing.assert_array_equal(gradient, np.zeros((1, 3)))


def test_a_mask_that_is_not_boolean_is_refused():
    """-1e9 would be true, and so would allow what it is meant to exclude."""
    with pytest.raises(ValueError, match="mask: got dtype float32, expected bool"):
        masked_softmax(jnp.zeros((2, 3)), jnp.full((2, 3), -1e9))
