"""Affine maps of unary and binary atoms, their initial values, and normalization.

Axis letters: B batch; T, X, Y tokens; I inputs; O outputs.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from folnet.affine import Affine, over_features, over_predicates
from folnet.settings import ModelConfig


def normal(initializer_range: float) -> Callable[..., Array]:
    """Returns an initializer from N(0, range^2); if the range is negative, N(0, 2 / (rows + columns))."""

    def init(key, shape, dtype=jnp.float32):
        deviation = initializer_range if initializer_range >= 0 else math.sqrt(2 / sum(shape))
        wide = jnp.promote_types(dtype, jnp.float32)
        return (deviation * jax.random.normal(key, shape, wide)).astype(dtype)

    return init


def table(module: Any, name: str, rows: int, width: int) -> Any:
    """Adds a parameter [rows, width] to a module; returns it in at least float32, or None if `rows` is 0."""
    if not rows:
        return None
    config = module.config
    found = module.param(name, normal(config.initializer_range), (rows, width), jnp.dtype(config.param_dtype))
    return found.astype(jnp.promote_types(found.dtype, jnp.float32))


class Linear(nn.Module):
    """An affine map of unary atoms: a weight [inputs, outputs] and a bias [outputs]."""

    config: ModelConfig
    inputs: int
    outputs: int
    use_bias: bool = True

    def setup(self):
        drawn, dtype = normal(self.config.initializer_range), jnp.dtype(self.config.param_dtype)
        self.weight = self.param("weight", drawn, (self.inputs, self.outputs), dtype)
        self.bias: Any = None
        if self.use_bias:
            self.bias = self.param("bias", nn.initializers.zeros, (self.outputs,), dtype)

    @property
    def affine(self) -> Affine:
        return Affine(self.weight, self.bias)

    def __call__(self, inputs: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        return over_features(inputs, self.affine)


class PairLinear(Linear):
    """An affine map of binary atoms, whose predicates are the second axis."""

    def __call__(self, inputs: Float[Array, "B I X Y"]) -> Float[Array, "B O X Y"]:
        return over_predicates(inputs, self.affine)
