"""What orders the threads, the copies and the matrix instructions of the kernels for Hopper GPUs.

The interpreter does one thing after the other and has no registers, and so finds the same values where a
fence, a wait or a layout is left out, which a GPU would not. How many of each there are in a kernel's program
is therefore recorded.
"""

import collections
from typing import Any

import jax
import pytest

from kernels.trans import gpu as trans
from kernels.trans import shapes as trans_shapes
from kernels.trilinear import gpu as trilinear
from kernels.trilinear import shapes as trilinear_shapes
from kernels.two_simplicial import gpu as two_simplicial
from kernels.two_simplicial import shapes as two_simplicial_shapes
from tests import jaxprs, recorded
from tests.kernels.trans import cases as trans_cases
from tests.kernels.trilinear import cases as trilinear_cases
from tests.kernels.two_simplicial import cases as two_simplicial_cases

ORDER = (
    "barrier_arrive", "barrier_wait", "commit_smem", "optimization_barrier", "set_max_registers",
    "wgmma_accumulator_deref", "wgmma_wait",
)  # fmt: skip


def hidden(equation: Any) -> str:
    """Describes what an equation does that the interpreter does not show; "" if that is nothing."""
    name, parameters = equation.primitive.name, equation.params
    if name == "layout_cast":
        return f"{name} {parameters['new_layout']}"
    if name == "wait_smem_to_gmem":
        return f"{name} {parameters['n']}, reads: {parameters['wait_read_only']}"
    return name if name in ORDER else ""


def check(name, backend, config, arrays, dout):
    def both(dout, *arrays):
        out, lse = backend.forward(config, *arrays)
        return backend.backward(config, *arrays, out, lse, dout)

    kernels = collections.defaultdict(collections.Counter)
    for kernel in jaxprs.equations(jax.make_jaxpr(both)(dout, *arrays).jaxpr):
        if kernel.primitive.name == "mpmd_map":
            inside = (each for part in jaxprs.within(kernel) for each in jaxprs.equations(part))
            kernels[kernel.params["name"]].update(filter(None, map(hidden, inside)))
    recorded.check(__file__, name, {kernel: dict(sorted(found.items())) for kernel, found in kernels.items()})


@pytest.mark.parametrize(("mask", "dtype"), [("none", "float32"), ("queries", "bfloat16")])
@pytest.mark.parametrize("config", two_simplicial_cases.CONFIGS, ids=lambda config: config.logit)
def test_two_simplicial(config, mask, dtype):
    shape = two_simplicial_shapes.Shape("", batch=2, heads=4, queries=70, keys=33, features=48)
    arrays = two_simplicial_cases.arrays(shape, mask=mask, dtype=dtype)
    dout = two_simplicial_cases.cotangent(arrays)
    check(f"two_simplicial, {config.logit}, mask {mask}, {dtype}", two_simplicial, config, arrays, dout)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "full"])
def test_trans(causal, mask):
    shape = trans_shapes.Shape("", 1, 2, 136, 270, 72, causal=causal)
    arrays, dout = trans_cases.make(shape, "bfloat16", mask)
    check(f"trans, causal {causal}, mask {mask}", trans, shape.config, arrays, dout)


def test_trilinear():
    shape = trilinear_shapes.Shape("", 1, 150, 2, 1, 16, 4, 140)
    arrays, dout = trilinear_cases.make(shape, "bfloat16")
    check("trilinear", trilinear, shape.config, arrays, dout)
