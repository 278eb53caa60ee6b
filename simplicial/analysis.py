"""What an agent looks at and what it has learned (Clift et al. 2020, Section 6 and Appendix F).

    output = apply_with_attention(agent, {"params": params}, observation)
    first, second = output.attention
    analysis.virtual_maps(first, config)       # where each virtual entity looks, over the board
    analysis.pair_maps(second)                 # which pairs of virtual entities each entity looks at
    analysis.evaluate(agent_policy, params, config, key, episodes=1000)       # win rates by type of puzzle

The convolutions are not padded, so that there are fewer entities than tiles: entity 0 is what a window of
3 x 3 tiles around (1, 1) became, its neighbour what the window around (2, 1) became. Trained agents keep to
this: an entity is about the tile in the middle of its window (Section 6).

Axes: N = (R - 2)(C - 1) standard entities of a board of R rows and C columns, M virtual ones, H heads of
1-simplicial and H2 of 2-simplicial attention.
"""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from simplicial import boxworld
from simplicial.agent import BlockAttention
from simplicial.boxworld.rules import EMPTY
from simplicial.win_rates import (
    CAP,
    Evaluation,
    Played,
    boards_of,
    evaluate,
    play,
    probabilities,
    solution_ratios,
    tally,
)

__all__ = [
    "CAP",
    "DISPLAY_SHARPENING",
    "Evaluation",
    "Played",
    "boards_of",
    "entity_grid",
    "entity_of_tile",
    "evaluate",
    "landmarks",
    "pair_deviation",
    "pair_labels",
    "pair_maps",
    "play",
    "probabilities",
    "sharpened",
    "solution_ratios",
    "tally",
    "virtual_maps",
]

DISPLAY_SHARPENING = 2.0
"""The authors' pictures of virtual entities' attention have their logits multiplied by 2."""


def entity_grid(config: boxworld.BoxWorldConfig) -> tuple[int, int]:
    """Rows and columns of the grid of entities of the paper's agents: (R - 2, C - 1)."""
    return config.rows - 2, config.cols - 1


def entity_of_tile(x: int, y: int, config: boxworld.BoxWorldConfig) -> int:
    """The entity that is about the tile at (x, y): x + (C - 1)(y - 1) - 1.

    Raises:
        ValueError: the tile is on the edge of the picture, where there is no entity.
    """
    rows, cols = entity_grid(config)
    if not (1 <= x <= cols and 1 <= y <= rows):
        raise ValueError(
            f"x, y must be in the middle of an entity's window, 1 to {cols} and 1 to {rows}, not ({x}, {y})"
        )
    return x + cols * (y - 1) - 1


def landmarks(state: boxworld.State, config: boxworld.BoxWorldConfig) -> dict[str, int]:
    """The entities that are about what matters in one episode, by name.

    Those of the player, the locks of the Gem and of the bridge that are still on the board, and the inventory
    where something is in it. A tile on the edge is given the nearest entity, whose window it is in.

    Raises:
        ValueError: `state` is a batch.
    """
    grid = np.asarray(state.grid)
    if grid.ndim != 2:
        raise ValueError(f"state must be one episode with a grid [R, C], not a batch with {grid.shape}")
    gem_x, gem_y = np.asarray(state.gem).tolist()
    places = {"player": tuple(np.asarray(state.player).tolist())}
    if grid[gem_y, gem_x] != EMPTY:
        names = ("Gem lock",) if config.gem_locks == 1 else ("Gem lock, top", "Gem lock, bottom")
        places |= {name: (gem_x + 1, gem_y + below) for below, name in enumerate(names)}
    if config.bridge_traps:
        x, y = np.asarray(state.traps)[0].tolist()
        if x > 0 and grid[y, x] != EMPTY:
            places |= {"bridge lock": (x, y), "bridge key": (x - 1, y)}
    if (np.asarray(state.inventory) != EMPTY).any():
        places["inventory"] = (config.cols, 0)
    rows, cols = entity_grid(config)
    return {
        name: entity_of_tile(min(max(x, 1), cols), min(max(y, 1), rows), config)
        for name, (x, y) in places.items()
    }


