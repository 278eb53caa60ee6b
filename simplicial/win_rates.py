"""Performance of a policy on each type of puzzle (Clift et al. 2020, Section 6 and Appendix F).

    evaluation = evaluate(policy, params, boxworld.BRIDGE, key, episodes=1000)
    boards = boards_of(key, boxworld.puzzles(config), 1000, config)        # the same, step by step
    played = play(policy, params, boards, config, key)
    ratios = solution_ratios(boards, played)

A policy is as in `rollout`: a function of parameters and observations [B, R, C+1, 3] that returns an object
with `logits` [B, A].

Axis letters: P types of puzzles, E boards, B boards played in parallel. With parameters of several seeds
under `vmap`, results have further leading axes (*batch).
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Int32, PRNGKeyArray

from simplicial import boxworld, checks
from simplicial.boxworld.config import check
from simplicial.boxworld.pool import select
from simplicial.boxworld.rules import places
from simplicial.rollout import Policy, at_least_float32

Puzzles = Sequence[tuple[int, int, int]] | Int[np.ndarray, "P 3"]

CAP = 400
"""Number of steps after which an episode is abandoned; the authors' environment has no limit."""


@struct.dataclass
class Played:
    """End of each board: solved, died in a trap (bridge or distractor), or neither (cap or horizon)."""

    solved: Bool[Array, "*batch E"]
    died: Bool[Array, "*batch E"]
    steps: Int32[Array, "*batch E"]


@struct.dataclass
class Evaluation:
    """Results for each type of puzzle; `episodes` is the sum of `solved`, `died` and `capped`.

    Attributes:
        puzzles: (L, s, t) of each type, (L, 0, 0) without a bridge; see `boxworld.puzzle_type`.
        episodes: number of boards of the type that were played.
        solved: number of episodes that reached the Gem.
        died: number of episodes that opened a trap.
        capped: number of episodes that were abandoned.
        steps: total steps of all episodes.
        solved_steps: total steps of the solved episodes.
    """

    puzzles: Int[Array, "*batch P 3"]
    episodes: Int32[Array, "*batch P"]
    solved: Int32[Array, "*batch P"]
    died: Int32[Array, "*batch P"]
    capped: Int32[Array, "*batch P"]
    steps: Int32[Array, "*batch P"]
    solved_steps: Int32[Array, "*batch P"]


def evaluate(
    policy: Policy,
    params: Any,
    config: boxworld.BoxWorldConfig,
    key: PRNGKeyArray,
    *,
    episodes: int,
    cap: int = CAP,
    puzzles: Puzzles | None = None,
    greedy: bool = False,
    lanes: int = 256,
) -> Evaluation:
    """Plays `episodes` new boards of every type of puzzle, by default of all types that `config` draws.

    A type is (L, s, t), or (L, 0, 0) without a bridge; it replaces the lengths and the bridge probability of
    `config`. Other arguments are those of `play`. All types run in one compiled program. If `config` is not
    traced, the function can be called inside `jit`, and under `vmap` over `params`; outside, it compiles once
    for each `policy`, so pass the same function object.

    Raises:
        ValueError: a number is not positive, or a type does not fit the config's board.
    """
    types = _checked(boxworld.puzzles(config) if puzzles is None else puzzles, config)
    for_boards, for_actions = jax.random.split(key)
    boards = boards_of(for_boards, types, episodes, config)
    played = play(policy, params, boards, config, for_actions, cap=cap, greedy=greedy, lanes=lanes)
    return tally(played, types)


def probabilities(puzzles: Puzzles, config: boxworld.BoxWorldConfig) -> Float[np.ndarray, "P"]:
    """Returns the probability with which `config` draws each type, to weight win rates.

    Raises:
        ValueError: `config` does not draw one of the types.
    """
    known = boxworld.puzzles(config)
    kinds = [(length, bool(lock)) for length, lock, _ in known]
    lengths = len({length for length, _ in kinds})
    chance = float(np.asarray(config.bridge_probability))
    found = []
    for puzzle in np.asarray(puzzles).tolist():
        if tuple(puzzle) not in known:
            raise ValueError(f"puzzles: got {tuple(puzzle)}, expected types that the config draws: {known}")
        kind = puzzle[0], bool(puzzle[1])
        found.append((chance if kind[1] else 1 - chance) / lengths / kinds.count(kind))
    return np.asarray(found)


