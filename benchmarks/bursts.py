"""Continues long runs for as long as an accelerator is lent: BoxWorld's agents, models of kinship problems.

    python -m benchmarks.bursts --only=kinship --seconds=540 --runs=runs/bursts --out=bursts

The runs of BoxWorld have no end: both agents, preset `burst`, each for its half of the time. Each leaves in
`--out/boxworld/AGENT` what replaces that folder in `--released`: config, record, summary with the fractions
solved, the whole state in one file, and the curves. Those of kinship are every model of the preset
`accelerator` with every seed, one after the other, each for ten minutes of training. A finished one is a line
of `--out/kinship/learning.jsonl`, as `benchmarks.learning` writes it; the one that time cuts short is packed
in `--out/kinship/unfinished`. What `--released` has a line of is not run again.

A run is taken up from `--runs`, or from `--released` where that is further. The measurement at the end of a
run and compilation are part of the time. A SIGTERM ends a run early, saved and packed.
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
"""Of each model of kinship problems."""


def reserve(seconds: float) -> float:
    """What of a session is kept for measuring at the end, saving and packing; compilation is part of that."""
    return min(30.0, seconds / 4)


def take_up(experiment: runtime.Experiment, config: Any, released: Path, workdir: Path) -> Any:
    """The config of the run to go on with, which is then in the workdir: of a new one if there is none.

    A run in the workdir that is behind the packed one of `released` is put aside.
    """
    assert experiment.abstract_state
    there = step_of(workdir)
    if releasing.is_released(released):
        config = releasing.read_run_config(experiment.config, released)
        abstract = experiment.abstract_state(config)
        if there is None or packing.read_state(released, abstract).step > there:
            put_aside(workdir)
            packing.unpack(released, abstract, workdir)
    elif there is not None:
        config = releasing.read_run_config(experiment.config, workdir)
    return config


def put_aside(workdir: Path) -> None:
    """Makes room for another run; nobody's work is thrown away."""
    if workdir.exists():
        names = (workdir.with_name(f"{workdir.name}-{number}") for number in itertools.count(1))
        workdir.rename(next(name for name in names if not name.exists()))


def step_of(workdir: Path) -> int | None:
    """How far a run is; None if there is none, or it has saved nothing yet."""
    if not (workdir / "checkpoints").exists():
        return None
    return next(iter(Checkpoints(workdir / "checkpoints", every=1, keep=2).steps()), None)


def pack(experiment: runtime.Experiment, config: Any, workdir: Path, out: Path) -> str:
    """Packs a run; says how large it is."""
    assert experiment.abstract_state
    return f"{packing.pack(workdir, experiment.abstract_state(config), out).stat().st_size / 1e6:.1f} MB"


def go_on(
    experiment: runtime.Experiment,
    train: Callable[[Any, Path], runtime.FitResult],
    config: Any,
    seconds: float,
    released: Path,
    workdir: Path,
    out: Path,
) -> tuple[Any, runtime.FitResult]:
    """Takes a run up and trains it for some seconds; its config and result.

    Raises:
        runtime.Preempted: after a SIGTERM, with the run packed as far as it came.
    """
    config = take_up(experiment, config, released, workdir)
    config.session_seconds = max(1.0, seconds - reserve(seconds))
    try:
        return config, train(config, workdir)
    except runtime.Preempted:
        pack(experiment, config, workdir, out)
        raise


def burst_of_boxworld(released: Path, runs: Path, out: Path, seconds: float) -> str:
    """Both agents' part, in turn; says how far they are."""
    end, told, experiment = time.monotonic() + seconds, [], boxworld.ROOM.experiment
    for index, agent in enumerate(boxworld.AGENTS):
        config = boxworld.ROOM.configure(experiment.presets("burst"), agent)
        left = (end - time.monotonic()) / (len(boxworld.AGENTS) - index)
        where = released / agent, runs / agent, out / agent
        config, result = go_on(experiment, boxworld_train.train, config, left, *where)
        size = pack(experiment, config, runs / agent, out / agent)
        if runtime.can_draw():
            figures.draw_run(runs / agent, config, result.results)
            for picture in (runs / agent).glob("*.png"):
                (out / agent / picture.name).write_bytes(picture.read_bytes())
        last = runtime.metrics.read(out / agent / "metrics.jsonl")[-1]
        shown = ", ".join(f"{name} {last[name]}" for name in ("frames", "solved", "train_seconds"))
        told.append(f"{agent}: {shown}, {size}")
    return "\n".join(told)


def burst_of_kinship(released: Path, runs: Path, out: Path, seconds: float) -> str:
    """What is missing of all runs until the time is over; says what was done."""
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
        config, result = go_on(room.experiment, kinship_train.train, config, left, *where)
        run = records.Run(preset, config, runs / name, {config.model: result})
        if not (new := records.lines_of(room, run)):
            size = pack(room.experiment, config, runs / name, out / UNFINISHED / name)
            return f"{len(lines)} runs finished; {name} is at step {result.step}, {size}"
        lines += new
        records.write(out, lines)
    return f"{len(lines)} runs finished"


def main() -> None:
    """The program."""
    values, bursts = flags.FLAGS, {"boxworld": burst_of_boxworld, "kinship": burst_of_kinship}
    folders = [Path(folder) for folder in (values.released, values.runs, values.out)]
    for name in values.only:
        out = folders[-1] / name
        if out.exists() and any(out.iterdir()):
            raise app.UsageError(f"--out={values.out}: {name} is not empty; choose another directory")
    end = time.monotonic() + values.seconds
    for index, name in enumerate(values.only):
        left = (end - time.monotonic()) / (len(values.only) - index)
        released, runs, out = (folder / name for folder in folders)
        print(bursts[name](released, runs, out, left), flush=True)


if __name__ == "__main__":
    names = ("boxworld", "kinship")
    flags.DEFINE_multi_enum("only", names, names, "of which experiment")
    flags.DEFINE_float("seconds", 540.0, "in all", lower_bound=1.0)
    flags.DEFINE_string("out", None, "where results of the burst go", required=True)
    flags.DEFINE_string("runs", "runs/bursts", "where the runs are kept")
    flags.DEFINE_string("released", "results", "the folder of results, where they are taken up")
    launching.run(main)
