"""BoxWorld and bridge BoxWorld (Clift et al. 2020, section 3), as the authors ran them.

    config = boxworld.BRIDGE                                     # or boxworld.STANDARD, or .replace(...)
    state = boxworld.reset(jax.random.key(0), config)
    picture = boxworld.observe(state, config)                    # uint8 [rows, cols + 1, 3]
    state, outcome = boxworld.step(state, boxworld.RIGHT, config)

All functions above act on one environment and are meant for `jax.vmap` and `jax.jit`. `step` never starts a
new episode; `pool` and `step_or_restart` run a batch indefinitely at little more than the cost of its steps.

`config.py` has the settings, `rules.py` the state and the rules, `generation.py` random puzzles, `boards.py`
puzzles set up by hand, `pool.py` batches that restart, `solving.py` the shortest solution of one
state, `planning.py` all optimal actions of a batch,
`symmetries.py` changes of a state that keep its puzzle.
"""

from simplicial.boxworld.boards import from_board
from simplicial.boxworld.config import BRIDGE, NUM_COLOURS, STANDARD, BoxWorldConfig
from simplicial.boxworld.generation import HUES, puzzle_number, puzzles, reset
from simplicial.boxworld.planning import Path, Solution, demonstrations, solutions
from simplicial.boxworld.pool import Pool, Transition, pool, renew, reset_batch, restart, step_or_restart
from simplicial.boxworld.rules import (
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
from simplicial.boxworld.solving import shortest_solution, solve
from simplicial.boxworld.symmetries import has_reflections, rearrange, recolour, reflect, reflect_action

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
    "Path",
    "Pool",
    "PuzzleType",
    "Solution",
    "State",
    "Transition",
    "demonstrations",
    "from_board",
    "has_reflections",
    "observe",
    "pool",
    "puzzle_number",
    "puzzle_type",
    "puzzles",
    "rearrange",
    "recolour",
    "reflect",
    "reflect_action",
    "renew",
    "reset",
    "reset_batch",
    "restart",
    "shortest_solution",
    "solutions",
    "solve",
    "step",
    "step_or_restart",
]
