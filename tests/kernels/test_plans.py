"""Plans and block sizes of drawn calls are those of the file `test_plans.jsonl`, until a change is meant.

A plan decides what runs on chips that tests do not have; what was proven and timed there holds for these
plans only. `python -m tests.kernels.test_plans` writes the file anew: its difference is what a change does.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from kernels import plans
from tests.kernels.test_envelope import draw

FILE = Path(__file__).with_suffix(".jsonl")
CALLS = 160


def described(seed: int) -> dict[str, Any]:
    """Returns a drawn call in words, the launches in each direction or why it is refused, and block sizes."""
    call = draw(seed)
    line: dict[str, Any] = {"call": str(call)}
    if call.chip.backend is None:
        return line
    backend = call.operation.backend(call.backend)
    for direction in ("forward", "backward"):
        try:
            plan = backend.plan(direction, call.config, *call.avals, chip=call.chip)
        except plans.Refused as error:
            return line | {"refused": str(error)}
        line[direction] = [[launch.name, list(launch.grid), launch.memory] for launch in plan.launches]
    for name, module in (("blocks", backend), ("xla", call.operation.backend("xla"))):
        candidates = module.block_candidates(call.config, *call.avals)
        line[name] = {direction: [len(found), found[0], found[-1]] for direction, found in candidates.items()}
    return line


@pytest.mark.parametrize("part", range(4))
def test_plans_are_those_of_the_file(part):
    lines = FILE.read_text(encoding="utf-8").splitlines()
    for seed in range(part, CALLS, 4):
        assert described(seed) == json.loads(lines[seed]), seed


if __name__ == "__main__":
    FILE.write_text("".join(json.dumps(described(seed)) + "\n" for seed in range(CALLS)), encoding="utf-8")
