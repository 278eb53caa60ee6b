"""Carries what `benchmarks.accelerator` measured into `results/`, and into the tables that `kernels/` reads.

    python -m benchmarks.collect accelerator

- `results/kernels/CHIP.json`, and in `kernels/tables/CHIP.json` block sizes and which kernel is the default:
  a hand-written one where every check of its operation and type held on that chip and it was faster than the
  blockwise path, forward and with gradients, in every block of the measurement;
- `results/PAPER/training_CHIP.json`, and a table beside it: training steps of each paper;
- `results/boxworld/AGENT`, `results/mathematics/modules` and `results/kinship`: the long runs, with their
  tables and pictures drawn again.

All of the folder is read and checked before anything is written. What is there already stays where it is
further or has more rows measured; collected twice, a folder changes nothing.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    accelerator_summary,
    kinship_bursts,
    kinship_learning,
    machine,
    mathematics_learning,
    measured,
    proven,
)
from benchmarks import tune_kernels as tuning
from experiments.boxworld.config import Config as BoxWorldConfig
from experiments.boxworld.engine import Impala
from experiments.kinship import train as kinship
from experiments.kinship.config import Config as KinshipConfig
from experiments.runtime import CheckpointError, metrics, packing, params_sha256, releasing
from experiments.runtime.checkpoints import Restored
from kernels import tables


def kernels(found: measured.Measured, results: Path, folder: Path) -> Iterator[str]:
    """Records of kernels, and the chip's table.

    Args:
        found: what was measured.
        results: the folder of results.
        folder: of the tables.

    Yields:
        What was done.
    """
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
    for paper, record in found.training.items():
        file = results / measured.PAPERS[paper] / f"training_{found.chip}.json"
        new, old = measured.rows_measured(record), measured.rows_measured({"rows": [], **_there(file)})
        if new < old:
            yield f"{file}: kept, with {old} rows measured; this folder has {new}"
        elif new:
            machine.write(file, record)
            title = f"Training steps: {paper}"
            machine.write_text(file.with_suffix(".md"), accelerator_summary.markdown(record, title))
            yield f"{file}: {new} rows measured of {len(record['rows'])}"


def _there(file: Path) -> dict[str, Any]:
    """A record of results; nothing if there is none."""
    return measured.read_object(file) if file.exists() else {}


def check_packed(folder: Path, abstract: Callable[[Path], Any]) -> Restored:
    """The state of a packed run, whose record and summary are whole.

    Args:
        folder: the run.
        abstract: from the folder to the abstract state of its config.

    Raises:
        ValueError: something of it is damaged; it names the folder or the file.
    """
    try:
        restored = packing.read_state(folder, abstract(folder))
        metrics.read(folder / "metrics.jsonl")
        file = folder / "summary.json"
        summary = _there(file)
    except (CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder} is damaged: {error}") from error
    if summary.get("step") == restored.step:
        told, is_now = summary.get("params_sha256"), params_sha256(restored.state.params)
        if told != is_now:
            raise ValueError(f"{folder} is damaged: its parameters have SHA-256 {is_now}, expected {told}")
    return restored


def of_agent(folder: Path) -> Any:
    """The abstract state of a packed run of BoxWorld."""
    return Impala(releasing.read_run_config(BoxWorldConfig, folder)).abstract_state()


def of_kinship(folder: Path) -> Any:
    """The abstract state of a packed run of kinship."""
    return kinship.abstract_state(releasing.read_run_config(KinshipConfig, folder))


def put(folder: Path, step: int, target: Path, abstract: Callable[[Path], Any]) -> str:
    """Replaces a packed run by one that is as far or further.

    Args:
        folder: the new one, checked.
        step: how far it is.
        target: where it goes.
        abstract: see `check_packed`.

    Returns:
        What was done.
    """
    if releasing.is_released(target):
        there = packing.read_state(target, abstract(target)).step
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


def merged(
    old: Sequence[Mapping[str, Any]],
    new: Sequence[Mapping[str, Any]],
    key: Callable[[Mapping[str, Any]], tuple],
) -> list[Mapping[str, Any]]:
    """Lines of runs, the new ones in the place of those of the same run, else at the end."""
    by_run = {key(line): line for line in old}
    return list((by_run | {key(line): line for line in new}).values())


def long_runs(found: measured.Measured, results: Path, steps: Mapping[Path, int]) -> Iterator[str]:
    """The long runs, and their tables and pictures.

    Args:
        found: what was measured.
        results: the folder of results.
        steps: how far each packed run is.

    Yields:
        What was done.
    """
    for agent, folder in found.agents.items():
        yield put(folder, steps[folder], results / "boxworld" / agent, of_agent)
    if found.modules:
        out = results / "mathematics" / "modules"
        file = out / "learning.jsonl"
        old = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
        lines = merged(old, found.modules, mathematics_learning.key_of)
        machine.write_text(file, "".join(json.dumps(line) + "\n" for line in lines))
        mathematics_learning.draw(lines, lines[0]["preset"], out)
        yield f"{file}: {len(found.modules)} runs of this folder, {len(lines)} in all"
    out = results / "kinship"
    if found.kinship:
        lines = merged(kinship_learning.read(out), found.kinship, _run_of_kinship)
        file = out / kinship_learning.RECORD
        machine.write_text(file, "".join(json.dumps(line) + "\n" for line in lines))
        kinship_learning.draw(out)
        yield f"{file}: {len(found.kinship)} runs of this folder, {len(lines)} in all"
    done = {"-".join(map(str, _run_of_kinship(line))) for line in kinship_learning.read(out)}
    for name, folder in found.unfinished.items():
        if name not in done:
            target = out / kinship_bursts.UNFINISHED / name
            target.parent.mkdir(parents=True, exist_ok=True)
            yield put(folder, steps[folder], target, of_kinship)
    for path in sorted((out / kinship_bursts.UNFINISHED).glob("*")):
        if path.name in done:
            shutil.rmtree(path)
            yield f"{path}: removed, since it is finished"


def check_lines(folder: Path, found: measured.Measured) -> None:
    """Makes the tables and pictures of the lines of runs, somewhere else, so that what they lack shows.

    Raises:
        ValueError: something is not as a run leaves it; it names the file.
    """
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        modules, kinship_lines = (folder / run / "learning.jsonl" for run in ("modules", "kinship"))
        file = modules
        try:
            if found.modules:
                mathematics_learning.draw(found.modules, found.modules[0]["preset"], out)
            file = kinship_lines
            if found.kinship:
                shutil.copyfile(file, out / kinship_learning.RECORD)
                kinship_learning.draw(out)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{file} is damaged: {error!r}") from error


def _run_of_kinship(line: Mapping[str, Any]) -> tuple:
    return line["preset"], line["model"], line["seed"]


def collect(folder: Path, results: Path, of_tables: Path) -> Iterator[str]:
    """Carries a folder into the results.

    Args:
        folder: of `benchmarks.accelerator`.
        results: the folder of results.
        of_tables: where tables of kernels are.

    Yields:
        What was done, a line a file.

    Raises:
        ValueError: something in the folder is damaged, or of another machine; nothing is written then.
    """
    found = measured.read(folder)
    steps = {path: check_packed(path, of_agent).step for path in found.agents.values()}
    steps |= {path: check_packed(path, of_kinship).step for path in found.unfinished.values()}
    check_lines(folder, found)
    yield from kernels(found, results, of_tables)
    yield from training(found, results)
    yield from long_runs(found, results, steps)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--tables", type=Path, default=tables.FOLDER)
    arguments = parser.parse_args()
    try:
        for line in collect(arguments.folder, arguments.results, arguments.tables):
            print(line, flush=True)
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
