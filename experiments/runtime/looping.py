"""The loop of every run: restore, advance, record, evaluate, and save, until the steps or the time run out.

The loop drives an `Engine`: gradient descent on a loss (`fit`), or anything else that carries a state from
step to step on all devices, such as actors and learners of reinforcement learning.
"""

import contextlib
import dataclasses
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax

from experiments.runtime import processes, starting
from experiments.runtime.checkpoints import Checkpoints
from experiments.runtime.config import RunConfig
from experiments.runtime.logs import open_logs
from experiments.runtime.metrics import MetricsWriter, plain
from experiments.runtime.progress import Progress
from experiments.runtime.training import PyTree
from experiments.runtime.workdir import (
    Workdir,
    WorkdirError,
    config_dict,
    config_lines,
    flatten,
    params_sha256,
    surroundings,
)

_unheeded = threading.Event()
"""Set by a SIGTERM that came while a run ended or failed."""


class NonFiniteLoss(FloatingPointError):
    """Raised when the loss or a parameter is not finite.

    Attributes:
        step: the first bad step, counted from 1.
        checkpoint: path of the last checkpoint, whose state is finite; None if there is none.
    """

    def __init__(self, what: str, step: int, checkpoint: Path | None):
        self.step, self.checkpoint = step, checkpoint
        good = f"the last good checkpoint is {checkpoint}" if checkpoint else "there is no earlier checkpoint"
        super().__init__(f"{what} at step {step}; {good}")


class Preempted(RuntimeError):
    """Raised when a SIGTERM has stopped the run, after its state is saved."""


@dataclasses.dataclass(frozen=True)
class FitResult:
    """The outcome of a run.

    Attributes:
        state: the final state, a `TrainState` after `fit`.
        params: its parameters; with several processes, each has them on its own devices.
        step: number of updates.
        metrics: the last line of `metrics.jsonl`, without its step.
        results: the values that `conclude` returned.
        train_seconds: time spent in updates, over all sessions of the run, without compilation.
        summary: the content of `summary.json`.
    """

    state: Any
    params: PyTree
    step: int
    metrics: dict[str, Any]
    results: dict[str, Any]
    train_seconds: float
    summary: dict[str, Any]


class Engine(Protocol):
    """The interface between the loop and a training algorithm that runs on all devices.

    Between calls the state is *placed*, in the form that the compiled programs need. Checkpoints hold the
    unplaced form: the same tree on any number of devices, with the parameters as the attribute `params`.
    """

    @property
    def parallel(self) -> str:
        """Description of how several devices are used, for the summary."""

    @property
    def compile_seconds(self) -> float:
        """Seconds spent on compilation so far."""

    def abstract_state(self) -> Any:
        """Returns the shapes, dtypes and shardings of an unplaced state, as restored from a checkpoint."""

    def initial(self) -> Any:
        """Returns the unplaced state before the first step."""

    def place(self, state: Any) -> Any:
        """Makes an unplaced state ready for `advance`."""

    def unplace(self, state: Any) -> Any:
        """Inverts `place`; the result is valid until the state is advanced."""

    def params_of(self, state: Any) -> PyTree:
        """Returns the parameters of a placed state, for `evaluate`; valid until the state is advanced."""

    def prepare(self, state: Any, step: int, length: int) -> float:
        """Compiles the steps that `advance` will run; returns the seconds taken (0 if already compiled)."""

    def advance(self, state: Any, step: int, length: int) -> tuple[Any, Any]:
        """Makes `length` steps after `step`.

        Returns:
            The new placed state (the old one is consumed), and a trace of the steps on the host, with the
            computation finished.
        """

    def first_bad(self, trace: Any) -> tuple[int, str] | None:
        """Returns the 0-based index of the first non-finite step and a description, or None."""

    def metrics(self, trace: Any, step: int) -> dict[str, float]:
        """Returns the metrics of the steps in `trace` by name; `step` is the number of steps made so far."""

    def close(self) -> None:
        """Releases the resources of the engine (threads, for example)."""


