"""What TPU kernels share: what they take of vector memory (VMEM), what is refused, exact 16-bit products."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from kernels.arrays import round_up
from kernels.plans import Refused

LANES = 128
SUBLANES = 8
LEAST = 16 << 20  # bytes: the compiler's default limit


def tile_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    """Bytes of an array in vector memory, whose last two axes are padded to whole registers."""
    size = jnp.dtype(dtype).itemsize
    *major, rows, lanes = shape
    count = round_up(rows, SUBLANES * 4 // size) * round_up(lanes, LANES) * size
    for axis in major:
        count *= axis
    return count


def with_temporaries(kept: int) -> int:
    """The bytes that the compiler may use for a kernel whose blocks and scratch take `kept`."""
    return max(LEAST, kept * 3 // 2 + (2 << 20))


def cut(size: int, most: int) -> int:
    """Returns the length, at most `most`, of blocks of whole lanes that cover an axis with the least over."""
    sizes = range(LANES, max(LANES, min(size, most)) + 1, LANES)
    return min(sizes, key=lambda block: (round_up(size, block), -block))


def check_arrays(dtypes: tuple[str, ...], *, any_batch: bool = False, **arrays: Any) -> None:
    """Raises `Refused` for an array of another dtype, or with a symbol of `jax.export` for a size.

    `any_batch`: the first size may be a symbol, since it is a side of the grid and nothing depends on it.
    """
    for name, array in arrays.items():
        if str(array.dtype) not in dtypes:
            raise Refused(f"{name}: got dtype {array.dtype}, expected {' or '.join(dtypes)}")
        if not all(isinstance(size, int) for size in array.shape[any_batch:]):
            raise Refused(
                f"{name}: got shape {array.shape}, expected numbers: a kernel is planned for a size"
            )


def halves(x: Array) -> tuple[Array, Array]:
    """Two bfloat16 numbers whose sum is x up to 2^-17: x rounded, and the rounding error; inside a kernel."""
    rounded = x.astype(jnp.bfloat16)
    return rounded, (x - rounded.astype(x.dtype)).astype(jnp.bfloat16)
