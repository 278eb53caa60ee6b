"""Runs an example as a user does, and checks that its numbers are finite."""

import json
import math
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120
CORES = 2


def leaves(numbers):
    """Returns all numbers in nested dictionaries and lists."""
    if isinstance(numbers, dict):
        numbers = list(numbers.values())
    if isinstance(numbers, list | tuple):
        return [leaf for value in numbers for leaf in leaves(value)]
    return [numbers] if isinstance(numbers, int | float) else []


def complete(numbers, out: Path, picture: str) -> None:
    """Checks that every number is finite, the file has the same numbers, and the picture is a PNG."""
    assert len(leaves(numbers)) > 5
    assert all(math.isfinite(number) for number in leaves(numbers))
    saved = json.loads((out / "numbers.json").read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(numbers))
    assert (out / picture).read_bytes().startswith(b"\x89PNG")


def run(name: str, out: Path) -> dict:
    """Returns the numbers of a full run with the default settings.

    The run must take at most two minutes on two cores. This measures CPU time rather than wall time, so that
    other work on the machine does not count.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, str(Path("examples") / f"{name}.py"), f"--out={out}"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < SECONDS * CORES, used
    return json.loads((out / "numbers.json").read_text(encoding="utf-8"))
