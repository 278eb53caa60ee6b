"""An operation whose implementations note that they were called."""

import dataclasses
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels import chips, dispatch, plans
from kernels.arrays import pushforward

CHIP = chips.Chip("cpu", "cpu", "sm90", "gpu", memory=1)


@dataclasses.dataclass(frozen=True)
class Config:
    power: int = 3


def definition(config, x, weight, mask):
    """sum_n mask_n weight_n x_n^power, [B]; the residual is the batch's first column."""
    terms = weight[None] * x**config.power
    return jnp.where(True if mask is None else mask, terms, 0).sum(1), x[:, 0]


def backend(name, calls):
    """A module that computes the operation and notes that it was called."""

    def forward(config, x, weight, mask, *, blocks=None, interpret=False):
        calls.append((name, "forward", blocks, interpret))
        return definition(config, x, weight, mask)

    def backward(config, x, weight, mask, out, residual, cotangent, *, blocks=None, interpret=False):
        calls.append((name, "backward", blocks, interpret))
        terms = jnp.where(True if mask is None else mask, cotangent[:, None], 0)
        power = config.power
        return terms * weight[None] * power * x ** (power - 1), (terms * x**power).sum(0)

    def plan(direction, config, x, weight, mask, *, chip, blocks=None):
        if any(not isinstance(size, int) for size in x.shape):
            raise plans.Refused("shape: got a symbol, expected numbers")
        if x.shape[1] > 8:
            raise plans.Refused(f"{name} takes no more than 8 columns")

    def on_chip(function):
        def run(*arrays, chip, **options):
            assert chip.backend == name
            return function(*arrays, **options)

        return run

    def xla_backward(*operands, blocks=None, dresidual=None):
        dx, dweight = backward(*operands, blocks=blocks)
        return (dx if dresidual is None else dx.at[:, 0].add(dresidual)), dweight

    def tangent(config, x, weight, mask, out, residual, *tangents):
        calls.append((name, "tangent", None, False))
        return pushforward(lambda x, weight: definition(config, x, weight, mask), (x, weight), tangents)

    module = types.ModuleType(f"{__name__}.{name}")
    if name == "xla":
        contents: dict[str, Any] = {
            "forward": lambda *x, blocks=None: forward(*x, blocks=blocks),
            "backward": xla_backward,
            "tangent": tangent,
            "unsupported": lambda *arrays: None,
        }
    else:
        contents = {"forward": on_chip(forward), "backward": on_chip(backward), "plan": plan}
    for key, value in contents.items():
        setattr(module, key, value)
    return module


def install(monkeypatch) -> list:
    """Puts the backends in their places; returns their notes: (name, direction, blocks, interpreted)."""
    calls = []
    for name in ("xla", "gpu", "tpu"):
        monkeypatch.setitem(sys.modules, f"{__name__}.{name}", backend(name, calls))
    jax.clear_caches()
    return calls


OPERATION = dispatch.Operation(
    name="power_sum",
    reference=definition,
    package=__name__,
    outputs=lambda config, x, weight, mask, *_: (
        jax.ShapeDtypeStruct(x.shape[:1], x.dtype),
        jax.ShapeDtypeStruct(x.shape[:1], x.dtype),
    ),
    describe=lambda config, x, weight, mask, *_: ({"dtype": str(x.dtype)}, {"N": x.shape[1]}),
    batch_axis=(True, False, True),
    differentiable=2,
)


def run(x, weight, mask=None, implementation=None):
    """Calls the operation."""
    return dispatch.run(OPERATION, Config(), x, weight, mask, implementation=implementation)


def draw(*shape, seed=0):
    """Normal numbers."""
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


X, WEIGHT = draw(4, 5), draw(5, seed=1)
MASK = jnp.asarray(np.random.default_rng(2).random((4, 5)) < 0.6)
