"""Agents of the 2-simplicial Transformer learning BoxWorld (Clift et al. 2020) by IMPALA.

    python -m experiments.boxworld --config=quick --workdir=runs/boxworld

Trains, measures the fraction solved for each type of puzzle against that of a random policy, and draws the
curves against steps and against time, with the published ones where the environment is theirs. An interrupted
run continues in the same trajectories.
"""

import functools
from pathlib import Path

from experiments import runtime
from experiments.boxworld import measures
from experiments.boxworld.config import Config
from experiments.boxworld.engine import Impala, make_policy


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
        from experiments.boxworld import figures  # a program too: loaded with the package, it would warn

        figures.draw_run(Path(workdir), config, result.results)
    return result


def train(config: Config, workdir: Path | None, parallel: str | runtime.Layout = "jit") -> runtime.FitResult:
    """Trains the agents of all seeds."""
    policy = make_policy(config)
    return runtime.loop(
        config,
        Impala(config, parallel),
        evaluate=functools.partial(measures.overall, config, policy),
        conclude=functools.partial(measures.conclude, config, policy),
        workdir=workdir,
        name=f"{config.board.world} BoxWorld, {config.agent.kind}",
    )
