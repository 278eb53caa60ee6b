"""Batches that restart: equivalence with resetting by hand, renewal, errors."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CONFIG = boxworld.BRIDGE.replace(max_length=1, horizon=30)  # short episodes: many ends
BATCH = 16
STEP = jax.jit(lambda states, actions, boards: boxworld.step_or_restart(states, actions, boards, CONFIG))
RENEW = jax.jit(lambda boards, key: boxworld.renew(boards, key, 4, CONFIG))
PLAIN = jax.jit(jax.vmap(lambda state, action: boxworld.step(state, action, CONFIG)))
RESET = jax.jit(boxworld.reset_batch, static_argnums=1)
RESTART = jax.jit(boxworld.restart)


def pool_of(key):
    """Returns a pool of 16 boards from the compiled reset."""
    zero = jnp.int32(0)
    return boxworld.Pool(states=RESET(key, BATCH, CONFIG), used=zero, drawn=jnp.int32(BATCH), repeated=zero)


def rows(states, which):
    """Selects rows of a batch, as NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[which], states)


def test_it_is_a_reset_by_hand_where_an_episode_ends():
    """For 100 steps: outcome and last state of the plain step, then the pool's boards in order."""
    boards, states = pool_of(jax.random.key(1)), RESET(jax.random.key(0), BATCH, CONFIG)
    stock, by_hand, used = jax.device_get(boards.states), jax.device_get(states), 0
    actions = np.random.default_rng(0).integers(0, 4, (100, BATCH))
    for now in actions:
        last, outcome = jax.device_get(PLAIN(by_hand, now))
        states, transition, boards = STEP(states, now, boards)
        chex.assert_trees_all_equal(jax.device_get(transition.last), last)
        chex.assert_trees_all_equal(jax.device_get(transition.outcome), outcome)
        by_hand = jax.tree.map(np.array, last)
        for i in np.nonzero(outcome.terminated | outcome.truncated)[0]:
            jax.tree.map(lambda leaf, fresh: leaf.__setitem__(i, fresh[used % BATCH]), by_hand, stock)  # noqa: B023
            used += 1
        chex.assert_trees_all_equal(jax.device_get(states), by_hand)
        assert boards.used == used
    assert used >= 3 * BATCH  # all truncated at least at 30, 60 and 90
    assert boards.repeated == used - BATCH


def test_a_renewed_pool_gives_every_board_once():
    """With renewal no board repeats, though 16 boards serve some 60 episodes; without it they do."""
    seen = {True: [], False: []}
    for renewed, palettes in seen.items():
        boards, states = pool_of(jax.random.key(1)), RESET(jax.random.key(0), BATCH, CONFIG)
        palettes += list(np.asarray(states.palette))
        for t in range(100):
            actions = np.random.default_rng(t).integers(0, 4, BATCH)
            states, transition, boards = STEP(states, actions, boards)
            ended = np.asarray(transition.outcome.terminated | transition.outcome.truncated)
            palettes += list(np.asarray(states.palette)[ended])
            if renewed:
                boards = RENEW(boards, jax.random.key(1000 + t))
        assert bool(boards.repeated) == (not renewed)
        assert boards.used <= boards.drawn if renewed else boards.drawn == BATCH
    distinct = {renewed: len({p.tobytes() for p in palettes}) for renewed, palettes in seen.items()}
    assert len(seen[True]) > 60
    assert distinct[True] == len(seen[True])
    assert distinct[False] == 2 * BATCH < len(seen[False])


def test_renewal_leaves_boards_that_are_still_to_be_given():
    """A full pool is unchanged; after three boards were used, three are new, in their ring slots."""
    full = pool_of(jax.random.key(1))
    chex.assert_trees_all_equal(RENEW(full, jax.random.key(2)), full)
    states = RESET(jax.random.key(0), BATCH, CONFIG)
    ended = np.arange(BATCH) < 3
    restarted, boards = RESTART(states, ended, full)
    chex.assert_trees_all_equal(rows(restarted, slice(3)), rows(full.states, slice(3)))
    chex.assert_trees_all_equal(rows(restarted, slice(3, None)), rows(states, slice(3, None)))
    boards = RENEW(boards, jax.random.key(2))
    assert (boards.used, boards.drawn, boards.repeated) == (3, 19, 0)
    chex.assert_trees_all_equal(rows(boards.states, slice(3, None)), rows(full.states, slice(3, None)))
    fresh = RESET(jax.random.key(2), 4, CONFIG)
    chex.assert_trees_all_equal(rows(boards.states, slice(3)), rows(fresh, slice(3)))


