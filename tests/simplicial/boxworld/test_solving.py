"""Shortest solutions: validity, optimality, and average lengths of the authors' puzzles."""

import collections
import copy
import dataclasses
import itertools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.peers import plain_boxworld
from simplicial import boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")

STEP = jax.jit(boxworld.step)
RESET = jax.jit(boxworld.reset_batch, static_argnums=1)
FROM_BOARD = jax.jit(boxworld.from_board)


def some(states, i):
    """Selects episode i of a batch."""
    return jax.tree.map(lambda leaf: leaf[i], states)


@pytest.mark.parametrize("config", [boxworld.BRIDGE, boxworld.STANDARD], ids=["bridge", "standard"])
def test_solutions_solve(config):
    """Also from the middle of an episode, where each step shortens the rest by one."""
    states = jax.device_get(RESET(jax.random.key(0), 20, config))
    for i in range(20):
        state, actions = some(states, i), boxworld.solve(some(states, i)) or []
        rewards = []
        for t, action in enumerate(actions):
            if t % 5 == 0:
                assert boxworld.shortest_solution(jax.device_get(state)) == len(actions) - t
            state, outcome = STEP(state, action, config)
            rewards.append(float(outcome.reward))
        keys = config.gem_locks * int(state.puzzle[0])
        assert rewards[-1] == 10
        assert sorted(rewards[:-1]) == [0] * (len(actions) - 1 - keys) + [1] * keys
        assert boxworld.solve(jax.device_get(state)) is None  # the episode is over


def breadth_first(grid, palette, deadly, two_locks):
    """Finds the length of a shortest path by trying every action in every position of the plain model."""
    start = plain_boxworld.PlainBoxWorld(grid, palette, deadly, two_locks)
    queue, seen = collections.deque([(start, 0)]), set()
    while queue:
        model, steps = queue.popleft()
        for action in range(4):
            after = copy.copy(model)
            after.grid, after.inventory = [row[:] for row in model.grid], model.inventory[:]
            reward, done = after.step(action)
            if reward == 10:
                return steps + 1
            position = (str(after.grid), tuple(sorted(after.inventory)), after.player)
            if not done and position not in seen:
                seen.add(position)
                queue.append((after, steps + 1))
    return None


@pytest.mark.parametrize("two_locks", [True, False])
def test_none_is_shorter(two_locks):
    """Small boards with boxes anywhere are searched exhaustively; some have no solution."""
    draw, found = random.Random(1), []
    for _ in range(16):
        grid = np.full((5, 6), -1)
        x, y = draw.randint(1, 4), draw.randint(1, 3)
        grid[y : y + 1 + two_locks, x] = 0
        grid[y : y + 1 + two_locks, x + 1] = [draw.randint(1, 2) for _ in range(1 + two_locks)]
        for _ in range(8):
            x, y, width = draw.randint(0, 4), draw.randint(0, 4), draw.randint(1, 2)
            if (grid[y, max(x - 1, 0) : x + width + 1] < 0).all() and (x, y) != (0, 0):
                grid[y, x : x + width] = [draw.randint(1, 3) for _ in range(width)]
        locks = [(x + 1, y) for y, x in np.argwhere(grid > 0) if x < 5 and grid[y, x + 1] >= 0][:1]
        config = boxworld.BoxWorldConfig(rows=5, cols=6, gem_locks=1 + two_locks)
        traps = np.asarray(locks or [(-1, -1)])
        palette = np.zeros((21, 3), int)
        state = jax.device_get(FROM_BOARD(grid, palette, traps, config))
        expected = breadth_first(grid, palette, locks, two_locks)
        assert boxworld.shortest_solution(state) == expected
        found.append(expected)
    assert None in found
    assert sum(length is not None for length in found) >= 2


def test_average_lengths():
    """23.6 and 31.6 steps for solution lengths 2 and 3 (300 boards each), within three standard errors."""
    for length, expected in ((2, 23.6), (3, 31.6)):
        config = boxworld.BRIDGE.replace(min_length=length, max_length=length)
        states = jax.device_get(RESET(jax.random.key(length), 300, config))
        lengths = np.asarray([boxworld.shortest_solution(some(states, i)) for i in range(300)])
        assert abs(lengths.mean() - expected) < 3 * lengths.std() / 300**0.5


def test_short_puzzles_by_hand():
    """Two keys and the Gem: the shorter of both orders, unless a tile blocks the way."""
    config = boxworld.BRIDGE.replace(max_length=1, bridge_probability=0.0)
    states = jax.device_get(RESET(jax.random.key(1), 300, config))
    detours = []
    for i in range(300):
        state = some(states, i)
        neighbours = np.pad(state.grid >= 0, ((0, 0), (1, 1)))
        rows, cols = np.nonzero((state.grid > 0) & ~neighbours[:, :-2] & ~neighbours[:, 2:])
        keys = [np.asarray(place) for place in zip(cols, rows, strict=True)]
        locks = [state.gem.astype(int) + np.asarray([1, below]) for below in (0, 1)]
        walks = [
            abs(one).sum() + abs(other - one).sum() + abs(lock - other).sum()
            for one, other in itertools.permutations(keys)
            for lock in locks
        ]
        detours.append(boxworld.shortest_solution(state) - min(walks))
    assert min(detours) == 0
    assert np.mean(np.asarray(detours) == 0) > 0.8
    assert max(detours) <= 4


def test_traps_are_not_opened_and_not_needed():
    """Without the loose key there is no solution, even though the trap contains that key."""
    grid = np.full((7, 9), -1)
    tiles = {(1, 1): 0, (2, 1): 1, (1, 2): 0, (2, 2): 2, (4, 1): 1, (4, 3): 2, (5, 3): 3, (7, 5): 3}
    for (x, y), colour in tiles.items():
        grid[y, x] = colour
    palette = np.zeros((21, 3), int)
    free = FROM_BOARD(grid, palette, np.asarray([[-1, -1]]), boxworld.BRIDGE)
    barred = FROM_BOARD(grid, palette, np.asarray([[5, 3]]), boxworld.BRIDGE)
    assert boxworld.shortest_solution(jax.device_get(free)) is not None
    assert boxworld.shortest_solution(jax.device_get(barred)) is None


def test_no_way_leads_around_the_board():
    """A wall of boxes that nothing opens reaches from edge to edge; it is gone but for one column."""
    grid = np.full((7, 9), -1)
    grid[5, 1:3], grid[6, 1:3], grid[0, 4], grid[0, 6] = (0, 1), (0, 2), 1, 2
    for opened in (None, 0, 4, 8):
        grid[3] = np.where(np.arange(9) == opened, -1, 9)
        state = FROM_BOARD(grid, np.zeros((21, 3), int), np.asarray([[-1, -1]]), boxworld.BRIDGE)
        assert (boxworld.solve(jax.device_get(state)) is None) == (opened is None)


def test_a_truncated_episode_has_no_solution_and_a_batch_is_refused():
    """A finished episode gives None, a batch raises."""
    states = jax.device_get(RESET(jax.random.key(0), 2, boxworld.BRIDGE))
    state = jax.tree.map(jnp.asarray, some(states, 0))
    for end in ("truncated", "terminated"):
        assert boxworld.solve(dataclasses.replace(state, **{end: jnp.bool_(True)})) is None
    with pytest.raises(ValueError, match=r"got a batch with grid \(2, 7, 9\)"):
        boxworld.solve(states)