def tally(played: Played, puzzles: Puzzles) -> Evaluation:
    """Counts results per type, given E = P x episodes boards in the order of `boards_of`.

    Raises:
        ValueError: the number of boards is not a multiple of the number of types.
    """
    types = jnp.asarray(puzzles)
    number, boards = types.shape[0], played.steps.shape[0]
    if not number or boards % number:
        raise ValueError(f"played: got {boards} boards, expected equally many of each of {number} types")

    def total(values):
        return jnp.sum(values.reshape(number, -1), axis=1, dtype=jnp.int32)

    episodes = jnp.full(number, boards // number, jnp.int32)
    solved, died = total(played.solved), total(played.died)
    return Evaluation(
        puzzles=types,
        episodes=episodes,
        solved=solved,
        died=died,
        capped=episodes - solved - died,
        steps=total(played.steps),
        solved_steps=total(played.steps * played.solved),
    )


def boards_of(
    key: PRNGKeyArray, puzzles: Puzzles, episodes: int, config: boxworld.BoxWorldConfig
) -> boxworld.State:
    """Returns `episodes` boards of every type, grouped by type: states with a leading axis.

    No draw is rejected: a bridge's lock and key are independent of everything else on the board, so a board
    with any bridge becomes one of the required type by writing the two numbers into its tiles.

    Raises:
        ValueError: `episodes` is not positive, or a type does not fit the config's board.
    """
    checks.whole_number("episodes", episodes)
    return _draw(key, jnp.asarray(_checked(puzzles, config), jnp.int8), config, episodes)


@functools.partial(jax.jit, static_argnames="episodes")
def _draw(key, types, config, episodes):
    def draw(key, puzzle):
        length, lock, held = puzzle
        has_bridge = (lock > 0).astype(jnp.float32) if config.gem_locks == 2 else 0.0
        state = boxworld.reset(
            key, config.replace(min_length=length, max_length=length, bridge_probability=has_bridge)
        )
        if config.gem_locks == 1:
            return state
        x, y = state.traps[0, 0], state.traps[0, 1]  # -1 without a bridge, which matches no tile
        rows, cols = places(config.rows, config.cols)
        grid = jnp.where((rows == y) & (cols == x), lock, state.grid)
        grid = jnp.where((rows == y) & (cols == x - 1) & (x > 0), held, grid)
        return dataclasses.replace(state, grid=grid, puzzle=state.puzzle.at[:3].set(puzzle))

    keys = jax.random.split(key, len(types) * episodes)
    return jax.vmap(draw)(keys, jnp.repeat(types, episodes, axis=0))


@functools.partial(jax.jit, static_argnames=("policy", "greedy", "lanes"))
def _play(policy, params, boards, config, key, cap, greedy, lanes):
    count = boards.time.shape[0]
    lanes = min(lanes, count)

    def act(key, time, logits):
        if greedy:
            return jnp.argmax(logits)
        return jax.random.categorical(jax.random.fold_in(key, time), logits)

    def step(carry):
        states, board, steps, following, played = carry
        observation = jax.vmap(lambda state: boxworld.observe(state, config))(states)
        logits = at_least_float32(policy(params, observation).logits)
        # A board's actions depend only on its number and the time, not on the lane it runs in.
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(board)
        actions = jax.vmap(act)(keys, steps, logits)
        states, outcome = jax.vmap(lambda state, action: boxworld.step(state, action, config))(
            states, actions
        )
        steps = steps + 1
        ended = outcome.terminated | outcome.truncated | (steps >= cap)
        solved = outcome.terminated & (outcome.reward > 0)
        place = jnp.where(ended, board, count)  # index `count`, also that of idle lanes, is dropped
        seen = Played(solved=solved, died=outcome.terminated & ~solved, steps=steps)
        played = jax.tree.map(lambda all_, new: all_.at[place].set(new, mode="drop"), played, seen)

        order = following + jnp.cumsum(ended, dtype=jnp.int32) - 1
        board = jnp.where(ended, jnp.minimum(order, count), board)
        chosen = jax.tree.map(lambda leaf: leaf.at[board].get(mode="clip"), boards)
        following = jnp.minimum(following + jnp.sum(ended, dtype=jnp.int32), count)
        return select(ended, chosen, states), board, jnp.where(ended, 0, steps), following, played

    start = (
        jax.tree.map(lambda leaf: leaf[:lanes], boards),
        jnp.arange(lanes, dtype=jnp.int32),
        jnp.zeros(lanes, jnp.int32),
        jnp.int32(lanes),
        Played(jnp.zeros(count, bool), jnp.zeros(count, bool), jnp.zeros(count, jnp.int32)),
    )
    return jax.lax.while_loop(lambda carry: jnp.any(carry[1] < count), step, start)[-1]


def play(
    policy: Policy,
    params: Any,
    boards: boxworld.State,
    config: boxworld.BoxWorldConfig,
    key: PRNGKeyArray,
    *,
    cap: int = CAP,
    greedy: bool = False,
    lanes: int = 256,
) -> Played:
    """Plays each of E boards, episodes at their start, once, with `lanes` boards in parallel.

    A lane whose board has ended takes the next waiting board, so that a few long episodes delay little;
    results do not depend on the number of lanes. Every board is played to its end or the cap, so easy boards
    are not counted more often than hard ones. An episode is abandoned after `cap` steps or at the horizon of
    `config`. `greedy` selects the most probable action instead of sampling. Agents are trained and measured
    with sampled actions; the most probable ones can walk in circles.

    Raises:
        ValueError: a number is not positive, or `boards` is not a batch.
    """
    checks.whole_number("cap", cap)
    checks.whole_number("lanes", lanes)
    if boards.time.ndim != 1 or not boards.time.size:
        raise ValueError(f"boards: got leading axes {boards.time.shape}, expected one that is not empty, [E]")
    return _play(policy, params, boards, config, key, cap, greedy, lanes)


def solution_ratios(boards: boxworld.State, played: Played) -> Float[np.ndarray, "E"]:
    """Returns each board's number of steps divided by that of a shortest solution; NaN if it was not solved.

    Runs on the host and takes some milliseconds per board. `boards` are those given to `play`.

    Raises:
        ValueError: `boards` and `played` have different shapes.
    """
    boards, played = jax.device_get((boards, played))
    if boards.time.ndim != 1 or boards.time.shape != played.steps.shape:
        raise ValueError(
            f"boards: got leading axes {boards.time.shape}, expected one, [E], as in played "
            f"{played.steps.shape}"
        )
    ratios = np.full(boards.time.shape, np.nan)
    for i in np.flatnonzero(played.solved):
        shortest = boxworld.shortest_solution(jax.tree.map(lambda leaf, i=i: leaf[i], boards))
        if shortest:
            ratios[i] = played.steps[i] / shortest
    return ratios


def _checked(puzzles: Puzzles, config: boxworld.BoxWorldConfig) -> Int[np.ndarray, "P 3"]:
    types = np.asarray(puzzles, dtype=int)
    if types.ndim != 2 or types.shape[1] != 3 or not len(types):
        raise ValueError(f"puzzles: got shape {types.shape}, expected one or more (L, s, t), [P, 3]")
    for length, lock, held in types.tolist():
        name = f"puzzles: got ({length}, {lock}, {held})"
        has_bridge = bool(lock or held)
        if has_bridge and config.gem_locks == 1:
            raise ValueError(f"{name}, expected ({length}, 0, 0): a Gem with one lock has no bridge")
        if has_bridge and not (1 <= lock <= length < held <= 2 * length):
            raise ValueError(
                f"{name}, expected 1 <= s <= L and L + 1 <= t <= 2L for a bridge, or s = t = 0 without one"
            )
        try:
            check(config.replace(min_length=length, max_length=length, bridge_probability=float(has_bridge)))
        except ValueError as error:
            raise ValueError(f"{name}, expected a type that fits the board ({error})") from None
    return types
