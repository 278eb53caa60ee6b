"""The folder of `benchmarks.accelerator` read and checked, before anything is made of it."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import kernel_cases

OPERATIONS = frozenset(case.operation.name for case in kernel_cases.cases("gpu"))
PAPERS = {
    "boxworld": "boxworld",
    "folnet": "folnet",
    "mathematics": "tp_transformer",
    "kinship": "kinship",
    "llrnn": "llrnn",
}
"""Whose training steps are measured, and their folders in `results/`."""
RATE = "_per_second"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a folder holds."""

    machine: Row  # where it was measured, `benchmarks.machine.describe()`
    checks: list[Row]  # rows of `benchmarks.kernel_checks`
    speeds: list[Row]  # rows of `benchmarks.kernels`
    blocks: list[Row]  # lines of block sizes
    training: dict[str, Row]  # by paper, the record of its training steps
    agents: dict[str, Path]  # packed runs of BoxWorld, by agent
    modules: list[Row]  # lines of the finished runs of mathematics
    kinship: list[Row]  # lines of the finished runs of kinship
    unfinished: dict[str, Path]  # packed runs of kinship, by name

    @property
    def chip(self) -> str:
        """The device's kind, fit for a file's name."""
        return self.machine["chip"].replace(" ", "-").replace("/", "-")


def read(folder: Path) -> Measured:
    """Reads what is there of every part.

    Raises:
        ValueError: the folder is none, has no record, or one that is damaged or of another machine; it names
            the file.
    """
    path = folder / "machine.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no folder of benchmarks.accelerator: it has no machine.json")
    machine = read_object(path)
    _fields(path, machine, chip=str, platform=str, versions=dict, date=str)
    here = (machine["platform"], machine["chip"], _versions(machine["versions"]))

    def same(path: Path, record: Row) -> None:
        where = record.get("devices")
        if isinstance(where, dict):  # of a program that needs more than JAX
            _fields(path, where, platform=str, kind=str)
            named = where["platform"], where["kind"]
        else:
            _fields(path, record, platform=str, chip=str)
            named = record["platform"], record["chip"]
        _fields(path, record, versions=dict, date=str)
        there = (*named, _versions(record["versions"]))
        if there != here:
            raise ValueError(f"{path} is of another machine or versions: {there}, expected {here}")

    def rows(pattern: str, check: Callable[[Path, Row], None]) -> list[Row]:
        found = []
        for file in sorted(folder.glob(pattern)):
            record = read_object(file)
            same(file, record)
            found += _rows(file, record, check)
        return found

    def lines(file: Path, **kinds: Any) -> list[Row]:
        found = _lines(file) if file.exists() else []
        for line in found:
            _fields(file, line, **kinds)
            same(file, line)
        return found

    training = {}
    for paper in PAPERS:
        file = folder / f"training_{paper}.json"
        if file.exists():
            training[paper] = read_object(file)
            same(file, training[paper])
            _fields(file, training[paper], devices=dict)
            _rows(file, training[paper], _training)
    of_run: dict[str, Any] = {"preset": str, "model": str, "seed": int, "steps": int, "train_seconds": float}
    of_run |= {"date": str}
    measured = Measured(
        machine,
        checks=rows("checks_*.json", _check),
        speeds=rows("kernels_*.json", _speed),
        blocks=_blocks(folder, machine["chip"]),
        training=training,
        agents=_packed(folder / "boxworld"),
        modules=lines(folder / "modules" / "learning.jsonl", initialization=str, results=dict, **of_run),
        kinship=lines(
            folder / "kinship" / "learning.jsonl",
            **of_run,
            accuracies=dict,
            metric=dict,
            curve=list,
            parameters=int,
            train_lengths=list,
            metric_lengths=list,
            test_problems=int,
            form=str,
            command=str,
        ),
        unfinished=_packed(folder / "kinship" / "unfinished"),
    )
    if not any(getattr(measured, field.name) for field in dataclasses.fields(measured)[1:]):
        raise ValueError(f"{folder} has no records but machine.json: no part of the measurement came to one")
    return measured


def rows_measured(record: Mapping[str, Any]) -> int:
    """How many rows of a training record are measurements."""
    return sum("failed" not in row for row in record["rows"])


def _versions(found: Mapping[str, Any]) -> tuple:
    # The others are told by some of the programs only.
    return tuple(found.get(name) for name in ("python", "jax", "jaxlib", "numpy"))


