"""Continues the long runs of BoxWorld's agents for as long as an accelerator is available.

    python -m benchmarks.bursts --seconds=540 --runs=runs/bursts --out=bursts

Both agents train with the preset `burst`, each for half of the time; these runs have no end. Each leaves in
`--out/boxworld/AGENT` what replaces that folder in `--released`: config, record, summary with the fractions
solved, the whole state in one file, and the curves.

A run continues from `--runs`, or from `--released` if that is further. Compilation and the measurement at the
end of a run count towards the time. A SIGTERM ends a run early, saved and packed.
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
from experiments.runtime import packing, releasing
from experiments.runtime.checkpoints import Checkpoints

AGENTS = ("simplicial", "relational")


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


def burst(released: Path, runs: Path, out: Path, seconds: float) -> str:
    """Trains both agents in turn; returns a line for each with how far it is."""
    end, lines, experiment = time.monotonic() + seconds, [], boxworld.EXPERIMENT
    for index, agent in enumerate(AGENTS):
        config: Any = experiment.presets("burst")
        config.agent.kind = agent
        left = (end - time.monotonic()) / (len(AGENTS) - index)
        where = released / agent, runs / agent, out / agent
        config, result = go_on(experiment, boxworld_train.train, config, left, *where)
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
    """Runs the program."""
    values = flags.FLAGS
    released, runs, out = (Path(folder) / "boxworld" for folder in (values.released, values.runs, values.out))
    if out.exists() and any(out.iterdir()):
        raise app.UsageError(f"--out: got {values.out}, whose boxworld is not empty; expected another folder")
    print(burst(released, runs, out, values.seconds), flush=True)


if __name__ == "__main__":
    flags.DEFINE_float("seconds", 540.0, "the time for both agents", lower_bound=1.0)
    flags.DEFINE_string("out", None, "the folder for the results of the burst", required=True)
    flags.DEFINE_string("runs", "runs/bursts", "the folder of the runs")
    flags.DEFINE_string("released", "results", "the folder of results to continue from")
    launching.run(main)
