"""How positions are cut for the TPU kernels of trilinear attention, and what a kernel asks about its tile.

Three lengths: a segment of positions, whose keys are in vector memory; a tile of T queries in it; a block of
second keys. Of a segment's keys the kernel sees `rows`: `front` rows before the segment's first position (its
first queries reach back to them; zeros before position 0), the segment's own, and a block after them, so that
no block ends outside. Position p of segment s is in row p - s * segment + front.

Where vector memory has no room for the keys of a segment (long sequences with wide windows), they stay in the
chip's main memory and are streamed: a block of second keys, and for it chunks of first keys, are copied in
for each tile, and sums of gradients out again. A tile's work grows with the product of the windows
and its copies with one of them, so that they cost little.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float

from kernels.arrays import divisor, round_up
from kernels.chips import Chip
from kernels.plans import Launch, Refused, check, fits
from kernels.softmax import LOG2E, MASKED
from kernels.tables import Direction
from kernels.tpu_shared import LANES, LEAST, check_arrays, cut, halves, tile_bytes
from kernels.trilinear.reference import Config

ROWS = 512  # rows of a tile (positions times heads): long enough to pay for loading the matrix unit
BLOCK = 640  # second keys of a block at most: the band of 128 queries with a window of 512
CHUNK = 512  # distances (or first keys) of a chunk that is streamed
RESIDENT_BYTES = 32 * 2**20  # of the 64 MiB of vector memory of a v5p
MOST_FEATURES = 128
DTYPES = ("float32", "bfloat16")
TEMPORARIES = {"forward": 6, "backward": 10}  # tiles of logits, and of queries, that are live at once


class Keys(NamedTuple):
    """The keys and values that a kernel reads, or sums of their gradients: references or arrays."""

    key1: Any
    value1: Any
    key2: Any
    value2: Any


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
    streamed: bool = False  # whether keys stay in main memory; there is one segment then

    @property
    def narrow(self) -> bool:
        """Whether the inputs are bfloat16."""
        return self.dtype == jnp.bfloat16

    @property
    def width(self) -> int:
        """D as arrays have it: copies from main memory want whole lanes."""
        return round_up(self.features, LANES) if self.streamed else self.features

    @property
    def chunk(self) -> int:
        """Distances, or first keys, that are streamed together."""
        return min(CHUNK, round_up(self.reach[0], LANES))

    @property
    def factors(self) -> tuple[float, float]:
        """What the query and the logits are multiplied by: logits are powers of two.

        A bfloat16 query stays as it is, so that its products with first keys can be kept exactly.
        """
        factor = self.config.scale * LOG2E
        return (1.0, factor) if self.narrow else (factor, 1.0)

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
        if self.streamed:
            return self.queries + self.chunk
        if self.segments == 1:
            return self.queries
        return round_up(max(self.reach) - 1, LANES)

    @property
    def rows(self) -> int:
        """Rows of keys that a segment sees."""
        return self.front + self.segment + (max(self.second, self.chunk) if self.streamed else self.second)

    @property
    def grid(self) -> tuple[int, ...]:
        """Batch, groups, segments, blocks of heads, tiles."""
        heads, tiles = self.per_group // self.heads, self.segment // self.queries
        return self.batch, self.groups, self.segments, heads, tiles

    # ---- how arrays are laid out

    def heads_of(self, x: Float[Array, "B N H D"]) -> Float[Array, "B G R n W"]:
        """Queries head-major, whole segments, features up to `width`."""
        x = x.reshape(self.batch, self.length, self.groups, self.per_group, self.features)
        x = jnp.transpose(x, (0, 2, 3, 1, 4))
        room = (0, self.padded - self.length), (0, self.width - self.features)
        return jnp.pad(x, ((0, 0), (0, 0), (0, 0), *room))

    def positions_of(self, x: Float[Array, "B G R n W"]) -> Float[Array, "B N H D"]:
        """The inverse of `heads_of`."""
        x = jnp.transpose(x[:, :, :, : self.length, : self.features], (0, 3, 1, 2, 4))
        return x.reshape(self.batch, self.length, self.groups * self.per_group, self.features)

    def rows_of(self, x: Float[Array, "B H N"]) -> Float[Array, "B G R 1 n"]:
        """One number a query, positions in the lanes."""
        x = x.reshape(self.batch, self.groups, self.per_group, 1, self.length)
        return jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, 0), (0, self.padded - self.length)))

    def segmented(self, x: Float[Array, "B N G D"]) -> Float[Array, "B G S rows W"]:
        """Keys or values, for each segment those it sees: a little more than once in memory."""
        x = jnp.swapaxes(x, 1, 2)
        back = self.padded - self.length + self.rows - self.front - self.segment
        x = jnp.pad(x, ((0, 0), (0, 0), (self.front, back), (0, self.width - self.features)))
        starts = range(0, self.padded, self.segment)
        return jnp.stack([x[:, :, s : s + self.rows] for s in starts], axis=2)

    def joined(self, x: Float[Array, "B G S rows W"]) -> Float[Array, "B N G D"]:
        """The transpose of `segmented`: what several segments have for one position is summed."""
        last = self.padded - self.segment
        total = jnp.zeros((*x.shape[:2], last + self.rows, x.shape[-1]), x.dtype)
        for s in range(self.segments):
            total = total.at[:, :, s * self.segment : s * self.segment + self.rows].add(x[:, :, s])
        total = total[:, :, self.front : self.front + self.length, : self.features]
        return jnp.swapaxes(total, 1, 2)

    # ---- blocks of arrays that a step sees

    def tile_spec(self) -> pl.BlockSpec:
        """Of `heads_of`: [heads, T, D]."""
        tiles = self.grid[-1]
        return pl.BlockSpec(
            (None, None, self.heads, self.queries, self.width),
            lambda b, g, s, h, t: (b, g, h, s * tiles + t, 0),
        )

    def row_spec(self) -> pl.BlockSpec:
        """Of `rows_of`: [heads, 1, T]."""
        tiles = self.grid[-1]
        return pl.BlockSpec(
            (None, None, self.heads, 1, self.queries), lambda b, g, s, h, t: (b, g, h, 0, s * tiles + t)
        )

    def keys_spec(self) -> pl.BlockSpec:
        """Of `segmented`: [rows, D], the same for all tiles of a segment; or all of it, in main memory."""
        if self.streamed:
            return pl.BlockSpec(memory_space=pl.ANY)
        return pl.BlockSpec((None, None, None, self.rows, self.width), lambda b, g, s, h, t: (b, g, s, 0, 0))

    def scratch(self, direction: Direction) -> list[Any]:
        """References that `Tile.over_pairs` needs: to `copies`, and a semaphore that says when one ends."""
        if not self.streamed:
            return []
        memory = [pltpu.VMEM(shape, dtype) for shape, dtype in self.copies(direction)]
        return [*memory, pltpu.SemaphoreType.DMA(())]

    def copies(self, direction: Direction) -> list[Any]:
        """Vector memory for keys that are streamed, and in the backward pass for sums of their gradients."""
        if not self.streamed:
            return []
        near, far = (self.queries + self.chunk, self.width), (self.second, self.width)
        keys = [(near, jnp.float32)] * 2 + [(far, self.dtype)] * 2
        sums = [(near, jnp.float32)] * 2 + [(far, jnp.float32)] * 2
        return keys if direction == "forward" else keys + sums

    def launch(self, direction: Direction) -> Launch:
        """The kernel's grid, and its vector memory with room for the compiler's temporaries."""
        lanes = self.heads * self.queries
        tile = self.heads * tile_bytes((self.queries, self.width), self.dtype)
        row = self.heads * tile_bytes((1, self.queries), jnp.float32)
        keys = 2 * sum(tile_bytes((self.rows, self.width), dtype) for dtype in (jnp.float32, self.dtype))
        sums = 4 * tile_bytes((self.rows, self.width), jnp.float32)
        forward = direction == "forward"
        blocks = (2 if forward else 3) * tile + (1 if forward else 2) * row
        if not self.streamed:
            blocks += keys if forward else keys + sums
        kept = sum(tile_bytes(shape, dtype) for shape, dtype in self.copies(direction))
        kept += self.heads * tile_bytes((self.queries, self.width), jnp.float32)
        kept += 2 * tile_bytes((1, lanes), jnp.float32)
        live = ((self.second, lanes), (lanes, self.width))
        kept += TEMPORARIES[direction] * sum(tile_bytes(shape, jnp.float32) for shape in live)
        return Launch(f"trilinear_{direction}", self.grid, max(LEAST, 2 * blocks + kept + (2 << 20)))

    def compiler_params(self, direction: Direction) -> pltpu.CompilerParams:
        """Steps that may run in any order, and how much vector memory there is."""
        inner = "parallel" if direction == "forward" else "arbitrary"
        return pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", inner, inner),
            vmem_limit_bytes=self.launch(direction).memory,
        )

    # ---- products

    def exact(self, x: Array) -> tuple[Array, ...]:
        """What products take for float32 numbers: in bfloat16 the rounded ones, and the rest."""
        return halves(x) if self.narrow else (x,)

    def split(self, x: Array) -> Array:
        """Products [., D] for the matrix unit; of bfloat16 numbers [., 2 D], rounded and the rest."""
        return jnp.concatenate(self.exact(x), axis=1)

    def repeated(self, x: Array) -> Array:
        """The other factor of `split` ones."""
        return jnp.concatenate([x, x], axis=1) if self.narrow else x

    def joined_halves(self, x: Array) -> Array:
        """The sum of what came of the two parts of `split` ones."""
        return x[:, : self.width] + x[:, self.width :] if self.narrow else x

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
        self._of = pl.program_id(0), pl.program_id(1), 0  # where a streamed array has the tile's keys
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

    def over_pairs(self, keys: Keys, copies: Sequence[Any], body: Callable[..., None], *sums: Keys) -> None:
        """Calls the body for all pairs of a distance (or first key) and a block of second keys in the tile.

        Args:
            keys: references to all that the tile may see.
            copies: those of `Plan.scratch`.
            body: `body(step, first, second, k2, v2, bias, keys, *sums)`: the step, the rows of the first and
                of the second keys in `keys`, the second keys and values, what masks them, and references.
            *sums: none, or references to sums that the body adds to.
        """
        plan = self.plan
        near_copies, far_copies, near_sums, far_sums = copies[:2], copies[2:4], copies[4:6], copies[6:8]

        def block(n, _):
            low = start + n * plan.second
            rows = pl.ds(pl.multiple_of(self._row0 + low, LANES), plan.second)
            bias = side_by_side([self.bias(low)] * plan.heads)
            if not plan.streamed:
                k2, v2 = keys.key2[rows, :], keys.value2[rows, :]

                def pairs(step, _):
                    first = pl.ds(self._row0 + self.start - step, plan.queries)
                    first = first if plan.config.causal else pl.ds(step, 1)
                    body(step, first, rows, k2, v2, bias, keys, *sums)

                return jax.lax.fori_loop(0, self.steps(), pairs, None)
            self._copy(keys[2:], rows, far_copies, copies[-1])
            for given in sums:
                self._copy(given[2:], rows, far_sums, copies[-1])
            k2, v2 = (copy[...] for copy in far_copies)

            def chunk(n, _):
                nearest = n * plan.chunk
                size, base = plan.chunk, nearest
                if plan.config.causal:
                    size, base = plan.queries + plan.chunk, self._row0 + self.start - nearest - plan.chunk
                of_chunk = pl.ds(pl.multiple_of(base, LANES), size)
                self._copy(keys[:2], of_chunk, near_copies, copies[-1])
                for given in sums:
                    self._copy(given[:2], of_chunk, near_sums, copies[-1])

                def pairs(step, _):
                    first = pl.ds(plan.chunk - (step - nearest), plan.queries)
                    first = first if plan.config.causal else pl.ds(step - nearest, 1)
                    here = Keys(*near_copies, *far_copies), *(Keys(*near_sums, *far_sums) for _ in sums)
                    body(step, first, pl.ds(0, plan.second), k2, v2, bias, *here)

                jax.lax.fori_loop(nearest, jnp.minimum(nearest + plan.chunk, self.steps()), pairs, None)
                for given in sums:
                    self._copy(given[:2], of_chunk, near_sums, copies[-1], back=True)

            jax.lax.fori_loop(0, jax.lax.div(self.steps() + (plan.chunk - 1), plan.chunk), chunk, None)
            for given in sums:
                self._copy(given[2:], rows, far_sums, copies[-1], back=True)

        start, count = self.blocks()
        jax.lax.fori_loop(0, count, block, None)

    def _copy(self, arrays: Any, rows: Any, copies: Any, done: Any, back: bool = False) -> None:
        """Copies some rows from main memory, or back."""
        for array, copy in zip(arrays, copies, strict=True):
            there, here = array.at[(*self._of, rows)], copy.at[pl.ds(0, rows.size)]
            copied = pltpu.make_async_copy(*((here, there) if back else (there, here)), done)
            copied.start()
            copied.wait()

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


def plan(
    direction: Direction,
    config: Config,
    *arrays: Any,
    chip: Chip,
    blocks: Mapping[str, int] | None = None,
) -> Plan:
    """Plans a call whose smaller window is the first for a chip.

    Args:
        direction: "forward" or "backward".
        config: windows, causality and scale.
        *arrays: query, key1, key2, value1, value2, or their shapes and dtypes.
        chip: a TPU.
        blocks: wishes for "queries", "heads" and "second", made to suit the call; None for the default.

    Raises:
        Refused: what the kernels do not compute, and what fits with no tiles.
    """
    check_arrays(DTYPES, **dict(zip(("query", *Keys._fields), arrays, strict=True)))
    query, key, *_ = arrays
    if len(dtypes := {str(a.dtype) for a in arrays}) > 1:
        raise Refused(f"arrays: got dtypes {', '.join(sorted(dtypes))}, expected one for all of them")
    if query.shape[-1] > MOST_FEATURES:
        raise Refused(f"D: got {query.shape[-1]:,}, expected at most {MOST_FEATURES}")
    smallest = {"queries": LANES, "heads": 1, "second": LANES}
    wishes = [*([] if blocks is None else [blocks]), {}, smallest]
    tried = [way for wish in wishes for way in _plans(config, query, key, wish)]
    for way in tried:
        if fits(chip, way.launch(direction)) is None:
            return way
    check(chip, [tried[-1].launch(direction)])
    return tried[-1]


def _plans(config: Config, query: Any, key: Any, wishes: Mapping[str, int]) -> Iterator[Plan]:
    """Ways to keep the keys, the best first: all in vector memory, those of segments, none."""
    batch, length, heads, features = query.shape
    groups = key.shape[2]
    per_group = heads // groups
    queries = round_up(min(wishes.get("queries", LANES if per_group > 1 else 2 * LANES), length), LANES)
    wished = wishes.get("heads", max(1, ROWS // queries))
    in_tile = divisor(per_group, wished)
    windows = config.reach(length)
    band = round_up(length, LANES)
    if config.causal:
        band = min(band, queries + round_up(windows[1] - 1, LANES))
    second = cut(band, wishes.get("second", BLOCK))
    plan = Plan(
        config, batch, length, groups, per_group, features, jnp.dtype(query.dtype), queries, in_tile, second
    )
    # Inputs and, in the backward pass, sums: two of each, one being copied while the other is in use.
    row_bytes = round_up(features, LANES) * 2 * (2 * 4 + 2 * plan.dtype.itemsize + 4 * 4)
    whole = dataclasses.replace(plan, segment=round_up(length, queries))
    if whole.rows * row_bytes <= RESIDENT_BYTES:
        yield whole
    elif config.causal and max(windows) < length:
        front = round_up(max(windows) - 1, LANES)  # that of a plan with several segments
        segment = (RESIDENT_BYTES // row_bytes - front - second) // queries * queries
        if segment >= queries:
            count = -(-length // segment)
            yield dataclasses.replace(plan, segment=round_up(-(-length // count), queries))
    yield dataclasses.replace(whole, streamed=True)


def side_by_side(parts: list[Array]) -> Array:
    """Tiles of the heads of a group as one, along the lanes."""
    return jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
