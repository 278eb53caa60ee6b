"""Types, sizes and padding: what the implementations of several operations share."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

Described = Array | jax.ShapeDtypeStruct | jax.core.ShapedArray
"""Anything with a shape and a dtype: an array, or its description while a program is planned."""


def accumulator(*arrays: jax.typing.ArrayLike | jax.typing.DTypeLike) -> jnp.dtype:
    """The dtype of logits, softmax and sums of arrays or dtypes: float32 at least."""
    return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)


def einsum(equation: str, *operands: Array) -> Array:
    """Products in full precision, also where the default is fewer bits."""
    return jnp.einsum(equation, *operands, precision=jax.lax.Precision.HIGHEST)


def divisor(size: int, limit: int) -> int:
    """The largest divisor of `size` that is at most `limit` (at least 1)."""
    return max(d for d in range(1, max(1, min(size, limit)) + 1) if size % d == 0)


def round_up(size: int, multiple: int) -> int:
    """The smallest multiple that is not less than `size`."""
    return -(-size // multiple) * multiple


def filled(x: Array, axis: int, size: int, value: float = 0) -> Array:
    """With `value` (False in a mask) after the end of an axis, up to `size`."""
    if x.shape[axis] == size:
        return x
    widths = [(0, size - x.shape[axis] if a == axis else 0) for a in range(x.ndim)]
    return jnp.pad(x, widths, constant_values=value)


def zeros(like: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Zeros that `shard_map` takes to vary over devices as `like` does, which a loop's carry must."""
    return jax.lax.full_like(like, 0, dtype, shape)