def read_object(path: Path) -> Row:
    """A JSON object; ValueError naming the file if it is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: expected an object, got {type(value).__name__}")
    return value


def _lines(path: Path) -> list[Row]:
    try:
        values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not all(isinstance(value, dict) for value in values):
        raise ValueError(f"{path} is damaged: expected an object in every line")
    return values


def _fields(path: Path, value: Row, **kinds: type) -> None:
    """Checks that fields are there and of a type; numbers must be finite, an int is a float too."""
    for name, kind in kinds.items():
        found: Any = value.get(name)
        if kind in (int, float):
            fits = isinstance(found, (int, kind)) and not isinstance(found, bool) and math.isfinite(found)
        else:
            fits = isinstance(found, kind)
        if not fits:
            raise ValueError(f"{path} is damaged: {name}={found!r}, expected {kind.__name__}")


def _rows(path: Path, record: Row, check: Callable[[Path, Row], None]) -> list[Row]:
    _fields(path, record, rows=list)
    for row in record["rows"]:
        if not isinstance(row, dict):
            raise ValueError(f"{path} is damaged: a row is {row!r}, expected an object")
        check(path, row)
    return record["rows"]


def _check(path: Path, row: Row) -> None:
    _fields(path, row, operation=str, case=str, implementation=str)
    _operation(path, row)
    if "unsupported" in row or "failed" in row:
        return
    _fields(path, row, errors=list, holds=bool)
    if not row["errors"] or not all(isinstance(error, int | float) for error in row["errors"]):
        raise ValueError(f"{path} is damaged: errors={row['errors']!r}, expected numbers")


def _speed(path: Path, row: Row) -> None:
    _fields(path, row, operation=str, case=str, direction=str, paths=dict)
    _operation(path, row)
    if row["direction"] not in kernel_cases.DIRECTIONS:
        expected = ", ".join(kernel_cases.DIRECTIONS)
        raise ValueError(f"{path} is damaged: direction={row['direction']!r}, expected one of {expected}")
    for name, found in row["paths"].items():
        if not isinstance(found, dict):
            raise ValueError(f"{path} is damaged: {name} is {found!r}, expected an object")
        if "failed" in found:
            continue
        _fields(path, found, seconds=float, blocks=list)
        if not found["blocks"] or not all(_is_time(block) for block in found["blocks"]):
            raise ValueError(f"{path} is damaged: blocks={found['blocks']!r}, expected seconds")


def _training(path: Path, row: Row) -> None:
    name = row.get("name", row.get("case"))
    if not isinstance(name, str):
        raise ValueError(f"{path} is damaged: a row is called {name!r}, expected its name")
    rates = [value for key, value in row.items() if key.endswith(RATE)]
    if "failed" not in row and not rates:
        raise ValueError(f"{path} is damaged: {name} has neither a rate nor why there is none")
    for rate in rates:
        for value in rate.values() if isinstance(rate, dict) else [rate]:
            if not _is_time(value):
                raise ValueError(f"{path} is damaged: {name} has a rate of {value!r}")
        if isinstance(rate, dict):
            _fields(path, rate, median=float)
    if "failed" in row:
        _fields(path, row, failed=str)
    for key in ("utilisation", "peak_bytes", "times_the_authors"):
        if row.get(key) is not None:
            _fields(path, row, **{key: float})


def _operation(path: Path, row: Row) -> None:
    if row["operation"] not in OPERATIONS:
        expected = ", ".join(sorted(OPERATIONS))
        raise ValueError(f"{path} is damaged: operation={row['operation']!r}, expected one of {expected}")


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _blocks(folder: Path, chip: str) -> list[Row]:
    found: list[Row] = []
    for path in sorted((folder / "tables").glob("*.json")):
        table = read_object(path)
        _fields(path, table, chip=str, blocks=list)
        if table["chip"] != chip:
            raise ValueError(f"{path} is of another chip, {table['chip']}, expected {chip}")
        for line in table["blocks"]:
            if not isinstance(line, dict):
                raise ValueError(f"{path} is damaged: a line is {line!r}, expected an object")
            _fields(path, line, operation=str, kind=dict, sizes=dict, backend=str, direction=str, blocks=dict)
            _operation(path, line)
        found += table["blocks"]
    return found


def _packed(folder: Path) -> dict[str, Path]:
    """Packed runs by name; one that was ended before it was packed is none."""
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/state.safetensors"))}
