"""Shortest solutions of puzzles, found by search, for evaluation and demonstrations.

Uses NumPy and plain Python, one state at a time. The contents of board and inventory depend only on which
keys and boxes have been taken, not on their order, so the search runs over pairs (items taken, player's
position): at most a few hundred sets, with one walk over the board for each way of reaching a set.
"""

import collections
import heapq
import itertools
from typing import NamedTuple

import numpy as np

from simplicial.boxworld.rules import DOWN, EMPTY, GEM, LEFT, RIGHT, UP, State

type _Way = tuple[int, int, frozenset[int], tuple[int, int], tuple[int, ...]]
"""Cost, order of insertion, items taken, player's position, actions so far."""

_WAYS = {LEFT: (-1, 0), UP: (0, -1), RIGHT: (1, 0), DOWN: (0, 1)}


class _Item(NamedTuple):
    """A key or box that can be taken: entry tiles, the keys it costs and gives, and the tiles it clears."""

    entries: tuple[tuple[int, int], ...]
    costs: tuple[int, ...]
    gives: tuple[int, ...]
    tiles: frozenset[tuple[int, int]]


def shortest_solution(state: State) -> int | None:
    """Returns the number of steps of `solve`, or None if the Gem is out of reach."""
    actions = solve(state)
    return None if actions is None else len(actions)


def solve(state: State) -> list[int] | None:
    """Returns the actions of a shortest path to the Gem that opens no trap, or None if there is none.

    Args:
        state: one episode, not a batch; the horizon is ignored.

    Raises:
        ValueError: `state` is a batch.
    """
    grid = np.asarray(state.grid)
    if grid.ndim != 2:
        raise ValueError(f"state: got a batch with grid {grid.shape}, expected one episode with grid [R, C]")
    if state.terminated or state.truncated:
        return None
    x, y = np.asarray(state.player).tolist()
    items = _items(grid, np.asarray(state.traps).tolist())
    held = collections.Counter(key for key in np.asarray(state.inventory).tolist() if key != EMPTY)
    tiles = {(int(col), int(row)) for row, col in np.argwhere(grid != EMPTY)}

    order = itertools.count()  # breaks ties between equal costs, because frozensets have no total order
    queue: list[_Way] = [(0, next(order), frozenset(), (x, y), ())]
    done = set()
    while queue:
        _, _, taken, place, actions = heapq.heappop(queue)
        if any(GEM in items[i].gives for i in taken):
            return list(actions)
        if (taken, place) in done:
            continue
        done.add((taken, place))
        gone = set().union(*(items[i].tiles for i in taken))
        keys = held.copy()
        for i in taken:
            keys.update(items[i].gives)
            keys.subtract(items[i].costs)
        ways = _walks(place, tiles - gone, grid.shape)
        for i, item in enumerate(items):
            if i in taken or collections.Counter(item.costs) - keys:
                continue
            for entry in item.entries:
                if entry in ways:
                    onward = (*actions, *ways[entry])
                    heapq.heappush(queue, (len(onward), next(order), taken | {i}, entry, onward))
    return None


def _items(grid: np.ndarray, traps: list[list[int]]) -> list[_Item]:
    """Lists every loose key and every box that is not a trap."""
    padded = np.pad(grid, ((0, 0), (1, 1)), constant_values=EMPTY)
    items, gem = [], []
    for y, x in np.argwhere(grid != EMPTY).tolist():
        content, left, right = (int(padded[y, x + i]) for i in (1, 0, 2))
        if left != EMPTY:
            continue  # a lock, handled with its content
        if right == EMPTY:
            items.append(_Item(((x, y),), (), (content,), frozenset({(x, y)})))
        elif content == GEM:
            gem.append((x, y, right))
        elif [x + 1, y] not in traps:
            items.append(_Item(((x + 1, y),), (right,), (content,), frozenset({(x, y), (x + 1, y)})))
    if gem:  # both locks open together, and nothing follows
        entries = tuple((x + 1, y) for x, y, _ in gem)
        items.append(_Item(entries, tuple(lock for *_, lock in gem), (GEM,), frozenset()))
    return items


def _walks(
    start: tuple[int, int], tiles: set[tuple[int, int]], shape: tuple[int, ...]
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Returns the shortest walks over floor from `start` to every tile it can reach."""
    rows, cols = shape
    reached: dict[tuple[int, int], tuple[int, ...]] = {start: ()}
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    queue = collections.deque([start])
    while queue:
        x, y = place = queue.popleft()
        for action, (way_x, way_y) in _WAYS.items():
            near = x + way_x, y + way_y
            if not (0 <= near[0] < cols and 0 <= near[1] < rows) or near in reached:
                continue
            walk = (*reached[place], action)
            if near in tiles:
                found.setdefault(near, walk)
            else:
                reached[near] = walk
                queue.append(near)
    return found
