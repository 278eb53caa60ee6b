"""The table at the end of `benchmarks.accelerator`, from the records in its folder; needs only Python."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def lines(out: Path, ended: Mapping[str, str]) -> list[str]:
    """A line a part, a check that is wrong, a measured program, a long run.

    Args:
        out: the folder.
        ended: how each part ended.
    """
    found = [f"{name:40} {how}" for name, how in ended.items()]
    machine = _read(out / "machine.json")
    if machine:
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        found.insert(0, f"{machine['chip']} x {machine['devices']}, {machine['date']}; {versions}")
    for path in sorted(out.glob("checks_*.json")):
        rows = _read(path).get("rows", [])
        found.append(f"{path.stem}: {_count(rows)}")
        for row in rows:
            if "failed" in row or row.get("holds") is False:
                told = row.get("failed", "") or " ".join(f"{error:.1e}" for error in row["errors"])
                found.append(f"  WRONG {row['case']} {row['implementation']}: {told}"[:160])
    for path in sorted(out.glob("kernels_*.json")):
        for row in _read(path).get("rows", []):
            found += [_kernel(row, name, measured) for name, measured in row["paths"].items()]
    for path in sorted(out.glob("training_*.json")):
        paper = path.stem.removeprefix("training_")
        found += [f"{paper:11} {training(row)}" for row in _read(path).get("rows", [])]
    return found + _long_runs(out)


def training(row: Mapping[str, Any]) -> str:
    """A row of a training step: rate, utilisation, peak of memory; or the rate of matrix products; or why
    not.
    """
    head = f"{row.get('name', row.get('case', ''))[:56]:56}"
    if "failed" in row:
        return f"{head} {row['failed'][:80]}"
    if "operations_per_second" in row:
        return f"{head} {row['operations_per_second'] / 1e12:14.2f} TFLOP/s"
    if "steps_per_second" in row and "case" in row:  # BoxWorld counts steps of environments
        rate = f"{row['steps_per_second']['median']:14,.0f} steps/s"
    else:
        unit = next(name for name in row if name.endswith("_per_second"))
        rate = f"{row[unit]:14,.0f} {unit.removesuffix('_per_second')}/s"
    used = row.get("utilisation")
    memory = row.get("peak_bytes")
    told = [rate]
    told += [f"{100 * used:5.1f} % of the matrix rate"] if used is not None else []
    told += [f"{memory / 2**30:6.2f} GiB"] if memory is not None else []
    told += [f"{row['times_the_authors']:.1f}x the authors'"] if "times_the_authors" in row else []
    return f"{head} {', '.join(told)}"


def _read(path: Path) -> dict[str, Any]:
    """A record; nothing where there is none, or half of one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _count(rows: list[dict[str, Any]]) -> str:
    holds = sum(row.get("holds", False) for row in rows)
    unsupported = sum("unsupported" in row for row in rows)
    return f"{holds} hold, {len(rows) - holds - unsupported} wrong, {unsupported} not supported"


def _kernel(row: dict[str, Any], name: str, measured: dict[str, Any]) -> str:
    head = f"{row['operation'][:14]:14} {row['case'][:30]:30} {row['direction']:8} {name[:18]:18}"
    if "seconds" not in measured:
        return f"{head} {measured['failed'][:60]}"
    speedup = next(iter(measured["speedup"].values()), None)
    ratio = f"{speedup['median']:6.2f}x" if speedup else ""
    floor = f"{measured['times_floor']:6.1f}x floor" if "times_floor" in measured else ""
    return f"{head} {measured['seconds'] * 1e6:10.1f} us {ratio:8} {floor}".rstrip()


def _long_runs(out: Path) -> list[str]:
    found = []
    packed = (*out.glob("boxworld/*/metrics.jsonl"), *out.glob("kinship/unfinished/*/metrics.jsonl"))
    for record in sorted(packed):
        *_, text = ("{}", *record.read_text(encoding="utf-8").splitlines())
        last = json.loads(text)
        shown = ("frames", "solved", "step", "eval/metric", "train_seconds")
        told = ", ".join(f"{name} {last[name]:.4g}" for name in shown if last.get(name) is not None)
        found.append(f"{record.parent.relative_to(out)}: {told}")
    for record in (out / "modules" / "learning.jsonl", out / "kinship" / "learning.jsonl"):
        if record.exists():
            count = len(record.read_text(encoding="utf-8").splitlines())
            found.append(f"{record.parent.relative_to(out)}: {count} runs finished")
    return found
