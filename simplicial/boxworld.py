"""BoxWorld and bridge BoxWorld (Clift et al. 2020, section 3), as the authors ran them.

    config = boxworld.BRIDGE                                     # or boxworld.STANDARD, or .replace(...)
    state = boxworld.reset(jax.random.key(0), config)
    picture = boxworld.observe(state, config)                    # uint8 [rows, cols + 1, 3]
    state, outcome = boxworld.step(state, boxworld.RIGHT, config)

Everything above is for one environment and is meant for `jax.vmap` and `jax.jit`. `step` never starts a new
episode; `pool` and `step_or_restart` run a batch for ever at about the price of its steps.
"""

from simplicial.boxworld_boards import from_board
from simplicial.boxworld_config import BRIDGE, NUM_COLOURS, STANDARD, BoxWorldConfig
from simplicial.boxworld_generation import HUES, puzzles, reset
from simplicial.boxworld_rules import (
    DOWN,
    LEFT,
    NUM_ACTIONS,
    RIGHT,
    UP,
    Outcome,
    PuzzleType,
    State,
    observe,
    puzzle_type,
    step,
)

__all__ = [
    "BRIDGE",
    "DOWN",
    "HUES",
    "LEFT",
    "NUM_ACTIONS",
    "NUM_COLOURS",
    "RIGHT",
    "STANDARD",
    "UP",
    "BoxWorldConfig",
    "Outcome",
    "PuzzleType",
    "State",
    "from_board",
    "observe",
    "puzzle_type",
    "puzzles",
    "reset",
    "step",
]
