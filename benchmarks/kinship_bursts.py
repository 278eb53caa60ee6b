"""Continues the long runs on kinship problems for as long as an accelerator is lent.

    python -m benchmarks.kinship_bursts --seconds=540 --runs=runs/kinship --out=bursts/kinship

The runs are those of the preset `accelerator` of `experiments.kinship`: every model with every seed, seed by
seed, each for ten minutes of training. A finished one is a line of `--out/learning.jsonl`, as
`benchmarks.kinship_learning` writes it; the one that time cuts short is packed in `--out/unfinished`, from
where, or from `--runs`, it goes on the next time. What `--released` holds already is not run again.
"""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import app, flags, logging

from benchmarks import kinship_learning as learning
from benchmarks import machine
from experiments import runtime
from experiments.kinship import config as presets
from experiments.kinship import train as experiment
from experiments.kinship.config import Config
from experiments.runtime import packing, releasing

UNFINISHED = "unfinished"
RELEASED = "results/kinship"


def name_of(preset: str, config: Config) -> str:
    """What a run is called, in `--runs` and among the unfinished."""
    return f"{preset}-{config.model}-{config.seed}"


def missing(preset: str, base: Config, seeds: int, finished: Sequence[learning.Line]) -> Iterator[Config]:
    """The configs of the runs that have no line, in the order in which they are run."""
    done = {(line["preset"], line["model"], line["seed"]) for line in finished}
    for seed in range(seeds):
        for model in base.models:
            config = base.for_model(model)
            config.seed = seed
            if (preset, model, seed) not in done:
                yield config


def reserve(seconds: float) -> float:
    """What of a session is kept for measuring at the end, saving and packing."""
    return min(20.0, seconds / 4)


def burst(
    preset: str, base: Config, seeds: int, seconds: float, released: Path, runs: Path, out: Path
) -> str:
    """Goes on with what is missing until the time is over.

    Args:
        preset: name of `base`.
        base: the config of all models.
        seeds: how many of each.
        seconds: for everything.
        released: what is there of earlier bursts: lines, and the unfinished run.
        runs: has a directory for each run.
        out: an empty directory for new lines and the unfinished run.

    Returns:
        What was done, in a line.
    """
    end = time.monotonic() + seconds
    lines: list[learning.Line] = []
    for config in missing(preset, base, seeds, learning.read(released)):
        left = end - time.monotonic()
        if left <= 1:
            break
        workdir, packed = runs / name_of(preset, config), out / UNFINISHED / name_of(preset, config)
        before = released / UNFINISHED / name_of(preset, config)
        if not (workdir / "config.json").exists() and releasing.is_released(before):
            packing.unpack(before, experiment.abstract_state(config), workdir)
        config.session_seconds = max(1.0, left - reserve(left))
        try:
            result = experiment.train(config, workdir)
        except runtime.Preempted:
            packing.pack(workdir, experiment.abstract_state(config), packed)
            raise
        if not experiment.is_finished(config, result):
            file = packing.pack(workdir, experiment.abstract_state(config), packed)
            size = file.stat().st_size / 1e6
            return f"{len(lines)} runs finished; {packed.name} is at step {result.step}, {size:.1f} MB"
        lines.append(learning.line_of(preset, config, result, workdir))
        machine.write_text(out / learning.RECORD, "".join(json.dumps(line) + "\n" for line in lines))
    return f"{len(lines)} runs finished"


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    out = Path(values.out)
    if out.exists() and any(out.iterdir()):
        raise app.UsageError(f"--out={out} is not empty; choose another directory")
    try:
        base = presets.get_config(values.preset)
    except ValueError as error:
        raise app.UsageError(str(error)) from error
    where = Path(values.released), Path(values.runs), out
    print(burst(values.preset, base, values.seeds, values.seconds, *where), flush=True)


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("preset", "accelerator", "of experiments/kinship/config.py")
    flags.DEFINE_integer("seeds", 5, "of each model", lower_bound=1)
    flags.DEFINE_float("seconds", 540.0, "in all", lower_bound=1.0)
    flags.DEFINE_string("released", RELEASED, "where lines and the unfinished run are taken up")
    flags.DEFINE_string("runs", "runs/kinship", "where runs are kept")
    flags.DEFINE_string("out", None, "an empty directory", required=True)
    app.run(main)
