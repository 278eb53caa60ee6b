"""An operation whose kernel is right, wrong, slow, raising or hanging, as its config says."""

import dataclasses
import os
import sys
import threading
import time
import types
from typing import Any, Literal

import jax
import jax.numpy as jnp

from kernels import chips, dispatch, plans

CHIP = dataclasses.replace(chips.HOPPER, kind="a chip of the tests", platform="cpu")
RELEASED = threading.Event()
"""Ends what hangs."""
Temper = Literal["right", "wrong", "wrong gradient", "not a number", "slow", "raising", "crashing", "hanging"]


@dataclasses.dataclass(frozen=True)
class Config:
    """How the kernel behaves."""

    temper: Temper = "right"


def definition(config, x, weight, mask):
    """sum_n mask_n weight_n x_n^2, [B]; the residual is the batch's first column."""
    del config
    terms = weight[None] * x**2
    return jnp.where(True if mask is None else mask, terms, 0).sum(1), x[:, 0]


def pullback(config, x, weight, mask, out, residual, cotangent):
    """The gradients of `definition`."""
    del config, out, residual
    terms = jnp.where(True if mask is None else mask, cotangent[:, None], 0)
    return terms * weight[None] * 2 * x, (terms * x**2).sum(0)


def delayed(x, seconds):
    """`x` after some time."""

    def wait(x):
        time.sleep(seconds)
        return x

    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def kernel_forward(config, *arrays, blocks=None, interpret=False, chip=None):
    """The forward pass, spoilt as the config says."""
    assert not interpret
    assert chip == CHIP
    if config.temper == "raising":
        raise ValueError("no such instruction")
    if config.temper == "crashing":
        os._exit(11)
    if config.temper == "hanging":
        RELEASED.wait(60)
    out, residual = definition(config, *arrays)
    if config.temper == "wrong":
        out = out * 1.001
    if config.temper == "not a number":
        out = out.at[0].set(jnp.nan)
    return out, residual


def kernel_backward(config, *operands, blocks=None, interpret=False, chip=None):
    """The backward pass, spoilt as the config says."""
    dx, dweight = pullback(config, *operands)
    if config.temper == "wrong gradient":  # for all examples but the last
        dx = dx.at[:-1].multiply(1.5)
    return dx, dweight


def plan(direction, config, x, weight, mask, *, chip, blocks=None):
    """No more than 8 columns fit."""
    found = types.SimpleNamespace(launches=(plans.Launch(direction, (1,), 30_000 * x.shape[1]),))
    plans.check(chip, found.launches)
    return found


def blockwise(config, *arrays, blocks=None):
    """The path that a kernel is compared with. It takes some milliseconds, unless the kernel does."""
    out, residual = definition(config, *arrays)
    return (out if config.temper == "slow" else delayed(out, 0.005)), residual


def slow_down(forward):
    """A kernel that is slower than the blockwise path if the config says so."""

    def run(config, *arrays, **options):
        out, residual = forward(config, *arrays, **options)
        return (delayed(out, 0.005) if config.temper == "slow" else out), residual

    return run


def _module(name: str, **contents: Any) -> None:
    module = types.ModuleType(f"{__name__}.{name}")
    vars(module).update(contents)
    sys.modules[module.__name__] = module


_module("xla", forward=blockwise, unsupported=lambda config, *arrays: None)
sys.modules[f"{__name__}.xla"].backward = lambda *x, blocks=None: pullback(*x)  # type: ignore[attr-defined]
_module("gpu", forward=slow_down(kernel_forward), backward=kernel_backward, plan=plan)


def outputs(config, x, weight, mask, *_):
    """Shapes of output and residual."""
    return (jax.ShapeDtypeStruct(x.shape[:1], x.dtype),) * 2


def described(config, x, weight, mask, *_):
    """Kind and sizes of a call."""
    kind = {"dtype": str(x.dtype), "temper": config.temper, "masked": mask is not None}
    return kind, {"B": x.shape[0], "N": x.shape[1]}


OPERATION = dispatch.Operation(
    name="square_sum",
    reference=definition,
    package=__name__,
    outputs=outputs,
    describe=described,
    batch_axis=(True, False, True),
    differentiable=2,
)


def run(x, weight, mask=None, *, temper: Temper = "right", implementation=None):
    """Calls the operation."""
    return dispatch.run(OPERATION, Config(temper), x, weight, mask, implementation=implementation)
