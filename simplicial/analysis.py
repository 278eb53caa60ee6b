"""Attention maps and win rates of trained agents (Clift et al. 2020, Section 6 and Appendix F).

    output = apply_with_attention(agent, {"params": params}, observation)
    first, second = output.attention
    analysis.virtual_maps(first, config)       # attention of each virtual entity over the board
    analysis.pair_maps(second)                 # attention of each entity to pairs of virtual entities
    analysis.evaluate(agent_policy, params, config, key, episodes=1000)       # win rates by type of puzzle

The convolutions are not padded, so there are fewer entities than tiles: entity 0 is computed from the 3 x 3
window of tiles around (1, 1), the next one from the window around (2, 1). In trained agents an entity
represents the tile in the middle of its window (Section 6).

Axis letters: B batch, N = (R - 2)(C - 1) standard entities of a board of R rows and C columns, Y = R - 2 and
X = C - 1 rows and columns of their grid, M virtual entities, P = M^2 pairs of them, H heads of 1-simplicial
and H2 of 2-simplicial attention.
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
"""The factor by which the authors multiply logits in their pictures of virtual entities' attention."""


def entity_grid(config: boxworld.BoxWorldConfig) -> tuple[int, int]:
    """Returns the rows and columns of the grid of entities in the paper's agents: (R - 2, C - 1)."""
    return config.rows - 2, config.cols - 1


def entity_of_tile(x: int, y: int, config: boxworld.BoxWorldConfig) -> int:
    """Returns the index of the entity that represents the tile at (x, y): x + (C - 1)(y - 1) - 1.

    Raises:
        ValueError: the tile is at the edge of the picture, where there is no entity.
    """
    rows, cols = entity_grid(config)
    if not (1 <= x <= cols and 1 <= y <= rows):
        raise ValueError(
            f"x, y: got ({x}, {y}), expected the middle of an entity's window: x in 1..{cols}, y in 1..{rows}"
        )
    return x + cols * (y - 1) - 1


def landmarks(state: boxworld.State, config: boxworld.BoxWorldConfig) -> dict[str, int]:
    """Returns the entities of one episode's landmarks, by name.

    The landmarks are the player, the locks of the Gem and of the bridge that are still on the board, and the
    inventory if it holds a key. A tile at the edge is represented by the nearest entity, whose window
    contains it.

    Raises:
        ValueError: `state` is a batch.
    """
    grid = np.asarray(state.grid)
    if grid.ndim != 2:
        raise ValueError(f"state: got a batch with grid {grid.shape}, expected one episode with grid [R, C]")
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
    weights: Float[ArrayLike, "*B"], sharpening: float = DISPLAY_SHARPENING, *, axes: int = 1
) -> Float[Array, "*B"]:
    """Returns the weights that result from multiplying all logits by b = `sharpening`: w^b, renormalised.

    Args:
        weights: nonnegative attention weights.
        sharpening: the factor b; 1 changes nothing.
        axes: number of trailing axes over which the weights sum to 1; 2 for pairs.

    Returns:
        Weights that sum to 1 again; rows of zeros (fully masked) stay zero.

    Raises:
        ValueError: `sharpening` is not positive, or `axes` is not between 1 and the number of axes.
    """
    weights = jnp.asarray(weights)
    if not sharpening > 0:
        raise ValueError(f"sharpening: got {sharpening}, expected a positive number")
    if not 1 <= axes <= weights.ndim:
        raise ValueError(
            f"axes: got {axes}, expected 1 to {weights.ndim} for weights of shape {weights.shape}"
        )
    last = tuple(range(-axes, 0))
    # Scaling the maximum to 1 before taking the power keeps small weights from all underflowing.
    largest = jnp.max(weights, axis=last, keepdims=True)
    powers = (weights / jnp.where(largest > 0, largest, 1)) ** sharpening
    total = jnp.sum(powers, axis=last, keepdims=True)
    return powers / jnp.where(total > 0, total, 1)


def virtual_maps(
    block: BlockAttention, config: boxworld.BoxWorldConfig, sharpening: float = 1.0
) -> Float[Array, "*B M H Y X"]:
    """Returns the attention of each virtual entity to the standard entities on their grid, for each head.

    A map sums to 1 minus the attention to the virtual entities themselves. The paper's Figure 7 shows the
    first block with a `sharpening` (see `sharpened`) of 2.

    Raises:
        ValueError: the agent has no virtual entities, or `config` describes another board.
    """
    if block.virtual is None:
        raise ValueError("block: got no virtual entities (a relational agent), expected a simplicial agent's")
    rows, cols = entity_grid(config)
    heads, virtual, every = block.virtual.shape[-3:]
    if every - virtual != rows * cols:
        raise ValueError(
            f"block: got {every - virtual} standard entities, expected {rows} x {cols} for the config's "
            f"board of {config.rows} x {config.cols}"
        )
    weights = jnp.asarray(block.virtual)
    weights = (weights if sharpening == 1 else sharpened(weights, sharpening))[..., : rows * cols]
    maps = weights.reshape(*weights.shape[:-3], heads, virtual, rows, cols)
    return jnp.swapaxes(maps, -4, -3)


def pair_maps(block: BlockAttention) -> Float[Array, "*B H2 P N"]:
    """Returns the 2-simplicial attention of standard entities (columns) to pairs of virtual ones (rows).

    Rows are the pairs (j, k) in lexicographic order (`pair_labels`); columns sum to 1. The paper's Figure 7
    shows the second block.

    Raises:
        ValueError: the agent has no virtual entities.
    """
    if block.pairs is None:
        raise ValueError(
            "block: got no 2-simplicial attention (relational agent), expected a simplicial agent's"
        )
    rows = block.pairs.reshape(*block.pairs.shape[:-2], -1)
    return jnp.swapaxes(rows, -1, -2)


def pair_deviation(block: BlockAttention) -> Float[Array, "*B H2 N"]:
    """Measures how far each entity's 2-simplicial attention is from typical: about 0 for most, up to 1.

    Typical is the median over entities of each pair's weight, normalised to sum to 1; the distance is the
    total variation. Section 6 observes that the Gem's locks, the player and the inventory stand out.

    Raises:
        ValueError: the agent has no virtual entities.
    """
    maps = pair_maps(block)
    generic = jnp.median(maps, axis=-1, keepdims=True)
    total = jnp.sum(generic, axis=-2, keepdims=True)
    # If no pair is shared by half of the entities, all medians are 0 and the mean is used instead.
    generic = jnp.where(
        total > 0, generic / jnp.where(total > 0, total, 1), jnp.mean(maps, -1, keepdims=True)
    )
    return jnp.sum(jnp.abs(maps - generic), axis=-2) / 2


def pair_labels(num_virtual_entities: int) -> list[str]:
    """Returns the labels of the rows of `pair_maps`: "(1,1)", "(1,2)", ..."""
    numbers = range(1, num_virtual_entities + 1)
    return [f"({j},{k})" for j in numbers for k in numbers]
