"""Symmetries of BoxWorld: the same play in other colours and upside down."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CONFIG = boxworld.STANDARD.replace(max_length=2, max_distractors=2, traps=3)
STEP = jax.jit(jax.vmap(boxworld.step, (0, 0, None)))
OBSERVE = jax.jit(jax.vmap(lambda state: boxworld.observe(state, CONFIG)))
REFLECT = jax.jit(jax.vmap(lambda state: boxworld.reflect(state, CONFIG)))


@pytest.fixture(scope="module")
def states():
    return jax.jit(lambda key: boxworld.reset_batch(key, 40, CONFIG))(jax.random.key(0))


def test_other_colours(states):
    """Only colours of keys and locks change, each to another of the same ones, everywhere alike."""
    recolour = jax.jit(jax.vmap(boxworld.recolour))
    after = recolour(states, jax.random.split(jax.random.key(1), 40))
    chosen = set()
    pictures = [np.asarray(OBSERVE(one)).reshape(40, -1, 3) for one in (states, after)]
    for i, (old, new) in enumerate(zip(*map(np.asarray, (states.palette, after.palette)), strict=True)):
        np.testing.assert_array_equal(old[0], new[0])
        assert sorted(old[1:].tolist()) == sorted(new[1:].tolist())
        chosen.add(old[1:].tolist().index(new[1].tolist()))
        to = {tuple(a): b for a, b in zip(old.tolist(), new.tolist(), strict=True)}
        before, picture = (of[i].tolist() for of in pictures)
        assert [to.get(tuple(pixel), pixel) for pixel in before] == picture
    assert len(chosen) > 10  # of 20 places in the order, in 40 draws
    same = dataclasses.replace(after, palette=states.palette)
    jax.tree.map(np.testing.assert_array_equal, same, states)


def test_upside_down(states):
    """A reflected state does after a reflected action what the state does after the action, reflected."""
    jax.tree.map(np.testing.assert_array_equal, REFLECT(REFLECT(states)), states)
    unused = np.asarray(states.traps)[..., 0] < 0
    assert unused.any()
    assert (np.asarray(REFLECT(states).traps)[unused] == -1).all()
    board, mirrored = OBSERVE(states), OBSERVE(REFLECT(states))
    np.testing.assert_array_equal(board[:, ::-1, :-1], mirrored[:, :, :-1])
    np.testing.assert_array_equal(board[:, :, -1], mirrored[:, :, -1])
    rewards = []
    for actions in map(jnp.asarray, np.random.default_rng(2).integers(0, 4, (150, 40), np.int32)):
        other, other_outcome = STEP(REFLECT(states), boxworld.reflect_action(actions), CONFIG)
        states, outcome = STEP(states, actions, CONFIG)
        jax.tree.map(np.testing.assert_array_equal, (other, other_outcome), (REFLECT(states), outcome))
        rewards.append(outcome.reward)
    assert {-1.0, 0.0, 1.0, 10.0} == set(np.unique(rewards).tolist())


def test_reflected_boards_have_boxes_in_the_same_places(states):
    """Not so for the Gem with two locks, which is refused, as are boards that are not symmetric."""
    slots = [(x, y) for x in CONFIG.slot_xs for y in CONFIG.slot_ys]
    after = REFLECT(states)
    for grid in np.asarray(after.grid):
        is_content = (grid >= 0) & (np.pad(grid, ((0, 0), (1, 0)), constant_values=-1)[:, :-1] < 0)
        assert {(int(x), int(y)) for y, x in np.argwhere(is_content)} <= set(slots)
    one = jax.tree.map(lambda leaf: leaf[0], states)
    for config in (boxworld.BRIDGE, CONFIG.replace(rows=8)):
        assert not boxworld.has_reflections(config)
        with pytest.raises(ValueError, match="expected one Gem lock and an odd number of rows"):
            boxworld.reflect(one, config)


def test_actions():
    actions = jnp.asarray([boxworld.LEFT, boxworld.UP, boxworld.RIGHT, boxworld.DOWN])
    expected = [boxworld.LEFT, boxworld.DOWN, boxworld.RIGHT, boxworld.UP]
    assert boxworld.reflect_action(actions).tolist() == expected
