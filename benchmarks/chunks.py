"""Measures into how many parts a batch's gradient is best cut, and writes `experiments/runtime/chunks.json`.

    python -m benchmarks.chunks
    python -m benchmarks.chunks --only=kinship --config=kinship:paper --parts=1,4,16

For each case, the training steps of an experiment with a batch in one piece and in 2, 4, ... parts alternate
in one process, as runs make them: with data, gradient and optimizer. The case's line in the table has the
rows per part of the fastest cut; if none is 5 % faster than one piece, it has the whole batch. Runs on
machines with as many cores and the same caches beyond the first level then choose these parts
(`experiments.runtime.chunks`). Lines of other cases and machines are kept. Measuring takes the budget at
most, and the time of the last case.
"""

import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

from absl import app, flags

from benchmarks import launching, timing
from experiments import registry, runtime
from experiments.runtime import chunks, memory
from logic_zoo.writing import write_whole

WORTH = 1.05  # minimum gain of a cut
ONE_UPDATE = {"updates": 1}  # the gradient of one batch is the same with fewer environments
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "boxworld.relational": ("boxworld", "paper", {"agent.kind": "relational", **ONE_UPDATE}),
    "boxworld.simplicial": ("boxworld", "paper", ONE_UPDATE),
    "folnet_pretrain.quick": ("folnet_pretrain", "quick", {}),
    "mathematics.quick": ("mathematics", "quick", {}),
    "kinship.quick": ("kinship", "quick", {}),
    "reasoning.quick": ("reasoning", "quick", {}),
    "llrnn.quick": ("llrnn", "quick", {}),
    "boxworld.quick": ("boxworld", "quick", ONE_UPDATE),
}
"""Experiment, preset and changed fields of each case."""


class _Built(Exception):
    """Stops an experiment whose engine is ready."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """An experiment's engine, made for a number of parts.

    Attributes:
        engine: the engine.
        config: the config with which the experiment asks for its number of parts.
        parameters: number of parameters of the model.
    """

    engine: runtime.Engine
    config: runtime.RunConfig
    parameters: int


def build(experiment: runtime.Experiment, config: runtime.RunConfig, parts: int) -> Subject:
    """Starts an experiment without a workdir up to its loop, with batches in `parts` parts."""
    found: dict[str, Any] = {}

    def choose(config, init):
        found.update(config=config, parameters=chunks.parameters(init))
        return parts

    def stop(config, engine, **_):
        found["engine"] = engine
        raise _Built

    fit = sys.modules["experiments.runtime.fit"]  # as an attribute of the package, the name is the function
    with (
        mock.patch.object(chunks, "chosen", choose),
        mock.patch.object(fit, "loop", stop),
        mock.patch.object(runtime, "loop", stop),
    ):
        try:
            experiment.main(dataclasses.replace(config, accumulate=0), workdir=None)
        except _Built:
            return Subject(**found)
    raise RuntimeError(f"{experiment.name}: the experiment ended without a loop")


def stepping(engine: runtime.Engine) -> Any:
    """Compiles an engine's step and returns a function that makes the next step."""
    carry = [engine.place(engine.initial()), 0]
    engine.prepare(carry[0], 0, 1)

    def step():
        carry[0], trace = engine.advance(carry[0], carry[1], 1)
        carry[1] += 1
        return trace

    return step


def measure(
    experiment: runtime.Experiment,
    config: runtime.RunConfig,
    parts: list[int],
    *,
    blocks: int,
    seconds: float,
) -> dict[str, Any]:
    """Returns the table's line for a config; `parts` that do not divide the batch size are left out."""
    config = dataclasses.replace(config, steps=10_000, log_every=1, checkpoint_every=1, eval_every=0)
    sizes = sorted({1, *(number for number in parts if config.batch_size % number == 0)})
    subjects = {number: build(experiment, config, number) for number in sizes}
    try:
        steps = {str(number): stepping(subject.engine) for number, subject in subjects.items()}
        times = timing.alternate(steps, blocks=blocks, block_seconds=seconds)
    finally:
        for subject in subjects.values():
            subject.engine.close()
    best = min(times, key=lambda name: statistics.median(times[name]))
    gain = timing.ratio(times["1"], times[best])
    if gain["median"] < WORTH:
        best = "1"
    subject = subjects[1]
    return {
        "experiment": experiment.name,
        "sizes": chunks.sizes_of(subject.config),
        "parameters": subject.parameters,
        "machine": chunks.machine(),
        "rows": subject.config.batch_size // int(best),
        "batch_size": subject.config.batch_size,
        "seconds": {name: statistics.median(found) for name, found in times.items()},
        "gain": timing.ratio(times["1"], times[best]),
        **{name: value for name, value in timing.where_and_when().items() if name != "devices"},
    }


