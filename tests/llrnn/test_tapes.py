"""The Stack-RNN and the Tape-RNN against their authors' definitions and against their proofs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import memory
from tests.llrnn.instances import INPUTS, LOCATIONS, WIDTH
from tests.llrnn.memory_equations import relu, softmax
from tests.llrnn.tape_instances import tape

pytestmark = pytest.mark.usefixtures("compiled_quickly", "x64")

BATCH, FEATURES, STEPS, STRING = 3, 5, 9, 4
CELLS: dict[str, Any] = {
    "stack": memory.StackRNNCell(FEATURES, memory_size=6, memory_width=WIDTH, param_dtype=jnp.float64),
    "tape": memory.TapeRNNCell(FEATURES, memory_size=6, memory_width=WIDTH, param_dtype=jnp.float64),
}


def string(rng):
    """Returns a string of one-hot symbols that ends with empty symbols, the last of the input's features."""
    symbols = rng.integers(0, INPUTS - 1, size=(BATCH, STEPS))
    symbols[:, STRING:] = INPUTS - 1
    return np.eye(INPUTS)[symbols]


def drawn(cell, x, rng):
    shapes = jax.eval_shape(nn.RNN(cell).init, jax.random.key(0), x)["params"]
    return jax.tree.map(lambda leaf: 0.6 * rng.normal(size=leaf.shape), shapes)


def defined(kind, params, x, places):
    """The authors' recurrence: h' from the top or head, then the action, for one sequence [T, I].

    The first memory is that which the cell's first step makes of an empty one at h = 0.
    """
    p = params["cell"]
    actions = p["heads"]["bias"].size - WIDTH

    def update(content, h, length):
        heads = h @ p["heads"]["kernel"] + p["heads"]["bias"]
        a, u = softmax(heads[:actions]), heads[actions:]
        if kind == "stack":
            pushed = [u, *content[:-1]]
            popped = [*content[1:], np.zeros(WIDTH)]
            return a[0] * np.array(pushed) + a[1] * np.array(popped) + a[2] * content
        written = np.array([u, *content[1:]])
        shifts = (0, -1, 1, -length, length)
        return sum(a[i] * np.roll(written, shift, axis=0) for i, shift in enumerate(shifts))

    def step(content, h, symbol):
        affine = symbol @ p["input"]["kernel"] + p["input"]["bias"] + h @ p["hidden"]["kernel"]
        return relu(content[0] @ p["content"]["kernel"] + affine)

    h, states, length = np.zeros(FEATURES), [], 1
    content = update(np.zeros((places, WIDTH)), h, length)
    for t, symbol in enumerate(x):
        h = step(content, h, symbol)
        states.append(h)
        length = min(t + 2, STRING)  # the symbols so far when the next step jumps
        content = update(content, h, length)
    return np.array(states)


@pytest.mark.parametrize("kind", CELLS)
def test_the_cell_is_the_authors_recurrence(kind):
    rng = np.random.default_rng(0)
    x, cell = string(rng), CELLS[kind]
    params = drawn(cell, x, rng)
    found = jax.jit(nn.RNN(cell).apply)({"params": params}, x)
    expected = np.stack([defined(kind, params, row, cell.memory_size) for row in x])
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert (np.abs(expected[:, -1]) > 0.01).any()


def test_the_tape_is_the_cell_of_its_proof():
    """One step from the same random state; the length is a place there."""
    rng = np.random.default_rng(1)
    named, general, mapped = tape()
    general = general.copy(param_dtype=jnp.float64)
    x = jnp.eye(INPUTS)[np.array([0, 1, INPUTS - 1])]
    counted = np.array([[0, 1], [0, 1], [1, 0]])  # the last symbol is empty
    given = jnp.concatenate([counted, x], axis=1)
    controller = 0.3 + rng.random((BATCH, named.features))
    content = 0.3 + rng.random((BATCH, WIDTH, LOCATIONS))
    length = np.array([2, 0, 3])

    def flat(controller, content, length):
        places = jax.nn.one_hot(length, LOCATIONS, dtype=jnp.float64)
        return jnp.concatenate([controller, places, content.reshape(BATCH, -1)], axis=1)

    def begun():
        start = named.initialize_carry(jax.random.key(0), x.shape)
        assert start.length.shape == (BATCH,)
        empty = flat(start.controller, start.memory, start.length)
        return start, empty, general.initialize_carry(jax.random.key(0), given.shape)

    start, *empty = jax.eval_shape(begun)
    shapes = jax.eval_shape(named.init, jax.random.key(0), start, x)["params"]
    params = jax.tree.map(lambda leaf: 0.6 * rng.normal(size=leaf.shape), shapes)
    theirs = jax.eval_shape(general.init, jax.random.key(0), empty[0], given)["params"]
    assert jax.tree.map(jnp.shape, mapped(params)) == jax.tree.map(jnp.shape, theirs)

    @jax.jit
    def both_cells(params, controller, content):
        state = memory.TapeState(controller, content, jnp.asarray(length))
        new, _ = named.apply({"params": params}, state, x)
        ours = flat(new.controller, new.memory, new.length)
        theirs, _ = general.apply({"params": mapped(params)}, flat(controller, content, length), given)
        return begun()[1:], (ours, theirs)

    leaves, tree = jax.tree.flatten((params, controller, content))
    # Each parameter and part of the state is changed once, to see that it takes part in the comparison.
    results = []
    for changed in (None, *range(len(leaves))):
        moved = [leaf + 0.2 * rng.random(leaf.shape) * (at == changed) for at, leaf in enumerate(leaves)]
        for found, expected in both_cells(*jax.tree.unflatten(tree, moved)):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
        results.append(np.asarray(found))
    assert all(np.abs(other - results[0]).max() > 0 for other in results[1:])


