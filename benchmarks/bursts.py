"""Continues the long runs of BoxWorld agents in limited sessions on an accelerator.

    python -m benchmarks.bursts --seconds=540 --runs=runs/bursts --out=bursts

Trains both agents with the preset `burst`, each for half of the time. `--out/boxworld/AGENT` is a replacement
for that folder of `--released`: config, metrics, a summary with the fractions solved, the whole state in one
file, and the curves.

A run resumes from `--runs`, or from `--released` if that has more steps. Compilation and the final evaluation
count towards the time. After a SIGTERM, the run is saved and packed before exiting.
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import launching
from experiments import boxworld, runtime
from experiments.boxworld import figures
from experiments.boxworld import train as boxworld_train
from experiments.boxworld.config import Kind
from experiments.runtime import packing, releasing
from experiments.runtime.checkpoints import Checkpoints

AGENTS: tuple[Kind, ...] = ("simplicial", "relational")


def reserve(seconds: float) -> float:
    """Returns the seconds of a session reserved for compilation, final evaluation, saving and packing."""
    return min(30.0, seconds / 4)


def resume(experiment: runtime.Experiment, config: Any, released: Path, workdir: Path) -> Any:
    """Places the run with the most steps in the workdir and returns its config, or `config` for a new run.

    A run in the workdir with fewer steps than the packed one of `released` is renamed.
    """
    assert experiment.abstract_state
    there = step_of(workdir)
    if releasing.is_released(released):
        config = releasing.read_run_config(experiment.config, released)
        abstract = experiment.abstract_state(config)
        if there is None or packing.read_state(released, abstract).step > there:
            set_aside(workdir)
            packing.unpack(released, abstract, workdir)
    elif there is not None:
        config = releasing.read_run_config(experiment.config, workdir)
    return config


def set_aside(workdir: Path) -> None:
    """Renames the workdir to an unused name, if it exists, to make room for another run."""
    if workdir.exists():
        names = (workdir.with_name(f"{workdir.name}-{number}") for number in itertools.count(1))
        workdir.rename(next(name for name in names if not name.exists()))


def step_of(workdir: Path) -> int | None:
    """Returns the step of a run's last checkpoint; None if it has none."""
    if not (workdir / "checkpoints").exists():
        return None
    return next(iter(Checkpoints(workdir / "checkpoints", every=1, keep=2).steps()), None)


def pack(experiment: runtime.Experiment, config: Any, workdir: Path, out: Path) -> str:
    """Packs a run and returns its size as text."""
    assert experiment.abstract_state
    return f"{packing.pack(workdir, experiment.abstract_state(config), out).stat().st_size / 1e6:.1f} MB"


def resume_and_train(
    experiment: runtime.Experiment,
    train: Callable[[Any, Path], runtime.FitResult],
    config: Any,
    seconds: float,
    released: Path,
    workdir: Path,
    out: Path,
) -> tuple[Any, runtime.FitResult]:
    """Resumes a run and trains it for some seconds; returns its config and result.

    Raises:
        runtime.Preempted: after a SIGTERM; the run has been packed.
    """
    config = resume(experiment, config, released, workdir)
    config.session_seconds = max(1.0, seconds - reserve(seconds))
    try:
        return config, train(config, workdir)
    except runtime.Preempted:
        pack(experiment, config, workdir, out)
        raise


def burst(released: Path, runs: Path, out: Path, seconds: float) -> str:
    """Trains both agents in turn and returns a line about the progress of each."""
    end, lines, experiment = time.monotonic() + seconds, [], boxworld.EXPERIMENT
    for index, agent in enumerate(AGENTS):
        config: Any = experiment.presets("burst")
        config.agent.kind = agent
        left = (end - time.monotonic()) / (len(AGENTS) - index)
        where = released / agent, runs / agent, out / agent
        config, result = resume_and_train(experiment, boxworld_train.train, config, left, *where)
        size = pack(experiment, config, runs / agent, out / agent)
        if runtime.can_draw():
            figures.draw_run(runs / agent, config, result.results)
            for picture in (runs / agent).glob("*.png"):
                (out / agent / picture.name).write_bytes(picture.read_bytes())
        last = runtime.metrics.read(out / agent / "metrics.jsonl")[-1]
        shown = ", ".join(f"{name} {last[name]}" for name in ("frames", "solved", "train_seconds"))
        lines.append(f"{agent}: {shown}, {size}")
    return "\n".join(lines)


def main() -> None:
    """Runs the program with the values of its flags."""
    values = flags.FLAGS
    released, runs, out = (Path(folder) / "boxworld" for folder in (values.released, values.runs, values.out))
    if out.exists() and any(out.iterdir()):
        raise app.UsageError(f"--out: got {values.out}, expected a directory whose boxworld is empty")
    print(burst(released, runs, out, values.seconds), flush=True)


if __name__ == "__main__":
    flags.DEFINE_float("seconds", 540.0, "total seconds for both agents", lower_bound=1.0)
    flags.DEFINE_string("out", None, "output directory", required=True)
    flags.DEFINE_string("runs", "runs/bursts", "directory of the runs")
    flags.DEFINE_string("released", "results", "directory of released runs to resume from")
    launching.run(main)
