"""Evaluates agents on BoxWorld: the fraction of boards solved per puzzle type."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runtime
from experiments.boxworld.config import Config, type_name
from experiments.boxworld.engine import type_label
from experiments.boxworld.load import Trained
from simplicial import AgentOutput, boxworld, rollout, win_rates

EVALUATION_SEED = 2**31 - 2  # not used for training; every run is evaluated on the same boards
SHOWN = ("solved", "died", "capped")
"""How a board can end: Gem reached, trap opened, or step limit reached."""
ANY = [(0, 0, 0)]
"""Placeholder type for boards drawn from the training distribution, whatever their type."""
SOLVED_EXACTLY = 25
"""Number of boards per type whose shortest solution is searched for."""


def random_policy(params: Any, observation: jax.Array) -> AgentOutput:
    """Returns uniform logits [..., 4] and zero values [...]."""
    batch = observation.shape[:-3]
    return AgentOutput(jnp.zeros((*batch, 4)), jnp.zeros(batch))


def measure(
    config: Config, policy: rollout.Policy, params: Any
) -> tuple[win_rates.Evaluation, win_rates.Evaluation]:
    """Plays the boards of the final evaluation, sampling actions as in training.

    Args:
        config: the run's config.
        policy: the policy to evaluate.
        params: its parameters, leaves [S, ...].

    Returns:
        Counts [S, 1] for boards drawn from the training distribution, and counts [S, P] for `final_episodes`
        boards of each type. Both sets have the same number of boards in total.
    """
    board = config.board.make()
    types = boxworld.puzzles(board)
    of_types = win_rates.boards_of(jax.random.key(EVALUATION_SEED), types, config.final_episodes, board)
    count = config.final_episodes * len(types)
    # Played together, so that only one program is compiled.
    together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), _drawn(count, board), of_types)
    played = _play(config, policy, params, together)
    drawn, rest = (
        [jax.tree.map(lambda leaf, part=part: leaf[part], one) for one in played]
        for part in (slice(count), slice(count, None))
    )
    return _counts(drawn, ANY), _counts(rest, types)


def overall(config: Config, policy: rollout.Policy, params: Any) -> dict[str, float]:
    """Returns the fraction of each ending on `eval_episodes` boards of the training distribution.

    All seeds are pooled.
    """
    boards = _drawn(config.eval_episodes, config.board.make())
    counts = _counts(_play(config, policy, params, boards), ANY)
    return {name: np.sum(getattr(counts, name)) / np.sum(counts.episodes) for name in SHOWN}


@functools.partial(jax.jit, static_argnums=0)
def _drawn(count: int, board: boxworld.BoxWorldConfig) -> boxworld.State:
    key = jax.random.fold_in(jax.random.key(EVALUATION_SEED), count)
    return boxworld.reset_batch(key, count, board)


def _play(config: Config, policy, params, boards) -> list[win_rates.Played]:
    """Plays the boards with the parameters of each seed."""
    key, board = jax.random.key(EVALUATION_SEED + 1), config.board.make()
    seeds = jax.tree.leaves(params)[0].shape[0]
    return [
        win_rates.play(policy, _of_seed(params, seed), boards, board, key, cap=config.eval_cap)
        for seed in range(seeds)
    ]


@jax.jit
def _of_seed(params, seed):
    return jax.tree.map(lambda leaf: leaf[seed], params)


def _counts(
    played: Sequence[win_rates.Played], types: Sequence[tuple[int, int, int]]
) -> win_rates.Evaluation:
    """Tallies the endings of each seed on the host, leaves [S, P]."""
    tallies = jax.device_get([win_rates.tally(one, types) for one in played])
    return jax.tree.map(lambda *leaves: np.stack(leaves), *tallies)


def conclude(config: Config, policy: rollout.Policy, params: Any) -> dict[str, Any]:
    """Returns a run's results: `summarize` for "agent" (all seeds pooled), each seed, and "chance"."""
    found = measure(config, policy, params)
    results = {"agent": summarize(*found)}
    if config.seeds > 1:
        for index in range(config.seeds):
            results[f"seed {config.seed + index}"] = summarize(*found, slice(index, index + 1))
    return results | {"chance": summarize(*measure(config, random_policy, {"none": jnp.zeros((1, 1))}))}


def summarize(
    drawn: win_rates.Evaluation, types: win_rates.Evaluation, seeds: slice = slice(None)
) -> dict[str, Any]:
    """Summarizes the counts of `measure`, pooled over `seeds`: overall `shares`, and per type as "types"."""
    whole, each = (
        shares({name: np.sum(getattr(counts, name)[seeds], axis=0) for name in ("episodes", *SHOWN)})
        for counts in (drawn, types)
    )
    return {**whole[0], "types": dict(zip(map(type_name, types.puzzles[0].tolist()), each, strict=True))}


