"""Trains 2-simplicial Transformer agents on BoxWorld (Clift et al. 2020) with IMPALA.

    python -m experiments.boxworld --config=quick --workdir=runs/boxworld

After training, measures the fraction of boards solved per puzzle type, compares it with a random policy, and
plots learning curves against steps and against time (with the published curves if the environment is the
paper's). An interrupted run resumes with the same trajectories.
"""

import functools
from pathlib import Path

from experiments import runtime
from experiments.boxworld import measures
from experiments.boxworld.config import Config
from experiments.boxworld.engine import Impala, make_policy
from experiments.runtime import chunks


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains the agents and draws the figures.

    Args:
        config: see `experiments.boxworld.config`.
        workdir: the run's directory; None saves and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The result; the leaves of its state and parameters have a leading seed axis. `results` has "solved"
        and "types" for "agent" (all seeds pooled), for each seed, and for "chance", a random policy.
    """
    config.validate()
    result = train(config, workdir, parallel)
    if workdir is not None and runtime.is_first() and runtime.can_draw():
        from experiments.boxworld import figures  # imported here: also a program, and `python -m` would warn

        figures.draw_run(Path(workdir), config, result.results)
    return result


def train(config: Config, workdir: Path | None, parallel: str | runtime.Layout = "jit") -> runtime.FitResult:
    """Trains the agents of all seeds without drawing figures."""
    config = chunks.resolved(config, workdir, config.init_params)
    policy = make_policy(config)
    return runtime.loop(
        config,
        Impala(config, parallel),
        evaluate=functools.partial(measures.overall, config, policy),
        conclude=functools.partial(measures.conclude, config, policy),
        workdir=workdir,
        name=f"{config.board.world} BoxWorld, {config.agent.kind}",
    )
