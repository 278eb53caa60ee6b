"""Continues the long runs of BoxWorld for as long as an accelerator is lent, both agents in turn.

    python -m benchmarks.boxworld_bursts --seconds=540 --runs=runs/boxworld --out=bursts

For each agent: takes up the run of `--runs/AGENT`, or that of `results/boxworld/AGENT` where it is further
(or begins it, with the preset `burst`), trains for its half of the time, and leaves in `--out/AGENT` what
replaces that folder: config, record, summary with the fractions solved, the whole state in one file, and the
curves. The next burst goes on from either. The measurement at the end of each run and compilation are part of
the time. A SIGTERM ends a run early, saved and packed.
"""

import dataclasses
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags, logging

from experiments import runtime
from experiments.boxworld import config as presets
from experiments.boxworld import figures as boxworld_figures
from experiments.boxworld import train as boxworld
from experiments.boxworld.config import Config
from experiments.boxworld.engine import Impala
from experiments.runtime import packing, releasing
from experiments.runtime.checkpoints import Checkpoints

AGENTS = ("simplicial", "relational")


def burst(agent: str, released: Path, seconds: float, workdir: Path, out: Path) -> Path:
    """One agent's part.

    Args:
        agent: "simplicial" or "relational".
        released: the folder to go on from; a run is begun if there is none.
        seconds: for everything.
        workdir: where the run is kept; one that is further than the folder goes on.
        out: what replaces the folder.

    Returns:
        The file of the state.

    Raises:
        runtime.Preempted: after a SIGTERM, with all of it in `out` but the measurement and the curves.
    """
    config = taken_up(agent, released, workdir)
    abstract = Impala(config).abstract_state()
    # The measurement at the end takes about a fifth of a minute's compilation and play.
    config = dataclasses.replace(config, session_seconds=max(1.0, seconds - min(30.0, seconds / 4)))
    try:
        result = boxworld.train(config, workdir)
    except runtime.Preempted:
        packing.pack(workdir, abstract, out)
        raise
    file = packing.pack(workdir, abstract, out)
    if runtime.can_draw():
        boxworld_figures.draw_run(workdir, config, result.results)
        for picture in workdir.glob("*.png"):
            (out / picture.name).write_bytes(picture.read_bytes())
    return file


def taken_up(agent: str, released: Path, workdir: Path) -> Config:
    """The config of the run to go on with, which is then in the workdir, or of a new one."""
    there = step_of(workdir)
    if releasing.is_released(released):
        config = releasing.read_run_config(Config, released)
        abstract = Impala(config).abstract_state()
        if there is None or packing.read_state(released, abstract).step > there:
            put_aside(workdir)
            packing.unpack(released, abstract, workdir)
        return config
    if there is not None:
        return releasing.read_run_config(Config, workdir)
    config = presets.get_config("burst")
    config.agent.kind = agent
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


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    given = flags.FLAGS
    out = Path(given.out)
    if out.exists() and any(out.iterdir()):
        raise app.UsageError(f"--out={out} is not empty; choose another directory")
    end = time.monotonic() + given.seconds
    for index, agent in enumerate(AGENTS):
        left = (end - time.monotonic()) / (len(AGENTS) - index)
        file = burst(agent, Path(given.released) / agent, left, Path(given.runs) / agent, out / agent)
        last = runtime.metrics.read(out / agent / "metrics.jsonl")[-1]
        told = {name: last[name] for name in ("frames", "solved", "train_seconds")}
        print(f"{agent}: {json.dumps(told)}, {file.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_float("seconds", 540.0, "for both agents together", lower_bound=1.0)
    flags.DEFINE_string("out", None, "an empty directory", required=True)
    flags.DEFINE_string("runs", "runs/boxworld-bursts", "where the runs are kept")
    flags.DEFINE_string("released", "results/boxworld", "where the runs are taken up")
    app.run(main)
