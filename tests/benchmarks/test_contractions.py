"""Contractions are found wherever they hide, counted right, and none is left out when they run alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import contractions
from benchmarks.contractions import Contraction

LEFT, RIGHT = jax.ShapeDtypeStruct((3, 5, 2, 7), jnp.float32), jax.ShapeDtypeStruct((3, 4, 2, 7), jnp.float32)


def scores(left, right):
    return jnp.einsum("bxhs,byhs->bhxy", left, right)


def test_axes_are_sorted_into_batch_rows_sum_and_columns():
    """Whatever their order."""
    assert contractions.of(scores, LEFT, RIGHT) == [Contraction(6, 5, 7, 4)]
    assert Contraction(6, 5, 7, 4).operations == 2 * 6 * 5 * 7 * 4


def test_gradients_have_two_for_each():
    """One for either factor, with rows, sum and columns exchanged."""
    found = contractions.of(jax.grad(lambda *args: jnp.sin(scores(*args)).sum(), (0, 1)), LEFT, RIGHT)
    assert len(found) == 3
    assert {one.operations for one in found} == {2 * 6 * 5 * 7 * 4}
    assert {one.k for one in found} == {7, 5, 4}


def test_inner_functions_are_searched():
    """Compiled ones, those with derivatives of their own, loops of a known length."""

    @jax.custom_vjp
    def own(x):
        return x @ x

    own.defvjp(lambda x: (own(x), x), lambda x, d: (d @ x + x @ d,))

    def function(x):
        x = jax.jit(jnp.matmul)(x, x)
        x = jax.checkpoint(jnp.matmul)(x, own(x))
        return jax.lax.scan(lambda x, _: (x @ x, None), x, length=4)[0]

    square = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    assert contractions.of(function, square) == [Contraction(1, 3, 3, 3)] * 7


def test_what_no_result_needs_is_not_counted():
    """Neither outside nor inside of an inner function."""

    def function(x):
        inner = jax.jit(lambda x: (x @ x, x @ x.T))
        return {"kept": inner(x)[1], "left out": x @ x}["kept"]

    square = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    assert len(contractions.of(function, square)) == 1


def test_what_cannot_be_counted_is_reported():
    """A loop that ends when it likes."""

    def function(x):
        return jax.lax.while_loop(lambda x: x.sum() < 1, lambda x: x @ x, x)

    with pytest.raises(ValueError, match="function: got 1 contractions inside a while, expected none"):
        contractions.of(function, jax.ShapeDtypeStruct((3, 3), jnp.float32))


def test_none_is_left_out():
    """The compiler counts all of them, though some are alike; every result is given out."""
    found = [Contraction(2, 8, 16, 8), Contraction(2, 8, 16, 8), Contraction(1, 32, 8, 16)]
    call = contractions.alone(found)
    analysis = jax.jit(call.func).lower(*call.args).compile().cost_analysis()
    assert analysis is not None
    assert analysis["flops"] >= contractions.operations(found)
    results = call()
    assert len(results) == 3
    assert np.unique(results).size == 3
