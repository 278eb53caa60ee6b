"""Carries what `benchmarks.accelerator` measured into `results/kernels/` and into the tables that `kernels/`
reads.

    python -m benchmarks.collect_kernels accelerator

A hand-written kernel becomes the default for a shape on that chip only where every check of its operation and
type held there and it was faster than the blockwise path, forward and with gradients, in every block of the
measurement. The record it rests on is the file written to `results/kernels/`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import kernel_cases, tune_kernels
from kernels import dispatch, tables


def merged(folder: Path) -> dict[str, Any]:
    """The records of a folder as one.

    Raises:
        ValueError: the folder has no records, or records of different machines.
    """
    checks = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("checks_*.json"))]
    speeds = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("kernels_*.json"))]
    if not checks or not speeds:
        raise ValueError(
            f"{folder} has {len(checks)} records of checks and {len(speeds)} of speed, expected some of each"
        )
    where = [{key: record[key] for key in ("chip", "platform", "versions")} for record in (*checks, *speeds)]
    if any(other != where[0] for other in where):
        raise ValueError(f"{folder} has records of different machines or versions")
    return {
        **{key: value for key, value in checks[0].items() if key not in ("rows", "command")},
        "command": "python -m benchmarks.accelerator",
        "checks": [row for record in checks for row in record["rows"]],
        "rows": [row for record in speeds for row in record["rows"]],
    }


def proven(record: dict[str, Any], file: str) -> list[dict[str, Any]]:
    """The lines of `fastest` that a record supports."""
    cases = {(case.operation.name, case.name): case for case in kernel_cases.cases(record["platform"])}
    both = {}
    for row in record["rows"]:
        both.setdefault((row["operation"], row["case"]), {})[row["direction"]] = row["paths"]
    lines = []
    for name, directions in both.items():
        case = cases.get(name)
        if case is None or set(directions) != set(kernel_cases.DIRECTIONS):
            continue
        for backend in dispatch.HARDWARE:
            if _all_hold(record["checks"], case, backend) and all(
                _faster(paths, backend) for paths in directions.values()
            ):
                kind, sizes = case.operation.describe(case.config, *case.avals)
                line = {
                    "operation": name[0],
                    "kind": kind,
                    "sizes": sizes,
                    "backend": backend,
                    "record": file,
                }
                lines.append(line)
    return lines


def _all_hold(checks: list[dict[str, Any]], case: kernel_cases.Case, backend: str) -> bool:
    dtype = str(case.dtype)
    own = [
        row
        for row in checks
        if row["operation"] == case.operation.name
        and row["implementation"] == backend
        and row["case"].endswith(dtype)
        and "unsupported" not in row
    ]
    return bool(own) and all(row.get("holds", False) for row in own)


def _faster(paths: dict[str, Any], backend: str) -> bool:
    ours, plain = paths.get(backend, {}), paths.get("xla", {})
    if "seconds" not in ours or "seconds" not in plain:
        return False
    return ours["blocks"][-1] < plain["blocks"][0]


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=Path("results/kernels"))
    parser.add_argument("--tables", type=Path, default=tables.FOLDER)
    arguments = parser.parse_args()
    try:
        record = merged(arguments.folder)
    except ValueError as error:
        parser.error(str(error))
    name = record["chip"].replace(" ", "-")
    file = arguments.results / f"{name}.json"
    arguments.results.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    lines = proven(record, file.as_posix())
    tuned = arguments.folder / "tables" / f"{name}.json"
    blocks = json.loads(tuned.read_text(encoding="utf-8"))["blocks"] if tuned.exists() else []
    path = tune_kernels.write(blocks, record["chip"], arguments.tables)
    table = json.loads(path.read_text(encoding="utf-8"))
    table["fastest"] = lines
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(f"{file}: {len(record['checks'])} checks, {len(record['rows'])} rows")
    print(f"{path}: {len(lines)} shapes default to a hand-written kernel, {len(blocks)} new lines of blocks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
