"""Clauses with the same kernel for all tokens: affine maps of predicates, and activations between them.

Axis letters: B batch; X, Y tokens; W inputs and F outputs of an affine map.
"""

import math
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Activation = Literal["gelu", "relu", "implication"]


class Affine(NamedTuple):
    """A map W -> F, linear without a bias: a clause whose kernel is the same for all tokens."""

    weight: Float[Array, "W F"]
    bias: Float[Array, "F"] | None = None


def over_features(inputs: Float[Array, "*B W"], affine: Affine) -> Float[Array, "*B F"]:
    """Applies an affine map to the last axis: unary atoms to unary atoms.

    All rows form a single product, so that the gradient of the weight is a sum over one axis.
    """
    weight, bias = affine
    outputs = inputs.reshape(-1, inputs.shape[-1]) @ weight.astype(inputs.dtype)
    if bias is not None:
        outputs += bias.astype(inputs.dtype)[None]
    return outputs.reshape(*inputs.shape[:-1], weight.shape[-1])


def over_predicates(inputs: Float[Array, "B W X Y"], affine: Affine) -> Float[Array, "B F X Y"]:
    """Applies an affine map to the second axis: binary atoms to binary atoms of the same pair.

    The weight is repeated along the batch, which gives a batched product [F, W] x [W, X Y] with inputs and
    outputs in their natural layout. Otherwise the batch would be an inner axis of the output, and transposing
    it costs up to five times as much on CPUs.
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
    """Computes ln(1 + 2 e^z), equations (9) and (27): the logit of a clause's head from that of its body."""
    dtype = jnp.promote_types(z.dtype, jnp.float32)
    return jax.nn.softplus(z.astype(dtype) + jnp.log(jnp.asarray(2, dtype))).astype(z.dtype)


def gelu(z: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes z Phi(z) exactly, with Phi the normal distribution function, in at least float32.

    It uses erf, as released. `jax.nn.gelu` uses erfc, whose accuracy far down the tail has no effect here and
    which is a quarter slower on CPUs; these are the widest arrays of the model. For the same reason the
    derivative is written out: it only keeps z, where differentiating the formula would keep its parts.
    """
    x = z.astype(jnp.promote_types(z.dtype, jnp.float32))
    return _gelu(x).astype(z.dtype)


@jax.custom_jvp
def _gelu(x: jax.Array) -> jax.Array:
    return x * _normal_distribution(x)


@_gelu.defjvp
def _gelu_tangent(primals, tangents):
    """Computes the derivative Phi(x) + x phi(x), with phi the density of the normal distribution."""
    (x,), (tangent,) = primals, tangents
    density = jnp.exp(-0.5 * jnp.square(x)) * (1 / math.sqrt(2 * math.pi))
    return _gelu(x), tangent * (_normal_distribution(x) + x * density)


def _normal_distribution(x: jax.Array) -> jax.Array:
    return 0.5 * (1 + jax.lax.erf(x * 0.5**0.5))


def activate(z: Float[Array, "*S"], activation: Activation) -> Float[Array, "*S"]:
    """Applies an activation by name ("gelu" is exact, by erf); raises ValueError for other names."""
    match activation:
        case "gelu":
            return gelu(z)
        case "relu":
            return jax.nn.relu(z)
        case "implication":
            return implication(z)
    raise ValueError(
        f"activation: got {activation!r}, expected one of {', '.join(map(repr, get_args(Activation)))}"
    )
