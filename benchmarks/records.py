"""Lines of runs: what is claimed of an experiment, how its record is kept, and statistics over seeds."""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import machine, timing
from experiments import runtime

RECORD = "learning.jsonl"
TABLE = "learning.md"

Line = Mapping[str, Any]


class Run(NamedTuple):
    """A run that has ended: its preset, config, directory, and results by the models' names."""

    preset: str
    config: Any
    workdir: Path
    results: Mapping[str, runtime.FitResult]


@dataclasses.dataclass(frozen=True)
class Room:
    """What is claimed of an experiment."""

    experiment: runtime.Experiment  # which
    folder: str  # of the record, in `results/`
    presets: Mapping[str, int]  # that are claimed, with their numbers of seeds
    # from a run to each of its results with what is particular in its line; none if it was cut
    lines: Callable[[Run], Iterable[tuple[runtime.FitResult, dict[str, Any]]]]
    table: Callable[[Sequence[Line]], str]  # from the lines of a record to the table
    # from the lines of a record to figures by the name of their files
    figures: Callable[[Sequence[Line]], Mapping[str, Any]] = lambda lines: {}
    # what each seed is trained with, in order; what is compared with others comes first
    variants: Sequence[str] = ("",)
    # from a preset's config, which it may change, and a variant to the config of a run; ValueError for an
    # unknown variant
    configure: Callable[[Any, str], Any] = lambda config, variant: config
    variant: Callable[[Line], str] = lambda line: ""  # the variant that a line is of
    cut: bool = False  # whether a run may be cut short and continued

    def name(self, line: Line) -> str:
        """What tells the run of a line from others, and is its directory's name."""
        return name_of(line["preset"], self.variant(line), line["seed"])

    def merged(self, old: Sequence[Line], new: Sequence[Line]) -> list[Line]:
        """Lines of a record with those of some runs anew: without the old ones of these runs."""
        replaced = {self.name(line) for line in new}
        return [*(line for line in old if self.name(line) not in replaced), *new]

    def configs(self, preset: str, variants: Sequence[str], seeds: int) -> dict[str, Any]:
        """The configs of runs by name, seed by seed: what is done when time is up can be compared.

        Raises:
            ValueError: an unknown preset or variant.
        """
        found = {}
        for seed, variant in itertools.product(range(seeds), variants):
            config = self.configure(self.experiment.presets(preset), variant)
            config.seed = seed
            found[name_of(preset, variant, seed)] = config
        return found

    def draw(self, lines: Sequence[Line], out: Path) -> str:
        """Writes the figures and the table of a record; returns the table."""
        if runtime.can_draw():
            for name, figure in self.figures(lines).items():
                runtime.plots.save(figure, out / f"{name}.png")
        machine.write_text(out / TABLE, text := self.table(lines))
        return text


def name_of(preset: str, variant: str, seed: int) -> str:
    """What a run is called."""
    return "-".join(filter(None, (preset, variant, str(seed))))


def read(out: Path) -> list[Line]:
    """The lines of a record; none if there is no record."""
    file = out / RECORD
    return [json.loads(text) for text in file.read_text("utf-8").splitlines()] if file.exists() else []


def write(out: Path, lines: Sequence[Line]) -> None:
    """Writes a record, whole or not at all."""
    machine.write_text(out / RECORD, "".join(json.dumps(line) + "\n" for line in lines))


def lines_of(room: Room, run: Run) -> list[Line]:
    """The lines of a run: what it reached, steps and seconds, checksum, command, where and when it was."""
    name, seed = room.experiment.name, run.config.seed
    return [
        {
            "preset": run.preset,
            "seed": seed,
            "steps": result.step,
            "train_seconds": round(result.train_seconds, 2),
            **{key: result.summary[key] for key in ("compile_seconds", "wall_seconds", "params_sha256")},
            "command": f"python -m experiments.{name} --config={run.preset} --config.seed={seed}",
            **timing.where_and_when(),
            **own,
        }
        for result, own in room.lines(run)
    ]


def claim(
    room: Room,
    preset: str,
    variants: Sequence[str],
    seeds: int,
    workdir: Path,
    out: Path,
    *,
    seconds: float = 0.0,
    prepare: Callable[[Any], None] = lambda config: None,
) -> list[Line]:
    """Trains variants of a preset with some seeds, and records each run when it is done; all lines of the
    record.

    Every run has a directory of its own in `workdir` and is continued from it. With `seconds`, only what has
    no line is trained, and no longer than this altogether. `prepare` changes a config before it is run.

    Raises:
        ValueError: an unknown preset or variant, or a config that is refused; before anything is run.
    """
    began, configs = time.monotonic(), room.configs(preset, variants, seeds)
    for config in configs.values():
        prepare(config)
        config.validate()
    lines = read(out)
    done = {room.name(line) for line in lines} if seconds else set()
    for name, config in configs.items():
        if name in done:
            continue
        if seconds:
            config.session_seconds = seconds - (time.monotonic() - began)
            if config.session_seconds <= 0:
                break
        print(f"{room.experiment.name}: {name}", flush=True)
        results = room.experiment.main(config, workdir=workdir / name)
        if isinstance(results, runtime.FitResult):
            results = {name: results}
        new = lines_of(room, Run(preset, config, workdir / name, results))
        if not new:
            break
        write(out, lines := room.merged(lines, new))
    return lines


def grouped(lines: Iterable[Line], field: str) -> dict[Any, list[Line]]:
    """Lines by a field's value, seeds in order."""
    found: dict[Any, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line["seed"]):
        found.setdefault(line[field], []).append(line)
    return found


def spread(values: Sequence[float], digits: int, *, shares: bool = False) -> str:
    """The mean with its 95 % interval over seeds, within [0, 1] if the values are shares; of one, that."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    found = runtime.intervals.mean_interval(values)
    mean, low, high = (f"{value:.{digits}f}" for value in (np.clip(found, 0, 1) if shares else found))
    return f"{mean} ({low} to {high})"


def band(rows: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and 95 % interval over seeds at each point, within [0, 1]."""
    found = [runtime.intervals.mean_interval(values) for values in zip(*rows, strict=True)]
    mean, low, high = np.clip(found, 0, 1).T
    return mean, low, high


def commit(line: Line) -> str:
    """The commit of a run, short."""
    return (line["commit"] or "")[:12]
