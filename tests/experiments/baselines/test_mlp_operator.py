"""The control that makes an operator of each input, against NumPy, and its errors."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from experiments.baselines import MLPOperatorCell

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_against_the_equations():
    """A step of two sequences from random states and parameters."""
    cell, rng = MLPOperatorCell(3, operator_features=4, hidden=5), np.random.default_rng(0)
    h, x = (rng.normal(size=(2, n)).astype(np.float32) for n in (3, 6))
    shapes = jax.eval_shape(cell.init, jax.random.key(0), h, x)["params"]
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    new, output = jax.jit(cell.apply)({"params": params}, h, x)
    np.testing.assert_array_equal(new, output)
    for row in range(2):
        hidden = np.maximum(x[row] @ params["hidden"]["kernel"] + params["hidden"]["bias"], 0)
        made = np.maximum(hidden @ params["made"]["kernel"] + params["made"]["bias"], 0)
        operators = params["operators"]["kernel"].reshape(4, 3, 3)
        moved = np.einsum("m,mij,j->i", made, operators, h[row])
        np.testing.assert_allclose(new[row], moved / np.linalg.norm(moved), rtol=1e-4, atol=1e-5)


def test_an_input_of_which_nothing_is_made_keeps_the_state():
    """Where all of z rest; many such steps leave gradients finite, and the other inputs their operators."""
    cell = MLPOperatorCell(3, operator_features=4, hidden=5)
    h, x = np.eye(3, dtype=np.float32)[:2], np.eye(6, dtype=np.float32)[:2]
    shapes, rng = jax.eval_shape(cell.init, jax.random.key(0), h, x)["params"], np.random.default_rng(0)
    params: Any = jax.tree.map(lambda leaf: rng.normal(scale=0.4, size=leaf.shape).astype("f4"), shapes)
    params["made"]["bias"] = np.full(4, -10, np.float32)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def run(params):
        state = jnp.asarray(h)
        for _ in range(8):
            state, _ = cell.apply({"params": params}, state, x)
        return (state**2).sum(), state

    gradients, last = run(params)
    np.testing.assert_array_equal(last, h)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(jax.device_get(gradients)))


def test_it_fits_the_loop_of_flax():
    """Which finds the axis of time by the number of those of features."""
    rnn = nn.RNN(MLPOperatorCell(3), return_carry=True)
    inputs = jax.ShapeDtypeStruct((2, 5, 4), jnp.float32)
    (last, outputs), _ = jax.eval_shape(rnn.init_with_output, jax.random.key(0), inputs)
    assert (last.shape, outputs.shape) == ((2, 3), (2, 5, 3))


def test_the_start():
    start = MLPOperatorCell(3).initialize_carry(jax.random.key(0), (2, 4, 7))
    np.testing.assert_array_equal(start, np.broadcast_to(np.eye(3)[0], (2, 4, 3)))


@pytest.mark.parametrize(
    ("cell", "carry", "message"),
    [
        (MLPOperatorCell(0), 0, "features: got 0, expected at least 1"),
        (MLPOperatorCell(3, operator_features=0), 3, "operator_features: got 0, expected at least 1"),
        (MLPOperatorCell(3, hidden=0), 3, "hidden: got 0, expected at least 1"),
        (MLPOperatorCell(3), 4, r"carry: got shape \(2, 4\)"),
    ],
)
def test_a_mistake_is_named(cell, carry, message):
    with pytest.raises(ValueError, match=message):
        cell.init(jax.random.key(0), jnp.zeros((2, carry)), jnp.zeros((2, 5)))
