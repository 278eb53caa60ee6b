"""Gradient descent on a loss: `fit`, which most experiments call, and the engine it runs."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optax

from experiments.runtime import chunks
from experiments.runtime.config import RunConfig
from experiments.runtime.feeding import Drawn, Fed
from experiments.runtime.looping import FitResult, loop
from experiments.runtime.mesh import Layout
from experiments.runtime.training import Init, Loss, Program, PyTree, Task, Trace, TrainState


class Descent:
    """The `looping.Engine` of gradient descent, with batches drawn on the device or fed from the host."""

    def __init__(self, program: Program, feed: Drawn | Fed):
        """Combines the compiled programs with a source of batches."""
        self._program, self._feed = program, feed
        self.parallel = str(program.layout)
        self.abstract_state, self.initial = program.abstract_state, program.initial
        self.place = program.place
        self.prepare, self.advance, self.close = feed.prepare, feed.advance, feed.close

    @property
    def compile_seconds(self) -> float:
        """Seconds spent on compilation so far."""
        return self._feed.compile_seconds

    def unplace(self, state: TrainState) -> TrainState:
        """Inverts `place`; see `Engine.unplace`."""
        return self._program.unplace(state)

    def params_of(self, state: TrainState) -> PyTree:
        """Returns the parameters of a placed state."""
        return self._program.unplace(state.params)

    def metrics(self, trace: Trace, step: int) -> dict[str, float]:
        """Returns the metrics averaged over the steps; see `averages`."""
        return averages(trace)

    def first_bad(self, trace: Trace) -> tuple[int, str] | None:
        """Returns the index of the first step with a non-finite loss or parameter, and a message, or None."""
        finite = np.asarray(trace.finite)
        if finite.all():
            return None
        index = int(np.argmin(finite))
        numerator, denominator = (np.asarray(part)[index] for part in trace.ratios["loss"])
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.divide(numerator, denominator)
        what = "the loss is finite but a parameter is not" if np.isfinite(value) else f"the loss is {value}"
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
    totals: Callable[[PyTree], dict[str, Any]] | None = None,
    parallel: str | Layout = "jit",
    name: str | None = None,
    quiet: bool = False,
) -> FitResult:
    """Trains a model, continuing the run in the workdir if there is one.

    All randomness is derived from `(config.seed, step)`, so a run that is killed and restarted ends with the
    same parameters, bit for bit, as an uninterrupted one (on the same devices, and unless `max_seconds` ended
    it).

    Args:
        config: the run's config, which is validated here again.
        init: `init(key) -> params`, pure.
        loss: `loss(params, batch, key) -> Sums`, pure: totals over the examples in `batch`. On several
            devices, `batch` is one device's part under `shard_map` and `pmap`, and the whole batch,
            partitioned by the compiler, under `jit`; with `config.accumulate`, a part of these. The first
            axis of what is drawn from `key` must be the rows, each of which has its own key (see
            `row_keys`), so that draws do not depend on the parts.
        optimizer: an optax optimizer.
        sample: `sample(key, step) -> batch`, pure: draws a whole batch on the device; arrays of rank >= 1
            have `config.batch_size` as their first axis, scalars apply to all examples. `config.log_every`
            steps are then one compiled call. With `init_extra` the signature is `sample(key, step, params,
            extra) -> (batch, extra)`.
        batches: alternative to `sample`: `batches(step) -> batch` returns this process's rows of the batch
            of the 0-based step as numpy arrays. It is called ahead of time in a thread, and must depend on
            the step only. A few different shapes (length buckets) are fine; the update is compiled per shape.
        init_extra: `init_extra(key) -> extra`, pure: state that `sample` carries from step to step, such as
            environment states; saved with the train state, and replicated on all devices.
        evaluate: `evaluate(params) -> {name: number}`, called every `config.eval_every` steps and at the end;
            the numbers are recorded as `eval/name`. It should be the same function of the parameters at each
            call.
        conclude: `conclude(params) -> JSON values`, called once at the end, for expensive measurements; the
            summary contains them as `results`.
        totals: `totals(batch) -> {name: sum over its rows}`, pure: sums over the whole batch that the loss
            needs even if it sees only a part; they are added to `batch` (a dictionary) by name.
        workdir: directory of the run; None keeps nothing. Required with several processes.
        parallel: `jit`, `shard_map` or `pmap`, over all devices; or a `Layout`, which can also split the
            state or large arrays of a single example.
        name: the run's name in progress messages; the workdir's name by default.
        quiet: whether to hide progress.

    Returns:
        The final state and metrics.

    Raises:
        ValueError: for an invalid config, first batch, loss or workdir (`WorkdirError`), before files are
            written; for a later batch, when it is made.
        NonFiniteLoss: if the loss or a parameter is not finite; such a state is never saved.
        Preempted: after a SIGTERM, once the current log interval is finished and saved.
        CheckpointError: if checkpoints exist and all of them are damaged.
    """
    config.validate()
    config = chunks.resolved(config, workdir, init)
    if (sample is None) == (batches is None):
        both = "both" if batches is not None else "neither"
        raise ValueError(f"sample, batches: got {both}, expected exactly one of them")
    if init_extra is not None and sample is None:
        raise ValueError("init_extra: got it with batches, expected it with sample only")
    parts = config.accumulate
    task = Task(config.seed, config.batch_size, init, loss, optimizer, sample, init_extra, parts, totals)
    program = Program(task, parallel)
    state = program.abstract_state()
    if batches is None:
        feed = Drawn(program)
        program.check(state)
    else:
        feed = Fed(program, batches, config.steps)
        if chunks.begun(workdir) is None:
            try:
                program.check(state, feed.placed(0))
            except BaseException:
                feed.close()
                raise
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
    """Runs a measurement with the same logical axis names as the steps."""
    if measure is None:
        return None

    def measured(params):
        with program.measuring():
            return measure(params)

    return measured


def averages(trace: Trace) -> dict[str, float]:
    """Returns metrics of stacked steps: total numerator / total denominator, NaN where the latter is 0."""
    totals = {
        key: (np.sum(over, dtype=np.float64), np.sum(under, dtype=np.float64))
        for key, (over, under) in trace.ratios.items()
    }
    ordered = ["loss", *(key for key in totals if key != "loss")]
    return {key: float(np.divide(*totals[key])) if totals[key][1] else float("nan") for key in ordered}
