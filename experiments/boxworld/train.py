"""Trains 2-simplicial Transformer agents on BoxWorld (Clift et al. 2020) with IMPALA.

    python -m experiments.boxworld --config=quick --workdir=runs/boxworld

After training, measures the fraction of boards solved per puzzle type, compares it with a random policy, and
plots learning curves against steps and against time (with the published curves if the environment is the
paper's). An interrupted run resumes with the same trajectories.
"""

import contextlib
import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.boxworld import measures
from experiments.boxworld.config import Config
from experiments.boxworld.engine import Impala, make_policy
from experiments.runtime import chunks, restarts

FIRST = ".first"
"""Folder of the run named by `config.first`; hidden, since a run refuses a folder that has other files."""


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
    result = train(config, workdir, parallel)
    # A session may end before this run begins: see `config.first`.
    has_begun = workdir is not None and (Path(workdir) / "metrics.jsonl").exists()
    if workdir is not None and has_begun and runtime.is_first() and runtime.can_draw():
        from experiments.boxworld import figures  # imported here: also a program, and `python -m` would warn

        figures.draw_run(Path(workdir), config, result.results)
    return result


def train(config: Config, workdir: Path | None, parallel: str | runtime.Layout = "jit") -> runtime.FitResult:
    """Trains the agents, after several starts or the run named by `config.first`, without drawing figures."""
    config.validate()
    if config.restarts > 1:
        return restarts.train(
            dataclasses.replace(config, decay_steps=config.decay_iterations),  # not those of a start
            workdir,
            lambda config, workdir, more: _train(config, workdir, parallel, more),
            accuracy=lambda metrics: metrics["optimal"],
        )
    if not config.first:
        return _train(config, workdir, parallel)
    with contextlib.ExitStack() as stack:
        if workdir is None:
            workdir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        began, first = time.monotonic(), config.first_config()
        result = train(first, workdir / FIRST, parallel)
        if result.step < first.steps:  # the session is over
            return result
        config = dataclasses.replace(config, first="", first_steps=0, init_from=FIRST)
        return _train(config.in_session(began), workdir, parallel)


def _train(
    config: Config,
    workdir: Path | None,
    parallel: str | runtime.Layout,
    more: Callable[[], dict[str, Any]] | None = dict,
) -> runtime.FitResult:
    """Trains from one start; `more` returns results to add; if it is None, nothing is measured."""
    config = chunks.resolved(config, workdir, config.init_params)
    policy = make_policy(config)

    def conclude(params):
        assert more is not None
        return {**measures.conclude(config, policy, params), **more()}

    return runtime.loop(
        config,
        Impala(config, parallel),
        evaluate=None if more is None else functools.partial(measures.overall, config, policy),
        conclude=None if more is None else conclude,
        workdir=workdir,
        name=f"{config.board.world} BoxWorld, {config.agent.kind}",
    )
