"""What the public functions refuse, and the words they refuse it with: before anything is computed."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def floating(**arrays: Any) -> list[jax.Array]:
    """The arguments as arrays of one floating type, the widest among them.

    Raises:
        ValueError: one is not an array of real floating point numbers; it names the argument and its type.
    """
    checked = {}
    for name, x in arrays.items():
        try:
            x = jnp.asarray(x)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name} is {type(x).__name__}, expected an array of floating point numbers"
            ) from error
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(
                f"{name} has type {x.dtype}, expected floating point numbers (float32, bfloat16, ...)"
            )
        checked[name] = x
    dtype = jnp.result_type(*checked.values())
    return [x.astype(dtype) for x in checked.values()]


def rank(name: str, x: jax.Array, least: int, axes: str) -> None:
    """Refuses an array of fewer axes than `axes`, such as "[..., N, H, D]", has."""
    if x.ndim < least:
        raise ValueError(f"{name} has shape {x.shape}, expected {axes}: at least {least} axes")


def shape(name: str, x: jax.Array, expected: Sequence[int], axes: str, because: str) -> None:
    """Refuses an array whose shape is not the one that the other arguments call for."""
    if x.shape != tuple(expected):
        raise ValueError(f"{name} has shape {x.shape}, expected {axes} = {tuple(expected)} {because}")


def mask(x: Any, full: Sequence[int], axes: str, name: str = "mask") -> jax.Array | None:
    """A mask with as many axes as `full`, each full or of size 1.

    Raises:
        ValueError: it is not boolean (a float mask would be added or multiplied, which is not what is meant
            here) or does not broadcast to `full`.
    """
    if x is None:
        return None
    x = jnp.asarray(x)
    if x.dtype != jnp.bool_:
        raise ValueError(f"{name} has type {x.dtype}, expected bool: True where attention is allowed")
    spread = (1,) * (len(full) - x.ndim) + x.shape
    if len(spread) != len(full) or any(n not in (1, m) for n, m in zip(spread, full, strict=True)):
        raise ValueError(f"{name} has shape {x.shape}, which does not broadcast to {axes} = {tuple(full)}")
    return x.reshape(spread)


def flatten_batch(x: jax.Array, batch: Sequence[int], trailing: int) -> jax.Array:
    """All batch axes as one. A mask keeps size 1 when it is alike for the whole batch."""
    own, rest = x.shape[: x.ndim - trailing], x.shape[x.ndim - trailing :]
    if own == tuple(batch):
        return x.reshape(math.prod(batch), *rest)
    if all(n == 1 for n in own):
        return x.reshape(1, *rest)
    return jnp.broadcast_to(x, (*batch, *rest)).reshape(math.prod(batch), *rest)


def positive(name: str, value: Any, least: float = 0.0) -> float:
    """A static number greater than 0 (and at least `least`).

    Raises:
        ValueError: it is an array, not finite, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or isinstance(value, jax.Array):
        raise ValueError(
            f"{name} is {type(value).__name__}, expected a Python number: it is compiled in "
            f"(multiply the query by whatever is learned)"
        )
    value = float(value)
    if not math.isfinite(value) or value <= 0 or value < least:
        floor = f", at least {least}" if least else ""
        raise ValueError(f"{name} is {value}, expected a finite number greater than 0{floor}")
    return value
