"""Reads and checks the folder that `benchmarks.accelerator` writes."""

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from benchmarks import kernel_cases, launching, training

OPERATIONS = frozenset(case.operation.name for case in kernel_cases.cases("gpu"))
RATE = "_per_second"

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Measured:
    """The contents of a folder."""

    machine: Row  # the machine that measured, `benchmarks.machine.describe()`
    checks: list[Row]  # rows of `benchmarks.kernel_checks`
    speeds: list[Row]  # rows of `benchmarks.kernels`
    blocks: list[Row]  # lines of block sizes
    training: dict[str, Row]  # the record of the training steps, by experiment
    agents: dict[str, Path]  # packed runs of BoxWorld, by agent

    @property
    def chip(self) -> str:
        """The kind of the device, as a part of file names."""
        return self.machine["chip"].replace(" ", "-").replace("/", "-")


def read(folder: Path) -> Measured:
    """Reads the records of all parts that are present.

    Raises:
        ValueError: the folder was not written by `benchmarks.accelerator`, has no record, or has a record
            that is damaged or from another machine; the message names the file.
    """
    path = folder / "machine.json"
    if not path.is_file():
        raise ValueError(f"{folder}: got no machine.json, expected a folder of benchmarks.accelerator")
    machine = read_object(path)
    _fields(path, machine, chip=str, platform=str, versions=dict, date=str)
    here = (machine["platform"], machine["chip"], _versions(machine["versions"]))

    def same(path: Path, record: Row) -> None:
        where = record.get("devices")
        if isinstance(where, dict):  # written by a program that needs more than JAX
            _fields(path, where, platform=str, kind=str)
            named = where["platform"], where["kind"]
        else:
            _fields(path, record, platform=str, chip=str)
            named = record["platform"], record["chip"]
        _fields(path, record, versions=dict, date=str)
        there = (*named, _versions(record["versions"]))
        if there != here:
            raise ValueError(f"{path}: got machine and versions {there}, expected {here}")

    def rows(pattern: str, check: Callable[[Path, Row], None]) -> list[Row]:
        found = []
        for file in sorted(folder.glob(pattern)):
            record = read_object(file)
            same(file, record)
            found += _rows(file, record, check)
        return found

    of_training = {}
    for name in launching.rooms(training):
        file = folder / f"training_{name}.json"
        if file.exists():
            of_training[name] = record = read_object(file)
            same(file, record)
            _fields(file, record, devices=dict)
            _rows(file, record, _training)
    measured = Measured(
        machine,
        checks=rows("checks_*.json", _check),
        speeds=rows("kernels_*.json", _speed),
        blocks=_blocks(folder, machine["chip"]),
        training=of_training,
        agents=_packed(folder / "boxworld"),
    )
    if not any(getattr(measured, field.name) for field in dataclasses.fields(measured)[1:]):
        raise ValueError(f"{folder}: got machine.json only, expected at least one record")
    return measured


def rows_measured(record: Mapping[str, Any]) -> int:
    """Returns the number of rows of a training record that are measurements."""
    return sum("failed" not in row for row in record["rows"])


def _versions(found: Mapping[str, Any]) -> tuple:
    # Only some of the programs record other versions.
    return tuple(found.get(name) for name in ("python", "jax", "jaxlib", "numpy"))


def read_object(path: Path) -> Row:
    """Reads a JSON object; raises ValueError, naming the file, if the content is something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    _need(isinstance(value, dict), path, f"got {type(value).__name__}, expected an object")
    return value


def _need(fits: Any, path: Path, problem: str) -> None:
    if not fits:
        raise ValueError(f"{path}: {problem}")


def _fields(path: Path, value: Any, **kinds: type | Collection[str]) -> None:
    """Checks that fields exist and have a type or one of some values; numbers are finite, ints are floats."""
    _need(isinstance(value, dict), path, f"got {value!r}, expected an object")
    for name, kind in kinds.items():
        found: Any = value.get(name)
        if not isinstance(kind, type):
            _need(found in kind, path, f"{name}: got {found!r}, expected one of {', '.join(sorted(kind))}")
            continue
        if kind in (int, float):
            fits = isinstance(found, (int, kind)) and not isinstance(found, bool) and math.isfinite(found)
        else:
            fits = isinstance(found, kind)
        _need(fits, path, f"{name}: got {found!r}, expected {kind.__name__}")


def _rows(path: Path, record: Row, check: Callable[[Path, Row], None]) -> list[Row]:
    _fields(path, record, rows=list)
    for row in record["rows"]:
        check(path, row)
    return record["rows"]


def _check(path: Path, row: Row) -> None:
    _fields(path, row, operation=OPERATIONS, case=str, implementation=str)
    if "unsupported" in row or "failed" in row:
        return
    _fields(path, row, errors=list, holds=bool)
    errors = row["errors"]
    numbers = errors and all(isinstance(error, int | float) for error in errors)
    _need(numbers, path, f"errors: got {errors!r}, expected numbers")


def _speed(path: Path, row: Row) -> None:
    _fields(path, row, operation=OPERATIONS, case=str, direction=kernel_cases.DIRECTIONS, paths=dict)
    for found in row["paths"].values():
        _fields(path, found)
        if "failed" in found:
            continue
        _fields(path, found, seconds=float, blocks=list)
        blocks = found["blocks"]
        _need(blocks and all(map(_is_time, blocks)), path, f"blocks: got {blocks!r}, expected seconds")


def _training(path: Path, row: Row) -> None:
    _fields(path, row)
    name = row.get("name", row.get("case"))
    _need(isinstance(name, str), path, f"name of a row: got {name!r}, expected str")
    rates = [value for key, value in row.items() if key.endswith(RATE)]
    _need("failed" in row or bool(rates), path, f"row {name}: got no rate, expected a rate or `failed`")
    for rate in rates:
        for value in rate.values() if isinstance(rate, dict) else [rate]:
            _need(_is_time(value), path, f"rate of {name}: got {value!r}, expected a positive number")
        if isinstance(rate, dict):
            _fields(path, rate, median=float)
    if "failed" in row:
        _fields(path, row, failed=str)
    for key in ("utilisation", "peak_bytes", "times_the_authors"):
        if row.get(key) is not None:
            _fields(path, row, **{key: float})


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _blocks(folder: Path, chip: str) -> list[Row]:
    found: list[Row] = []
    for path in sorted((folder / "tables").glob("*.json")):
        table = read_object(path)
        _fields(path, table, chip=str, blocks=list)
        if table["chip"] != chip:
            raise ValueError(f"{path}: got the chip {table['chip']!r}, expected {chip!r}")
        for line in table["blocks"]:
            _fields(path, line, operation=OPERATIONS, kind=dict, sizes=dict, blocks=dict)
            _fields(path, line, backend=str, direction=str)
        found += table["blocks"]
    return found


def _packed(folder: Path) -> dict[str, Path]:
    """Returns packed runs by name; a folder without state.safetensors was interrupted and does not count."""
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/state.safetensors"))}