def loop(
    config: RunConfig,
    engine: Engine,
    *,
    evaluate: Callable[[PyTree], Mapping[str, Any]] | None = None,
    conclude: Callable[[PyTree], Mapping[str, Any]] | None = None,
    workdir: str | os.PathLike | None = None,
    name: str | None = None,
    quiet: bool = False,
    stop: Callable[[int], bool] | None = None,
) -> FitResult:
    """Runs an engine, continuing the run in the workdir if there is one.

    The config is validated here again. The engine makes `config.log_every` steps at a time and is closed at
    the end. `stop` is asked after each evaluation, and for a continued run at once, whether the run ends at
    this step; its summary then has "stopped". For the other arguments see `fit`.

    Returns:
        The final state and metrics.

    Raises:
        ValueError: for an invalid config or workdir (`WorkdirError`), before any file is written.
        NonFiniteLoss: if the loss or a parameter is not finite; such a state is never saved.
        Preempted: after a SIGTERM, once the current log interval is finished and saved.
        CheckpointError: if checkpoints exist and all of them are damaged.
    """
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.callback(engine.close)
        config.validate()
        abstract = engine.abstract_state()
        processes.check_alike(config_lines(config), WorkdirError)
        if workdir is None:
            if jax.process_count() > 1:
                raise ValueError(
                    f"workdir: got None, expected a directory shared by the {jax.process_count()} processes"
                )
            workdir = stack.enter_context(tempfile.TemporaryDirectory())
            name = name or "run"
        checkpoints = Checkpoints(
            Path(workdir) / "checkpoints", every=config.checkpoint_every, keep=config.keep_checkpoints
        )
        start = None
        if config.init_from and not checkpoints.steps():
            start = starting.read(
                config.init_from,
                abstract,
                Path(workdir),
                optimizer=config.init_optimizer,
                reordered=config.reordered,
            )
        directory = Workdir(workdir, config)
        stack.callback(directory.close)
        stack.enter_context(processes.last_words(directory.path, unless=(NonFiniteLoss, Preempted)))
        stack.callback(checkpoints.close)
        restored = checkpoints.restore(abstract)
        step, progress = (restored.step, restored.progress) if restored else (0, {})
        state = restored.state if restored else engine.initial()
        if start is not None and restored is None:
            state = start.put(state)
            start.record(directory.path)
        seconds_before, wall_before = progress.get("train_seconds", 0.0), progress.get("wall_seconds", 0.0)
        train_seconds = seconds_before

        stopped = bool(restored) and stop is not None and stop(step)
        ended = stopped or config.is_over(step, train_seconds)
        summary = directory.read_summary()
        if ended and summary is not None and summary["step"] == step:
            params = processes.on_own_devices(state.params)
            return FitResult(
                state, params, step, summary["metrics"], summary["results"], train_seconds, summary
            )
        directory.write_summary(None)

        described = {"project": config.experiment, "settings": flatten(config_dict(config))}
        writer = MetricsWriter(
            directory.path,
            step,
            logs=lambda: open_logs(config.logs, directory.path, step, **described),
        )
        stack.callback(writer.close)
        limits = [config.max_seconds - train_seconds] if config.max_seconds else []
        limits += [config.session_seconds] if config.session_seconds else []
        shown = Progress(
            name or directory.path.name,
            step,
            config.steps,
            max_seconds=min(limits, default=0.0),
            quiet=quiet,
        )
        stack.callback(shown.close)
        if restored:
            shown.note(f"continuing from step {step}")
        elif start is not None:
            shown.note(f"starting from {len(start.arrays)} arrays of {start.path}")
            for line in start.misfits:
                shown.note(f"does not fit: {line}")
        preemption = stack.enter_context(_preemption())
        state = engine.place(state)
        while not ended:
            length = min(config.log_every - step % config.log_every, config.steps - step)
            compiling = engine.prepare(state, step, length)
            if compiling:
                shown.note(f"compiled in {compiling:.1f} s")
            start, compiled = time.monotonic(), engine.compile_seconds
            state, trace = engine.advance(state, step, length)
            late = engine.compile_seconds - compiled  # for batches of a new shape
            train_seconds += time.monotonic() - start - late
            # All processes use the first one's clock, since all must stop at the same step.
            train_seconds, elapsed = processes.gathered([train_seconds, time.monotonic() - began])[0].tolist()
            if late:
                shown.note(f"compiled for a new batch shape in {late:.1f} s")
            if bad := engine.first_bad(trace):
                raise NonFiniteLoss(bad[1], step + bad[0] + 1, checkpoints.latest_path())
            step += length
            # Decided once, because the clock keeps running and a run must not end without saving its state;
            # and after an interval, so that every session makes progress, however long it took to start.
            over = config.is_over(step, train_seconds)
            ended = over or 0 < config.session_seconds <= elapsed

            metrics = {**engine.metrics(trace, step), "train_seconds": round(train_seconds, 3)}
            if evaluate is not None and (over or (config.eval_every and step % config.eval_every == 0)):
                measured = evaluate(processes.on_own_devices(engine.params_of(state)))
                metrics |= {f"eval/{key}": value for key, value in measured.items()}
                if stop is not None and stop(step):
                    ended = stopped = True
                    shown.note(f"stopped early at step {step} of {config.steps}")
            writer.write(step, metrics)
            shown.update(step, plain(metrics), train_seconds - seconds_before)
            stopping = bool(processes.gathered(preemption.is_set()).any())
            if checkpoints.due(step, force=ended or stopping):
                # The metrics first: a checkpoint implies that they are complete up to its step.
                writer.sync()
                checkpoints.save(
                    step,
                    engine.unplace(state),
                    {"train_seconds": train_seconds, "wall_seconds": wall_before + elapsed},
                )
            if stopping and not ended:
                raise Preempted(
                    f"stopped by SIGTERM at step {step} of {config.steps}; saved to "
                    f"{checkpoints.latest_path()}; run the same command to continue"
                )

        state = engine.unplace(state)
        last = {key: value for key, value in (writer.last or {}).items() if key != "step"}
        params = processes.on_own_devices(state.params)
        results = dict(conclude(params)) if conclude is not None else {}
        checkpoints.latest_path()  # waits: the summary implies that the last checkpoint is complete
        summary = {
            "step": step,
            "metrics": last,
            "results": results,
            "train_seconds": round(train_seconds, 3),
            "compile_seconds": round(engine.compile_seconds, 3),
            "wall_seconds": round(wall_before + time.monotonic() - began, 3),
            "parallel": engine.parallel,
            **surroundings(),
            "params_sha256": params_sha256(params),
            **({"stopped": True} if stopped else {}),
        }
        directory.write_summary(summary)
        return FitResult(state, params, step, last, results, train_seconds, summary)


@contextlib.contextmanager
def _preemption() -> Generator[threading.Event]:
    """Yields an event that the first SIGTERM sets; a second one has its usual effect.

    A SIGTERM that comes while a run ends, or fails (`NonFiniteLoss`), stops the next one in this process,
    after its first log interval. Python handles signals in the main thread only; in other threads the event
    is never set.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    if _unheeded.is_set():
        _unheeded.clear()
        event.set()
    before = signal.getsignal(signal.SIGTERM)

    def note(number, frame):
        event.set()
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, note)
    try:
        yield event
    except Preempted:
        event.clear()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        if event.is_set():
            _unheeded.set()