@pytest.mark.parametrize("kind", CELLS)
def test_the_coefficients_of_the_actions_are_recorded(kind):
    cell, x = CELLS[kind], jnp.ones((BATCH, INPUTS))
    carry = cell.initialize_carry(jax.random.key(0), x.shape)

    def run(key):
        variables = cell.init(key, carry, x)
        return cell.apply({"params": variables["params"]}, carry, x, mutable=["intermediates"])[1]

    (actions,) = jax.eval_shape(run, jax.random.key(0))["intermediates"]["actions"]
    assert actions.shape == (BATCH, {"stack": 3, "tape": 5}[kind])


def last_length(cell, params, x):
    run = jax.jit(lambda: nn.RNN(cell, return_carry=True).apply({"params": params}, x)[0].length)
    return run()


def test_the_length_of_a_jump_is_that_of_the_string():
    rng = np.random.default_rng(2)
    x = string(rng)
    cell = CELLS["tape"]
    params = drawn(cell, x, rng)
    np.testing.assert_array_equal(last_length(cell, params, x), [STRING] * BATCH)


def test_two_empty_symbols_end_a_string():
    cell = CELLS["tape"].clone(empty_symbols=2)
    x = jnp.eye(4)[np.array([[0, 1, 0, 2, 2, 3], [1, 2, 2, 3, 3, 3]])]
    params = drawn(cell, x, np.random.default_rng(4))
    np.testing.assert_array_equal(last_length(cell, params, x), [3, 1])


@pytest.mark.parametrize("kind", CELLS)
def test_more_room_changes_nothing_that_fitted(kind):
    """Places that no step reaches are not read: with room for all steps, more of it gives the same states."""
    rng = np.random.default_rng(3)
    x, cell = string(rng), CELLS[kind]
    params = drawn(cell, x, rng)
    reached = 2 * STEPS * STRING  # by jumps in both directions
    roomy = cell.with_room(reached)
    assert (roomy.memory_size, cell.with_room(2).memory_size) == (reached + 1, 6)
    sizes = roomy, cell.with_room(2 * reached)
    rooms = [np.asarray(jax.jit(nn.RNN(c).apply)({"params": params}, x)) for c in sizes]
    np.testing.assert_allclose(rooms[0], rooms[1], rtol=1e-12, atol=1e-14)
    assert np.abs(rooms[0]).max() > 0.1


@pytest.mark.unchecked  # a symbolic dimension is no `int`
@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_with_room_for_its_input_can_be_exported_at_any_length(kind):
    rng = np.random.default_rng(5)
    cell = CELLS[kind]

    @jax.jit
    def run(params, x):
        return nn.RNN(cell.with_room(x.shape[1])).apply({"params": params}, x)

    params = drawn(cell, string(rng), rng)
    shape = jax.export.symbolic_shape("batch, length, _", like=(None, None, INPUTS))
    exported = jax.export.export(run)(params, jax.ShapeDtypeStruct(shape, jnp.float64))
    for length in (3, 9):  # in the memory of the config, and in a larger one
        x = rng.normal(size=(2, length, INPUTS))
        np.testing.assert_allclose(exported.call(params, x), run(params, x), rtol=1e-12)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("field", ["memory_size", "memory_width", "features"])
def test_sizes_below_one_are_refused(kind, field):
    cell = CELLS[kind].clone(**{field: 0})
    with pytest.raises(ValueError, match=f"{field}: got 0, expected at least 1"):
        cell.initialize_carry(jax.random.key(0), (1, INPUTS))


@pytest.mark.parametrize("kind", CELLS)
def test_a_state_of_another_batch_is_refused(kind):
    carry = CELLS[kind].initialize_carry(jax.random.key(0), (2, INPUTS))
    with pytest.raises(ValueError, match=r"carry.controller: got shape \(2, 5\), expected \[\*B, 5\]"):
        CELLS[kind].init(jax.random.key(0), carry, np.ones((3, INPUTS)))
