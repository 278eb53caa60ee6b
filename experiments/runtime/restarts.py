"""Several initialisations within one run: the best by its training loss continues.

Some models learn much faster from some initialisations than from others, or only from some of them. Where
the training loss soon tells them apart, nothing held out is needed to choose. Start r is an ordinary run of
`restart_steps` updates in `.starts/r` below the workdir, with a seed of its own. It is recorded and resumed
like any run, so that a run with restarts, too, continues to the bit.
"""

import dataclasses
import math
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from experiments.runtime.config import RunConfig, added, at_least
from experiments.runtime.looping import FitResult, NonFiniteLoss

STARTS = ".starts"
"""Hidden, since a run refuses a folder that already has other files."""
SEEDS_APART = 1_000_000
"""Between the seeds of consecutive starts, so that runs of small seeds share none."""

type Fit[Config] = Callable[[Config, Path, Callable[[], dict[str, Any]] | None], FitResult]


@dataclasses.dataclass
class RestartsConfig(RunConfig):
    """The config of an experiment whose runs may begin with several starts.

    Attributes:
        restarts: number of initialisations at most; the one with the least training loss continues for
            `steps`. See `experiments.runtime.restarts`.
        restart_steps: updates of each, at most `steps` and a multiple of `log_every`; 0 with restarts=1.
        restart_accuracy: training accuracy of a start, over its last log interval, after which no other is
            made.
    """

    restarts: int = added(1)
    restart_steps: int = added(0)
    restart_accuracy: float = added(0.99)

    def validate(self) -> None:
        """See `RunConfig.validate`."""
        super().validate()
        at_least("restarts", self.restarts, 1)
        at_least("restart_accuracy", self.restart_accuracy, 0)
        if self.restarts == 1:
            return
        if not 0 < self.restart_steps <= self.steps or self.restart_steps % self.log_every:
            raise ValueError(
                f"restart_steps: got {self.restart_steps}, expected a multiple of log_every={self.log_every} "
                f"from 1 to steps={self.steps} with restarts={self.restarts}"
            )
        for name in ("init_from", "max_seconds"):
            if getattr(self, name):
                raise ValueError(
                    f"{name}: got {getattr(self, name)!r}, expected none with restarts={self.restarts}"
                )

    @property
    def further_steps(self) -> int:
        """Updates of all starts, if there are several."""
        return self.restarts * self.restart_steps if self.restarts > 1 else 0


@dataclasses.dataclass(frozen=True)
class Start:
    """One start.

    Attributes:
        seed: its seed.
        loss: mean training loss over its last log interval; None if it diverged.
        accuracy: mean training accuracy over the same batches; 0 if it diverged.
    """

    seed: int
    loss: float | None
    accuracy: float

    @property
    def rank(self) -> float:
        """The training loss, which decides between starts."""
        return math.inf if self.loss is None else self.loss


def config_of[Config: RestartsConfig](config: Config, number: int) -> Config:
    """Returns the config of start `number`, counted from 0."""
    return dataclasses.replace(
        config,
        seed=config.seed + SEEDS_APART * number,
        steps=config.restart_steps,
        restarts=1,
        eval_every=0,
        checkpoint_every=config.restart_steps,
    )


def train[Config: RestartsConfig](
    config: Config, workdir: Path | None, fit: Fit[Config], *, accuracy: Callable[[dict[str, float]], float]
) -> FitResult:
    """Trains the starts, until one reaches `config.restart_accuracy`, and then continues the best.

    Args:
        config: with `restarts` above 1.
        workdir: the run's directory; None keeps nothing.
        fit: trains one config in a directory; its last argument returns what the results are to include,
            and is None for a start, which needs no results.
        accuracy: returns a start's training accuracy; takes its metrics.

    Returns:
        The result of the run that continues the best start; its results have the starts, and its time
        includes theirs. Or that of a start which the end of the session interrupted.

    Raises:
        NonFiniteLoss: all starts diverged.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory()) if workdir is None else workdir
        return _train(config, Path(directory), fit, accuracy)


def _train[Config: RestartsConfig](
    config: Config, workdir: Path, fit: Fit[Config], accuracy: Callable[[dict[str, float]], float]
) -> FitResult:
    began, starts, seconds = time.monotonic(), [], 0.0
    for number in range(config.restarts):
        start = config_of(config, number)
        try:
            result = fit(start.in_session(began), workdir / STARTS / str(number), None)
        except NonFiniteLoss as error:
            starts.append(Start(start.seed, None, 0.0))
            if number == config.restarts - 1 and all(each.loss is None for each in starts):
                raise error
            continue
        if result.step < start.steps:
            return result
        seconds += result.train_seconds
        starts.append(Start(start.seed, result.metrics["loss"], accuracy(result.metrics)))
        if starts[-1].accuracy >= config.restart_accuracy:
            break
    best = min(range(len(starts)), key=lambda number: starts[number].rank)
    continued = dataclasses.replace(config, init_from=f"{STARTS}/{best}", init_optimizer=True, restarts=1)
    result = fit(continued.in_session(began), workdir, lambda: summary(config, starts, best, seconds))
    return dataclasses.replace(result, train_seconds=seconds + result.train_seconds)


def summary(config: RestartsConfig, starts: list[Start], best: int, seconds: float) -> dict[str, Any]:
    """Returns the starts, the number of the best, their training time, and the success rate of single starts.

    The rate is the share of starts whose training accuracy reached `config.restart_accuracy`. The starts end
    with the first success, so that the rate 1 / n of one run is above the chance of a start on average; over
    several runs, divide the successes by the starts.
    """
    successes = sum(start.accuracy >= config.restart_accuracy for start in starts)
    return {
        "starts": [dataclasses.asdict(start) for start in starts],
        "best_start": best,
        "starts_seconds": round(seconds, 3),
        "success_rate": successes / len(starts),
    }
