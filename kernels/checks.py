"""Checks of arguments, made by the public functions before anything is computed.

Every message has the form `argument: got X, expected Y`.
"""

import math
import numbers
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from kernels.arrays import Size


def floating(**arrays: Any) -> list[Float[Array, "..."]]:
    """Returns the arguments as arrays of one floating dtype, the widest among them.

    Raises:
        ValueError: an argument is not an array of real floating point numbers.
    """
    checked = {}
    for name, x in arrays.items():
        try:
            x = jnp.asarray(x)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}: got {type(x).__name__}, expected an array of floating point numbers"
            ) from error
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(
                f"{name}: got dtype {x.dtype}, expected floating point numbers (float32, bfloat16, ...)"
            )
        checked[name] = x
    dtype = jnp.result_type(*checked.values())
    return [x.astype(dtype) for x in checked.values()]


def rank(name: str, x: Shaped[Array, "..."], least: int, axes: str) -> None:
    """Raises a ValueError if an array has fewer than `least` axes; `axes` names them: "[..., N, H, D]"."""
    if x.ndim < least:
        raise ValueError(f"{name}: got shape {x.shape}, expected {axes} with at least {least} axes")


def shape(name: str, x: Shaped[Array, "..."], expected: Sequence[Size], axes: str, because: str) -> None:
    """Raises a ValueError if an array's shape is not the one that another argument implies.

    Args:
        name: the argument.
        x: its value.
        expected: the shape that it must have.
        axes: names of the axes: "[..., N, H, D]".
        because: which argument it must match, such as "to match key1"; ends the message.
    """
    if x.shape != tuple(expected):
        raise ValueError(f"{name}: got shape {x.shape}, expected {axes} = {tuple(expected)} {because}")


def mask(x: Any, full: Sequence[Size], axes: str, name: str = "mask") -> Bool[Array, "..."] | None:
    """Returns a mask with as many axes as `full`, each full or of size 1; None for None.

    Raises:
        ValueError: the mask is not boolean (a float mask is usually meant to be added or multiplied) or does
            not broadcast to `full`.
    """
    if x is None:
        return None
    x = jnp.asarray(x)
    if x.dtype != jnp.bool_:
        raise ValueError(f"{name}: got dtype {x.dtype}, expected bool (True where attention is allowed)")
    spread = (1,) * (len(full) - x.ndim) + x.shape
    if len(spread) != len(full) or any(n not in (1, m) for n, m in zip(spread, full, strict=True)):
        raise ValueError(
            f"{name}: got shape {x.shape}, expected one that broadcasts to {axes} = {tuple(full)}"
        )
    return x.reshape(spread)


def flatten_batch(x: Shaped[Array, "..."], batch: Sequence[Size], trailing: int) -> Shaped[Array, "..."]:
    """Merges the batch axes, all but the `trailing` last, into one.

    The merged axis of a mask that is the same for the whole batch has size 1.
    """
    own, rest = x.shape[: x.ndim - trailing], x.shape[x.ndim - trailing :]
    if own == tuple(batch):
        return x.reshape(math.prod(batch), *rest)
    if all(n == 1 for n in own):
        return x.reshape(1, *rest)
    return jnp.broadcast_to(x, (*batch, *rest)).reshape(math.prod(batch), *rest)


def positive(name: str, value: Any, least: float = 0.0) -> float:
    """Returns a static number greater than 0 (and at least `least`) as a float.

    Raises:
        ValueError: the value is an array, not finite, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(
            f"{name}: got {type(value).__name__}, expected a Python number, since it is compiled in "
            f"(to learn a factor, multiply the query by it)"
        )
    value = float(value)
    if not math.isfinite(value) or value <= 0 or value < least:
        floor = f", at least {least}" if least else ""
        raise ValueError(f"{name}: got {value}, expected a finite number greater than 0{floor}")
    return value
