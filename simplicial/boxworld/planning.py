"""Optimal actions, distances and returns for batches of states, computed in JAX.

The contents of the board and the inventory depend only on the set of items (loose keys, and boxes that are
not traps) taken since the given state. Distances are therefore computed backwards from the Gem for all pairs
(set of items, place of the player) at once: after t rounds, one bit board per set marks the places from which
the Gem is at most t steps away, and a round is a few bitwise operations per row of the board. This is exact
for any board, including dead ends and boards that several keys or orders solve.

Solving every state anew is fast enough: over 10,000 states per second and core on the paper's boards at their
start, where paths are longest. The cost grows with 2^(number of items), 64 sets for
bridge boards and 32 for standard ones; `solving.py` is slower, but has no such limit.

Axis letters: B states, N items, S = 2^N sets (bit n of a set's index is 1 if item n has been taken), P
digits, R rows, C columns.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int8, Int32, PRNGKeyArray, UInt32

from simplicial import checks
from simplicial.boxworld.config import NUM_COLOURS, BoxWorldConfig, known_leaves
from simplicial.boxworld.rules import DOWN, EMPTY, GEM, LEFT, NUM_ACTIONS, RIGHT, UP, State, places

CHUNK = 64
"""Number of states solved together; their bit boards should fit in the processor's cache."""
ROUNDS = 8
"""Number of rounds between updates of the distances."""
WORD = jnp.uint32
"""Type of a row of the board; compilers vectorize 16-bit words badly, which takes three times as long."""
FAR = 2**16
"""A distance larger than any on a board, for actions that do not lead to the Gem."""


@struct.dataclass
class Solution:
    """Solutions of a batch of states.

    Attributes:
        distance: number of steps to the Gem; -1 if it is out of reach or the episode has ended.
        actions: whether each action is the first of a shortest path to the Gem.
        is_searched: whether the board has at most `max_items` items. If not, the other attributes are those
            of a state from which the Gem is out of reach.
    """

    distance: Int32[Array, "*batch"]
    actions: Bool[Array, "*batch 4"]
    is_searched: Bool[Array, "*batch"]


@struct.dataclass
class Path:
    """Random shortest paths to the Gem, one from every state of a batch.

    Attributes:
        value: discounted return of the path; 0 if the Gem is out of reach.
        target: (x, y) of what the path takes or opens first: a loose key, or the lock of a box or of the Gem;
            (-1, -1) if the Gem is out of reach.
    """

    value: Float[Array, "*batch"]
    target: Int32[Array, "*batch 2"]


def solutions(states: State, config: BoxWorldConfig, *, max_items: int | None = None) -> Solution:
    """Returns the distance to the Gem and all optimal actions of every state.

    An action is optimal if the state that follows is one step closer to the Gem. Traps are not opened, and
    the horizon is ignored.

    Args:
        states: states with any leading axes.
        config: the states' config.
        max_items: largest number of items on a board: loose keys, and boxes other than traps and the Gem's.
            By default that of the config's puzzles; boards set up by hand may have more.

    Raises:
        ValueError: the board has more than 32 columns; or `max_items` is negative, or None although the
            config's `max_length` is traced or batched.
    """
    return _solve(states, config, max_items, None)[0]


def demonstrations(
    states: State,
    config: BoxWorldConfig,
    key: PRNGKeyArray,
    *,
    discount: ArrayLike,
    max_items: int | None = None,
) -> tuple[Solution, Path]:
    """Returns `solutions`, and a shortest path from every state.

    The path is random: each of its actions is drawn uniformly from the optimal ones. Its return is thus an
    unbiased sample of the value of the policy that is uniform over optimal actions, and its target one of
    what this policy takes next.

    Raises:
        ValueError: as `solutions`.
    """
    return _solve(states, config, max_items, lambda *found: _walk(*found, key=key, discount=discount))


