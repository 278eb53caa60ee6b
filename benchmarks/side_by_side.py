"""Checks and times every kernel, each case in a process of its own and many at once.

    python -m benchmarks.side_by_side --seconds=300 --out=accelerator

Compiling takes most of the time, and one core. So cases compile side by side, and are timed one after the
other while nothing else runs (`timing.turn`): first all checks, then the speeds. The records
`checks_OPERATION.json` and `kernels_OPERATION.json` are those of `benchmarks.kernel_checks` and
`benchmarks.kernels`, and complete whenever the program is stopped. A check whose process crashes or hangs is
recorded as failed; what the seconds were too few for is not in the records.
"""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or the first process takes the memory

import jax

from benchmarks import kernel_cases, kernel_checks, kernels, machine, timing

LONGEST = 150.0  # seconds of a check, most of them for compiling
STEP = 0.2  # seconds between looks at the processes


@dataclasses.dataclass(frozen=True)
class Unit:
    """One case of one program."""

    kind: str  # "checks" or "kernels"
    operation: str
    case: str
    number: int

    @property
    def module(self) -> str:
        """The program."""
        return "benchmarks.kernel_checks" if self.kind == "checks" else "benchmarks.kernels"

    def part(self, out: Path) -> Path:
        """The file that its process writes."""
        return out / "parts" / f"{self.number}.json"

    def command(self, out: Path) -> list[str]:
        """The program and its flags."""
        return [self.module, f"--only={self.operation} {self.case}", f"--out={self.part(out)}"]

    def failed(self, how: str) -> dict[str, Any]:
        """The row of a check that did not end by itself."""
        row = {"operation": self.operation, "case": self.case, "failed": how}
        return {**row, "implementation": kernels.IMPLEMENTATIONS[jax.default_backend()][-1]}


def units(only: str = "") -> list[Unit]:
    """Returns all cases, checks first."""
    found: Iterator[tuple[str, kernel_cases.Case]] = (
        (kind, case)
        for kind, cases in (
            ("checks", kernel_checks.to_check()),
            ("kernels", kernel_cases.cases(jax.default_backend())),
        )
        for case in kernel_cases.chosen(cases, only)
    )
    return [Unit(kind, case.operation.name, case.name, number) for number, (kind, case) in enumerate(found)]


def run(todo: Sequence[Unit], out: Path, seconds: float, processes: int) -> dict[str, int]:
    """Runs the units in their order, and counts those that were done, failed, were stopped or not started."""
    end = time.monotonic() + seconds
    (out / "parts").mkdir(parents=True)
    environment = {**os.environ, timing.TURNS: str(out / "turns")}
    waiting, running, ended = list(todo), {}, {"done": 0, "failed": 0}
    extra: dict[int, dict[str, Any]] = {}
    with (out / "log.txt").open("a", encoding="utf-8") as log:

        def finish(unit: Unit, how: str) -> None:
            ended["failed" if how else "done"] += 1
            if how:
                print(f"{unit.kind} {unit.operation} {unit.case}: {how}", flush=True)
                if unit.kind == "checks":
                    extra[unit.number] = unit.failed(how)
            _merge(todo, out, extra)

        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < processes:
                unit = waiting.pop(0)
                command = [sys.executable, "-m", *unit.command(out)]
                process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
                running[process] = unit, time.monotonic()
            for process, (unit, start) in list(running.items()):
                late = unit.kind == "checks" and time.monotonic() > start + LONGEST
                if late:
                    process.kill()
                    process.wait()
                if process.poll() is not None:
                    del running[process]
                    recorded = unit.part(out).exists() and process.returncode in (0, 1)
                    how = f"ended after {LONGEST:.0f} s" if late else f"exit status {process.returncode}"
                    finish(unit, "" if recorded else how)
            time.sleep(STEP)
    for process in running:
        process.kill()
        process.wait()
    _merge(todo, out, extra)
    return {**ended, "stopped": len(running), "not started": len(waiting)}


def _merge(todo: Sequence[Unit], out: Path, extra: dict[int, dict[str, Any]]) -> None:
    """Writes the records from the parts that are there."""
    records: dict[tuple[str, str], dict[str, Any]] = {}
    for unit in todo:
        file = unit.part(out)
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": []}
        head = {key: value for key, value in found.items() if key != "rows"}
        record = records.setdefault((unit.kind, unit.operation), {"rows": []})
        rows = [*record["rows"], *found["rows"], *([extra[unit.number]] if unit.number in extra else [])]
        records[unit.kind, unit.operation] = {**record, **head, "rows": rows}
    for (kind, operation), record in records.items():
        if "chip" in record and record["rows"]:
            machine.write(out / f"{kind}_{operation}.json", record)


def main() -> int:
    """Runs the program and returns its exit status."""
    parser = machine.parser(
        __doc__,
        seconds=(300.0, "total seconds"),
        processes=(max(1, (os.cpu_count() or 1) - 3), "at the same time"),
        only=("", "only cases whose operation or name contains this"),
        out=(Path("accelerator"), "folder of the records"),
    )
    arguments = parser.parse_args()
    if (arguments.out / "parts").exists():
        parser.error(f"--out: got {arguments.out}, which has records of cases, expected another folder")
    todo = units(arguments.only)
    kernel_cases.check_only(parser, arguments.only, todo)
    ended = run(todo, arguments.out, arguments.seconds, arguments.processes)
    print(", ".join(f"{count} {how}" for how, count in ended.items()))
    return 1 if ended["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
