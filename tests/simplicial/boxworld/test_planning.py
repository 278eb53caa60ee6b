"""The batched solver: distances and optimal actions against `solving.py`, returns against a recursion."""

import dataclasses
import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import boxworld
from simplicial.boxworld import planning
from simplicial.boxworld.pool import select

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WORLDS = {"bridge": boxworld.BRIDGE, "standard": boxworld.STANDARD}
SMALL = boxworld.BoxWorldConfig(rows=5, cols=6, gem_locks=2)
ACTIONS = np.arange(4)
FROM_BOARD = jax.jit(boxworld.from_board)
EACH = jax.jit(jax.vmap(jax.vmap(boxworld.step, (None, 0, None)), (0, None, None)))


def solver(config, max_items=None):
    """Compiles `solutions`; the number of items is that of the config, which must not be traced."""
    return jax.jit(lambda states: boxworld.solutions(states, config, max_items=max_items))


def folded(states, *shape):
    """Replaces the axis of a batch by others."""
    return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), states)


@functools.partial(jax.jit, static_argnames="moves")
def wander(states, key, config, moves):
    """Makes between 0 and `moves` random moves in every state; episodes that end stay as they ended."""
    size = states.time.shape[0]
    for_lengths, for_actions = jax.random.split(key)
    length = jax.random.randint(for_lengths, (size,), 0, moves + 1)

    def move(states, now):
        time, key = now
        actions = jax.random.randint(key, (size,), 0, 4)
        after, _ = jax.vmap(boxworld.step, (0, 0, None))(states, actions, config)
        return select(time < length, after, states), None

    return jax.lax.scan(move, states, (jnp.arange(moves), jax.random.split(for_actions, moves)))[0]


def states_of(config, size, seed, moves):
    """Draws states after random moves."""
    boards = jax.jit(boxworld.reset_batch, static_argnums=1)(jax.random.key(seed), size, config)
    return wander(boards, jax.random.key(seed + 1), config, moves)


def check(states, config, max_items=None):
    """Compares every state and its four successors with the plain solver; returns the distances.

    To the solver, the batch has two axes.
    """
    states = jax.device_get(states)
    found = jax.device_get(solver(config, max_items)(folded(states, 2, len(states.time) // 2)))
    assert found.actions.shape == (2, len(states.time) // 2, 4)
    found = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)
    after, outcome = jax.device_get(EACH(states, ACTIONS, config))
    for i in range(len(states.time)):
        expected = boxworld.shortest_solution(jax.tree.map(lambda leaf, i=i: leaf[i], states))
        assert found.distance[i] == (-1 if expected is None else expected)
        if expected is None:
            assert not found.actions[i].any()
            continue
        nearer = []
        for a in range(4):
            one = jax.tree.map(lambda leaf, i=i, a=a: leaf[i, a], after)
            steps = 0 if outcome.reward[i, a] == 10 else boxworld.shortest_solution(one)
            nearer.append(steps == expected - 1)
        assert found.actions[i].tolist() == nearer
    assert found.is_searched.all()
    return found.distance


def small_boards(count, seed):
    """Makes 5 x 6 boards with loose keys and boxes anywhere, colours that repeat, and one trap."""
    draw, states = random.Random(seed), []
    for _ in range(count):
        grid = np.full((5, 6), -1)
        x, y = draw.randint(1, 4), draw.randint(1, 3)
        grid[y : y + 2, x] = 0
        grid[y : y + 2, x + 1] = [draw.randint(1, 2) for _ in range(2)]
        for _ in range(9):
            x, y, width = draw.randint(0, 4), draw.randint(0, 4), draw.choice([1, 2, 2])
            if (grid[y, max(x - 1, 0) : x + width + 1] < 0).all() and (x, y) != (0, 0):
                grid[y, x : x + width] = [draw.randint(1, 3) for _ in range(width)]
        locks = [(x + 1, y) for y, x in np.argwhere(grid > 0) if x < 5 and grid[y, x + 1] >= 0][:1]
        states.append(FROM_BOARD(grid, np.zeros((21, 3), int), np.asarray(locks or [(-1, -1)]), SMALL))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(states))


def test_states_of_the_papers_boards():
    """From the start to the Gem or an open trap, in chunks of which the last is not full."""
    states = states_of(boxworld.STANDARD, 70, seed=3, moves=150)
    dead = np.asarray(states.terminated)
    broken = ~dead & (np.arange(70) % 10 == 3)
    distance = check(dataclasses.replace(states, truncated=jnp.asarray(broken)), boxworld.STANDARD)
    assert dead.any()
    assert broken.any()
    assert (distance[dead | broken] == -1).all()
    assert distance.max() > 20


def test_any_board():
    """Keys that open several boxes, locks alike, walls of tiles: many starts and states are dead ends."""
    boards = small_boards(30, seed=1)
    boards = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), boards)
    later = jax.device_get(wander(boards, jax.random.key(1), SMALL, 200))
    states = jax.tree.map(lambda old, new: np.concatenate([old[:30], new[30:]]), boards, later)
    at_start, at_end = check(states, SMALL, max_items=7).reshape(2, 30)
    assert (at_start >= 0).sum() >= 5
    is_dead_end = (at_start >= 0) & (at_end < 0) & ~states.terminated[30:]
    assert is_dead_end.any()


