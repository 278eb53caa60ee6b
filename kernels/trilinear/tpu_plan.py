"""How positions are cut for the TPU kernels of trilinear attention, and what a kernel asks about its tile.

Three lengths: a segment of positions, whose keys are in vector memory; a tile of T queries in it; a block of
second keys. Of a segment's keys the kernel sees `rows`: `front` rows before the segment's first position (its
first queries reach back to them; zeros before position 0), the segment's own, and a block after them, so that
no block ends outside. Position p of segment s is in row p - s * segment + front.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from kernels.arrays import divisor, round_up
from kernels.softmax import MASKED
from kernels.trilinear.reference import Config

LANES = 128
ROWS = 512  # rows of a tile (positions times heads): long enough to pay for loading the matrix unit
BLOCK = 640  # second keys of a block at most: the band of 128 queries with a window of 512
RESIDENT_BYTES = 32 * 2**20  # of the 64 MiB of vector memory of a v5p
VMEM_BYTES = 56 * 2**20


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes of one call."""

    config: Config  # with window1 not larger than window2
    batch: int  # B
    length: int  # N
    groups: int  # G
    per_group: int  # R, query heads of a group
    features: int  # D
    dtype: Any  # of the inputs
    queries: int  # T, positions of a tile: a multiple of 128
    heads: int  # of a tile, dividing R
    second: int  # second keys of a block: a multiple of 128
    segment: int = 0  # positions of a segment: a multiple of T

    @property
    def blocks(self) -> dict[str, int]:
        """The sizes that may be tuned."""
        return {"queries": self.queries, "heads": self.heads, "second": self.second}

    @property
    def reach(self) -> tuple[int, int]:
        """How many first and second keys a query sees at most."""
        return self.config.reach(self.length)

    @property
    def padded(self) -> int:
        """N rounded up to whole segments."""
        return round_up(self.length, self.segment)

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return self.padded // self.segment

    @property
    def front(self) -> int:
        """Rows of keys before those of a segment's own positions."""
        if not self.config.causal:
            return 0
        if self.segments == 1:
            return self.queries
        return round_up(max(self.reach) - 1, LANES)

    @property
    def rows(self) -> int:
        """Rows of keys that a segment sees."""
        return self.front + self.segment + self.second

    @property
    def grid(self) -> tuple[int, ...]:
        """Batch, groups, segments, blocks of heads, tiles."""
        heads, tiles = self.per_group // self.heads, self.segment // self.queries
        return self.batch, self.groups, self.segments, heads, tiles

    # ---- how arrays are laid out

    def heads_of(self, x: Float[Array, "B N H D"]) -> Float[Array, "B G R n D"]:
        """Queries head-major, whole segments."""
        x = x.reshape(self.batch, self.length, self.groups, self.per_group, self.features)
        x = jnp.transpose(x, (0, 2, 3, 1, 4))
        return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, self.padded - self.length), (0, 0)))

    def positions_of(self, x: Float[Array, "B G R n D"]) -> Float[Array, "B N H D"]:
        """The inverse of `heads_of`."""
        x = jnp.transpose(x[:, :, :, : self.length], (0, 3, 1, 2, 4))
        return x.reshape(self.batch, self.length, self.groups * self.per_group, self.features)

    def rows_of(self, x: Float[Array, "B H N"]) -> Float[Array, "B G R 1 n"]:
        """One number a query, positions in the lanes."""
        x = x.reshape(self.batch, self.groups, self.per_group, 1, self.length)
        return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 0), (0, self.padded - self.length)))

    def segmented(self, x: Float[Array, "B N G D"]) -> Float[Array, "B G S rows D"]:
        """Keys or values, for each segment those it sees: a little more than once in memory."""
        x = jnp.swapaxes(x, 1, 2)
        back = self.padded - self.length + self.second
        x = jnp.pad(x, ((0, 0), (0, 0), (self.front, back), (0, 0)))
        starts = range(0, self.padded, self.segment)
        return jnp.stack([x[:, :, s : s + self.rows] for s in starts], axis=2)

    def joined(self, x: Float[Array, "B G S rows D"]) -> Float[Array, "B N G D"]:
        """The transpose of `segmented`: what several segments have for one position is summed."""
        total = jnp.zeros((*x.shape[:2], self.front + self.padded + self.second, x.shape[-1]), x.dtype)
        for s in range(self.segments):
            total = total.at[:, :, s * self.segment : s * self.segment + self.rows].add(x[:, :, s])
        return jnp.swapaxes(total[:, :, self.front : self.front + self.length], 1, 2)

    # ---- blocks of arrays that a step sees

    def tile_spec(self) -> pl.BlockSpec:
        """Of `heads_of`: [heads, T, D]."""
        tiles = self.grid[-1]
        return pl.BlockSpec(
            (None, None, self.heads, self.queries, self.features),
            lambda b, g, s, h, t: (b, g, h, s * tiles + t, 0),
        )

    def row_spec(self) -> pl.BlockSpec:
        """Of `rows_of`: [heads, 1, T]."""
        tiles = self.grid[-1]
        return pl.BlockSpec(
            (None, None, self.heads, 1, self.queries), lambda b, g, s, h, t: (b, g, h, 0, s * tiles + t)
        )

    def resident_spec(self) -> pl.BlockSpec:
        """Of `segmented`: [rows, D], the same for all tiles of a segment."""
        return pl.BlockSpec(
            (None, None, None, self.rows, self.features), lambda b, g, s, h, t: (b, g, s, 0, 0)
        )

    def compiler_params(self, *, tiles_in_order: bool) -> pltpu.CompilerParams:
        """Steps that may run in any order, and how much vector memory there is."""
        inner = "arbitrary" if tiles_in_order else "parallel"
        return pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", inner, inner),
            vmem_limit_bytes=VMEM_BYTES,
        )

    def product(self, left: Array, right: Array, contract: tuple[int, int]) -> Array:
        """A matrix product over one axis of each, of operands in the inputs' type, summed in float32."""
        return jax.lax.dot_general(
            left.astype(self.dtype),
            right.astype(self.dtype),
            (((contract[0],), (contract[1],)), ((), ())),
            precision=jax.lax.Precision.HIGHEST if self.dtype == jnp.float32 else None,
            preferred_element_type=jnp.float32,
        )


