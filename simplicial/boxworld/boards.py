"""Puzzles set up by hand: any board of loose keys, boxes and a Gem as an episode at its start."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32

from simplicial.boxworld.config import NUM_COLOURS, BoxWorldConfig, check_sizes
from simplicial.boxworld.rules import EMPTY, GEM, State


def from_board(
    grid: ArrayLike, palette: ArrayLike, distractor_locks: ArrayLike, config: BoxWorldConfig
) -> State:
    """An episode at its start on a given board, the player at (0, 0) with nothing.

    Args:
        grid: [R, C], colour of every tile, -1 where there is none. A tile alone in its row is a loose key,
            two side by side are a box; 0 is the Gem, which with two locks is a box two rows high.
        palette: [21, 3], red, green and blue (0 to 255) of the Gem and of colours 1 to 20.
        distractor_locks: [k, 2] with k at most `config.traps`, (x, y) of the locks that end the episode when
            opened, -1 where unused; a bridge comes first.
        config: sizes, the number of Gem locks and the horizon are used.

    Raises:
        ValueError: a shape does not fit the config; and, where the values are known (under `jit` and `vmap`
            they are not, and are taken on trust): an unknown colour, no Gem or not one box with
            `config.gem_locks` locks, three tiles side by side, a tile where the player starts, more loose
            keys than the inventory holds, a distractor lock that is none.
    """
    check_sizes(config)
    arrays = {"grid": grid, "palette": palette, "distractor_locks": distractor_locks}
    for name, shape in {"grid": (config.rows, config.cols), "palette": (NUM_COLOURS + 1, 3)}.items():
        if np.shape(arrays[name]) != shape:
            raise ValueError(f"{name} must have shape {shape}, not {np.shape(arrays[name])}")
    locks_shape = np.shape(distractor_locks)
    if len(locks_shape) != 2 or locks_shape[1] != 2 or locks_shape[0] > config.traps:
        raise ValueError(f"distractor_locks must have shape (up to {config.traps}, 2), not {locks_shape}")
    for name, array in arrays.items():
        if not jnp.issubdtype(jnp.result_type(array), jnp.integer):
            raise ValueError(f"{name} must hold whole numbers, not {jnp.result_type(array)}")
    tiles, colours, locks = (
        None if isinstance(array, jax.core.Tracer) else np.asarray(array) for array in arrays.values()
    )
    if tiles is not None:
        _check_grid(tiles, config)
    if colours is not None and (colours.min() < 0 or colours.max() > 255):
        raise ValueError(f"palette must be between 0 and 255, not {colours.min()} to {colours.max()}")
    if tiles is not None and locks is not None:
        _check_locks(tiles, locks)

    grid = jnp.asarray(grid).astype(jnp.int8)
    traps = jnp.asarray(distractor_locks).astype(jnp.int8)
    traps = jnp.concatenate([traps, jnp.full((config.traps - traps.shape[0], 2), -1, jnp.int8)])
    place = jnp.argmax(grid.reshape(-1) == GEM)  # the first in reading order: the upper of two
    gem = jnp.stack([place % config.cols, place // config.cols]).astype(jnp.int8)
    return State(
        grid=grid,
        inventory=jnp.full(config.rows, EMPTY, jnp.int8),
        player=jnp.zeros(2, jnp.int8),
        gem=gem,
        palette=jnp.asarray(palette).astype(jnp.uint8),
        traps=traps,
        puzzle=_puzzle(grid, gem, traps, config),
        time=jnp.int32(0),
        terminated=jnp.bool_(False),
        truncated=jnp.bool_(False),
    )


def _check_grid(grid: np.ndarray, config: BoxWorldConfig) -> None:
    if grid.min() < EMPTY or grid.max() > NUM_COLOURS:
        unknown = sorted({int(c) for c in grid.ravel() if not EMPTY <= c <= NUM_COLOURS})
        raise ValueError(
            f"grid has unknown colours {unknown}; known are -1 (no tile), 0 (the Gem) and 1 to 20"
        )
    tiles = grid >= 0
    if (tiles[:, 2:] & tiles[:, 1:-1] & tiles[:, :-2]).any():
        raise ValueError("grid has three tiles side by side: a box is two, its content and its lock")
    if tiles[0, 0]:
        raise ValueError("grid must have no tile at (0, 0), where the player starts")
    rows, cols = np.nonzero(grid == GEM)
    if not rows.size:
        raise ValueError("grid has no Gem (colour 0)")
    beside = np.pad(tiles, ((0, 0), (1, 1)))
    is_content = beside[rows, cols + 2]  # a lock to the right
    is_one_box = np.array_equal(rows, rows[0] + np.arange(config.gem_locks)) and len(set(cols)) == 1
    if not is_one_box or not is_content.all():
        places = [(int(x), int(y)) for x, y in zip(cols, rows, strict=True)]
        raise ValueError(
            f"grid must have one Gem with {config.gem_locks} lock(s) to its right, one below the other; "
            f"its colour 0 is at (x, y) = {places}"
        )
    loose = int((tiles & ~beside[:, :-2] & ~beside[:, 2:]).sum())
    if loose > config.rows:
        raise ValueError(f"grid has {loose} loose keys, the inventory holds {config.rows}")


def _check_locks(grid: np.ndarray, locks: np.ndarray) -> None:
    for x, y in locks.tolist():
        if (x, y) == (-1, -1):
            continue
        is_on_board = 1 <= x < grid.shape[1] and 0 <= y < grid.shape[0]
        if not is_on_board or grid[y, x] < 0 or grid[y, x - 1] < 0:
            raise ValueError(f"distractor_locks has (x, y) = ({x}, {y}), where grid has no lock")


def _puzzle(grid, gem, traps, config: BoxWorldConfig):
    """(L, s, t, distractors) of a board, read off by following the keys back from the Gem."""
    rows, cols = (places.reshape(-1) for places in jnp.indices(grid.shape))
    tiles = grid.reshape(-1).astype(jnp.int32)
    padded = jnp.pad(grid.astype(jnp.int32), ((0, 0), (1, 1)), constant_values=EMPTY)
    lock = padded[:, 2:].reshape(-1)
    at_trap = (rows[:, None] == traps[None, :, 1]) & (cols[:, None] + 1 == traps[None, :, 0])
    is_content = (tiles >= 0) & (padded[:, :-2].reshape(-1) < 0) & ~at_trap.any(1)

    def path(below: int):
        row, col = gem[1].astype(jnp.int32) + below, gem[0].astype(jnp.int32) + 1
        colour = grid.at[row, col].get(mode="fill", fill_value=EMPTY).astype(jnp.int32)
        return _follow(tiles, lock, is_content, colour)

    first, upper = path(0)
    used = (traps[:, 0] >= 0).astype(jnp.int32)
    if not config.bridge_traps:
        return jnp.stack([first, jnp.int32(0), jnp.int32(0), used.sum()]).astype(jnp.int8)
    second, lower = path(1)
    length = jnp.where((first > 0) & (second > 0), jnp.maximum(first, second), 0)
    number = jnp.where(upper > 0, upper, jnp.where(lower > 0, length + lower, 0))
    bridge = jnp.where(at_trap[:, 0], tiles, -1).max(), jnp.where(at_trap[:, 0], lock, -1).max()
    held, locked = (jnp.where(colour > 0, number[colour], 0) for colour in bridge)
    is_bridge = (used[0] > 0) & (held > 0) & (locked > 0)
    distractors = used.sum() - is_bridge.astype(jnp.int32)
    return jnp.stack([length, locked * is_bridge, held * is_bridge, distractors]).astype(jnp.int8)


def _follow(
    tiles: Int32[Array, "RC"], lock: Int32[Array, "RC"], is_content: Bool[Array, "RC"], colour
) -> tuple[Int32[Array, ""], Int32[Array, "21"]]:
    """The keys to a lock's colour: how many down to a loose one (0 without one), and each colour's place."""

    def back(depth, carry):
        colour, length, number = carry
        holds = is_content & (tiles == colour) & (colour > 0)
        found = holds.any()
        number = jnp.where(found & (jnp.arange(NUM_COLOURS + 1) == colour) & (number == 0), depth, number)
        behind = jnp.where(holds, lock, EMPTY - 1).max()
        length = jnp.where(found & (behind == EMPTY), depth, length)
        return jnp.where(found, behind, EMPTY), length, number

    start = colour, jnp.int32(0), jnp.zeros(NUM_COLOURS + 1, jnp.int32)
    _, length, number = jax.lax.fori_loop(1, NUM_COLOURS + 1, back, start)
    return length, number