def test_the_widest_board():
    """32 columns, all bits of a word: one key and the Gem's locks are in the last column."""
    config = SMALL.replace(cols=32)
    grid = np.full((5, 32), -1)
    grid[1:3, 30], grid[1:3, 31], grid[4, 31] = 0, (1, 2), 1
    grid[0, 1] = 2
    state = FROM_BOARD(grid, np.zeros((21, 3), int), np.asarray([(-1, -1)]), config)
    states = jax.tree.map(lambda leaf: np.stack([leaf] * 40), jax.device_get(state))
    distance = check(jax.device_get(wander(states, jax.random.key(0), config, 60)), config, max_items=2)
    assert distance.max() > 20


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_ten_thousand_states_of_each_world(world):
    """At every stage of a random episode."""
    distance = check(states_of(WORLDS[world], 10_000, seed=5, moves=400), WORLDS[world])
    assert (distance == -1).sum() > 1000


def value_and_targets(state, config, discount, known):
    """Returns the value of the policy that is uniform over optimal actions, by recursion over its paths.

    And the probability of each place at which it takes or opens something first.
    """
    place = state.grid.tobytes(), state.player.tobytes()
    if place not in known:
        same = jax.tree.map(lambda leaf: np.repeat(leaf[None], 60, axis=0), state)  # a size that is compiled
        after, outcome = jax.device_get(EACH(same, ACTIONS, config))
        distance, found = boxworld.shortest_solution(state) or 0, []
        for action, reward in enumerate(outcome.reward[0].tolist()):
            onward = jax.tree.map(lambda leaf, action=action: leaf[0, action], after)
            is_last = reward == 10
            if is_last or boxworld.shortest_solution(onward) == distance - 1:
                value, targets = (0.0, {}) if is_last else value_and_targets(onward, config, discount, known)
                if reward:
                    targets = {tuple(onward.player.tolist()): 1.0}
                found.append((reward + discount * value, targets))
        shares: dict[tuple[int, ...], float] = {}
        for _, targets in found:
            for target, share in targets.items():
                shares[target] = shares.get(target, 0.0) + share / len(found)
        known[place] = float(np.mean([value for value, _ in found])), shares
    return known[place]


