"""The rules of BoxWorld: states, steps and observations.

A key of colour c is a tile of that colour. A box is two adjacent tiles: its content on the left, its lock on
the right. Colour 0 is the Gem; a Gem with two locks is a box two rows high. Coordinates are (x, y), x to the
right and y downwards, as in the authors' environment.

Axis letters: R rows, C columns, W = C + 1 columns of the picture, K boxes that end the episode when opened
(the bridge, distractors). States may have any number of leading axes (*batch), although the functions here
are written for one state and meant for `jax.vmap`. Boards are int8, and every rule is arithmetic on whole
boards or a few lookups, so that a batch of thousands takes a few passes over memory.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int8, Int32, Integer, UInt8

from simplicial.boxworld.config import NUM_COLOURS, BoxWorldConfig

LEFT, UP, RIGHT, DOWN = range(4)
NUM_ACTIONS = 4
GEM, EMPTY = 0, -1

FLOOR, NO_KEY, PLAYER = (199, 199, 199), (10, 10, 10), (127, 127, 127)
"""Colours in a picture of places without a tile, of empty places in the inventory, and of the player."""


@struct.dataclass
class State:
    """State of one episode.

    Attributes:
        grid: colour of every tile, `EMPTY` for no tile.
        inventory: colours of the keys held, oldest first, then `EMPTY`.
        player: (x, y).
        gem: (x, y) of the Gem's content, the upper one of two.
        palette: red, green and blue of the Gem and of the 20 colours.
        traps: (x, y) of the locks that end the episode, (-1, -1) where unused; in bridge BoxWorld the first
            is the bridge's.
        puzzle: type of the puzzle at the start of the episode, see `puzzle_type`.
        time: number of steps taken.
        terminated: whether the Gem was reached or a trap opened.
        truncated: whether the horizon came first.
    """

    grid: Int8[Array, "*batch R C"]
    inventory: Int8[Array, "*batch R"]
    player: Int8[Array, "*batch 2"]
    gem: Int8[Array, "*batch 2"]
    palette: UInt8[Array, "*batch 21 3"]
    traps: Int8[Array, "*batch K 2"]
    puzzle: Int8[Array, "*batch 4"]
    time: Int32[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]


@struct.dataclass
class Outcome:
    """Result of a step: the reward, and whether and how the episode ended."""

    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]


@struct.dataclass
class PuzzleType:
    """Type of an episode's puzzle.

    Attributes:
        solution_length: L, the number of keys on a solution path; 0 if a board set up by hand has no such
            path.
        bridge_lock: s, the number of the key that opens the bridge: 1 to L, counted from the Gem, on the
            upper path, L + 1 to 2L on the lower one (in generated puzzles always 1 to L); 0 without a bridge.
        bridge_key: t, the number of the key in the bridge; 0 without a bridge.
        distractors: number of distractor boxes.
    """

    solution_length: Int32[Array | np.ndarray, "*batch"]
    bridge_lock: Int32[Array | np.ndarray, "*batch"]
    bridge_key: Int32[Array | np.ndarray, "*batch"]
    distractors: Int32[Array | np.ndarray, "*batch"]


def puzzle_type(state: State) -> PuzzleType:
    """Returns the type (L, s, t) of a state's puzzle at its start; opened boxes do not change it.

    The paper's bridge BoxWorld has 14 types with a bridge, and one type without for each L.
    """
    return PuzzleType(*(state.puzzle[..., i].astype(jnp.int32) for i in range(4)))


def observe(state: State, config: BoxWorldConfig) -> UInt8[Array, "R W 3"]:
    """Draws the agent's observation: the board and, to its right, the inventory from the top down.

    The player is drawn last. A finished episode's picture is the one after its last step.
    """
    tiles = jnp.where(state.grid < 0, NUM_COLOURS + 1, state.grid)
    held = jnp.where(state.inventory < 0, NUM_COLOURS + 2, state.inventory)
    codes = jnp.concatenate([tiles, held[:, None]], axis=1)
    rows, cols = places(config.rows, config.cols + 1)
    is_player = (rows == state.player[1]) & (cols == state.player[0])
    codes = jnp.where(is_player, NUM_COLOURS + 3, codes)
    palette = jnp.concatenate([state.palette, jnp.asarray([FLOOR, NO_KEY, PLAYER], jnp.uint8)])
    return palette.at[codes].get(mode="promise_in_bounds")


def step(state: State, action: Integer[ArrayLike, ""], config: BoxWorldConfig) -> tuple[State, Outcome]:
    """Makes one move.

    The player moves onto empty tiles, takes a loose key by moving onto it, and opens a box by moving onto its
    lock with the matching key, which is used up; the Gem's two locks open together and take both keys. Any
    other obstacle leaves the state unchanged except for the time. Rewards: 10 for the Gem and -1 for a trap,
    which both end the episode, and 1 for any other key or box.

    Actions other than `LEFT`, `UP`, `RIGHT` and `DOWN` do nothing, but count as a step. A finished episode
    stays as it is, with reward 0 and the same flags; no new episode is started.
    """
    live = ~(state.terminated | state.truncated)
    action = jnp.asarray(action).astype(jnp.int32)
    way_x = (action == RIGHT) - (action == LEFT).astype(jnp.int8)
    way_y = (action == DOWN) - (action == UP).astype(jnp.int8)
    x = jnp.clip(state.player[0] + way_x, 0, config.cols - 1)
    y = jnp.clip(state.player[1] + way_y, 0, config.rows - 1)

    tile = _tile(state.grid, x, y)
    left = jnp.where(x > 0, _tile(state.grid, jnp.maximum(x - 1, 0), y), EMPTY)
    right = jnp.where(x < config.cols - 1, _tile(state.grid, jnp.minimum(x + 1, config.cols - 1), y), EMPTY)
    is_lock = (tile >= 0) & (left >= 0)
    is_loose = (tile >= 0) & (left < 0) & (right < 0)

    content = jnp.where(is_loose, tile, left)
    used, has_key = _without(state.inventory, tile)
    opens = is_lock & has_key
    first_x, last_x = jnp.where(is_loose, x, x - 1), x
    first_y = last_y = y
    if config.gem_locks == 2:
        gem_x, gem_y = state.gem[0], state.gem[1]
        at_gem = is_lock & (x == gem_x + 1) & ((y == gem_y) | (y == gem_y + 1))
        once, has_upper = _without(state.inventory, _tile(state.grid, gem_x + 1, gem_y))
        twice, has_lower = _without(once, _tile(state.grid, gem_x + 1, gem_y + 1))
        opens = jnp.where(at_gem, has_upper & has_lower, opens)
        used = jnp.where(at_gem, _with(twice, GEM), used)  # the second Gem colour is appended below
        first_y = jnp.where(at_gem, gem_y, y)
        last_y = jnp.where(at_gem, gem_y + 1, y)

    takes = (opens | is_loose) & live
    inventory = _with(jnp.where(is_loose, state.inventory, used), content)
    rows, cols = places(config.rows, config.cols)
    cleared = takes & (rows >= first_y) & (rows <= last_y) & (cols >= first_x) & (cols <= last_x)
    moves = takes | ((tile < 0) & live)
    player = jnp.where(moves, jnp.stack([x, y]), state.player)

    has_gem = takes & (content == GEM)
    in_trap = live & ~has_gem & jnp.any(jnp.all(state.traps == player[None], axis=-1))
    time = state.time + live
    horizon = jnp.asarray(config.horizon)
    terminated = state.terminated | has_gem | in_trap
    truncated = state.truncated | (live & ~terminated & (horizon > 0) & (time >= horizon))
    reward = jnp.where(has_gem, 10.0, jnp.where(in_trap, -1.0, takes.astype(jnp.float32)))
    state = dataclasses.replace(
        state,
        grid=jnp.where(cleared, EMPTY, state.grid),
        inventory=jnp.where(takes, inventory, state.inventory),
        player=player,
        time=time,
        terminated=terminated,
        truncated=truncated,
    )
    return state, Outcome(reward=reward, terminated=terminated, truncated=truncated)


def places(rows: int, cols: int) -> tuple[Int8[Array, "R 1"], Int8[Array, "1 C"]]:
    """Returns row and column of every tile, in int8 so that comparisons with whole boards stay narrow."""
    return jnp.arange(rows, dtype=jnp.int8)[:, None], jnp.arange(cols, dtype=jnp.int8)[None, :]


def _tile(grid, x, y):
    index = y.astype(jnp.int32) * grid.shape[1] + x.astype(jnp.int32)
    return grid.reshape(-1).at[index].get(mode="promise_in_bounds")


def _without(inventory, key):
    """Removes the first `key` from the inventory; also returns whether there was one."""
    place = jnp.arange(inventory.shape[0], dtype=jnp.int8)
    is_key = (inventory == key) & (key >= 0)
    first = jnp.min(jnp.where(is_key, place, inventory.shape[0]))
    moved_up = jnp.concatenate([inventory[1:], jnp.full(1, EMPTY, jnp.int8)])
    return jnp.where(place >= first, moved_up, inventory), jnp.any(is_key)


def _with(inventory, key):
    """Appends `key` to the inventory; a full inventory is returned unchanged."""
    place = jnp.arange(inventory.shape[0], dtype=jnp.int8)
    held = jnp.sum((inventory >= 0).astype(jnp.int8), dtype=jnp.int8)
    return jnp.where(place == held, key, inventory)
