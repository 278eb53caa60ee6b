"""The training loop: restore, step, record, evaluate, save, until the steps or the seconds are used up."""

import contextlib
import dataclasses
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from experiments.runtime.checkpoints import Checkpoints
from experiments.runtime.config import RunConfig
from experiments.runtime.feeding import Drawn, Fed
from experiments.runtime.metrics import MetricsWriter, plain
from experiments.runtime.progress import Progress
from experiments.runtime.training import Init, Loss, Program, PyTree, Task, Trace, TrainState
from experiments.runtime.workdir import Workdir, params_sha256, surroundings


class NonFiniteLoss(FloatingPointError):
    """Training stopped because the loss or a parameter was no longer finite.

    Attributes:
        step: the first bad step, counted from 1.
        checkpoint: the last checkpoint, whose state is finite; None if there is none yet.
    """

    def __init__(self, what: str, step: int, checkpoint: Path | None):
        """See the class."""
        self.step, self.checkpoint = step, checkpoint
        good = (
            f"the last good checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint before it"
        )
        super().__init__(f"{what} at step {step}; {good}")


class Preempted(RuntimeError):
    """Training stopped because the process was asked to end (SIGTERM); the state is saved."""


@dataclasses.dataclass(frozen=True)
class FitResult:
    """What a run has come to.

    Attributes:
        state: the final state.
        step: number of updates.
        metrics: the last line of the record.
        results: what `conclude` returned.
        train_seconds: time spent in updates, over all sessions of the run, without compilation.
        summary: the content of `summary.json`.
    """

    state: TrainState
    step: int
    metrics: dict[str, Any]
    results: dict[str, Any]
    train_seconds: float
    summary: dict[str, Any]

    @property
    def params(self) -> PyTree:
        """The final parameters."""
        return self.state.params


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
    parallel: str = "jit",
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
            process's rows of it, called ahead of time in a thread. It must depend on the step alone.
        init_extra: `init_extra(key) -> extra`, pure: what `sample` carries from step to step, such as the
            states of environments; saved with the state, copied to all devices.
        evaluate: `evaluate(params) -> {name: number}`, every `config.eval_every` steps and at the end; the
            numbers go into the record as `eval/name`. It should be the same function of the parameters each
            time.
        conclude: `conclude(params) -> JSON values`, once at the end, for measurements too dear to repeat;
            they go into the summary as `results`.
        workdir: where the run is kept; None keeps nothing.
        parallel: `jit`, `shard_map` or `pmap`, over all devices.
        name: what the progress bar calls the run; the workdir's name by default.
        quiet: show no progress.

    Returns:
        The final state and metrics.

    Raises:
        ValueError: for a bad config, batch, loss or workdir (`WorkdirError`), before anything is written.
        NonFiniteLoss: when the loss or a parameter stops being finite; no such state is ever saved.
        Preempted: after a SIGTERM, when the log interval under way is finished and saved.
        CheckpointError: if there are checkpoints and all are damaged.
        NotImplementedError: if JAX runs in several processes.
    """
    began = time.monotonic()
    config.validate()
    if (sample is None) == (batches is None):
        raise ValueError("exactly one of sample and batches must be given")
    if jax.process_count() > 1:
        # Each process would stop by its own clock and Orbax's barriers would cross the steps' collectives.
        raise NotImplementedError(
            "fit runs in one process, on all of its devices; several are not supported yet"
        )
    if init_extra is not None and sample is None:
        raise ValueError("init_extra is for sample to carry on; it cannot be given with batches")
    program = Program(
        Task(config.seed, config.batch_size, init, loss, optimizer, sample, init_extra), parallel
    )
    abstract = program.abstract_state()
    program.check(abstract)
    with contextlib.ExitStack() as stack:
        if workdir is None:
            workdir = stack.enter_context(tempfile.TemporaryDirectory())
            name = name or "run"
        directory = Workdir(workdir, config)
        stack.callback(directory.close)
        checkpoints = Checkpoints(
            directory.path / "checkpoints", every=config.checkpoint_every, keep=config.keep_checkpoints
        )
        stack.callback(checkpoints.close)
        restored = checkpoints.restore(abstract)
        step, progress = (restored.step, restored.progress) if restored else (0, {})
        state = restored.state if restored else program.initial()
        seconds_before, wall_before = progress.get("train_seconds", 0.0), progress.get("wall_seconds", 0.0)
        train_seconds = seconds_before

        def over() -> bool:
            return step >= config.steps or 0 < config.max_seconds <= train_seconds

        summary = directory.read_summary()
        if over() and summary is not None and summary["step"] == step:
            return FitResult(state, step, summary["metrics"], summary["results"], train_seconds, summary)
        directory.drop_summary()

        writer = MetricsWriter(directory.path, step, tensorboard=config.tensorboard)
        stack.callback(writer.close)
        shown = Progress(
            name or directory.path.name,
            step,
            config.steps,
            max_seconds=max(0.0, config.max_seconds - train_seconds),
            quiet=quiet,
        )
        stack.callback(shown.close)
        if restored:
            shown.note(f"continues from step {step}")
        preemption = stack.enter_context(_preemption())
        feed = Drawn(program) if batches is None else Fed(program, batches, config.steps)
        stack.callback(feed.close)

        state = program.place(state)
        while not over():
            length = min(config.log_every - step % config.log_every, config.steps - step)
            compiling = feed.prepare(state, step, length)
            if compiling:
                shown.note(f"compiled in {compiling:.1f} s")
            start = time.monotonic()
            state, trace = feed.advance(state, step, length)
            train_seconds += time.monotonic() - start
            _check_finite(trace, step, checkpoints)
            step += length

            metrics = {**averages(trace), "train_seconds": round(train_seconds, 3)}
            if evaluate is not None and (over() or (config.eval_every and step % config.eval_every == 0)):
                measured = evaluate(program.unplace(state.params))
                metrics |= {f"eval/{key}": value for key, value in measured.items()}
            writer.write(step, metrics)
            shown.update(step, plain(metrics), train_seconds - seconds_before)
            stopping = preemption.is_set()
            if checkpoints.due(step, force=over() or stopping):
                # The line first: a checkpoint presumes that the record up to its step is complete.
                writer.sync()
                checkpoints.save(
                    step,
                    program.unplace(state),
                    {"train_seconds": train_seconds, "wall_seconds": wall_before + time.monotonic() - began},
                )
            if stopping and not over():
                raise Preempted(
                    f"stopped by SIGTERM at step {step} of {config.steps}; saved in "
                    f"{checkpoints.latest_path()}; the same command continues from there"
                )

        state = program.unplace(state)
        last = {key: value for key, value in (writer.last or {}).items() if key != "step"}
        results = dict(conclude(state.params)) if conclude is not None else {}
        checkpoints.latest_path()  # the summary presumes the last checkpoint
        summary = {
            "step": step,
            "metrics": last,
            "results": results,
            "train_seconds": round(train_seconds, 3),
            "compile_seconds": round(feed.compile_seconds, 3),
            "wall_seconds": round(wall_before + time.monotonic() - began, 3),
            "parallel": parallel,
            **surroundings(),
            "params_sha256": params_sha256(state.params),
        }
        directory.write_summary(summary)
        return FitResult(state, step, last, results, train_seconds, summary)


def averages(trace: Trace) -> dict[str, float]:
    """The metrics of several steps as one: total numerator over total denominator of each.

    Args:
        trace: stacked traces of the steps, as numpy arrays.

    Returns:
        A number for each metric; NaN where the denominators are all zero.
    """
    totals = {
        key: (np.sum(over, dtype=np.float64), np.sum(under, dtype=np.float64))
        for key, (over, under) in trace.ratios.items()
    }
    ordered = ["loss", *(key for key in totals if key != "loss")]
    return {key: float(np.divide(*totals[key])) if totals[key][1] else float("nan") for key in ordered}


def _check_finite(trace: Trace, step: int, checkpoints: Checkpoints) -> None:
    """Raises for the first bad step of those after `step`."""
    finite = np.asarray(trace.finite)
    if finite.all():
        return
    index = int(np.argmin(finite))
    numerator, denominator = (np.asarray(part)[index] for part in trace.ratios["loss"])
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.divide(numerator, denominator)
    what = "the loss is finite but parameters are not" if np.isfinite(value) else f"the loss is {value}"
    raise NonFiniteLoss(what, step + index + 1, checkpoints.latest_path())


@contextlib.contextmanager
def _preemption() -> Generator[threading.Event]:
    """An event that SIGTERM sets, once; a second SIGTERM acts as it did before. Only the main thread can
    listen.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.getsignal(signal.SIGTERM)

    def note(number, frame):
        event.set()
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)
