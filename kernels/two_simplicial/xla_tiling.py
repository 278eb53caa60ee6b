"""Block sizes of the blockwise path, and the reshapes that cut arrays into blocks.

Axis letters: B batch, H heads, N queries, M keys; the others are blocks and what is in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kernels.arrays import Size, divisor, filled, round_up


@dataclass(frozen=True)
class Tiling:
    """How many of each axis one tile of triples has; it always has all second keys.

    Attributes:
      batch: batch entries, a divisor of B.
      heads: a divisor of H.
      queries: the last block of queries is filled up; a symbol is in one block.
      j: first keys; the last block is filled up.
      strided: whether a chunk takes every (B / batch)th entry, not neighbours. Within each chunk an axis is
        then sharded as it was, but on one device this copies all arrays.
    """

    batch: int
    heads: int
    queries: Size
    j: int
    strided: bool = False


@dataclass(frozen=True)
class Budget:
    """What a tile may hold where nothing was tuned.

    Attributes:
      triples: of a tile, about.
      pairs: J * K, which is also the length of the sums in one matrix product: on a CPU it adds them up in
        sequence, and sums of a few hundred in float32 are more accurate than sums of thousands.
      rows: queries, over all batch entries and heads; with few pairs they fill the caches, not the triples.
      strided: as in `Tiling`.
    """

    triples: int
    pairs: int
    rows: int
    strided: bool = False


def tiling(
    batch: Size,
    heads: int,
    queries: Size,
    keys: int,
    budget: Budget,
    blocks: Mapping[str, int] | None = None,
    devices: int = 1,
) -> Tiling:
    """Block sizes for a call: those of `blocks`, and for the rest what the budget allows.

    As many batch entries and heads are in one tile as leave room for a fair block of queries, and all of them
    in a program for several devices: the compiler can then partition a batch or heads that are sharded. A
    batch whose size is a symbol (in an exported program) is gone through one by one, and queries whose number
    is one are in one block: they are those of a whole batch that shares few keys.

    Args:
      batch: B.
      heads: H.
      queries: N.
      keys: M.
      budget: of a tile.
      blocks: sizes that are given, named as the fields of `Tiling`; they are cut to the axes.
      devices: over how many of them the compiler may partition; the budget is that of one.
    """
    given = dict(blocks or {})
    j = even(keys, given.get("j", budget.pairs // keys))
    symbolic = not isinstance(queries, int)
    fair = given.get("queries", 64) if symbolic else min(queries, given.get("queries", 64))
    rows = devices * min(budget.rows, budget.triples // (j * keys))
    if devices > 1 and isinstance(batch, int):
        given |= {"batch": batch, "heads": heads}
    together = rows // fair
    h = divisor(heads, given.get("heads", together))
    b = divisor(batch, given.get("batch", together // h)) if isinstance(batch, int) else 1
    q = queries if symbolic else even(queries, given.get("queries", rows // (b * h)), 16)
    return Tiling(b, h, q, j, strided=budget.strided and (b, h) != (batch, heads))


def even(size: int, limit: int, multiple: int = 1) -> int:
    """About equal blocks of at most `limit`, rounded up to a multiple unless one block holds everything."""
    limit = max(1, min(size, limit))
    count = -(-size // limit)
    if count == 1:
        return size
    return min(size, round_up(-(-size // count), multiple))


def blocked(x: Array, axis: int, size: Size) -> Array:
    """[..., N, ...] as [blocks, ..., size, ...]; the last block is filled up with zeros."""
    count = -(-x.shape[axis] // size)
    x = filled(x, axis, count * size)
    x = x.reshape(*x.shape[:axis], count, size, *x.shape[axis + 1 :])
    return jnp.moveaxis(x, axis, 0)


def unblocked(x: Array, axis: int, size: Size) -> Array:
    """The inverse of `blocked`: [blocks, ..., block, ...] as [..., size, ...]."""
    x = jnp.moveaxis(x, 0, axis)
    x = x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
    return jax.lax.slice_in_dim(x, 0, size, axis=axis)


def chunks(x: Array, axis: int, size: int, *, strided: bool) -> Array:
    """[..., B, ...] as [chunks, ..., size, ...]; `strided` as in `Tiling`."""
    sizes = (size, -1) if strided else (-1, size)
    x = x.reshape(*x.shape[:axis], *sizes, *x.shape[axis + 1 :])
    return jnp.moveaxis(x, axis + strided, 0)


def joined(x: Array, axis: int, *, strided: bool) -> Array:
    """The inverse of `chunks`."""
    x = jnp.moveaxis(x, 0, axis + strided)
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
