"""Copies the measurements of `benchmarks.accelerator` into `results/` and the tables that `kernels/` reads.

    python -m benchmarks.collect accelerator

- `results/kernels/CHIP.json`: checks and speeds of the kernels;
- `kernels/tables/CHIP.json`: block sizes and default kernels; a hand-written kernel is the default if every
  check of its operation and dtype held on the chip and it was faster than the blockwise path, forward and
  with gradients, in every block of the measurement;
- `results/PAPER/training_CHIP.json` and `.md`: training steps of each paper;
- `results/boxworld/AGENT`: the long runs.

The whole folder is read and checked before anything is written. Existing results with more steps or more
measured rows are kept. Collecting a folder twice has no further effect.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import accelerator_summary, launching, machine, measured, proven
from benchmarks import training as steps
from benchmarks import tune_kernels as tuning
from experiments import weights
from experiments.runtime import CheckpointError, metrics, packing, params_sha256, releasing
from experiments.runtime.checkpoints import Restored
from kernels import tables
from logic_zoo.writing import write_whole


def kernels(found: measured.Measured, results: Path, folder: Path) -> Iterator[str]:
    """Writes the records of the kernels and the chip's table; yields a line for each file."""
    if found.checks and found.speeds:
        file = results / "kernels" / f"{found.chip}.json"
        there = {row["operation"] for row in _there(file).get("rows", [])}
        lost = sorted(there - {row["operation"] for row in found.speeds})
        if lost:
            yield f"{file}: kept, since this folder has no speeds of {', '.join(lost)}"
        else:
            command = {"command": "python -m benchmarks.accelerator"}
            machine.write(file, found.machine | command | {"checks": found.checks, "rows": found.speeds})
            yield f"{file}: {len(found.checks)} checks, {len(found.speeds)} rows"
            lines = proven.lines(found.machine["platform"], found.checks, found.speeds, file.as_posix())
            path = tuning.write([], found.machine["chip"], folder)
            machine.write(path, measured.read_object(path) | {"fastest": lines})
            yield f"{path}: {len(lines)} shapes default to a hand-written kernel"
    elif found.checks or found.speeds:
        yield (
            f"kernels: not collected, got {len(found.checks)} checks and {len(found.speeds)} rows of speeds, "
            "expected some of each"
        )
    if found.blocks:
        path = tuning.write(found.blocks, found.machine["chip"], folder)
        yield f"{path}: {len(found.blocks)} lines of block sizes"


def training(found: measured.Measured, results: Path) -> Iterator[str]:
    """Writes the records of training steps, each with a table; yields a line for each file."""
    for name, record in found.training.items():
        folder = launching.chosen(steps, [name])[name].folder
        file = results / folder / f"training_{found.chip}.json"
        new, old = measured.rows_measured(record), measured.rows_measured({"rows": [], **_there(file)})
        if new < old:
            yield f"{file}: kept, with {old} measured rows; this folder has {new}"
        elif new:
            machine.write(file, record)
            title = f"Training steps: {name}"
            write_whole(file.with_suffix(".md"), accelerator_summary.markdown(record, title))
            yield f"{file}: {new} measured rows of {len(record['rows'])}"


def _there(file: Path) -> dict[str, Any]:
    """Reads a record in the results; {} if it does not exist."""
    return measured.read_object(file) if file.exists() else {}


def check_packed(folder: Path) -> Restored:
    """Checks a packed run with its record and summary, and returns its state.

    Raises:
        ValueError: a part of it is damaged; the message names the folder or the file.
    """
    try:
        restored = packing.read_state(folder, weights.abstract_state(folder))
        metrics.read(folder / "metrics.jsonl")
        summary = _there(folder / "summary.json")
    except (CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: damaged packed run: {error}") from error
    if summary.get("step") == restored.step:
        expected, got = summary.get("params_sha256"), params_sha256(restored.state.params)
        if got != expected:
            raise ValueError(f"{folder}: got parameters with SHA-256 {got}, expected {expected}")
    return restored


def put(folder: Path, step: int, target: Path) -> str:
    """Replaces a packed run by a checked one that has at least as many steps; returns what was done."""
    if releasing.is_released(target):
        there = packing.read_state(target, weights.abstract_state(target)).step
        if there > step:
            return f"{target}: kept, at step {there}; this folder's is at {step}"
    new, old = (target.with_name(f".{target.name}.{word}") for word in ("new", "old"))
    for path in (new, old):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder, new)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return f"{target}: step {step}"


def collect(folder: Path, results: Path, of_tables: Path) -> Iterator[str]:
    """Copies a folder of `benchmarks.accelerator` into the results; yields a line for each file.

    Raises:
        ValueError: a file is damaged or from another machine; then nothing is written.
    """
    found = measured.read(folder)
    steps = {packed: check_packed(packed).step for packed in found.agents.values()}
    yield from kernels(found, results, of_tables)
    yield from training(found, results)
    for agent, packed in found.agents.items():
        yield put(packed, steps[packed], results / "boxworld" / agent)


def main() -> int:
    """Runs the program and returns its exit status."""
    parser = machine.parser(
        __doc__,
        results=(Path("results"), "folder of the results"),
        tables=(tables.FOLDER, "folder of the kernels' tables"),
    )
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    try:
        for line in collect(arguments.folder, arguments.results, arguments.tables):
            print(line, flush=True)
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
