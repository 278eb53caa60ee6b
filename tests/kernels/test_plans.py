"""Plans and block sizes of drawn calls are those of the record.

A plan decides what runs on chips that tests do not have; what was proven and timed there holds for these
plans only.
"""

import dataclasses
import functools
import json
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from kernels import chips, plans
from kernels.two_simplicial import api as two_simplicial
from tests import recorded
from tests.kernels.test_envelope import Drawn, draw

CALLS = 160


def with_few_keys(seed: int) -> Drawn:
    """Draws a call of 2-simplicial attention with few keys, often as many as where something changes."""
    of, call = random.Random(seed), draw(seed)
    while call.operation is not two_simplicial.OPERATION:
        call = draw(of.randrange(10**6))
    few = max(1, 2 ** of.randrange(1, 7) + of.choice((-1, 0, 0, 1)))
    shapes: list[Any] = [None if x is None else list(x.shape) for x in call.avals]
    for shape in shapes[1:4]:
        shape[1] = few
    if shapes[5] is not None:
        shapes[5][2:] = [min(size, few) for size in shapes[5][2:]]
    given = zip(call.avals, shapes, strict=True)
    avals = [None if x is None else jax.ShapeDtypeStruct(shape, x.dtype) for x, shape in given]
    if of.random() < 0.3:
        avals[4] = jax.ShapeDtypeStruct(tuple(shapes[4]), jnp.float32)
    return dataclasses.replace(call, avals=tuple(avals))


def digest(value: Any) -> int:
    """Sums up what has too many parts to be written out."""
    return zlib.crc32(json.dumps(value).encode())


def sizes(part: Any) -> Any:
    """Returns the numbers and names in the fields of a plan and of the parts it is made of."""
    if isinstance(part, tuple | list):
        return [sizes(each) for each in part]
    if isinstance(part, dict):
        return [[str(name), sizes(each)] for name, each in part.items()]
    if dataclasses.is_dataclass(part):
        return {field.name: sizes(getattr(part, field.name)) for field in dataclasses.fields(part)}
    return (
        part if isinstance(part, int | float | str | None) else getattr(part, "__name__", type(part).__name__)
    )


def launches(plan: Any) -> list[Any]:
    """Returns the kernels as a chip sees them, and a digest of all sizes that they were made with."""
    found = [[launch.name, list(launch.grid), launch.memory] for launch in plan.launches]
    return [*found, digest(sizes(plan))]


def wished(plan: Callable[..., Any], candidates: Sequence[dict[str, int]], seed: int) -> list[Any] | str:
    """Returns the launches with block sizes that need not suit the call."""
    factor, more = (0.5, 1, 2)[seed % 3], (-1, 0, 0, 1)[seed // 3 % 4]
    chosen = candidates[seed % len(candidates)]
    wishes = {name: max(1, int(size * factor) + more) for name, size in chosen.items()}
    try:
        return launches(plan(blocks=wishes))
    except ValueError as error:
        return str(error)


def described(call: Drawn, seed: int) -> dict[str, Any]:
    """Returns a drawn call in words, the launches in each direction or why it is refused, and block sizes."""
    line: dict[str, Any] = {"call": str(call)}
    if call.chip.backend is None:
        return line
    backend = call.operation.backend(call.backend)
    for direction in ("forward", "backward"):
        try:
            planned = functools.partial(backend.plan, direction, call.config, *call.avals, chip=call.chip)
            line[direction] = launches(planned())
        except plans.Refused as error:
            return line | {"refused": str(error)}
        candidates = backend.block_candidates(call.config, *call.avals)[direction]
        line[f"{direction}, wished"] = wished(planned, candidates, seed)
    for name, module in (("blocks", backend), ("xla", call.operation.backend("xla"))):
        candidates = module.block_candidates(call.config, *call.avals)
        line[name] = {
            direction: [len(found), found[0], digest(found)] for direction, found in candidates.items()
        }
    return line


def test_all_of_a_chip_may_be_used_but_not_more():
    chip = dataclasses.replace(chips.named("NVIDIA H100 80GB HBM3", "cuda"), memory=1000, grid=(7, 5, 9))

    def fits(memory, *grid) -> Any:
        return plans.fits(chip, plans.Launch(name="a kernel", grid=grid, memory=memory))

    assert fits(1000, 7, 5, 9) is None
    assert "needs 1,001 bytes, NVIDIA H100 80GB HBM3 has 1,000" in fits(1001, 7, 5)
    assert "needs 8 programs along x" in fits(1000, 8, 5)
    assert "needs 10 programs along z" in fits(1000, 7, 5, 10)


@pytest.mark.parametrize("make", [draw, with_few_keys])
def test_plans_are_those_of_the_record(make):
    recorded.check(__file__, make.__name__, [described(make(seed), seed) for seed in range(CALLS)])
