"""What the programs share that are started with absl's flags: how they start, and how they keep a record."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from absl import app, logging

from benchmarks import machine, timing


def run(main: Callable[[], None]) -> None:
    """Runs a program that takes nothing but flags.

    As `runtime.run_program` does, which needs ml_collections: a machine with an accelerator may lack that.
    """

    def checked(arguments: Sequence[str]) -> None:
        if len(arguments) > 1:
            raise app.UsageError(f"unexpected argument {arguments[1]!r}")
        main()

    logging.set_verbosity(logging.WARNING)  # JAX and Orbax tell much at the level below
    app.run(checked)


def rooms(package: ModuleType) -> list[str]:
    """The experiments that a package has a module of; each module has its experiment's name."""
    return [module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"]


def chosen(package: ModuleType, only: Sequence[str]) -> dict[str, Any]:
    """The `ROOM` of each of a package's modules, by experiment; all, or `only` some.

    Modules of other experiments are not imported, nor what they need.

    Raises:
        app.UsageError: a name is unknown.
    """
    names = rooms(package)
    if unknown := sorted(set(only) - set(names)):
        raise app.UsageError(f"--only: got {unknown[0]!r}, expected some of {', '.join(names)}")
    return {name: importlib.import_module(f"{package.__name__}.{name}").ROOM for name in only or names}


def record(
    rows: Iterable[dict[str, Any]],
    told: Callable[[dict[str, Any]], str],
    out: str,
    command: str,
    **more: Any,
) -> list[dict[str, Any]]:
    """Prints rows as they are found, and writes all so far, so that a run that is ended loses none.

    The record is in the file `out`, "" for none; it has `command`, where and when it was, and `more`.
    """
    found: list[dict[str, Any]] = []
    head: Mapping[str, Any] = {**timing.where_and_when(), "command": command, **more}
    for row in rows:
        found.append(row)
        print(told(row), flush=True)
        if out:
            machine.write(Path(out), {**head, "rows": found})
    return found


def report(out: Path, result: Mapping[str, Any], table: str, *, fine: bool) -> None:
    """Writes a record and its table, prints the table; exit status 1 if the result is not fine."""
    machine.write(out, result)
    machine.write_text(out.with_suffix(".md"), table)
    print(table)
    if not fine:
        raise SystemExit(1)


def share(count: int, names: Sequence[str]) -> dict[str, int]:
    """A number in equal parts, as far as it goes."""
    return {name: count // len(names) + (place < count % len(names)) for place, name in enumerate(names)}
