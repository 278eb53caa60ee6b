"""Checks of arguments: bounds, and how batch axes are merged."""

import jax.numpy as jnp
import numpy as np
import pytest

from kernels import checks


@pytest.mark.parametrize("value", [1e-15, 1, np.float32(2.5), 3.0])
def test_positive_numbers_are_floats_of_python(value):
    found = checks.positive("eps", value, 1e-15)
    assert type(found) is float
    assert found == float(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (9e-16, "got 9e-16, expected a finite number greater than 0, at least 1e-15"),
        (float("inf"), "got inf, expected a finite"),
        (True, "got bool, expected a Python number"),
        (jnp.ones(()), "expected a Python number"),
        ("1", "got str, expected a Python number"),
    ],
)
def test_what_is_not_a_positive_number_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        checks.positive("eps", value, 1e-15)


def test_zero_is_refused_without_a_least_number_and_a_tiny_one_is_not():
    assert checks.positive("scale", 1e-300) == 1e-300
    with pytest.raises(ValueError, match=r"scale: got 0\.0, expected a finite number greater than 0$"):
        checks.positive("scale", 0)


def test_an_array_of_the_least_rank_passes():
    checks.rank("query", jnp.zeros((2, 3, 4)), 3, "[..., N, H, D]")
    with pytest.raises(
        ValueError, match=r"query: got shape \(3, 4\), expected \[..., N, H, D\] with at least 3"
    ):
        checks.rank("query", jnp.zeros((3, 4)), 3, "[..., N, H, D]")


def test_arrays_meet_in_the_widest_type():
    found = checks.floating(a=jnp.zeros(1, jnp.bfloat16), b=np.zeros(2, np.float32), c=[1.0])
    assert [x.dtype for x in found] == [jnp.float32] * 3
    assert [x.shape for x in found] == [(1,), (2,), (1,)]


@pytest.mark.parametrize(
    ("shape", "spread"), [((4, 5), (1, 1, 4, 5)), ((3, 1, 5), (1, 3, 1, 5)), ((2, 1, 1, 1), (2, 1, 1, 1))]
)
def test_a_mask_gets_all_axes(shape, spread):
    drawn = np.random.default_rng(0).random(shape) < 0.5
    found = checks.mask(drawn, (2, 3, 4, 5), "[B, H, N, M]")
    assert found is not None
    np.testing.assert_array_equal(found, drawn.reshape(spread))
    assert checks.mask(None, (2, 3, 4, 5), "[B, H, N, M]") is None


@pytest.mark.parametrize("shape", [(3, 5), (2, 4, 5), (1, 2, 3, 4, 5)])
def test_a_mask_that_does_not_broadcast_is_refused(shape):
    with pytest.raises(
        ValueError, match=r"mask: got shape .*, expected one that broadcasts to \[B, H, N, M\]"
    ):
        checks.mask(np.ones(shape, bool), (2, 3, 4, 5), "[B, H, N, M]")


def test_batch_axes_are_merged_in_order():
    """One row for all stays one; one row for some of the batch is repeated."""
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    np.testing.assert_array_equal(checks.flatten_batch(jnp.asarray(x), (2, 3), 2), x.reshape(6, 4, 5))
    assert checks.flatten_batch(jnp.asarray(x[:1, :1]), (2, 3), 2).shape == (1, 4, 5)
    some = checks.flatten_batch(jnp.asarray(x[:, :1]), (2, 3), 2)
    np.testing.assert_array_equal(some, np.repeat(x[:, 0], 3, axis=0))
