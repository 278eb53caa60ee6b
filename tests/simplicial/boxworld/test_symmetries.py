"""Symmetries of BoxWorld: the same play in other colours and upside down."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import boxworld
from tests.simplicial.boxworld.test_planning import wander

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CONFIG = boxworld.STANDARD.replace(max_length=2, max_distractors=2, traps=3)
STEP = jax.jit(jax.vmap(boxworld.step, (0, 0, None)))
OBSERVE = jax.jit(jax.vmap(lambda state: boxworld.observe(state, CONFIG)))
REFLECT = jax.jit(jax.vmap(lambda state: boxworld.reflect(state, CONFIG)))


def slots_of(grid, config):
    """Returns what each slot (x, y) holds."""
    return {(x, y): tuple(grid[y, x : x + 2].tolist()) for x in config.slot_xs for y in config.slot_ys}


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


def test_other_slots():
    """Boxes and loose keys go whole to other slots, with the player who stands in one and their traps.

    The Gem with two locks and the slot below it stay. What can be solved can still be.
    """
    for config in (CONFIG, boxworld.BRIDGE):
        size = 60
        key = jax.random.key(3)
        start = jax.jit(boxworld.reset_batch, static_argnums=1)(key, size, config)
        states = wander(start, jax.random.key(4), config, 60)
        rearrange = jax.jit(jax.vmap(boxworld.rearrange, (0, 0, None)))
        old, new = jax.device_get((states, rearrange(states, jax.random.split(key, size), config)))
        solve = jax.jit(lambda states, config=config: boxworld.solutions(states, config).distance >= 0)
        np.testing.assert_array_equal(solve(old), solve(new))
        went, moved = set(), 0
        for i in range(size):
            before, after = (slots_of(one.grid[i], config) for one in (old, new))
            assert sorted(before.values()) == sorted(after.values())
            gem = tuple(old.gem[i].tolist())
            if config.gem_locks == 2:
                below = gem[0], gem[1] + 2
                assert tuple(new.gem[i].tolist()) == gem
                assert [before[place] for place in (gem, below)] == [after[place] for place in (gem, below)]
                np.testing.assert_array_equal(old.grid[i][::2], new.grid[i][::2])
            assert after[tuple(new.gem[i].tolist())] == before[gem]
            went.add(tuple(new.gem[i].tolist()))
            for (x, y), (to_x, to_y) in zip(old.traps[i].tolist(), new.traps[i].tolist(), strict=True):
                assert (x < 0) == (to_x < 0)
                if x >= 0:
                    assert before[x - 1, y] == after[to_x - 1, to_y]
            (x, y), (to_x, to_y) = old.player[i].tolist(), new.player[i].tolist()
            in_slot = y in config.slot_ys and x % 3 in (1, 2) and x < config.cols
            if in_slot:
                assert before[x - (x - 1) % 3, y] == after[to_x - (to_x - 1) % 3, to_y]
                assert (x - 1) % 3 == (to_x - 1) % 3
                moved += (x, y) != (to_x, to_y)
            else:
                assert (x, y) == (to_x, to_y)
        assert moved > 3
        assert len(went) > 3
        for name in ("inventory", "palette", "puzzle", "time", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(old, name), getattr(new, name))


def test_equal_draws_keep_every_box(monkeypatch):
    """They are rare, and a box that lost its place to another would be lost."""
    uniform = jax.random.uniform
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape: jnp.round(3 * uniform(key, shape)) / 4)
    for config in (CONFIG, boxworld.BRIDGE):
        keys = jax.random.split(jax.random.key(5), 20)
        old = jax.jit(boxworld.reset_batch, static_argnums=1)(keys[0], 20, config)
        new = jax.jit(jax.vmap(boxworld.rearrange, (0, 0, None)))(old, keys, config)
        assert (old.grid != new.grid).any()
        np.testing.assert_array_equal(
            np.sort(old.grid.reshape(20, -1), axis=1), np.sort(new.grid.reshape(20, -1), axis=1)
        )


def test_all_orders_of_slots_are_equally_likely():
    """Of three slots with two different boxes and nothing: six orders."""
    config = boxworld.STANDARD.replace(rows=3, cols=9, max_length=1, max_distractors=0, traps=0)
    state = jax.jit(lambda: boxworld.reset(jax.random.key(0), config))()
    draws = jax.jit(jax.vmap(boxworld.rearrange, (None, 0, None)))
    grids = np.asarray(draws(state, jax.random.split(jax.random.key(1), 600), config).grid)
    counts = np.unique(grids, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert abs(counts - 100).max() < 40


def test_actions():
    actions = jnp.asarray([boxworld.LEFT, boxworld.UP, boxworld.RIGHT, boxworld.DOWN])
    expected = [boxworld.LEFT, boxworld.DOWN, boxworld.RIGHT, boxworld.UP]
    assert boxworld.reflect_action(actions).tolist() == expected
