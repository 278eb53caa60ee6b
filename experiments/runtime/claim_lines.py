"""Lines of claims: what one says, how its verdict follows from its numbers, and the file of all lines."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from logic_zoo.writing import whole

FILE = "claims.jsonl"
"""The file of all claims, in the folder of results."""

Test = Literal["unpaired", "paired", "threshold", "mean"]
"""What a claim requires; a claim holds if all of its tests pass.

- unpaired: the t-interval of our mean over seeds lies on the better side of each compared baseline's.
- paired: the t-interval of the differences by seed excludes 0, on our side, for each compared baseline.
- threshold: the share of seeds that the claim names (all by default) reaches the target.
- mean: the mean over seeds reaches the target.
"""

Line = Mapping[str, Any]


def verdict(line: Line) -> bool | None:
    """Returns whether a line's claim holds by its own numbers; None if the line has no hypothesis.

    One whose attempt was given up before all of its seeds ran does not hold.

    Raises:
        ValueError: a test cannot be made from what the line holds.
    """
    tests = line["tests"]
    if not tests:
        return None
    if line.get("given_up"):
        return False
    sign = 1.0 if line["higher_is_better"] else -1.0
    ours = [sign * value for value in line["ours"]["per_seed"]]
    compared = [baseline for baseline in line["baselines"] if baseline["compared"]]
    target = None if line["target"] is None else sign * line["target"]
    passed = []
    for test in tests:
        if test in ("threshold", "mean"):
            if target is None:
                raise ValueError(f"{line['id']}: target: got None, expected a number for {test!r}")
            reached = sum(value >= target for value in ours)
            needed = math.ceil(line.get("share", 1.0) * len(ours) - 1e-9)
            passed.append(reached >= needed if test == "threshold" else sum(ours) / len(ours) >= target)
        elif test in ("unpaired", "paired"):
            if not compared:
                raise ValueError(
                    f"{line['id']}: baselines: got none to compare with, expected one for {test!r}"
                )
            decide = _apart if test == "unpaired" else _differ
            passed += [decide(line["ours"], baseline, sign, line["level"]) for baseline in compared]
        else:
            raise ValueError(f"{line['id']}: tests: got {test!r}, expected some of {get_args(Test)}")
    return all(passed)


def _apart(ours: Line, baseline: Line, sign: float, level: float) -> bool:
    from experiments.runtime import intervals  # SciPy takes long to import

    first, second = (
        intervals.mean_interval([sign * value for value in entry["per_seed"]], level)
        for entry in (ours, baseline)
    )
    return first[1] > second[2]


def _differ(ours: Line, baseline: Line, sign: float, level: float) -> bool:
    from experiments.runtime import intervals

    by_seed = [sign * difference for difference in differences(ours, baseline)]
    return intervals.mean_interval(by_seed, level)[1] > 0


def differences(ours: Line, baseline: Line) -> list[float]:
    """Returns ours minus a baseline's, for each seed that both were run with."""
    first, second = (
        dict(zip(entry.get("seeds") or range(len(entry["per_seed"])), entry["per_seed"], strict=True))
        for entry in (ours, baseline)
    )
    return [value - second[seed] for seed, value in first.items() if seed in second]


def read(out: Path | str) -> list[dict[str, Any]]:
    """Reads all lines of the file of claims in a folder; [] if there is no file.

    Raises:
        ValueError: a line that is not a claim; file and line number are named.
    """
    file = Path(out) / FILE
    if not file.exists():
        return []
    lines = []
    for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            verdict(line)
            lines.append({**line, "id": str(line["id"])})
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}, line {number}: not a claim ({error!r})") from error
    return lines


def write(out: Path | str, lines: Sequence[Line]) -> None:
    """Writes the file of claims, whole or not at all, one line per claim, sorted by id.

    Raises:
        ValueError: two lines have the same id, or a line's `holds` is not what its numbers say.
    """
    ids = [line["id"] for line in lines]
    for line in lines:
        if ids.count(line["id"]) > 1:
            raise ValueError(f"id: got {line['id']!r} twice, expected different ones")
        if line["holds"] != verdict(line):
            raise ValueError(
                f"{line['id']}: holds: got {line['holds']}, expected {verdict(line)} by its numbers"
            )
    Path(out).mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in sorted(lines, key=lambda line: line["id"]))
    with whole(Path(out) / FILE) as temporary:
        temporary.write_text(text, encoding="utf-8")


def hardware(devices: Mapping[str, Any]) -> str:
    """Returns the devices of a run's summary in a few words, such as "2 CPU cores"."""
    if devices["platform"] == "cpu":
        return f"{devices['cpus']} CPU core{'s' * (devices['cpus'] > 1)}"
    return f"{devices['count']} x {devices['kind']}"
