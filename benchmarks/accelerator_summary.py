"""The summary that `benchmarks.accelerator` prints, from the records in its folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import kernel_checks, kernels, machine

RATE = "_per_second"


def lines(out: Path, ended: Mapping[str, str]) -> list[str]:
    """Returns a line for each part, wrong check, measured program and long run in a folder."""
    found = [f"{name:40} {how}" for name, how in ended.items()]
    machine = _read(out / "machine.json")
    if machine:
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        found.insert(0, f"{machine['chip']} x {machine['devices']}, {machine['date']}; {versions}")
    for path in sorted(out.glob("checks_*.json")):
        rows = _read(path).get("rows", [])
        holds = sum(row.get("holds", False) for row in rows)
        unsupported = sum("unsupported" in row for row in rows)
        wrong = [row for row in rows if "failed" in row or row.get("holds") is False]
        found.append(f"{path.stem}: {holds} hold, {len(wrong)} wrong, {unsupported} not supported")
        found += [f"  {kernel_checks.describe(row)}" for row in wrong]
    for path in sorted(out.glob("kernels_*.json")):
        found += [kernels.lines(row) for row in _read(path).get("rows", [])]
    for path in sorted(out.glob("training_*.json")):
        paper = path.stem.removeprefix("training_")
        found += [f"{paper:11} {training(row)}" for row in _read(path).get("rows", [])]
    return found + _long_runs(out)


def training(row: Mapping[str, Any]) -> str:
    """Returns a row of a training step as a line of text."""
    name, rate, used, memory, authors = cells(row)
    parts = [f"{rate:>24}"]
    parts += [f"{used:>5} % of the matrix rate"] if used else []
    parts += [f"{memory:>6} GiB"] if memory else []
    parts += [f"{authors}x the authors'"] if authors else []
    return f"{name[:56]:56} {', '.join(parts)}".rstrip()


def cells(row: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    """Returns the cells of a row of a training step; a missing value is "".

    They are the name, the rate (or why there is none), percent of the matrix rate, GiB, and the ratio to the
    authors' rate.
    """
    name = row.get("name", row.get("case", ""))
    if "failed" in row:
        return name, row["failed"][:80], "", "", ""
    if "operations_per_second" in row:
        return name, f"{row['operations_per_second'] / 1e12:.2f} TFLOP/s", "", "", ""
    unit = next(key for key in row if key.endswith(RATE))
    rate = row[unit]["median"] if isinstance(row[unit], dict) else row[unit]
    used, memory, authors = (row.get(key) for key in ("utilisation", "peak_bytes", "times_the_authors"))
    return (
        name,
        f"{rate:,.0f} {unit.removesuffix(RATE)}/s",
        "" if used is None else f"{100 * used:.1f}",
        "" if memory is None else f"{memory / 2**30:.2f}",
        "" if authors is None else f"{authors:.1f}",
    )


def markdown(record: Mapping[str, Any], title: str) -> str:
    """Returns a record of training steps as a Markdown page, with machine, date and command."""
    devices, versions = record["devices"], record["versions"]
    commit = record.get("commit") or "unknown"
    where = f"{devices['kind']}, jax {versions['jax']}, {record['date']}, commit {commit}"
    head = ("step", "rate", "% of the matrix rate", "peak memory, GiB", "multiple of the authors' rate")
    table = machine.markdown(head, map(cells, record["rows"]))
    return f"# {title}\n\n{where}: `{record.get('command', '')}`\n\n{table}"


def _read(path: Path) -> dict[str, Any]:
    """Reads a record; {} if it does not exist or is incomplete."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _long_runs(out: Path) -> list[str]:
    found = []
    for record in sorted(out.glob("boxworld/*/metrics.jsonl")):
        *_, text = ("{}", *record.read_text(encoding="utf-8").splitlines())
        last = json.loads(text)
        shown = ("frames", "solved", "train_seconds")
        values = ", ".join(f"{name} {last[name]:.4g}" for name in shown if last.get(name) is not None)
        found.append(f"{record.parent.relative_to(out)}: {values}")
    return found