def _solve(states, config, max_items, measure) -> tuple[Solution, Any]:
    items = _num_items(config, max_items)
    if config.cols > 32:
        raise ValueError(f"cols: got {config.cols}, expected at most 32")
    shape = states.time.shape
    size = math.prod(shape)
    if not size:
        raise ValueError(f"states: got a batch of shape {shape}, expected at least one state")
    chunk = min(CHUNK, size)
    flat = jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[len(shape) :]), states)
    board_of = jax.vmap(functools.partial(_board, items=items, locks=config.gem_locks), out_axes=(-1, 0))

    def solve(number):
        place = (
            number * chunk + jnp.arange(chunk)
        ) % size  # the last chunk is filled up with the first states
        some = jax.tree.map(lambda leaf: leaf[place], flat)
        board, is_searched = board_of(some)
        live = is_searched & ~(some.terminated | some.truncated)
        digits, rounds = _distances(board, some.player, live)
        after_each = functools.partial(_after_each, board, digits, rounds)
        start = jnp.zeros(chunk, jnp.int32), *some.player.astype(jnp.int32).T
        distance = after_each(*start).distance
        least = distance.min(axis=1)
        solvable = live & (least < FAR)
        found = Solution(
            distance=jnp.where(solvable, least + 1, -1),
            actions=(distance == least[:, None]) & solvable[:, None],
            is_searched=is_searched,
        )
        return found, None if measure is None else measure(after_each, start, solvable, number)

    found = jax.lax.map(solve, jnp.arange(-(-size // chunk)))
    return jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:size].reshape(*shape, *leaf.shape[2:]), found
    )


def _num_items(config: BoxWorldConfig, max_items: int | None) -> int:
    if max_items is not None:
        checks.whole_number("max_items", max_items, 0)
        return max_items
    length = known_leaves(config)["max_length"]
    if length is None:
        raise ValueError("max_items: got None, expected a number: config.max_length is traced or batched")
    return config.gem_locks * int(length)


@struct.dataclass
class _Board:
    """Boards as bits: bit x of word y is the place (x, y).

    Attributes:
        floor: places without a tile, for every set.
        entries: the place from which each item is taken, a loose key or a lock.
        takeable: whether a set's keys allow taking each item.
        gem: the Gem's locks, where a set's keys open them.
        cols: number of columns.
    """

    floor: UInt32[Array, "S R *B"]
    entries: UInt32[Array, "N R *B"]
    takeable: Bool[Array, "S N *B"]
    gem: UInt32[Array, "S R *B"]
    cols: int = struct.field(pytree_node=False)


def _board(state: State, *, items: int, locks: int) -> tuple[_Board, Bool[Array, ""]]:
    """Returns one state's board, and whether it has at most `items` items."""
    grid = state.grid
    padded = jnp.pad(grid, ((0, 0), (1, 1)), constant_values=EMPTY)
    left, right = padded[:, :-2], padded[:, 2:]
    y, x = places(*grid.shape)
    trap_x, trap_y = state.traps.T[..., None, None]  # [K, 1, 1]
    is_trap = ((trap_x == x[None] + 1) & (trap_y == y[None])).any(axis=0)
    is_content = (grid >= 0) & (left < 0)
    is_gem = is_content & (grid == GEM)
    is_item = is_content & ~is_gem & ~(is_trap & (right >= 0))
    rank = jnp.cumsum(is_item.reshape(-1), dtype=jnp.int32).reshape(grid.shape)
    number = jnp.arange(items, dtype=jnp.int32)
    here = is_item[None] & (rank[None] == number[:, None, None] + 1)  # [N, R, C]

    gives = jnp.max(jnp.where(here, grid[None], EMPTY), axis=(1, 2))
    costs = jnp.max(jnp.where(here, right[None], EMPTY), axis=(1, 2))
    # The larger and the smaller of the Gem's lock colours: the same if there is one lock, or two alike.
    larger = jnp.max(jnp.where(is_gem, right, EMPTY))
    smaller = jnp.min(jnp.where(is_gem, right, NUM_COLOURS + 1))
    wanted = jnp.concatenate([costs, larger[None], smaller[None]])  # [N + 2]
    held = jnp.sum(state.inventory[:, None] == wanted[None], axis=0, dtype=jnp.int32)
    change = (gives[:, None] == wanted[None]).astype(jnp.int32) - (costs[:, None] == wanted[None])
    content = _bits(here)
    entries = jnp.where((costs < 0)[:, None], content, content << 1)

    is_taken = (jnp.arange(2**items)[:, None] >> number[None] & 1) == 1  # [S, N]
    keys = held[None] + jnp.sum(jnp.where(is_taken[..., None], change[None], 0), axis=1)
    # Tiles of different items are disjoint, so that their union is a sum.
    cleared = jnp.sum(jnp.where(is_taken[..., None], (content | entries)[None], 0), axis=1, dtype=WORD)
    can_open = (keys[:, :items] > 0) | (costs < 0)[None]
    opens = (keys[:, items] > (larger == smaller) * (locks - 1)) & (keys[:, items + 1] > 0)
    board = _Board(
        floor=_bits(grid < 0)[None] | cleared,
        entries=entries,
        takeable=can_open & ~is_taken & (gives >= 0)[None],
        gem=jnp.where(opens[:, None], (_bits(is_gem) << 1)[None], 0),
        cols=grid.shape[1],
    )
    return board, rank[-1, -1] <= items


def _bits(tiles: Bool[Array, "*N R C"]) -> UInt32[Array, "*N R"]:
    values = np.broadcast_to(2 ** np.arange(tiles.shape[-1], dtype=WORD), tiles.shape)
    return jnp.sum(jnp.where(tiles, values, 0), axis=-1, dtype=WORD)


def _distances(
    board: _Board, player: Int8[Array, "B 2"], live: Bool[Array, "B"]
) -> tuple[UInt32[Array, "P S R B"], Int32[Array, ""]]:
    """Returns the distances to the Gem from all places, for all sets, in binary, and the number of rounds.

    Distances below the number of rounds are exact and others unknown. There are enough rounds for every live
    player who can reach the Gem, and for the paths from there.
    """
    (sets, rows, size), cols = board.floor.shape, board.cols
    items = board.entries.shape[0]
    # No path to an item or to the Gem visits a place twice; the last rounds only notice that nothing changes.
    num_digits = ((items + 1) * rows * cols + 2 * ROUNDS).bit_length()
    all_cols = jnp.asarray(2**cols - 1, WORD)
    x, y = player.T.astype(WORD)
    is_row = jnp.arange(rows, dtype=WORD)[:, None] == y[None]
    at_player = jnp.where(is_row, jnp.asarray(1, WORD) << x[None], 0)
    takeable = jnp.where(board.takeable, all_cols, 0)

    def approach(near, _):
        """One round: adds the places that are one step further from the Gem."""
        goal = board.gem | (near & board.floor)
        padded = jnp.pad(near, ((0, sets // 2), (0, 0), (0, 0)))
        for item in range(items):
            with_item = padded[
                2**item : 2**item + sets
            ]  # of the sets without the item; `takeable` drops others
            goal |= with_item & board.entries[None, item] & takeable[:, item, None]
        above = jnp.pad(goal[:, 1:], ((0, 0), (0, 1), (0, 0)))
        below = jnp.pad(goal[:, :-1], ((0, 0), (1, 0), (0, 0)))
        return (goal << 1 | goal >> 1 | above | below) & all_cols, near

    def approach_and_note(carry):
        rounds, near, digits, _ = carry
        near, before = jax.lax.scan(approach, near, length=ROUNDS)
        # Digit p of a distance is the parity of the number of positive multiples of 2^p up to the distance.
        # The distance is at least t where the Gem is not near before round t.
        time = rounds + 1 + jnp.arange(ROUNDS)
        counts = time[None] & (2 ** np.arange(num_digits) - 1)[:, None] == 0
        reached = jnp.where(counts[..., None, None, None], ~before[None], 0)
        digits ^= jax.lax.reduce(reached, np.asarray(0, WORD), jax.lax.bitwise_xor, (1,))
        last = before[-1]
        moving = live & ((last[0] & at_player) == 0).all(axis=0) & (near != last).any(axis=(0, 1))
        return rounds + ROUNDS, near, digits, moving

    digits = jnp.zeros((num_digits, sets, rows, size), WORD)
    start = jnp.int32(0), jnp.zeros_like(board.gem), digits, live
    rounds, _, digits, _ = jax.lax.while_loop(lambda carry: carry[-1].any(), approach_and_note, start)
    return digits, rounds


@struct.dataclass
class _After:
    """Results of the four actions: set of items, place, and distance to the Gem, `FAR` if nothing moves."""

    taken: Int32[Array, "*B 4"]
    x: Int32[Array, "*B 4"]
    y: Int32[Array, "*B 4"]
    distance: Int32[Array, "*B 4"]


@functools.partial(jax.vmap, in_axes=(-1, -1, None, 0, 0, 0))
def _after_each(board, digits, rounds, taken, x, y) -> _After:
    """Takes each action with the items `taken` and the player at (x, y)."""
    action = jnp.arange(NUM_ACTIONS)
    x = x + (action == RIGHT) - (action == LEFT)
    y = y + (action == DOWN) - (action == UP)
    rows = board.floor.shape[1]
    is_inside = (x >= 0) & (x < board.cols) & (y >= 0) & (y < rows)
    x, y = jnp.clip(x, 0, board.cols - 1), jnp.clip(y, 0, rows - 1)

    def at(words):  # [..., 4]
        return words >> jnp.broadcast_to(x.astype(WORD), words.shape) & 1 == 1

    def number(bits):  # [.., 4]
        values = jnp.asarray(2 ** np.arange(bits.shape[0]), jnp.int32)
        return jnp.sum(jnp.where(bits, values[:, None], 0), axis=0, dtype=jnp.int32)

    opens_gem = is_inside & at(board.gem[taken, y])
    takes = at(board.entries[:, y]) & board.takeable[taken][:, None]
    moves = is_inside & (at(board.floor[taken, y]) | takes.any(axis=0))
    taken += number(takes)
    distance = number(at(digits[:, taken, y]))
    distance = jnp.where(moves & (distance < rounds), distance, FAR)
    return _After(taken=taken, x=x, y=y, distance=jnp.where(opens_gem, 0, distance))


def _walk(after_each, start, solvable, chunk, *, key, discount) -> Path:
    """Follows a random shortest path from every solvable state."""
    key = jax.random.fold_in(key, chunk)

    def follow(carry):
        time, (taken, x, y), live, path = carry
        after = after_each(taken, x, y)
        is_best = after.distance == after.distance.min(axis=1, keepdims=True)
        draw = jax.random.uniform(jax.random.fold_in(key, time), is_best.shape)
        action = jnp.argmax(jnp.where(is_best, draw, -1.0), axis=1)[:, None]
        after = jax.tree.map(lambda leaf: jnp.take_along_axis(leaf, action, axis=1)[:, 0], after)
        ends = after.distance == 0
        takes = after.taken != taken
        reward = jnp.where(ends, 10.0, takes)
        is_first = live & (ends | takes) & (path.target[:, 0] < 0)
        path = Path(
            value=path.value + jnp.where(live, discount**time * reward, 0.0),
            target=jnp.where(is_first[:, None], jnp.stack([after.x, after.y], axis=-1), path.target),
        )
        return time + 1, (after.taken, after.x, after.y), live & ~ends, path

    unknown = Path(jnp.zeros(solvable.shape), jnp.full((*solvable.shape, 2), -1, jnp.int32))
    return jax.lax.while_loop(lambda carry: carry[2].any(), follow, (jnp.int32(0), start, solvable, unknown))[
        -1
    ]
