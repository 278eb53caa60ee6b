"""Continues long runs of BoxWorld agents and kinship models in limited sessions on an accelerator.

    python -m benchmarks.bursts --only=kinship --seconds=540 --runs=runs/bursts --out=bursts

BoxWorld: trains both agents with the preset `burst`, each for half of the time. `--out/boxworld/AGENT` is a
replacement for that folder of `--released`: config, metrics, a summary with the fractions solved, the whole
state in one file, and the curves. Kinship: trains every model of the preset `accelerator` with every seed,
one after the other, for ten minutes of training each. A finished run is a line of
`--out/kinship/learning.jsonl`, as written by `benchmarks.learning`; an unfinished one is packed in
`--out/kinship/unfinished`. Runs that have a line in `--released` are skipped.

A run resumes from `--runs`, or from `--released` if that has more steps. Compilation and the final evaluation
count towards the time. After a SIGTERM, the run is saved and packed before exiting.
"""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import launching, records
from benchmarks.learning import boxworld, kinship
from experiments import runtime
from experiments.boxworld import figures
from experiments.boxworld import train as boxworld_train
from experiments.kinship import train as kinship_train
from experiments.runtime import packing, releasing
from experiments.runtime.checkpoints import Checkpoints

UNFINISHED = "unfinished"
SEEDS = 5
"""Number of seeds per kinship model."""


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


def burst_of_boxworld(released: Path, runs: Path, out: Path, seconds: float) -> str:
    """Trains both agents in turn and returns a line about the progress of each."""
    end, lines, experiment = time.monotonic() + seconds, [], boxworld.ROOM.experiment
    for index, agent in enumerate(boxworld.AGENTS):
        config = boxworld.ROOM.configure(experiment.presets("burst"), agent)
        left = (end - time.monotonic()) / (len(boxworld.AGENTS) - index)
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


def burst_of_kinship(released: Path, runs: Path, out: Path, seconds: float) -> str:
    """Trains the missing runs until the time is up and returns a line about the progress."""
    end, room, preset = time.monotonic() + seconds, kinship.ROOM, "accelerator"
    lines: list[records.Line] = []
    done = {room.name(line) for line in records.read(released)}
    base: Any = room.experiment.presets(preset)
    for name, config in room.configs(preset, base.models, SEEDS).items():
        left = end - time.monotonic()
        if name in done:
            continue
        if left <= 1:
            break
        where = released / UNFINISHED / name, runs / name, out / UNFINISHED / name
        config, result = resume_and_train(room.experiment, kinship_train.train, config, left, *where)
        run = records.Run(preset, config, runs / name, {config.model: result})
        if not (new := records.lines_of(room, run)):
            size = pack(room.experiment, config, runs / name, out / UNFINISHED / name)
            return f"{len(lines)} runs finished; {name} is at step {result.step}, {size}"
        lines += new
        records.write(out, lines)
    return f"{len(lines)} runs finished"


def main() -> None:
    """Runs the program with the values of its flags."""
    values, bursts = flags.FLAGS, {"boxworld": burst_of_boxworld, "kinship": burst_of_kinship}
    folders = [Path(folder) for folder in (values.released, values.runs, values.out)]
    for name in values.only:
        out = folders[-1] / name
        if out.exists() and any(out.iterdir()):
            raise app.UsageError(f"--out: got {values.out}, expected a directory whose {name} is empty")
    end = time.monotonic() + values.seconds
    for index, name in enumerate(values.only):
        left = (end - time.monotonic()) / (len(values.only) - index)
        released, runs, out = (folder / name for folder in folders)
        print(bursts[name](released, runs, out, left), flush=True)


if __name__ == "__main__":
    names = ("boxworld", "kinship")
    flags.DEFINE_multi_enum("only", names, names, "experiments to continue")
    flags.DEFINE_float("seconds", 540.0, "total seconds", lower_bound=1.0)
    flags.DEFINE_string("out", None, "output directory", required=True)
    flags.DEFINE_string("runs", "runs/bursts", "directory of the runs")
    flags.DEFINE_string("released", "results", "directory of released runs to resume from")
    launching.run(main)
