"""Several initialisations within one run: the best by its training loss continues.

A learned table often ends in a mixture of programs that fits the trained pairs only in part. Its training
error tells such starts from good ones, so that nothing held out is needed to choose. Start r is an ordinary
run of `restart_steps` updates in `.starts/r` below the workdir, with a seed of its own. It is recorded and
resumed like any run, so that a run with restarts, too, continues to the bit.
"""

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.llrnn.config import Config

STARTS = ".starts"
"""Hidden, since a run refuses a folder that already has other files."""
SEEDS_APART = 1_000_000
"""Between the seeds of consecutive starts, so that runs of small seeds share none."""

type Fit = Callable[[Config, Path, Callable[[], dict[str, Any]]], runtime.FitResult]


@dataclasses.dataclass(frozen=True)
class Start:
    """One start.

    Attributes:
        seed: its seed.
        loss: mean training loss over its last log interval; None if it diverged.
        accuracy: mean training accuracy per symbol over the same batches.
    """

    seed: int
    loss: float | None
    accuracy: float

    @property
    def rank(self) -> float:
        """The training loss, which decides between starts."""
        return math.inf if self.loss is None else self.loss


def config_of(config: Config, number: int) -> Config:
    """Returns the config of start `number`, counted from 0."""
    return dataclasses.replace(
        config,
        seed=config.seed + SEEDS_APART * number,
        steps=config.restart_steps,
        restarts=1,
        eval_every=0,
        checkpoint_every=config.restart_steps,
    )


def train(config: Config, workdir: Path | None, fit: Fit) -> runtime.FitResult:
    """Trains the starts, until one reaches `config.restart_accuracy`, and then continues the best.

    Args:
        config: with `restarts` above 1.
        workdir: the run's directory; None keeps nothing.
        fit: trains one config in a directory; its last argument returns what the results are to include.

    Returns:
        The result of the run that continues the best start; its results have the starts, and its time
        includes theirs. Or that of a start which the end of the session interrupted.

    Raises:
        NonFiniteLoss: all starts diverged.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory()) if workdir is None else workdir
        return _train(config, Path(directory), fit)


def _train(config: Config, workdir: Path, fit: Fit) -> runtime.FitResult:
    began, starts, seconds = time.monotonic(), [], 0.0

    def in_time(config: Config) -> Config:
        """Returns a config that ends with this session; it makes a log interval even when that is over."""
        if not config.session_seconds:
            return config
        left = max(1e-3, config.session_seconds - (time.monotonic() - began))
        return dataclasses.replace(config, session_seconds=left)

    for number in range(config.restarts):
        start = config_of(config, number)
        try:
            result = fit(in_time(start), workdir / STARTS / str(number), dict)
        except runtime.NonFiniteLoss as error:
            starts.append(Start(start.seed, None, 0.0))
            if number == config.restarts - 1 and all(each.loss is None for each in starts):
                raise error
            continue
        if result.step < start.steps:
            return result
        seconds += result.train_seconds
        starts.append(Start(start.seed, result.metrics["loss"], 1 - result.metrics["error"]))
        if starts[-1].accuracy >= config.restart_accuracy:
            break
    best = min(range(len(starts)), key=lambda number: starts[number].rank)
    continued = dataclasses.replace(
        config, init_from=str(workdir / STARTS / str(best)), init_optimizer=True, restarts=1
    )
    result = fit(in_time(continued), workdir, lambda: summary(config, starts, best))
    return dataclasses.replace(result, train_seconds=seconds + result.train_seconds)


def summary(config: Config, starts: list[Start], best: int) -> dict[str, Any]:
    """Returns the starts, the number of the best, and the success rate of single starts.

    The rate is the share of starts whose training accuracy reached `config.restart_accuracy`. The starts end
    with the first success, so 1 / rate estimates how many a success takes.
    """
    successes = sum(start.accuracy >= config.restart_accuracy for start in starts)
    return {
        "starts": [dataclasses.asdict(start) for start in starts],
        "best_start": best,
        "success_rate": successes / len(starts),
    }