class Tile:
    """What a kernel asks about the tile of queries that its step of the grid has."""

    def __init__(self, plan: Plan):
        self.plan = plan
        segment_start = pl.program_id(2) * plan.segment
        self.start = segment_start + pl.program_id(4) * plan.queries  # its first position
        self._row0 = plan.front - segment_start  # the row of position 0 among the segment's keys

    def steps(self) -> Array | int:
        """How many steps the loop over first keys takes: distances i - j, or all j."""
        plan = self.plan
        if not plan.config.causal:
            return plan.length
        if plan.reach[0] <= plan.queries:
            return plan.reach[0]  # no tile has less past
        return jnp.minimum(plan.reach[0], self.start + plan.queries)

    def first_rows(self, step: Array) -> Any:
        """The rows of first keys that a step's queries meet: one for each position, or one for all."""
        if not self.plan.config.causal:
            return pl.ds(step, 1)
        return pl.ds(self._row0 + self.start - step, self.plan.queries)

    def blocks(self) -> tuple[Array | int, Array | int]:
        """The first position of the first block of second keys that the tile sees, and how many blocks."""
        plan = self.plan
        if not plan.config.causal:
            return 0, pl.cdiv(plan.length, plan.second)
        back = round_up(plan.reach[1] - 1, LANES)
        if plan.segments > 1:  # before position 0 there are rows too, which the bias masks
            return self.start - back, pl.cdiv(plan.queries + back, plan.second)
        low = jnp.maximum(self.start - back, 0)
        if min(plan.queries + back, plan.padded) <= plan.second:
            return low, 1
        return low, jax.lax.div(self.start + (plan.queries + plan.second - 1) - low, plan.second)

    def second_rows(self, low: Array) -> Any:
        """The rows of the block of second keys from position `low` on."""
        return pl.ds(pl.multiple_of(self._row0 + low, LANES), self.plan.second)

    def over_pairs(self, keys: Any, values: Any, body: Callable[..., None]) -> None:
        """Calls `body(step, first rows, second rows, keys, values, bias)` for all that the tile sees.

        `keys` and `values` are references to the second ones; the body gets those of its block.
        """
        plan = self.plan

        def block(n, _):
            low = start + n * plan.second
            second = self.second_rows(low)
            k2, v2 = keys[second, :], values[second, :]
            bias = side_by_side([self.bias(low)] * plan.heads)

            def pairs(step, _):
                body(step, self.first_rows(step), second, k2, v2, bias)
                return 0

            return jax.lax.fori_loop(0, self.steps(), pairs, 0)

        start, count = self.blocks()
        jax.lax.fori_loop(0, count, block, 0)

    def positions(self) -> Array:
        """The position of each row of a tile, [1, heads * T]."""
        one_head = self.start + jax.lax.broadcasted_iota(jnp.int32, (1, self.plan.queries), 1)
        return side_by_side([one_head] * self.plan.heads)

    def bias(self, low: Array) -> Float[Array, "K T"]:
        """What masks second keys: 0, or MASKED where a query (a column) does not see a key (a row)."""
        plan = self.plan
        shape = (plan.second, plan.queries)
        k = low + jax.lax.broadcasted_iota(jnp.int32, shape, 0)
        if not plan.config.causal:
            return jnp.where(k < plan.length, 0.0, MASKED)
        i = self.start + jax.lax.broadcasted_iota(jnp.int32, shape, 1)
        return jnp.where((k <= i) & (k > i - plan.reach[1]) & (k >= 0), 0.0, MASKED)


