"""Shared by the programs with absl flags: starting them and writing their records."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import app, logging

from benchmarks import machine, timing
from logic_zoo.writing import write_whole


def run(main: Callable[[], None]) -> None:
    """Runs a program that takes only flags.

    Works like `runtime.run_program` but does not need ml_collections, which accelerator machines may lack.
    """

    def checked(arguments: Sequence[str]) -> None:
        if len(arguments) > 1:
            raise app.UsageError(f"arguments: got {arguments[1]!r}, expected flags only")
        main()

    logging.set_verbosity(logging.WARNING)  # JAX and Orbax are verbose at INFO
    app.run(checked)


def rooms(package: ModuleType) -> list[str]:
    """Returns the names of a package's modules, each of which is named after its experiment."""
    return [module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"]


def chosen(package: ModuleType, only: Sequence[str]) -> dict[str, Any]:
    """Returns the `ROOM` of each of a package's modules by experiment; if `only` is not empty, of those only.

    Other modules and their dependencies are not imported.

    Raises:
        app.UsageError: a name in `only` is unknown.
    """
    names = rooms(package)
    if unknown := sorted(set(only) - set(names)):
        raise app.UsageError(f"--only: got {unknown[0]!r}, expected some of {', '.join(map(repr, names))}")
    return {name: importlib.import_module(f"{package.__name__}.{name}").ROOM for name in only or names}


def record(
    rows: Iterable[dict[str, Any]],
    format_row: Callable[[dict[str, Any]], str],
    out: str,
    command: str,
    **more: Any,
) -> list[dict[str, Any]]:
    """Prints each row and writes all rows so far, so that an interrupted run loses none.

    The record goes to the file `out` ("" writes none), with `command`, hardware, versions, date and `more`.
    """
    found: list[dict[str, Any]] = []
    head: Mapping[str, Any] = {**timing.where_and_when(), "command": command, **more}
    for row in rows:
        found.append(row)
        print(format_row(row), flush=True)
        if out:
            machine.write(Path(out), {**head, "rows": found})
    return found


def report(out: Path, result: Mapping[str, Any], table: str, *, fine: bool) -> None:
    """Writes a record and its table, prints the table, and exits with status 1 unless `fine`."""
    machine.write(out, result)
    write_whole(out.with_suffix(".md"), table)
    print(table)
    if not fine:
        raise SystemExit(1)


def share(count: int, names: Sequence[str]) -> dict[str, int]:
    """Splits a number into nearly equal integer parts, one per name."""
    return {name: count // len(names) + (place < count % len(names)) for place, name in enumerate(names)}