def test_returns_and_targets_are_samples_of_the_shortest_paths():
    """On a board with several shortest paths, whose returns differ; in a state that is over, none."""
    config, copies = SMALL, 500
    boards = jax.tree.map(lambda leaf: leaf[[0, 8, 9, 10, 25, 28, 9]], small_boards(30, seed=1))
    grid = np.full((5, 6), -1)  # the key at (2, 3) or the one at (5, 3) first
    grid[1:3, 1], grid[1:3, 2], grid[3, 2], grid[3, 5] = 0, (1, 2), 1, 2
    both = FROM_BOARD(grid, np.zeros((21, 3), int), np.asarray([(-1, -1)]), SMALL)
    boards = jax.tree.map(lambda leaf, one: np.stack([one, *leaf[1:]]), boards, both)
    many = jax.tree.map(lambda leaf: np.repeat(leaf, copies, axis=0), boards)
    many.terminated[-copies:] = True
    draw = jax.jit(
        lambda states, key: boxworld.demonstrations(states, config, key, discount=0.8, max_items=7)
    )
    found, paths = draw(many, jax.random.key(0))
    returns, drawn = np.asarray(paths.value).reshape(7, copies), np.asarray(paths.target)
    drawn = drawn.reshape(7, copies, 2)
    assert (returns[-1] == 0).all()
    assert (drawn[-1] == -1).all()
    size, varied = planning.CHUNK, int(returns.std(axis=1).argmax())
    first = -(-varied * copies // size) * size
    one, next_one = returns.ravel()[first : first + 2 * size].reshape(2, size)
    assert (one != next_one).any()  # chunks have keys of their own
    errors, several = [], 0
    for i in range(6):
        board = jax.tree.map(lambda leaf, i=i: leaf[i], boards)
        expected, targets = value_and_targets(board, config, 0.8, {})
        errors.append(returns[i].std() / copies**0.5)
        assert abs(returns[i].mean() - expected) < 4 * errors[-1] + 1e-5
        shares = {place: np.mean((drawn[i] == place).all(axis=1)) for place in targets}
        assert sum(shares.values()) == pytest.approx(1)
        for place, share in targets.items():
            assert abs(shares[place] - share) < 4 * (share * (1 - share) / copies) ** 0.5 + 1e-9
        several = max(several, len(targets))
        assert (found.distance[i * copies : (i + 1) * copies] == boxworld.shortest_solution(board)).all()
    assert max(errors) > 1e-3
    assert several > 1


def test_boards_with_too_many_items_are_reported():
    """A board of two keys is not solved wrongly, with one of them left out; a state may have no axes."""
    grid = np.full((5, 6), -1)
    grid[1:3, 1], grid[1:3, 2], grid[1, 4], grid[3, 4] = 0, (1, 2), 1, 2
    state = FROM_BOARD(grid, np.zeros((21, 3), int), np.asarray([(-1, -1)]), SMALL)
    found = solver(SMALL, 1)(state)
    assert not found.is_searched
    assert not np.asarray(found.actions).any()
    assert found.distance == -1
    found = solver(SMALL)(state)
    assert found.is_searched
    assert found.distance == boxworld.shortest_solution(jax.device_get(state))


def test_bad_arguments():
    """Wide boards, negative numbers, and configs that do not tell how many items there are."""
    state = jax.eval_shape(lambda key: boxworld.reset(key, boxworld.BRIDGE), jax.random.key(0))
    with pytest.raises(ValueError, match="max_items: got -1"):
        boxworld.solutions(state, boxworld.BRIDGE, max_items=-1)
    with pytest.raises(ValueError, match="max_items: got None, expected a number"):
        boxworld.solutions(state, boxworld.BRIDGE.replace(max_length=jnp.asarray([1, 2])))
    with pytest.raises(ValueError, match="cols: got 33, expected at most 32"):
        boxworld.solutions(state, boxworld.BRIDGE.replace(cols=33))
    wide = boxworld.BRIDGE.replace(cols=32)
    state = jax.eval_shape(lambda key: boxworld.reset(key, wide), jax.random.key(0))
    found = jax.eval_shape(lambda state: boxworld.solutions(state, wide, max_items=0), state)
    assert found.actions.shape == (4,)
    some = jax.eval_shape(lambda key: boxworld.reset_batch(key, 2, boxworld.BRIDGE), jax.random.key(0))
    nothing = jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape[1:]), leaf.dtype), some)
    with pytest.raises(ValueError, match=r"states: got a batch of shape \(0,\), expected at least one state"):
        boxworld.solutions(nothing, boxworld.BRIDGE)


def test_integers_of_64_bits_change_nothing():
    states = states_of(SMALL, 8, seed=3, moves=20)

    def demonstrate():
        solve = jax.jit(lambda states, key: boxworld.demonstrations(states, SMALL, key, discount=0.9))
        return jax.device_get(solve(states, jax.random.key(0))[0])

    wanted = demonstrate()
    with jax.enable_x64(True):
        found = demonstrate()
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
