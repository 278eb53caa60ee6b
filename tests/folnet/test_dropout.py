"""Dropout: rates, independence and exact expectations."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet.dropout import LEVELS, Dropout, drop, kept, kept_levels
from tests import defaults
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

dropped = small.quickly(drop, static_argnums=1)


@pytest.mark.parametrize("rate", [0.1, 2**-10])
def test_as_many_as_the_rate_says(rate):
    """Within five standard deviations everywhere, and independent for neighbors, which share a word."""
    rows, columns = 400, 501
    mask = np.asarray(small.quickly(lambda key: kept(key, rate, (rows, columns)))(small.key(3)))
    assert mask.dtype == bool
    assert mask.shape == (rows, columns)
    deviation = np.sqrt(rate * (1 - rate) / mask.size)
    assert abs(mask.mean() - (1 - rate)) < 5 * deviation
    for half in (mask[:, ::2], mask[:, 1::2], mask[:, -1:]):
        assert abs(half.mean() - (1 - rate)) < 5 * np.sqrt(rate * (1 - rate) / half.size)
    both = (~mask[:, :-1:2] & ~mask[:, 1::2]).mean()
    if rate == 0.1:  # rows and columns are drawn separately
        assert len(np.unique(mask, axis=0)) == rows
        assert len(np.unique(mask.T, axis=0)) == columns
    expected = rate**2
    assert abs(both - expected) < 5 * np.sqrt(expected / mask[:, 1::2].size)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 2, 4), (0, 3)])
def test_any_shape(shape):
    """Scalars, odd and even lengths, empty arrays; other keys give other results."""
    inputs = jnp.asarray(np.ones(shape, np.float32))
    outputs = dropped(small.key(0), 0.5, inputs)
    assert outputs.shape == shape
    assert outputs.dtype == inputs.dtype
    assert set(np.unique(outputs)) <= {0.0, 2.0}
    np.testing.assert_array_equal(outputs, dropped(small.key(0), 0.5, inputs))


@pytest.mark.parametrize("rate", [0.1, 0.5, 1 - 1e-6, 2**-16])
def test_so_many_of_all_values_are_kept(rate, monkeypatch):
    """Exactly the number that the scale assumes, if every value of sixteen bits occurs once."""
    values = np.random.default_rng(0).permutation(LEVELS).astype(np.uint16)
    monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype: jnp.asarray(values.view(dtype)))
    mask = kept(small.key(0), rate, (LEVELS,))
    assert int(mask.sum()) == kept_levels(rate)


def test_half_precision():
    """The type is kept, and kept numbers are multiplied by the rounded scale."""
    inputs = jnp.asarray([3.0] * 40, jnp.bfloat16)
    outputs = dropped(small.key(0), 0.5, inputs)
    assert outputs.dtype == jnp.bfloat16
    assert set(np.unique(np.asarray(outputs, np.float32))) == {0, 6}


def test_expectations_are_exact():
    """The scale is that of the rounded rate: 6,554 of 65,536 for a tenth."""
    assert kept_levels(0.1) == LEVELS - 6554
    outputs = np.unique(dropped(small.key(0), 0.1, np.ones(1000, np.float32)))
    np.testing.assert_allclose(outputs, [0, LEVELS / (LEVELS - 6554)], rtol=1e-6)


def test_rates_at_the_ends():
    """A rate below half a level drops nothing, one near 1 keeps one level, and 1 is refused."""
    five = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(dropped(small.key(0), 1e-6, five), five)
    assert (kept_levels(1 - 1e-6), kept_levels(0.0)) == (1, LEVELS)
    for rate in (1.0, -0.1):
        with pytest.raises(ValueError, match=f"rate: got {rate}, expected a number of at least 0 and"):
            kept_levels(rate)


def test_gradients_are_dropped_alike():
    """Dropped numbers have no gradient, kept ones have the scale."""
    inputs = np.linspace(1, 2, 50, dtype=np.float32)
    value = jax.value_and_grad(lambda x: drop(small.key(1), 0.3, x).sum())
    outputs, gradient = jax.device_get(small.quickly(value)(inputs))
    np.testing.assert_allclose(gradient, dropped(small.key(1), 0.3, np.ones(50, np.float32)))
    assert outputs == pytest.approx(np.sum(gradient * inputs), rel=1e-5)


def test_module():
    """If deterministic or at rate 0 it does nothing and needs no key; otherwise each call draws anew."""
    inputs = jnp.asarray(np.ones((4, 8), np.float32))
    np.testing.assert_array_equal(Dropout(0.5).apply({}, inputs, deterministic=True), inputs)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, inputs, deterministic=False), inputs)

    @small.quickly
    def run(key):
        return Dropout(0.5).apply({}, inputs, deterministic=False, rngs={"dropout": key})

    one, other = (np.asarray(run(small.key(seed))) for seed in (0, 1))
    assert set(np.unique(one)) == {0.0, 2.0}
    assert (one != other).any()


def test_no_module_drops_unless_it_is_asked_to():
    found = defaults.of_methods("folnet", "deterministic")
    assert list(found.values()).count(True) >= 15
    assert set(found.values()) <= {True, inspect.Parameter.empty}
