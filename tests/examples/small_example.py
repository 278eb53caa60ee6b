"""An example as its user runs it, and its numbers, all of them finite."""

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
    """All numbers in nested dictionaries and lists."""
    if isinstance(numbers, dict):
        numbers = list(numbers.values())
    if isinstance(numbers, list | tuple):
        return [leaf for value in numbers for leaf in leaves(value)]
    return [numbers] if isinstance(numbers, int | float) else []


def complete(numbers, out: Path, picture: str) -> None:
    """Every number is finite, what was returned is in the file, and the picture is one."""
    assert len(leaves(numbers)) > 5
    assert all(math.isfinite(number) for number in leaves(numbers))
    saved = json.loads((out / "numbers.json").read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(numbers))
    assert (out / picture).read_bytes().startswith(b"\x89PNG")


def run(name: str, out: Path) -> dict:
    """Numbers of a whole run with its own settings, as typed; within two minutes of two cores.

    Cores' time is counted, not the clock's: other work on the machine is none of the example's.
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