def make_plan(config: Config, query: Any, key: Any, blocks: Mapping[str, int] | None = None) -> Plan | None:
    """Sizes for a call whose smaller window is the first; None where nothing fits vector memory.

    Args:
        config: windows, causality and scale.
        query: an array or its shape and dtype.
        key: likewise.
        blocks: wishes for "queries", "heads" and "second"; they are made to divide what they must.
    """
    batch, length, heads, features = query.shape
    groups = key.shape[2]
    wishes = dict(blocks or {})
    per_group = heads // groups
    queries = round_up(min(wishes.get("queries", LANES if per_group > 1 else 2 * LANES), length), LANES)
    wished = wishes.get("heads", max(1, ROWS // queries))
    in_tile = divisor(per_group, wished)
    windows = config.reach(length)
    band = round_up(length, LANES)
    if config.causal:
        band = min(band, queries + round_up(windows[1] - 1, LANES))
    second = _cut(band, wishes.get("second", BLOCK))
    plan = Plan(
        config, batch, length, groups, per_group, features, jnp.dtype(query.dtype), queries, in_tile, second
    )
    # Inputs and, in the backward pass, sums: two of each, one being copied while the other is in use.
    row_bytes = round_up(features, LANES) * 2 * (2 * 4 + 2 * plan.dtype.itemsize + 4 * 4)
    whole = dataclasses.replace(plan, segment=round_up(length, queries))
    if whole.rows * row_bytes <= RESIDENT_BYTES:
        return whole
    if not config.causal or max(windows) >= length:
        return None
    front = round_up(max(windows) - 1, LANES)  # that of a plan with several segments
    segment = (RESIDENT_BYTES // row_bytes - front - second) // queries * queries
    if segment < queries:
        return None
    count = -(-length // segment)
    return dataclasses.replace(plan, segment=round_up(-(-length // count), queries))


def side_by_side(parts: list[Array]) -> Array:
    """Tiles of the heads of a group as one, along the lanes."""
    return jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


def _cut(band: int, most: int) -> int:
    """Blocks of at most `most` that cover a band with the least over, and then are fewest."""
    sizes = range(LANES, max(LANES, min(band, most)) + 1, LANES)
    return min(sizes, key=lambda size: (round_up(band, size), -size))
