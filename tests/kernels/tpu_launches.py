"""What the plans of TPU kernels promise, compared with what is run: shared by the operations' tests."""

import functools
import itertools
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from kernels import chips
from kernels.plans import Launch
from tests import jaxprs

CHIPS = [chips.TPUS[kind] for kind in ("TPU v5e", "TPU v5p", "TPU v6e")]


def run_by(function: Any, *avals: Any) -> list[Launch]:
    """Traces a function, and returns the kernels that it calls, whose blocks must lie inside their arrays."""
    return list(_calls(jax.make_jaxpr(function)(*avals).jaxpr))


def _calls(jaxpr):
    for equation in jaxprs.equations(jaxpr, closed=("pallas_call",)):
        if equation.primitive.name == "pallas_call":
            params = equation.params
            assert not any(v.aval.dtype == bool for v in equation.invars), "Mosaic has no arrays of booleans"
            for operand in params["grid_mapping"].block_mappings:
                _assert_inside(params["grid_mapping"].grid, operand)
            limit = params["compiler_params"].vmem_limit_bytes
            yield Launch(str(params["name"]), params["grid_mapping"].grid, limit)


def _assert_inside(grid, operand):
    """Of the blocks at the corners of the grid: a block may end outside, but not begin there."""
    for corner in itertools.product(*({0, size - 1} for size in grid)):
        place = jaxpr_as_fun(operand.index_map_jaxpr)(*map(np.int32, corner))
        for index, block, size in zip(place, operand.block_shape, operand.array_aval.shape, strict=True):
            start = int(index) * getattr(block, "block_size", 1)
            assert 0 <= start < size, (operand.origin, corner, operand.array_aval.shape)


def assert_planned(backend: Any, config: Any, arrays: Any, outputs: Any, **options: Any) -> None:
    """Asserts that on each chip the kernels that run are those of the plan, within the chip's limits.

    Chips with the same plan are traced once.

    Args:
        backend: a module `tpu`.
        config: static settings of the call.
        arrays: shapes and dtypes of its arrays; a mask may be None.
        outputs: those of the output and the log-sum-exp.
        **options: `blocks`.
    """
    traced = set()
    for chip in CHIPS:
        given = {"forward": arrays, "backward": (*arrays, *outputs, outputs[0])}
        for direction, operands in given.items():
            launches = list(backend.plan(direction, config, *arrays, chip=chip, **options).launches)
            assert_within(chip, launches)
            if (direction, *launches) not in traced:
                traced.add((direction, *launches))
                function = functools.partial(getattr(backend, direction), config, chip=chip, **options)
                assert launches == run_by(function, *operands)


def assert_within(chip: chips.Chip, launches: Any) -> None:
    """Asserts that kernels leave an eighth of a chip's vector memory, and have steps that fit 32 bits."""
    for launch in launches:
        assert launch.memory <= chip.memory * 7 // 8, (chip.kind, launch)
        assert all(1 <= size < 2**31 for size in launch.grid), launch
