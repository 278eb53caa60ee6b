"""Carries what `benchmarks.accelerator` measured into `results/`, and into the tables that `kernels/` reads.

    python -m benchmarks.collect accelerator

- `results/kernels/CHIP.json`, and in `kernels/tables/CHIP.json` block sizes and which kernel is the default:
  a hand-written one where every check of its operation and type held on that chip and it was faster than the
  blockwise path, forward and with gradients, in every block of the measurement;
- `results/PAPER/training_CHIP.json`, and a table beside it: training steps of each paper;
- `results/boxworld/AGENT`: the long runs.

All of the folder is read and checked before anything is written. What is there already stays where it is
further or has more rows measured; collected twice, a folder changes nothing.
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


def kernels(found: measured.Measured, results: Path, folder: Path) -> Iterator[str]:
    """Records of kernels, and the chip's table; says what was done."""
    if found.checks and found.speeds:
        file = results / "kernels" / f"{found.chip}.json"
        there = {row["operation"] for row in _there(file).get("rows", [])}
        lost = sorted(there - {row["operation"] for row in found.speeds})
        if lost:
            yield f"{file}: kept, since this folder has no speed of {', '.join(lost)}"
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
            f"kernels: not collected, {len(found.checks)} checks and {len(found.speeds)} rows of speed; "
            "expected some of each"
        )
    if found.blocks:
        path = tuning.write(found.blocks, found.machine["chip"], folder)
        yield f"{path}: {len(found.blocks)} lines of block sizes"


def training(found: measured.Measured, results: Path) -> Iterator[str]:
    """Records of training steps, each with a table."""
    for name, record in found.training.items():
        folder = launching.chosen(steps, [name])[name].folder
        file = results / folder / f"training_{found.chip}.json"
        new, old = measured.rows_measured(record), measured.rows_measured({"rows": [], **_there(file)})
        if new < old:
            yield f"{file}: kept, with {old} rows measured; this folder has {new}"
        elif new:
            machine.write(file, record)
            title = f"Training steps: {name}"
            machine.write_text(file.with_suffix(".md"), accelerator_summary.markdown(record, title))
            yield f"{file}: {new} rows measured of {len(record['rows'])}"


def _there(file: Path) -> dict[str, Any]:
    """A record of results; nothing if there is none."""
    return measured.read_object(file) if file.exists() else {}


def check_packed(folder: Path) -> Restored:
    """The state of a packed run, whose record and summary are whole.

    Raises:
        ValueError: something of it is damaged; it names the folder or the file.
    """
    try:
        restored = packing.read_state(folder, weights.abstract_state(folder))
        metrics.read(folder / "metrics.jsonl")
        summary = _there(folder / "summary.json")
    except (CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} is damaged: {error}") from error
    if summary.get("step") == restored.step:
        told, is_now = summary.get("params_sha256"), params_sha256(restored.state.params)
        if told != is_now:
            raise ValueError(f"{folder} is damaged: its parameters have SHA-256 {is_now}, expected {told}")
    return restored


def put(folder: Path, step: int, target: Path) -> str:
    """Replaces a packed run by one that was checked and is as far or further; says what was done."""
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
    """Carries a folder of `benchmarks.accelerator` into the results; says what was done, a line for each
    file.

    Raises:
        ValueError: something in the folder is damaged, or of another machine; nothing is written then.
    """
    found = measured.read(folder)
    steps = {packed: check_packed(packed).step for packed in found.agents.values()}
    yield from kernels(found, results, of_tables)
    yield from training(found, results)
    for agent, packed in found.agents.items():
        yield put(packed, steps[packed], results / "boxworld" / agent)


def main() -> int:
    """The program."""
    parser = machine.parser(
        __doc__,
        results=(Path("results"), "the folder of results"),
        tables=(tables.FOLDER, "the tables of kernels"),
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