def sharpened(
    weights: ArrayLike, sharpening: float = DISPLAY_SHARPENING, *, axes: int = 1
) -> Float[Array, "..."]:
    """Attention as it would be were all its logits `sharpening` times as large: w ** b over its sum.

    Args:
        weights: attention weights, not negative.
        sharpening: the factor b; 1 changes nothing.
        axes: over how many of the last axes the weights sum to 1; 2 for pairs.

    Returns:
        Weights that sum to 1 again; where all were 0 (all masked) they stay so.

    Raises:
        ValueError: `sharpening` is not positive, or `axes` not a number of axes that there are.
    """
    weights = jnp.asarray(weights)
    if not sharpening > 0:
        raise ValueError(f"sharpening must be positive, not {sharpening}")
    if not 1 <= axes <= weights.ndim:
        raise ValueError(f"axes must be from 1 to {weights.ndim} for shape {weights.shape}, not {axes}")
    last = tuple(range(-axes, 0))
    # The largest is 1 before the power, so that small weights do not all underflow.
    largest = jnp.max(weights, axis=last, keepdims=True)
    powers = (weights / jnp.where(largest > 0, largest, 1)) ** sharpening
    total = jnp.sum(powers, axis=last, keepdims=True)
    return powers / jnp.where(total > 0, total, 1)


def virtual_maps(
    block: BlockAttention, config: boxworld.BoxWorldConfig, sharpening: float = 1.0
) -> Float[Array, "*B M H R-2 C-1"]:
    """How each virtual entity attends, in each 1-simplicial head, to the standard entities as they lie.

    A map sums to 1 less the attention to the virtual entities themselves.

    The paper's Figure 7 has the first block, with a `sharpening` (see `sharpened`) of 2.

    Raises:
        ValueError: the agent has no virtual entities, or the board is another one.
    """
    if block.virtual is None:
        raise ValueError("block has no virtual entities: a relational agent attends between tiles only")
    rows, cols = entity_grid(config)
    heads, virtual, every = block.virtual.shape[-3:]
    if every - virtual != rows * cols:
        raise ValueError(
            f"block has {every - virtual} standard entities, the config's board of {config.rows} x "
            f"{config.cols} has {rows} x {cols}"
        )
    weights = jnp.asarray(block.virtual)
    weights = (weights if sharpening == 1 else sharpened(weights, sharpening))[..., : rows * cols]
    maps = weights.reshape(*weights.shape[:-3], heads, virtual, rows, cols)
    return jnp.swapaxes(maps, -4, -3)


def pair_maps(block: BlockAttention) -> Float[Array, "*B H2 M*M N"]:
    """The 2-simplicial attention of every standard entity (columns) to the pairs of virtual ones (rows).

    Rows are the pairs (j, k) in lexicographic order, `pair_labels`; a column sums to 1. The paper's Figure 7
    has the second block.

    Raises:
        ValueError: the agent has no virtual entities.
    """
    if block.pairs is None:
        raise ValueError("block has no 2-simplicial attention: the agent is a relational one")
    rows = block.pairs.reshape(*block.pairs.shape[:-2], -1)
    return jnp.swapaxes(rows, -1, -2)


def pair_deviation(block: BlockAttention) -> Float[Array, "*B H2 N"]:
    """How far each entity's 2-simplicial attention is from the generic one: 0 as most entities', 1 elsewhere.

    The generic one is the median over entities, pair by pair, made to sum to 1; the distance is that of total
    variation. Section 6 observes that the Gem's locks, the player and the inventory stand out.

    Raises:
        ValueError: the agent has no virtual entities.
    """
    maps = pair_maps(block)
    generic = jnp.median(maps, axis=-1, keepdims=True)
    total = jnp.sum(generic, axis=-2, keepdims=True)
    # Where no pair is common to half of the entities the median is 0: then there is only the mean.
    generic = jnp.where(
        total > 0, generic / jnp.where(total > 0, total, 1), jnp.mean(maps, -1, keepdims=True)
    )
    return jnp.sum(jnp.abs(maps - generic), axis=-2) / 2


def pair_labels(num_virtual_entities: int) -> list[str]:
    """What the rows of `pair_maps` are: "(1,1)", "(1,2)", ..."""
    numbers = range(1, num_virtual_entities + 1)
    return [f"({j},{k})" for j in numbers for k in numbers]
