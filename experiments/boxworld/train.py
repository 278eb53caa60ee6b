"""Agents of the 2-simplicial Transformer learning BoxWorld (Clift et al. 2020) by IMPALA.

    python -m experiments.boxworld --config=quick --workdir=runs/boxworld

Trains, measures the fraction solved for each type of puzzle beside that of a random policy, and draws the
curves against steps and against time, the published ones under them where the environment is theirs. A run
that was interrupted goes on where it was, in the same trajectories.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runtime
from experiments.boxworld import figures as boxworld_figures
from experiments.boxworld.config import Config
from experiments.boxworld.engine import Impala, make_policy, type_name
from simplicial import AgentOutput, boxworld, rollout, win_rates

EVALUATION_SEED = 2**31 - 2  # apart from every training seed in use: the same boards for every run
SHOWN = ("solved", "died", "capped")
"""How a board ends: with the Gem, by a trap, or given up."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains and draws the figures.

    Args:
        config: see `experiments.boxworld.config`.
        workdir: where the run is kept; None keeps and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The result; leaves of its state and parameters have a leading axis of seeds. `results` has, for the
        agent (all seeds together), each seed, and "chance", a random policy: "solved" and "types".
    """
    config.validate()
    result = train(config, workdir, parallel)
    if workdir is not None and runtime.is_first() and runtime.can_draw():
        boxworld_figures.draw_run(Path(workdir), config, result.results)
    return result


def train(config: Config, workdir: Path | None, parallel: str | runtime.Layout = "jit") -> runtime.FitResult:
    """Trains the agents of all seeds."""
    policy = make_policy(config)

    def evaluate(params):
        solved = overall(config, policy, params, config.eval_episodes)
        return {
            name: np.sum(counts) / solved["episodes"].sum()
            for name, counts in solved.items()
            if name in SHOWN
        }

    def conclude(params):
        found = measure(config, policy, params)
        results = {"agent": summarize(*(_over_seeds(part) for part in found))}
        if config.seeds > 1:
            for index in range(config.seeds):
                seed = (jax.tree.map(lambda leaf, index=index: leaf[index], part) for part in found)
                results[f"seed {config.seed + index}"] = summarize(*seed)
        chance = measure(config, random_policy, {"none": jnp.zeros((1, 1))})
        results["chance"] = summarize(*(_over_seeds(part) for part in chance))
        return results

    return runtime.loop(
        config,
        Impala(config, parallel),
        evaluate=evaluate,
        conclude=conclude,
        workdir=workdir,
        name=f"{config.board.world} BoxWorld, {config.agent.kind}",
    )


def random_policy(params: Any, observation: jax.Array) -> AgentOutput:
    """All actions alike."""
    batch = observation.shape[:-3]
    return AgentOutput(jnp.zeros((*batch, 4)), jnp.zeros(batch))


def measure(config: Config, policy: rollout.Policy, params: Any) -> tuple[dict[str, np.ndarray], Any]:
    """Boards as the environment draws them, and `final_episodes` of every type; on the host, leaves [S, ...].

    As many of the first as of the others together, all played by one program. Actions are drawn, as in
    training.
    """
    board, types = config.board.make(), boxworld.puzzles(config.board.make())
    of_types = win_rates.boards_of(jax.random.key(EVALUATION_SEED), types, config.final_episodes, board)
    count = config.final_episodes * len(types)
    played = _play(config, policy, params, [_drawn(count, board), of_types])
    drawn = [jax.tree.map(lambda leaf: leaf[:count], one) for one in played]
    rest = [jax.tree.map(lambda leaf: leaf[count:], one) for one in played]
    tallies = jax.device_get([win_rates.tally(one, types) for one in rest])
    return _counts(drawn), jax.tree.map(lambda *leaves: np.stack(leaves), *tallies)


def overall(config: Config, policy: rollout.Policy, params: Any, episodes: int) -> dict[str, np.ndarray]:
    """How boards end that are drawn as the environment draws them: counts [S] by name."""
    return _counts(_play(config, policy, params, [_drawn(episodes, config.board.make())]))


def _drawn(count: int, board: boxworld.BoxWorldConfig) -> boxworld.State:
    return _boards(jax.random.fold_in(jax.random.key(EVALUATION_SEED), count), count, board)


def _play(config, policy, params, boards) -> list[win_rates.Played]:
    """How the boards end in the hands of each seed."""
    together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *boards)
    key = jax.random.key(EVALUATION_SEED + 1)
    return [
        win_rates.play(policy, one, together, config.board.make(), key, cap=config.eval_cap)
        for one in _seeds(params)
    ]


def _counts(played: Sequence[win_rates.Played]) -> dict[str, np.ndarray]:
    rows = []
    for one in played:
        episodes, solved, died = one.steps.size, int(np.sum(one.solved)), int(np.sum(one.died))
        rows.append((episodes, solved, died, episodes - solved - died))
    return dict(zip(("episodes", *SHOWN), np.asarray(rows).T, strict=True))


@functools.partial(jax.jit, static_argnums=1)
def _boards(key, count, config):
    return boxworld.reset_batch(key, count, config)


def _seeds(params: Any) -> list[Any]:
    """The parameters of each seed, whose leaves have a leading axis of seeds."""
    count = jax.tree.leaves(params)[0].shape[0]
    return [jax.tree.map(lambda leaf, seed=seed: leaf[seed], params) for seed in range(count)]


def _over_seeds(counts: Any) -> Any:
    summed = jax.tree.map(lambda leaf: np.sum(leaf, axis=0), counts)
    if isinstance(counts, win_rates.Evaluation):
        return dataclasses.replace(summed, puzzles=counts.puzzles[0])
    return summed


def summarize(drawn: Mapping[str, Any], types: win_rates.Evaluation) -> dict[str, Any]:
    """Fractions solved with Wilson intervals, given up and lost to a trap: overall, and for each type."""

    def share(episodes: int, solved: int, died: int, capped: int) -> dict[str, Any]:
        return {
            "solved": solved / episodes,
            "interval": list(runtime.intervals.wilson_interval(solved, episodes)),
            "died": died / episodes,
            "capped": capped / episodes,
            "episodes": episodes,
        }

    columns = [np.asarray(getattr(types, name)) for name in ("episodes", *SHOWN)]
    names = [type_name(puzzle) for puzzle in map(tuple, np.asarray(types.puzzles).tolist())]
    return {
        **share(*(int(drawn[name]) for name in ("episodes", *SHOWN))),
        "types": {name: share(*(int(column[i]) for column in columns)) for i, name in enumerate(names)},
    }
