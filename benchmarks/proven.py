"""Selects the hand-written kernels that a measurement proves fastest, for the tables in `kernels/tables/`."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import kernel_cases
from kernels import dispatch


def lines(
    platform: str, checks: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], file: str
) -> list[dict[str, Any]]:
    """Returns the calls for which a kernel is correct and faster on a platform, "gpu" or "tpu".

    Every check of its operation and dtype must hold, and the kernel must be faster than the blockwise path,
    forward and with gradients, in every block of the measurement. Each line names the file of the record.
    """
    cases = {(case.operation.name, case.name): case for case in kernel_cases.cases(platform)}
    both: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        both.setdefault((row["operation"], row["case"]), {})[row["direction"]] = row["paths"]
    found = []
    for name, directions in both.items():
        case = cases.get(name)
        if case is None or set(directions) != set(kernel_cases.DIRECTIONS):
            continue
        for backend in dispatch.HARDWARE:
            faster = all(_faster(paths, backend) for paths in directions.values())
            if faster and _all_hold(checks, case, backend):
                kind, sizes = case.operation.describe(case.config, *case.avals)
                line = {"operation": name[0], "kind": kind, "sizes": sizes, "backend": backend}
                found.append({**line, "record": file})
    return found


def _all_hold(checks: Sequence[Mapping[str, Any]], case: kernel_cases.Case, backend: str) -> bool:
    own = [
        row
        for row in checks
        if row["operation"] == case.operation.name
        and row["implementation"] == backend
        and row["case"].endswith(str(case.dtype))
        and "unsupported" not in row
    ]
    return bool(own) and all(row.get("holds", False) for row in own)


def _faster(paths: Mapping[str, Any], backend: str) -> bool:
    ours, plain = paths.get(backend, {}), paths.get("xla", {})
    if "seconds" not in ours or "seconds" not in plain:
        return False
    return max(ours["blocks"]) < min(plain["blocks"])
