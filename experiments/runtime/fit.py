"""Gradient descent on a loss: the engine of most experiments, and `fit`, which runs it."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optax

from experiments.runtime.config import RunConfig
from experiments.runtime.feeding import Drawn, Fed
from experiments.runtime.looping import FitResult, loop
from experiments.runtime.mesh import Layout
from experiments.runtime.training import Init, Loss, Program, PyTree, Task, Trace, TrainState


class Descent:
    """A `looping.Engine`: a loss's gradient, an optimizer, batches drawn or fed."""

    def __init__(self, program: Program, feed: Drawn | Fed):
        """Takes the programs and where their batches come from."""
        self._program, self._feed = program, feed
        self.parallel = str(program.layout)
        self.abstract_state, self.initial = program.abstract_state, program.initial
        self.place = program.place
        self.prepare, self.advance, self.close = feed.prepare, feed.advance, feed.close

    @property
    def compile_seconds(self) -> float:
        """Spent on compilation so far."""
        return self._feed.compile_seconds

    def unplace(self, state: TrainState) -> TrainState:
        """The inverse of `place`."""
        return self._program.unplace(state)

    def params_of(self, state: TrainState) -> PyTree:
        """The parameters of a placed state."""
        return self._program.unplace(state.params)

    def metrics(self, trace: Trace, step: int) -> dict[str, float]:
        """The averages of the steps."""
        return averages(trace)

    def first_bad(self, trace: Trace) -> tuple[int, str] | None:
        """The first step whose loss or parameters are not finite."""
        finite = np.asarray(trace.finite)
        if finite.all():
            return None
        index = int(np.argmin(finite))
        numerator, denominator = (np.asarray(part)[index] for part in trace.ratios["loss"])
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.divide(numerator, denominator)
        what = "the loss is finite but parameters are not" if np.isfinite(value) else f"the loss is {value}"
        return index, what


def fit(
    config: RunConfig,
    *,
    init: Init,
    loss: Loss,
    optimizer: optax.GradientTransformation,
    sample: Callable[..., PyTree] | None = None,
    batches: Callable[[int], PyTree] | None = None,
    init_extra: Init | None = None,
    evaluate: Callable[[PyTree], Mapping[str, Any]] | None = None,
    conclude: Callable[[PyTree], Mapping[str, Any]] | None = None,
    workdir: str | os.PathLike | None = None,
    accumulate: int = 1,
    totals: Callable[[PyTree], dict[str, Any]] | None = None,
    parallel: str | Layout = "jit",
    name: str | None = None,
    quiet: bool = False,
) -> FitResult:
    """Trains, or goes on training what a killed or finished run has left in the workdir.

    Everything random comes from `(config.seed, step)`, so a run that was killed and started again ends with
    the parameters, bit for bit, of one that was not (on the same devices, and unless `max_seconds` cut it
    short).

    Args:
        config: the run's config, validated here again.
        init: `init(key) -> params`, pure.
        loss: `loss(params, batch, key) -> Sums`, pure: totals over the examples of the batch it is given,
            which on several devices is a part of the whole under `shard_map` and `pmap` (with a key of its
            own for each part) and the whole, partitioned by the compiler, under `jit`.
        optimizer: an optax optimizer.
        sample: `sample(key, step) -> batch`, pure: draws a whole batch on the device; arrays of rank >= 1
            have `config.batch_size` as their first axis, scalars hold for all examples. `config.log_every`
            steps are then one compiled call. With `init_extra` it is `sample(key, step, params, extra) ->
            (batch, extra)`.
        batches: instead of `sample`: `batches(step) -> batch` of numpy arrays for the 0-based step, this
            process's rows of it, called ahead of time in a thread. It must depend on the step alone. There
            may be a few shapes (length buckets); the update is compiled once for each.
        init_extra: `init_extra(key) -> extra`, pure: what `sample` carries from step to step, such as the
            states of environments; saved with the state, copied to all devices.
        evaluate: `evaluate(params) -> {name: number}`, every `config.eval_every` steps and at the end; the
            numbers go into the record as `eval/name`. It should be the same function of the parameters each
            time.
        conclude: `conclude(params) -> JSON values`, once at the end, for measurements too dear to repeat;
            they go into the summary as `results`.
        accumulate: into how many parts a batch is cut whose gradients are added up, so that a batch need not
            fit in memory at once; a device's rows of it must be a multiple. The step stays that of the whole.
        totals: `totals(batch) -> {name: sum over its rows}`, pure: what the loss needs to know of the whole
            batch, however it is cut into parts; it finds the sums in the batch (a dictionary) by their names.
        workdir: where the run is kept; None keeps nothing (and several processes need one).
        parallel: `jit`, `shard_map` or `pmap`, over all devices; or a `Layout`, which may also split the
            state, or what is large in one example.
        name: what the progress bar calls the run; the workdir's name by default.
        quiet: show no progress.

    Returns:
        The final state and metrics.

    Raises:
        ValueError: for a bad config, batch, loss or workdir (`WorkdirError`), before anything is written.
        NonFiniteLoss: when the loss or a parameter stops being finite; no such state is ever saved.
        Preempted: after a SIGTERM, when the log interval under way is finished and saved.
        CheckpointError: if there are checkpoints and all are damaged.
    """
    config.validate()
    if (sample is None) == (batches is None):
        raise ValueError("exactly one of sample and batches must be given")
    if init_extra is not None and sample is None:
        raise ValueError("init_extra is for sample to carry on; it cannot be given with batches")
    program = Program(
        Task(config.seed, config.batch_size, init, loss, optimizer, sample, init_extra, accumulate, totals),
        parallel,
    )
    program.check(program.abstract_state())
    feed = Drawn(program) if batches is None else Fed(program, batches, config.steps)
    return loop(
        config,
        Descent(program, feed),
        evaluate=_named(program, evaluate),
        conclude=_named(program, conclude),
        workdir=workdir,
        name=name,
        quiet=quiet,
    )


def _named(program: Program, measure: Callable[[PyTree], Any] | None) -> Callable[[PyTree], Any] | None:
    """A measurement under the same names of axes as the steps."""
    if measure is None:
        return None

    def measured(params):
        with program.measuring():
            return measure(params)

    return measured


def averages(trace: Trace) -> dict[str, float]:
    """Returns the metrics of stacked steps: total numerator over total denominator, NaN where that is 0."""
    totals = {
        key: (np.sum(over, dtype=np.float64), np.sum(under, dtype=np.float64))
        for key, (over, under) in trace.ratios.items()
    }
    ordered = ["loss", *(key for key in totals if key != "loss")]
    return {key: float(np.divide(*totals[key])) if totals[key][1] else float("nan") for key in ordered}
