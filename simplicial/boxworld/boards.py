"""Puzzles set up by hand: the initial state of an episode on any board of loose keys, boxes and a Gem."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Int32, Integer

from simplicial.boxworld.config import NUM_COLOURS, BoxWorldConfig, check_sizes
from simplicial.boxworld.rules import EMPTY, GEM, State


def from_board(
    grid: Integer[ArrayLike, "R C"],
    palette: Integer[ArrayLike, "21 3"],
    distractor_locks: Integer[ArrayLike, "k 2"],
    config: BoxWorldConfig,
) -> State:
    """Returns the initial state of an episode on a given board, the player at (0, 0) with an empty inventory.

    Args:
        grid: colour of every tile, -1 for no tile. A tile without neighbours in its row is a loose key, two
            adjacent tiles are a box; colour 0 is the Gem, which with two locks is a box two rows high.
        palette: red, green and blue (0 to 255) of the Gem and of colours 1 to 20.
        distractor_locks: (x, y) of the locks that end the episode when opened, at most `config.traps` of
            them; -1 where unused. A bridge comes first.
        config: the sizes, the number of Gem locks and the horizon are used.

    Raises:
        ValueError: a shape does not fit the config. Values are checked unless they are traced (under `jit` or
            `vmap`): unknown colours; no Gem, or not exactly one box with `config.gem_locks` locks; three
            adjacent tiles; a tile at the player's start; more loose keys than the inventory holds; a
            distractor lock where there is no lock.
    """
    check_sizes(config)
    arrays = {"grid": grid, "palette": palette, "distractor_locks": distractor_locks}
    for name, shape in {"grid": (config.rows, config.cols), "palette": (NUM_COLOURS + 1, 3)}.items():
        if np.shape(arrays[name]) != shape:
            raise ValueError(f"{name}: got shape {np.shape(arrays[name])}, expected {shape}")
    locks_shape = np.shape(distractor_locks)
    if len(locks_shape) != 2 or locks_shape[1] != 2 or locks_shape[0] > config.traps:
        raise ValueError(
            f"distractor_locks: got shape {locks_shape}, expected (k, 2) with k at most {config.traps}"
        )
    for name, array in arrays.items():
        if not jnp.issubdtype(jnp.result_type(array), jnp.integer):
            raise ValueError(f"{name}: got dtype {jnp.result_type(array)}, expected integers")
    tiles, colours, locks = (
        None if isinstance(array, jax.core.Tracer) else np.asarray(array) for array in arrays.values()
    )
    if tiles is not None:
        _check_grid(tiles, config)
    if colours is not None and (colours.min() < 0 or colours.max() > 255):
        raise ValueError(f"palette: got values from {colours.min()} to {colours.max()}, expected 0 to 255")
    if tiles is not None and locks is not None:
        _check_locks(tiles, locks)

    grid = jnp.asarray(grid).astype(jnp.int8)
    traps = jnp.asarray(distractor_locks).astype(jnp.int8)
    traps = jnp.concatenate([traps, jnp.full((config.traps - traps.shape[0], 2), -1, jnp.int8)])
    place = jnp.argmax(grid.reshape(-1) == GEM)  # the first in reading order, so the upper one of two
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
            f"grid: got unknown colours {unknown}, expected -1 (no tile), 0 (the Gem) or 1 to 20"
        )
    tiles = grid >= 0
    if (tiles[:, 2:] & tiles[:, 1:-1] & tiles[:, :-2]).any():
        raise ValueError("grid: got three adjacent tiles, expected at most two, a box's content and lock")
    if tiles[0, 0]:
        raise ValueError("grid: got a tile at (0, 0), where the player starts, expected none")
    rows, cols = np.nonzero(grid == GEM)
    if not rows.size:
        raise ValueError("grid: got no Gem (colour 0), expected one")
    neighbours = np.pad(tiles, ((0, 0), (1, 1)))
    is_content = neighbours[rows, cols + 2]  # a lock to the right
    is_one_box = np.array_equal(rows, rows[0] + np.arange(config.gem_locks)) and len(set(cols)) == 1
    if not is_one_box or not is_content.all():
        places = [(int(x), int(y)) for x, y in zip(cols, rows, strict=True)]
        raise ValueError(
            f"grid: got colour 0 (the Gem) at (x, y) = {places}, expected one Gem with {config.gem_locks} "
            "lock(s) to its right, one below the other"
        )
    loose = int((tiles & ~neighbours[:, :-2] & ~neighbours[:, 2:]).sum())
    if loose > config.rows:
        raise ValueError(f"grid: got {loose} loose keys, expected at most {config.rows} (inventory size)")


def _check_locks(grid: np.ndarray, locks: np.ndarray) -> None:
    for x, y in locks.tolist():
        if (x, y) == (-1, -1):
            continue
        is_on_board = 1 <= x < grid.shape[1] and 0 <= y < grid.shape[0]
        if not is_on_board or grid[y, x] < 0 or grid[y, x - 1] < 0:
            raise ValueError(f"distractor_locks: got (x, y) = ({x}, {y}), expected a lock's place in grid")


def _puzzle(grid, gem, traps, config: BoxWorldConfig):
    """Determines (L, s, t, distractors) of a board by following the keys back from the Gem."""
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
    used = traps[:, 0] >= 0
    if not config.bridge_traps:
        return jnp.stack([first, jnp.int32(0), jnp.int32(0), used.sum()]).astype(jnp.int8)
    second, lower = path(1)
    length = jnp.where((first > 0) & (second > 0), jnp.maximum(first, second), 0)
    number = jnp.where(upper > 0, upper, jnp.where(lower > 0, length + lower, 0))
    bridge = jnp.where(at_trap[:, 0], tiles, -1).max(), jnp.where(at_trap[:, 0], lock, -1).max()
    held, locked = (jnp.where(colour > 0, number[colour], 0) for colour in bridge)
    is_bridge = used[0] & (held > 0) & (locked > 0)
    distractors = used.sum() - is_bridge
    return jnp.stack([length, locked * is_bridge, held * is_bridge, distractors]).astype(jnp.int8)


def _follow(
    tiles: Int32[Array, "RC"],
    lock: Int32[Array, "RC"],
    is_content: Bool[Array, "RC"],
    colour: Int32[Array, ""],
) -> tuple[Int32[Array, ""], Int32[Array, "21"]]:
    """Follows the keys from a lock's colour to a loose key.

    Returns:
        The number of keys on the way (0 if no loose key is reached), and each colour's position on it.
    """

    def back(depth, carry):
        colour, length, number = carry
        holds = is_content & (tiles == colour) & (colour > 0)
        found = holds.any()
        number = jnp.where(found & (jnp.arange(NUM_COLOURS + 1) == colour) & (number == 0), depth, number)
        behind = jnp.where(holds, lock, EMPTY - 1).max()
        length = jnp.where(behind == EMPTY, depth, length)
        return jnp.where(found, behind, EMPTY), length, number

    start = colour, jnp.int32(0), jnp.zeros(NUM_COLOURS + 1, jnp.int32)
    _, length, number = jax.lax.fori_loop(1, NUM_COLOURS + 1, back, start)
    return length, number
