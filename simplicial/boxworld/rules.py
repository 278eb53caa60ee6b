"""The rules of BoxWorld: states, what a step does, what is seen.

A key of colour c is a tile of that colour. A box is two tiles side by side: its content on the left, its lock
on the right. Colour 0 is the Gem; a Gem with two locks is a box two rows high. Coordinates are (x, y), x to
the right and y downwards, as in the authors' environment.

Axes: R rows, C columns, K boxes that end the episode when opened (the bridge, distractors). Boards are int8,
and every rule is arithmetic on whole boards or a handful of lookups, so that a batch of thousands costs a few
passes over memory.
"""

import dataclasses

import jax.numpy as jnp
from flax import struct
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int8, Int32, UInt8

from simplicial.boxworld.config import NUM_COLOURS, BoxWorldConfig

LEFT, UP, RIGHT, DOWN = range(4)
NUM_ACTIONS = 4
GEM, EMPTY = 0, -1

FLOOR, NO_KEY, PLAYER = (199, 199, 199), (10, 10, 10), (127, 127, 127)
"""What a picture shows where there is no tile, where the inventory is empty, and where the player is."""


@struct.dataclass
class State:
    """One episode at one moment.

    Attributes:
        grid: colour of every tile, `EMPTY` where there is none.
        inventory: colours of the keys held, oldest first, then `EMPTY`.
        player: (x, y).
        gem: (x, y) of the Gem's content, the upper one where it has two.
        palette: red, green and blue of the Gem and of the 20 colours.
        traps: (x, y) of the locks that end the episode, (-1, -1) where unused; in bridge BoxWorld the first
            is the bridge's.
        puzzle: the type of the puzzle as it was at the start, see `puzzle_type`.
        time: steps taken.
        terminated: the Gem was reached or a trap opened.
        truncated: the horizon came first.
    """

    grid: Int8[Array, "R C"]
    inventory: Int8[Array, "R"]
    player: Int8[Array, "2"]
    gem: Int8[Array, "2"]
    palette: UInt8[Array, "21 3"]
    traps: Int8[Array, "K 2"]
    puzzle: Int8[Array, "4"]
    time: Int32[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


@struct.dataclass
class Outcome:
    """What a step gave: the reward, and whether and how the episode is over."""

    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]


@struct.dataclass
class PuzzleType:
    """What kind of puzzle an episode is.

    Attributes:
        solution_length: L, the keys on a solution path; 0 where a board made by hand has no such path.
        bridge_lock: s, which key opens the bridge: 1 to L counted from the Gem on the upper path, L + 1 to 2L
            on the lower one (which no generated bridge has); 0 without a bridge.
        bridge_key: t, which key the bridge holds; 0 without a bridge.
        distractors: the number of distractor boxes.
    """

    solution_length: Int32[Array, ""]
    bridge_lock: Int32[Array, ""]
    bridge_key: Int32[Array, ""]
    distractors: Int32[Array, ""]


def puzzle_type(state: State) -> PuzzleType:
    """The type (L, s, t) of a state's puzzle as it was made: opened boxes do not change it.

    The paper's bridge BoxWorld has 14 with a bridge, and one without for each L.
    """
    return PuzzleType(*(state.puzzle[..., i].astype(jnp.int32) for i in range(4)))


def observe(state: State, config: BoxWorldConfig) -> UInt8[Array, "R C+1 3"]:
    """The picture the agent sees: the board and, to its right, the inventory from the top down.

    The player is painted last; a finished episode's picture is the one after its last step.
    """
    tiles = jnp.where(state.grid < 0, jnp.int8(NUM_COLOURS + 1), state.grid)
    held = jnp.where(state.inventory < 0, jnp.int8(NUM_COLOURS + 2), state.inventory)
    codes = jnp.concatenate([tiles, held[:, None]], axis=1)
    rows, cols = places(config.rows, config.cols + 1)
    is_player = (rows == state.player[1]) & (cols == state.player[0])
    codes = jnp.where(is_player, jnp.int8(NUM_COLOURS + 3), codes)
    palette = jnp.concatenate([state.palette, jnp.asarray([FLOOR, NO_KEY, PLAYER], jnp.uint8)])
    return palette.at[codes].get(mode="promise_in_bounds")


def step(state: State, action: ArrayLike, config: BoxWorldConfig) -> tuple[State, Outcome]:
    """One move.

    The player walks onto empty tiles, takes loose keys by walking onto them, and opens a box by walking onto
    its lock with its key, which is used up; the Gem's two locks open together, with both keys. Whatever else
    is in the way costs the step and changes nothing. Rewards: the Gem 10 and the end, a trap -1 and the end,
    any other key or box 1.

    An action other than `LEFT`, `UP`, `RIGHT` and `DOWN` does nothing, but the step is counted. A finished
    episode stays as it is, reward 0, the same flags again: no new one is started.
    """
    live = ~(state.terminated | state.truncated)
    action = jnp.asarray(action).astype(jnp.int32)
    way_x = (action == RIGHT).astype(jnp.int8) - (action == LEFT).astype(jnp.int8)
    way_y = (action == DOWN).astype(jnp.int8) - (action == UP).astype(jnp.int8)
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
        used = jnp.where(at_gem, _with(twice, jnp.int8(GEM)), used)  # the second Gem colour is appended below
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
        grid=jnp.where(cleared, jnp.int8(EMPTY), state.grid),
        inventory=jnp.where(takes, inventory, state.inventory),
        player=player,
        time=time,
        terminated=terminated,
        truncated=truncated,
    )
    return state, Outcome(reward=reward, terminated=terminated, truncated=truncated)


def places(rows: int, cols: int) -> tuple[Int8[Array, "R 1"], Int8[Array, "1 C"]]:
    """Row and column of every tile, int8 so that comparing whole boards with them stays narrow."""
    return jnp.arange(rows, dtype=jnp.int8)[:, None], jnp.arange(cols, dtype=jnp.int8)[None, :]


def _tile(grid, x, y):
    index = y.astype(jnp.int32) * grid.shape[1] + x.astype(jnp.int32)
    return grid.reshape(-1).at[index].get(mode="promise_in_bounds")


def _without(inventory, key):
    """The inventory less the first `key`, closed up; and whether there was one."""
    place = jnp.arange(inventory.shape[0], dtype=jnp.int8)
    is_key = (inventory == key) & (key >= 0)
    first = jnp.min(jnp.where(is_key, place, jnp.int8(inventory.shape[0])))
    moved_up = jnp.concatenate([inventory[1:], jnp.full(1, EMPTY, jnp.int8)])
    return jnp.where(place >= first, moved_up, inventory), jnp.any(is_key)


def _with(inventory, key):
    """The inventory with `key` behind the last; a full one stays as it is."""
    place = jnp.arange(inventory.shape[0], dtype=jnp.int8)
    held = jnp.sum(inventory >= 0, dtype=jnp.int8)
    return jnp.where(place == held, key, inventory)