def test_an_overdrawn_pool_counts_and_recovers():
    """With more ends than boards, repeats are counted; renewal continues with the next number."""
    boards, states = pool_of(jax.random.key(1)), RESET(jax.random.key(0), BATCH, CONFIG)
    _, boards = RESTART(states, np.arange(BATCH) < 10, boards)
    restarted, boards = RESTART(states, np.arange(BATCH) < 10, boards)
    assert (boards.used, boards.drawn, boards.repeated) == (20, 16, 4)
    chex.assert_trees_all_equal(rows(restarted, slice(6, 10)), rows(boards.states, slice(4)))
    _, boards = RESTART(states, np.arange(BATCH) < 2, boards)
    assert (boards.used, boards.drawn, boards.repeated) == (22, 16, 6)
    boards = RENEW(boards, jax.random.key(2))
    assert (boards.used, boards.drawn, boards.repeated) == (22, 26, 6)
    restarted, boards = RESTART(states, np.arange(BATCH) < 4, boards)
    chex.assert_trees_all_equal(
        rows(restarted, slice(4)), rows(RESET(jax.random.key(2), 4, CONFIG), slice(4))
    )
    assert boards.repeated == 6


def test_seeds_side_by_side_are_those_one_by_one():
    """States and pools have a further axis."""
    seeds = [(RESET(jax.random.key(i), BATCH, CONFIG), pool_of(jax.random.key(9 + i))) for i in range(2)]

    def run(states, boards):
        states, boards = boxworld.restart(states, jnp.arange(BATCH) < 3, boards)
        return states, boxworld.renew(boards, jax.random.key(5), 4, CONFIG)

    together = jax.jit(jax.vmap(run))(*jax.tree.map(lambda *leaves: np.stack(leaves), *seeds))
    for i, (states, boards) in enumerate(seeds):
        restarted, boards = RESTART(states, np.arange(BATCH) < 3, boards)
        apart = restarted, RENEW(boards, jax.random.key(5))
        chex.assert_trees_all_equal(rows(together, i), jax.device_get(apart))


def test_counts_have_32_bits_where_64_are_usual():
    """Or a scan could not carry them."""
    states, boards = RESET(jax.random.key(0), 4, CONFIG), pool_of(jax.random.key(0))
    with jax.enable_x64(True):
        found = jax.eval_shape(boxworld.restart, states, jnp.zeros(4, bool), boards)
    chex.assert_trees_all_equal_shapes_and_dtypes(found, (states, boards))


def test_what_is_refused():
    """Invalid sizes, shapes of actions and settings."""
    states, boards = RESET(jax.random.key(0), 4, CONFIG), pool_of(jax.random.key(0))
    with pytest.raises(ValueError, match="size: got 0, expected at least 1"):
        boxworld.pool(jax.random.key(0), 0, CONFIG)
    with pytest.raises(ValueError, match="max_length"):
        boxworld.pool(jax.random.key(0), 4, CONFIG.replace(max_length=9))
    with pytest.raises(ValueError, match=r"got shape \(3,\), expected \(4,\), one action per state"):
        boxworld.step_or_restart(states, jnp.zeros(3, int), boards, CONFIG)
    for count in (0, 17):
        with pytest.raises(ValueError, match=r"count: got .*, expected 1 to 16, the pool's size"):
            boxworld.renew(boards, jax.random.key(0), count, CONFIG)
    all_new = jax.eval_shape(lambda boards: boxworld.renew(boards, jax.random.key(0), 16, CONFIG), boards)
    chex.assert_trees_all_equal_shapes(all_new, boards)
