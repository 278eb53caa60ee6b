"""Clauses whose kernel is the same everywhere: affine maps of predicates, and activations between them.

Axis letters: B batch; X, Y tokens; W inputs of an affine map, F its outputs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Affine(NamedTuple):
    """A map W -> F, linear without a bias: a clause whose kernel is the same for all tokens."""

    weight: Float[Array, "W F"]
    bias: Float[Array, "F"] | None = None


def over_features(inputs: Float[Array, "*B W"], affine: Affine) -> Float[Array, "*B F"]:
    """An affine map of the last axis: unary atoms to unary atoms.

    All rows are one product, so that the gradient of the weight is a sum over one axis.
    """
    weight, bias = affine
    outputs = inputs.reshape(-1, inputs.shape[-1]) @ weight.astype(inputs.dtype)
    if bias is not None:
        outputs += bias.astype(inputs.dtype)[None]
    return outputs.reshape(*inputs.shape[:-1], weight.shape[-1])


def over_predicates(inputs: Float[Array, "B W X Y"], affine: Affine) -> Float[Array, "B F X Y"]:
    """An affine map of the second axis: binary atoms to binary atoms of the same pair.

    The weight is repeated for each element of the batch. That makes a batched product [F, W] x [W, X Y] whose
    inputs and outputs lie as they should; without it the output would have its batch inside and be turned
    around, at up to five times the cost on CPUs.
    """
    weight, bias = affine
    batch, width, rows, columns = inputs.shape
    repeated = jnp.broadcast_to(weight.astype(inputs.dtype)[None], (batch, *weight.shape))
    outputs = jax.lax.dot_general(
        repeated, inputs.reshape(batch, width, rows * columns), (((1,), (1,)), ((0,), (0,)))
    )
    if bias is not None:
        outputs += bias.astype(inputs.dtype)[None, :, None]
    return outputs.reshape(batch, weight.shape[-1], rows, columns)


def implication(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln(1 + 2 e^z), equations (9) and (27): from the logit of a clause's body to that of its head."""
    dtype = jnp.promote_types(z.dtype, jnp.float32)
    return jax.nn.softplus(z.astype(dtype) + jnp.log(jnp.asarray(2, dtype))).astype(z.dtype)


def gelu(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """The logit times the normal distribution up to z, exact, in float32 at least.

    By erf, as released. `jax.nn.gelu` takes erfc, whose digits far down the tail z makes no use of, and which
    takes a quarter longer on CPUs: these are the widest values of the model. For the same reason the
    derivative is written out: it is made of z alone, while that of the formula's parts would keep them all.
    """
    x = z.astype(jnp.promote_types(z.dtype, jnp.float32))
    return _gelu(x).astype(z.dtype)


@jax.custom_jvp
def _gelu(x: jax.Array) -> jax.Array:
    return x * _normal_distribution(x)


@_gelu.defjvp
def _gelu_tangent(primals, tangents):
    """The derivative is Phi(x) + x phi(x), with Phi the normal distribution and phi its density."""
    (x,), (tangent,) = primals, tangents
    density = jnp.exp(-0.5 * jnp.square(x)) * np.asarray(1 / np.sqrt(2 * np.pi), x.dtype)
    return _gelu(x), tangent * (_normal_distribution(x) + x * density)


def _normal_distribution(x: jax.Array) -> jax.Array:
    return 0.5 * (1 + jax.lax.erf(x * np.asarray(0.5**0.5, x.dtype)))


def activate(z: Float[Array, "..."], activation: str) -> Float[Array, "..."]:
    """An activation by name: "gelu" (exact, by erf), "relu" or "implication"; others raise ValueError."""
    match activation:
        case "gelu":
            return gelu(z)
        case "relu":
            return jax.nn.relu(z)
        case "implication":
            return implication(z)
    raise ValueError(f"activation is {activation!r}, expected 'gelu', 'relu' or 'implication'")
