"""How a call of trilinear attention lies in memory for the Hopper kernels, and back.

The queries of a group are the rows of a tile: [B G, N R, D], position before head. With 64 query heads a
group (Roy et al. 2025) a tile of 64 rows is one position, its windows are exact and masks are needed at the
start of a sequence only. With fewer a tile holds several positions, whose windows overlap: it sweeps their
union under masks, so that short groups cost (64 / R - 1) extra keys a window.

The second keys are those that stream through the matrix unit, so the longer window should be theirs: the
operation is symmetric in (key1, value1) and (key2, value2), and they are exchanged where that helps.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernels.arrays import round_up
from kernels.hopper import ALIGNMENT, ROWS, Scalar
from kernels.trilinear.gpu_sweep import Band
from kernels.trilinear.reference import Config

FEATURES = (64, 128)  # what the tiles are written for; fewer are padded with zeros


@dataclasses.dataclass(frozen=True)
class Geometry:
    """How a call is laid out for the kernels."""

    batch: int  # B G, the blocks that have nothing in common
    length: int  # N, positions
    heads: int  # R, query heads of a group
    slots: int  # rows of a position: R, or the next number that divides a tile or that a tile divides
    features: int  # D
    padded: int  # columns of a tile
    exchanged: bool  # whether key1 and value1 have taken the places of key2 and value2
    band: Band  # what sees what, after that exchange
    scale: float  # of the logits; positive
    sign: float  # what key1 is multiplied by to make it so

    @property
    def positions(self) -> int:
        """How many positions a tile of rows covers."""
        return max(ROWS // self.slots, 1)

    @property
    def rows(self) -> int:
        """Rows of a group's queries, whole tiles."""
        return round_up(self.length, self.positions) * self.slots

    def fronts(self, columns: int) -> tuple[int, ...]:
        """Zeros before the first of the second keys, copy by copy.

        Tile number t of the queries takes copy t modulo their number. With these its window starts at a
        multiple of 8 rows, and never before the first row.
        """
        if not self.band.causal:
            return (0,)
        copies = max(ALIGNMENT // self.positions, 1) if self.slots <= ROWS else ALIGNMENT
        starts = (copy * self.positions - (self.band.window2 - 1) for copy in range(copies))
        return tuple(columns + (-start - columns) % ALIGNMENT for start in starts)

    def window(self, tile: Scalar, columns: int) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Where a tile of queries finds its second keys in what `as_windows` returns.

        Returns:
            Which copy; how many rows of zeros are before its first key; the first position of the window
            (it may be before the sequence); and the number of tiles of `columns` from there.
        """
        rows, fronts = self.range_of(tile), self.fronts(columns)
        copy = lax.rem(lax.div(rows[0], self.positions), len(fronts))
        front = functools.reduce(
            lambda f, c: jnp.where(copy == c, fronts[c], f), range(1, len(fronts)), fronts[0]
        )
        low, high = self.band.second(*rows, columns)
        return copy, front, low, lax.div(high - low + (columns - 1), columns)

    def range_of(self, tile: Scalar) -> tuple[Scalar, Scalar]:
        """The positions, [start, stop), of a tile of query rows."""
        start = lax.div(tile * ROWS, jnp.int32(self.slots))
        return start, start + self.positions


def geometry(config: Config, query: Any, key1: Any) -> Geometry:
    """The layout of a call."""
    batch, length, heads, features = query.shape
    groups = key1.shape[2]
    heads //= groups
    slots = round_up(heads, ROWS) if heads > ROWS else 1 << (heads - 1).bit_length()
    window1, window2 = config.reach(length)
    exchanged = window1 > window2
    return Geometry(
        batch=batch * groups,
        length=length,
        heads=heads,
        slots=slots,
        features=features,
        padded=next(size for size in FEATURES if size >= features),
        exchanged=exchanged,
        band=Band(length, min(window1, window2), max(window1, window2), config.causal),
        # The running maximum is of unscaled logits, so the scale must be positive; a scale of 0 is a key of
        # 0.
        scale=abs(config.scale) or 1.0,
        sign=math.copysign(1.0, config.scale) if config.scale else 0.0,
    )


def arranged(config: Config, arrays: Sequence[Array]) -> tuple[Geometry, tuple[Array, ...]]:
    """The layout of a call, and its query, keys and values after the exchange, with the sign in key1."""
    query, key1, key2, value1, value2 = arrays
    plan = geometry(config, query, key1)
    if plan.exchanged:
        key1, key2, value1, value2 = key2, key1, value2, value1
    if plan.sign != 1.0:
        key1 = key1 * jnp.asarray(plan.sign, key1.dtype)
    return plan, (query, key1, key2, value1, value2)


def as_rows(plan: Geometry, x: Float[Array, "B N H D"]) -> Float[Array, "BG rows padded"]:
    """Queries, or what has their shape, as rows of their group."""
    batch, length, heads, features = x.shape
    groups = heads // plan.heads
    x = x.reshape(batch, length, groups, plan.heads, features).swapaxes(1, 2)
    positions = plan.rows // plan.slots
    x = _padded(x, (batch, groups, positions, plan.slots, plan.padded))
    return x.reshape(plan.batch, plan.rows, plan.padded)


def from_rows(plan: Geometry, x: Float[Array, "BG rows padded"], batch: int) -> Float[Array, "B N H D"]:
    """The inverse of `as_rows`."""
    groups = plan.batch // batch
    x = x.reshape(batch, groups, plan.rows // plan.slots, plan.slots, plan.padded)
    x = x[:, :, : plan.length, : plan.heads, : plan.features].swapaxes(1, 2)
    return x.reshape(batch, plan.length, groups * plan.heads, plan.features)


def row_scalars(plan: Geometry, x: Float[Array, "B H N"]) -> Float[Array, "BG rows"]:
    """One number for each query head and position, as `as_rows` orders them."""
    x = x.reshape(plan.batch, plan.heads, plan.length).swapaxes(1, 2)
    return _padded(x, (plan.batch, plan.rows // plan.slots, plan.slots)).reshape(plan.batch, plan.rows)


def from_row_scalars(plan: Geometry, x: Float[Array, "BG rows"], batch: int) -> Float[Array, "B H N"]:
    """The inverse of `row_scalars`."""
    x = x.reshape(plan.batch, plan.rows // plan.slots, plan.slots)[:, : plan.length, : plan.heads]
    return x.swapaxes(1, 2).reshape(batch, -1, plan.length)


def as_keys(
    plan: Geometry, x: Float[Array, "B N G D"], extra: int = ROWS
) -> Float[Array, "BG positions padded"]:
    """Keys or values, with `extra` rows of zeros after the last for tiles that reach beyond it."""
    batch, length, groups, _ = x.shape
    x = _padded(x.swapaxes(1, 2), (batch, groups, length + extra, plan.padded))
    return x.reshape(plan.batch, length + extra, plan.padded)


def from_keys(plan: Geometry, x: Float[Array, "BG positions padded"], batch: int) -> Float[Array, "B N G D"]:
    """The inverse of `as_keys`."""
    x = x[:, : plan.length, : plan.features].reshape(batch, -1, plan.length, plan.features)
    return x.swapaxes(1, 2)


def as_windows(
    plan: Geometry, x: Float[Array, "B N G D"], columns: int
) -> Float[Array, "BGcopies positions padded"]:
    """Second keys or values, to be read in tiles from where a window starts: a copy for each `plan.fronts`.

    A swizzled tile starts at a multiple of 8 rows and a window anywhere. Where groups are small a tile's
    positions are many and the windows of all tiles start alike; where they are large there are
    few keys for each query.
    """
    x = as_keys(plan, x, 0)
    total = round_up(plan.length + max(plan.fronts(columns)) + columns, ALIGNMENT)
    copies = [jnp.pad(x, ((0, 0), (f, total - plan.length - f), (0, 0))) for f in plan.fronts(columns)]
    return jnp.stack(copies, axis=1).reshape(-1, total, plan.padded)


def _padded(x: Array, shape: tuple[int, ...]) -> Array:
    return jnp.pad(x, [(0, new - old) for new, old in zip(shape, x.shape, strict=True)])
