"""Dtypes, sizes and padding, shared by the implementations of several operations."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

Size = Any
"""The size of an axis: an int, or a symbol of `jax.export` in a program for any size."""
Described = Array | jax.ShapeDtypeStruct | jax.core.ShapedArray
"""Anything with a shape and a dtype: an array, or its description while a program is planned."""


def accumulator(*arrays: jax.typing.ArrayLike | jax.typing.DTypeLike) -> jnp.dtype:
    """Returns the dtype in which logits, softmaxes and sums of some arrays or dtypes are computed.

    It is the widest of them, float32 at least.
    """
    return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)


def einsum(equation: str, *operands: Array) -> Array:
    """Computes `jnp.einsum` in full precision, also on chips whose default has fewer bits."""
    return jnp.einsum(equation, *operands, precision=jax.lax.Precision.HIGHEST)


def divisor(size: int, limit: int) -> int:
    """Returns the largest divisor of `size` that is at most `limit`, 1 if there is no other."""
    return max(d for d in range(1, max(1, min(size, limit)) + 1) if size % d == 0)


def round_up(size: int, multiple: int) -> int:
    """Returns the smallest multiple of `multiple` that is at least `size`."""
    return -(-size // multiple) * multiple


def filled(x: Array, axis: int, size: Size, value: float = 0) -> Array:
    """Pads the end of an axis with `value` (False in a mask) up to `size`."""
    if x.shape[axis] == size:
        return x
    widths = [(0, size - x.shape[axis] if a == axis else 0) for a in range(x.ndim)]
    return jnp.pad(x, widths, constant_values=value)


def bfloat16_parts(x: Array, count: int) -> list[Array]:
    """Returns the bfloat16 numbers whose sum approximates a float32 array, largest first.

    For programs that XLA compiles: on accelerators it drops a conversion to 16 bits and back
    (`xla_allow_excess_precision`), and the rest would be 0. It keeps `reduce_precision`.
    """
    parts = []
    for _ in range(count - 1):
        rounded = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
        parts.append(rounded.astype(jnp.bfloat16))
        x = x - rounded
    return [*parts, x.astype(jnp.bfloat16)]


def zeros(like: Array, shape: tuple[Size, ...], dtype: jnp.dtype) -> Array:
    """Returns zeros that vary over the mesh axes of `like`, as the carry of a loop in `shard_map` must."""
    return jax.lax.full_like(like, 0, dtype, shape)


def pushforward(
    function: Callable[..., Any], arrays: Sequence[Array], tangents: Sequence[Array | None]
) -> Any:
    """Computes the tangents of a function's results from those of its arguments, None for zero."""

    def of_moved(*moved):
        left = iter(moved)
        return function(*(x if t is None else next(left) for x, t in zip(arrays, tangents, strict=True)))

    moving = [t is not None for t in tangents]
    primals = [x for x, moves in zip(arrays, moving, strict=True) if moves]
    return jax.jvp(of_moved, primals, [t for t in tangents if t is not None])[1]


def narrow(*arrays: Array) -> bool:
    """Returns whether all arrays have 16 bits: a result rounded to them is too coarse to compute with."""
    return all(a.dtype.itemsize <= 2 for a in arrays)