def replaced(
    lines: list[dict[str, Any]], line: dict[str, Any], config: runtime.RunConfig
) -> list[dict[str, Any]]:
    """Returns the table's lines with `line`, measured for `config`, for those that apply to the same runs."""

    def same(other):
        names = ("experiment", "parameters", "machine")
        if [other[name] for name in names] != [line[name] for name in names]:
            return False
        return chunks.completed(other["sizes"], config) == line["sizes"]

    return [*(other for other in lines if not same(other)), line]


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    """Writes a table, one measurement per line of the file."""
    write_whole(path, "[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n")


def changed(config: Any, fields: dict[str, Any]) -> Any:
    """Returns a copy of a config with fields changed, given by their dotted names."""
    for name, value in fields.items():
        first, _, rest = name.partition(".")
        value = changed(getattr(config, first), {rest: value}) if rest else value
        config = dataclasses.replace(config, **{first: value})
    return config


def chosen_cases(only: list[str], config: str) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Returns the cases whose name contains one of `only` (all if empty), or the one of NAME:PRESET `config`.

    Raises:
        app.UsageError: a name is unknown.
    """
    if config:
        name, _, preset = config.partition(":")
        if name not in registry.EXPERIMENTS:
            raise app.UsageError(
                f"--config: got {config!r}, expected NAME:PRESET with a NAME of {', '.join(registry.NAMES)}"
            )
        try:
            registry.EXPERIMENTS[name].presets(preset)
        except ValueError as error:
            raise app.UsageError(f"--config: {error}") from error
        return {config: (name, preset, {})}
    for word in only:
        if not any(word in name for name in CASES):
            raise app.UsageError(f"--only: got {word!r}, expected a part of one of {', '.join(CASES)}")
    return {name: case for name, case in CASES.items() if not only or any(word in name for word in only)}


def main() -> None:
    """Runs the program with the values of its flags."""
    values, start = flags.FLAGS, time.monotonic()
    memory.keep_large_blocks()  # as runs do
    cases = chosen_cases(values.only, values.config)
    try:
        parts = [int(number) for number in values.parts]
    except ValueError as error:
        raise app.UsageError(f"--parts: got {','.join(values.parts)}, expected numbers") from error
    if not parts or min(parts) < 1:
        raise app.UsageError(f"--parts: got {','.join(values.parts)}, expected numbers of at least 1")
    out = Path(values.out) if values.out else None
    lines = chunks.read(out) if out else []
    for name, (experiment, preset, fields) in cases.items():
        if time.monotonic() - start > values.budget > 0:
            print(f"{name}: not started: budget spent", flush=True)
            continue
        of = registry.EXPERIMENTS[experiment]
        config = changed(of.presets(preset), fields)
        line = measure(of, config, parts, blocks=values.blocks, seconds=values.seconds)
        shown = ", ".join(f"{number}: {1000 * second:.1f} ms" for number, second in line["seconds"].items())
        print(f"{name}: {shown}; parts of {line['rows']} rows, {timing.shown(line['gain'])}", flush=True)
        lines = replaced(lines, line, config)
        if out:
            write(out, lines)


if __name__ == "__main__":
    flags.DEFINE_list("only", [], "comma-separated parts of names of cases (default: all)")
    flags.DEFINE_string("config", "", "measure this preset, as NAME:PRESET, instead of the cases")
    flags.DEFINE_list("parts", ["1", "2", "4", "8", "16"], "numbers of parts to measure")
    flags.DEFINE_string("out", str(chunks.TABLE), "table to update; empty to write none")
    flags.DEFINE_integer("blocks", 5, "timing blocks per number of parts", lower_bound=1)
    flags.DEFINE_float("seconds", 0.5, "approximate seconds per timing block", lower_bound=0)
    flags.DEFINE_float("budget", 540.0, "seconds after which no case is started; 0: no limit", lower_bound=0)
    launching.run(main)
