"""Errors for bad arguments, in the one form `argument: got X, expected Y`."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.runtime.config import at_least, one_of

__all__ = ["at_least", "divides", "encoder", "floats", "mask", "one_of", "relations", "shape", "square"]


def divides(name: str, value: int, whole_name: str, whole: int) -> None:
    """Raises ValueError unless `value` is positive and divides `whole`."""
    if value < 1 or whole % value:
        raise ValueError(f"{name}: got {value}, expected a divisor of {whole_name} = {whole}")


def floats(name: str, x: Array, axes: str) -> None:
    """Raises ValueError unless `x` is floating-point with one axis per letter of `axes`, such as "B N D"."""
    expected = f"[{', '.join(axes.split())}]"
    if x.ndim != len(axes.split()):
        raise ValueError(f"{name}: got shape {x.shape}, expected {expected}")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"{name}: got dtype {x.dtype}, expected floating point")


def shape(name: str, x: Array, axes: str, sizes: Sequence[int]) -> None:
    """Raises ValueError unless `x` has shape `sizes`; `axes`, as "B N", names them in the message."""
    if x.shape != tuple(sizes):
        raise ValueError(
            f"{name}: got shape {x.shape}, expected [{', '.join(axes.split())}] = {list(map(int, sizes))}"
        )


def mask(x: Array | None, sizes: Sequence[int]) -> None:
    """Raises ValueError unless `x` is None or boolean with shape [B, N] = `sizes`."""
    if x is None:
        return
    shape("mask", x, "B N", sizes)
    if x.dtype != jnp.bool_:
        raise ValueError(f"mask: got dtype {x.dtype}, expected bool")


def relations(x: Array, num_relations: int, sizes: Sequence[int]) -> None:
    """Raises ValueError unless `x` has integers from -1 to `num_relations` - 1 and shape [B, N, N] = `sizes`.

    The entries of a traced array are unknown and pass.
    """
    at_least("num_relations", num_relations, 1)
    shape("relations", x, "B N N", sizes)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise ValueError(f"relations: got dtype {x.dtype}, expected integers")
    if isinstance(x, jax.core.Tracer) or not x.size:
        return
    low, high = int(np.min(x)), int(np.max(x))
    if low < -1 or high >= num_relations:
        raise ValueError(f"relations: got entries from {low} to {high}, expected -1 to {num_relations - 1}")


def square(x: Array) -> None:
    """Raises ValueError unless the relations have shape [B, N, N]."""
    if x.ndim != 3 or x.shape[1] != x.shape[2]:
        raise ValueError(f"relations: got shape {x.shape}, expected [B, N, N]")


def encoder(num_layers: int, hidden: int, norm: str, norms: Sequence[str]) -> None:
    """Raises ValueError for fields of a residual stack that are out of range."""
    at_least("num_layers", num_layers, 1)
    at_least("hidden", hidden, 1)
    one_of("norm", norm, norms)