def shares(counts: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Returns for each type the fraction solved (with a Wilson interval), trapped and stopped early."""
    rows = zip(*(counts[name].tolist() for name in ("episodes", *SHOWN)), strict=True)
    return [
        {
            "solved": solved / episodes,
            "interval": list(runtime.intervals.wilson_interval(solved, episodes)),
            "died": died / episodes,
            "capped": capped / episodes,
            "episodes": episodes,
        }
        for episodes, solved, died, capped in rows
    ]


def by_type(
    trained: Trained,
    *,
    episodes_each: int,
    seed: int = 0,
    cap: int = win_rates.CAP,
    greedy: bool = False,
) -> tuple[win_rates.Evaluation, dict[str, Any]]:
    """Evaluates an agent on boards of every type.

    Args:
        trained: the agent.
        episodes_each: number of boards per type.
        seed: seed for boards and actions; every agent gets the same boards.
        cap: number of steps after which an episode is stopped.
        greedy: take the most likely action instead of sampling.

    Returns:
        The counts, and a record of them. For each type, the record has its `shares`, the mean number of
        steps, and the mean ratio of the agent's steps to those of a shortest solution over some of the solved
        boards. "overall" is the fraction solved, weighted by the environment's distribution of types.

    Raises:
        ValueError: a number is not positive.
    """
    config = trained.config
    types = boxworld.puzzles(config)
    for_boards, for_actions = jax.random.split(jax.random.key(seed))
    boards = win_rates.boards_of(for_boards, types, episodes_each, config)
    played = win_rates.play(
        trained.policy, trained.params, boards, config, for_actions, cap=cap, greedy=greedy
    )
    counts = jax.device_get(win_rates.tally(played, types))
    some = np.arange(len(types) * episodes_each) % episodes_each < SOLVED_EXACTLY
    boards, played = jax.tree.map(lambda leaf: leaf[some], jax.device_get((boards, played)))
    ratios = win_rates.solution_ratios(boards, played).reshape(len(types), -1)

    record: dict[str, Any] = {}
    for puzzle, share, steps, row in zip(types, shares(vars(counts)), counts.steps, ratios, strict=True):
        solved = row[~np.isnan(row)]
        record[type_label(puzzle, can_bridge=config.gem_locks == 2)] = {
            **share,
            "mean_steps": int(steps) / episodes_each,
            "steps_over_shortest": float(solved.mean()) if solved.size else None,
        }
    weights = win_rates.probabilities(types, config)
    solved = counts.solved / counts.episodes
    error = math.sqrt(float(np.sum(weights**2 * solved * (1 - solved) / counts.episodes)))
    return counts, {
        "overall": {"solved": float(weights @ solved), "standard_error": error},
        "types": record,
    }


def beyond(config: boxworld.BoxWorldConfig) -> dict[str, boxworld.BoxWorldConfig]:
    """Returns the environment of training by name, and three that an agent has never seen.

    All three have two rows and two columns more: one has the same puzzles, one has solutions that are longer
    by one box, and one has two distractors more than the most in training.
    """
    larger = config.replace(rows=config.rows + 2, cols=config.cols + 2)
    names = ("max_length", "max_distractors", "branch_length")
    length, distractors, branch = (int(getattr(config, name)) for name in names)
    traps = (distractors + 2) * branch + config.bridge_traps
    return {
        "as in training": config,
        "larger boards": larger,
        "larger boards, longer solutions": larger.replace(min_length=length + 1, max_length=length + 1),
        "larger boards, more distractors": larger.replace(
            min_distractors=distractors + 2, max_distractors=distractors + 2, traps=traps
        ),
    }


def generalization(
    trained: Trained, *, episodes: int, seed: int = 0, cap: int = win_rates.CAP, greedy: bool = False
) -> dict[str, Any]:
    """Evaluates an agent on the environments of `beyond`, next to a random policy; arguments as in `by_type`.

    Returns:
        By the environment's name, the `shares` of the agent and of "chance" on `episodes` boards, and its
        settings as "board".
    """
    record = {}
    for name, config in beyond(trained.config).items():
        for_boards, for_actions = jax.random.split(jax.random.key(seed))
        boards = jax.jit(boxworld.reset_batch, static_argnums=1)(for_boards, episodes, config)
        found = []
        for policy, params, best in (
            (trained.policy, trained.params, greedy),
            (random_policy, jnp.zeros(1), False),
        ):
            played = win_rates.play(policy, params, boards, config, for_actions, cap=cap, greedy=best)
            found += shares(vars(jax.device_get(win_rates.tally(played, ANY))))
        settings = ("rows", "cols", "min_length", "max_length", "min_distractors", "max_distractors")
        board = {setting: int(getattr(config, setting)) for setting in settings}
        record[name] = {"agent": found[0], "chance": found[1], "board": board}
    return record
