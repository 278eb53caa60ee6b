"""Plans and block sizes of drawn calls are those of the record.

A plan decides what runs on chips that tests do not have; what was proven and timed there holds for these
plans only.
"""

from typing import Any

from kernels import plans
from tests import recorded
from tests.kernels.test_envelope import draw

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


def test_plans_are_those_of_the_record():
    recorded.check(__file__, "calls", list(map(described, range(CALLS))))
