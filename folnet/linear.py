"""Affine maps of unary and of binary atoms, their initial values, and normalisation.

Axis letters: B batch; T, X, Y tokens; I inputs, O outputs.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from folnet.affine import Affine, over_features, over_predicates
from folnet.settings import ModelConfig


def normalize(inputs: Float[Array, "..."], eps: float, axis: int = -1) -> Float[Array, "..."]:
    """LayerNorm without gain and bias, over one axis, its sums in float32 at least.

    Zeros stay zeros. The variance is that of differences, not E[x^2] - E[x]^2: with an eps of 1e-12 nothing
    covers up what would be lost by cancellation.
    """
    x = inputs.astype(jnp.promote_types(inputs.dtype, jnp.float32))
    return _normalized(x, eps, axis).astype(inputs.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _normalized(x: jax.Array, eps: float, axis: int) -> jax.Array:
    return _with_scale(x, eps, axis)[0]


@_normalized.defjvp
def _normalized_tangent(eps, axis, primals, tangents):
    """With y the result: (x' - mean(x') - y mean(y x')) / deviation, a third faster than by parts."""
    (x,), (tangent,) = primals, tangents
    y, scale = _with_scale(x, eps, axis)
    along = (y * tangent).mean(axis=axis, keepdims=True)
    return y, scale * (tangent - tangent.mean(axis=axis, keepdims=True) - y * along)


def _with_scale(x: jax.Array, eps: float, axis: int) -> tuple[jax.Array, jax.Array]:
    """The result, and one over the deviation."""
    x = x - x.mean(axis=axis, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(x).mean(axis=axis, keepdims=True) + eps)
    return x * scale, scale


def normal(initializer_range: float) -> Callable[..., Array]:
    """Draws from N(0, range^2); with a negative range from N(0, 2 / (rows + columns)), as released."""

    def init(key, shape, dtype=jnp.float32):
        deviation = initializer_range if initializer_range >= 0 else math.sqrt(2 / sum(shape))
        return deviation * jax.random.normal(key, shape, dtype)

    return init


def table(module: Any, name: str, rows: int, width: int) -> Any:
    """A parameter of a module with a vector for each of so many rows; None without rows."""
    return module.param(name, normal(module.config.initializer_range), (rows, width)) if rows else None


class Linear(nn.Module):
    """An affine map of a unary atom's properties: a weight [inputs, outputs] and a bias [outputs]."""

    config: ModelConfig
    inputs: int
    outputs: int
    use_bias: bool = True

    def setup(self):
        self.weight = self.param("weight", normal(self.config.initializer_range), (self.inputs, self.outputs))
        self.bias: Any = self.param("bias", nn.initializers.zeros, (self.outputs,)) if self.use_bias else None

    @property
    def affine(self) -> Affine:
        return Affine(self.weight, self.bias)

    def __call__(self, inputs: Float[Array, "B T I"]) -> Float[Array, "B T O"]:
        return over_features(inputs, self.affine)


class PairLinear(Linear):
    """An affine map of a binary atom's relations."""

    def __call__(self, inputs: Float[Array, "B I X Y"]) -> Float[Array, "B O X Y"]:
        return over_predicates(inputs, self.affine)
