"""Continues the long runs of BoxWorld for as long as an accelerator is lent, both agents in turn.

    python -m benchmarks.boxworld_bursts --seconds=540 --out=bursts

For each agent: takes up the run of `results/boxworld/AGENT` (or begins it, with the preset `burst`), trains
for its half of the time, and leaves in `--out/AGENT` what replaces that folder: config, record, summary with
the fractions solved, the whole state in one file, and the curves. The next burst goes on from there. The
measurement at the end of each run and compilation are part of the time.
"""

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags, logging

from experiments import boxworld, boxworld_figures, boxworld_weights, runtime
from experiments.boxworld_engine import Impala
from experiments.configs import boxworld as presets
from experiments.runtime import packing, releasing

AGENTS = ("simplicial", "relational")


def burst(agent: str, released: Path, seconds: float, out: Path) -> Path:
    """One agent's part.

    Args:
        agent: "simplicial" or "relational".
        released: the folder to go on from; a run is begun if there is none.
        seconds: for everything.
        out: what replaces the folder.

    Returns:
        The file of the state.
    """
    workdir = out.with_name(f"{out.name}-workdir")
    if releasing.is_released(released):
        config = boxworld_weights.read_config(released)
        packing.unpack(released, Impala(config).abstract_state(), workdir)
    else:
        config = presets.get_config("burst")
        config.agent.kind = agent
    # The measurement at the end takes about a fifth of a minute's compilation and play.
    config = dataclasses.replace(config, session_seconds=max(1.0, seconds - min(30.0, seconds / 4)))
    result = boxworld.main(config, workdir=workdir)
    file = packing.pack(workdir, Impala(config).abstract_state(), out)
    boxworld_figures.draw_run(workdir, config, result.results)
    for picture in workdir.glob("*.png"):
        (out / picture.name).write_bytes(picture.read_bytes())
    return file


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
        file = burst(agent, Path(given.released) / agent, left, out / agent)
        last = runtime.metrics.read(out / agent / "metrics.jsonl")[-1]
        told = {name: last[name] for name in ("frames", "solved", "train_seconds")}
        print(f"{agent}: {json.dumps(told)}, {file.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_float("seconds", 540.0, "for both agents together", lower_bound=1.0)
    flags.DEFINE_string("out", None, "an empty directory", required=True)
    flags.DEFINE_string("released", "results/boxworld", "where the runs are taken up")
    app.run(main)
