"""What the three Hopper kernels of trilinear attention have in common: one sweep over pairs of positions.

Every one of them is a sum over first keys j of a matrix product whose operands are scaled, column by
column, by vectors that belong to j. With L a fixed tile of 64 rows, R tiles of rows that stream past, and
k1, v1 the vectors of j:

    forward           S = (Q * k1_j) K2^T                                        out += v1_j * (P V2)
    dquery            S = (Q * k1_j) K2^T    dP = (dO * v1_j) V2^T               dq  += k1_j * (dS K2)
    dkey2 (, dkey1)   S = (K2 * k1_j) Q^T    dP = (V2 * v1_j) dO^T               dk2 += k1_j * (dS Q)
    dvalue2 (, ...)   S = (K2 * k1_j) Q^T                                        dv2 += v1_j * (P dO)

so a scaled copy of L is made once for each j, in shared memory, and the inner product is scaled once when a
j is done: the tiles R, of which there are many more, are used as they are. A block has one warpgroup that
copies and two that compute. The two share L and the tiles R but take turns at the j (even ones, odd ones),
so that a tile of 64 rows - the 64 query heads of one group at one position, say - keeps both busy and sees
its window exactly, without a mask; their sums are added when both are done. While one is in its
exponentials the other has the tensor cores: `Turns` is the barrier that holds them to that.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

ROWS = 64  # of a tile of L: what one warpgroup's matrix instruction takes
COMPUTE = 2  # computing warpgroups of a block
ALIGNMENT = 8  # rows of a swizzled tile start at a multiple of this
FACTOR_SLOTS = 2  # pairs of j whose vectors are held at a time
# Registers of a thread. 65536 a block: 128 threads a warpgroup, three warpgroups.
COMPUTE_REGISTERS, COPY_REGISTERS = 232, 40
# The least that a running maximum can be. exp(MASKED - FLOOR) is 0, so a row in which nothing has been
# allowed yet adds nothing.
FLOOR = -1e29

type Ref = Any
type Scalar = Any


@dataclasses.dataclass(frozen=True)
class Band:
    """Which first and second keys a query sees, as bounds: of Python integers or of traced scalars alike."""

    length: int  # N, the number of positions
    window1: int  # of the first keys, at most `length`
    window2: int  # of the second keys, at most `length`
    causal: bool  # whether there are windows at all

    def first(self, low: Scalar, high: Scalar) -> tuple[Scalar, Scalar]:
        """The first keys, [start, stop), that any query of [low, high) sees."""
        if not self.causal:
            return 0, self.length
        return lax.max(low - (self.window1 - 1), 0), lax.min(high, self.length)

    def second(self, low: Scalar, high: Scalar, step: int) -> tuple[Scalar, Scalar]:
        """The second keys, [start, stop), that any query of [low, high) sees.

        `start` may be before the sequence, by less than `step`, so that it is the window's own start modulo
        `step`.
        """
        if not self.causal:
            return 0, self.length
        start = low - (self.window2 - 1)
        return start + lax.div(lax.max(-start, 0), step) * step, lax.min(high, self.length)

    def seers(self, first: tuple[Scalar, Scalar], second: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        """The queries, [start, stop), that see any first key of one range and any second key of another."""
        if not self.causal:
            return 0, self.length
        start = lax.max(first[0], second[0])
        stop = lax.min(first[1] + (self.window1 - 1), second[1] + (self.window2 - 1))
        return start, lax.min(stop, self.length)

    def partners(self, low: Scalar, high: Scalar) -> tuple[Scalar, Scalar]:
        """The first keys, [start, stop), that some query sees together with any second key of [low, high)."""
        if not self.causal:
            return 0, self.length
        return lax.max(low - (self.window1 - 1), 0), lax.min(high + (self.window2 - 1), self.length)

    def everywhere(self, query: tuple[Scalar, Scalar], j: Scalar, second: tuple[Scalar, Scalar]) -> Scalar:
        """Whether each of a range of queries sees j and each of a range of second keys: no mask is needed."""
        inside = (j < self.length) & (second[0] >= 0) & (second[1] <= self.length) & (query[1] <= self.length)
        if not self.causal:
            return inside
        seen1 = (j <= query[0]) & (j > query[1] - 1 - self.window1)
        seen2 = (second[1] - 1 <= query[0]) & (second[0] > query[1] - 1 - self.window2)
        return inside & seen1 & seen2

    def allowed(self, query: Any, j: Scalar, second: Any) -> Any:
        """The mask of a tile, from the positions of its queries and of its second keys."""
        inside = (second >= 0) & (second < self.length) & (query < self.length) & (j < self.length)
        if not self.causal:
            return inside
        seen1 = (j <= query) & (j > query - self.window1)
        return inside & seen1 & (second <= query) & (second > query - self.window2)


class Turns:
    """The tensor cores go to one computing warpgroup at a time, and each gives them up once a step."""

    def __init__(self, barrier: Ref, member: Scalar):
        self._barrier, self._member = barrier, member

    def change(self) -> None:
        """To be called twice a step by both warpgroups: the one's first change meets the other's second."""
        plgpu.barrier_arrive(self._barrier)
        plgpu.barrier_wait(self._barrier)

    def begin(self) -> None:
        """Puts the second warpgroup half a step behind."""
        pl.when(self._member == 1)(self.change)

    def end(self) -> None:
        """Meets the second warpgroup's last change."""
        pl.when(self._member == 0)(self.change)


@dataclasses.dataclass(frozen=True)
class Stream:
    """Tiles that pass through shared memory, several in flight."""

    sources: Sequence[Ref]  # what they are tiles of: rows of this block's batch and group, in global memory
    buffers: Sequence[Ref]  # for each source [stages, rows of a tile, ...] in shared memory
    full: Ref  # barriers, one a stage: its tiles have arrived, those of all sources
    free: Ref  # barriers, one a stage: both computing warpgroups are done with them
    # A source of two numbers a row, [2, rows], and its buffer [stages, 2, rows of a tile].
    numbers: tuple[Ref, Ref] | None = None

    def fill(self, stage: Scalar, rows: Any, reused: Scalar) -> None:
        """Copies rows of every source to a stage, when it is free; `reused` if it has been full before."""
        pl.when(reused)(lambda: plgpu.barrier_wait(self.free.at[stage]))
        for source, buffer in zip(self.sources, self.buffers, strict=True):
            plgpu.copy_gmem_to_smem(source.at[rows], buffer.at[stage], self.full.at[stage])
        if self.numbers is not None:
            source, buffer = self.numbers
            plgpu.copy_gmem_to_smem(source.at[:, rows], buffer.at[stage], self.full.at[stage])

    def drain(self, stages: int, used: Scalar) -> None:
        """Waits until the stages that were filled last are free: no barrier is left with news for nobody."""
        for stage in range(stages):
            pl.when(used > stage)(lambda stage=stage: plgpu.barrier_wait(self.free.at[stage]))

    def wait(self, stage: Scalar) -> list[Ref]:
        """The tiles of a stage, and the numbers if there are any, when they have arrived."""
        plgpu.barrier_wait(self.full.at[stage])
        buffers = self.buffers if self.numbers is None else (*self.buffers, self.numbers[1])
        return [buffer.at[stage] for buffer in buffers]

    def release(self, stage: Scalar) -> None:
        """Says that this warpgroup is done with a stage."""
        plgpu.barrier_arrive(self.free.at[stage])


def stream_barriers(stages: int, sources: int) -> tuple[Any, Any]:
    """What a stream of so many stages and sources needs."""
    return (
        plgpu.Barrier(num_arrivals=sources, num_barriers=stages),
        plgpu.Barrier(num_arrivals=COMPUTE, num_barriers=stages),
    )


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The walk over first keys, and over the tiles that stream past for each: the same for both kinds of
    warpgroup.
    """

    pairs: Scalar  # how many pairs of j
    first: Scalar  # the first j
    span: Callable[[Scalar], tuple[Scalar, Scalar]]  # of a pair's number: where its tiles start, how many
    factors: Stream  # the vectors that belong to j
    streams: Sequence[Stream]  # the tiles
    stages: int  # tiles of a stream that are in flight
    size: int  # rows of a tile
    offset: Scalar = 0  # of the sources: the row that is number 0 of the span; tiles start at multiples of 8

    def copy(self) -> None:
        """The copying warpgroup's part: the vectors of each pair of j, then the tiles for it."""

        def pair(t, step):
            rows = pl.ds(self.first + COMPUTE * t, COMPUTE)
            self.factors.fill(lax.rem(t, FACTOR_SLOTS), rows, t >= FACTOR_SLOTS)
            start, tiles = self.span(t)

            def tile(c, step):
                row = self.offset + start + c * self.size
                rows = pl.ds(pl.multiple_of(row, ALIGNMENT), self.size)
                for stream in self.streams:
                    stream.fill(lax.rem(step, self.stages), rows, step >= self.stages)
                return step + 1

            return lax.fori_loop(0, tiles, tile, step)

        steps = lax.fori_loop(0, self.pairs, pair, jnp.int32(0))
        self.factors.drain(FACTOR_SLOTS, self.pairs)
        for stream in self.streams:
            stream.drain(self.stages, steps)

    def compute[Total, Inner](
        self,
        member: Scalar,
        begin: Callable[[Sequence[Ref], Total], Inner],
        tile: Callable[[Scalar, Scalar, Scalar, Inner], Inner],
        finish: Callable[[Scalar, Sequence[Ref], Total, Inner], Total],
        total: Total,
    ) -> Total:
        """A computing warpgroup's part: every second j.

        Args:
            member: which of the computing warpgroups this is.
            begin: from j's vectors and the total to what is carried through the tiles.
            tile: one tile, from j, where it starts, and its stage.
            finish: adds what was carried to the total.
            total: what to add to.
        """

        def pair(t, carry):
            step, total = carry
            place, j = lax.rem(t, FACTOR_SLOTS), self.first + COMPUTE * t + member
            vectors = [buffer.at[member] for buffer in self.factors.wait(place)]
            start, tiles = self.span(t)

            def one(c, carry):
                step, inner = carry
                return step + 1, tile(j, start + c * self.size, lax.rem(step, self.stages), inner)

            step, inner = lax.fori_loop(0, tiles, one, (step, begin(vectors, total)))
            total = finish(j, vectors, total, inner)
            plgpu.commit_smem()  # the vectors were read by threads, and the copy engine writes over them
            self.factors.release(place)
            return step, total

        return lax.fori_loop(0, self.pairs, pair, (jnp.int32(0), total))[1]


# ---- registers ----------------------------------------------------------------------------------------

MATRIX = plgpu.Layout.WGMMA
BY_ROW, BY_COLUMN = MATRIX.reduce(1), MATRIX.reduce(0)


def full(shape: tuple[int, ...], value: float) -> Array:
    """A constant in registers: a matrix as the matrix unit lays it out, or a vector over its rows."""
    return plgpu.layout_cast(jnp.full(shape, value, jnp.float32), MATRIX if len(shape) == 2 else BY_ROW)


def along_rows(vector: Array, shape: tuple[int, ...]) -> Array:
    """A vector over columns, repeated in every row."""
    return lax.broadcast_in_dim(vector, shape, (1,))


def along_columns(vector: Array, shape: tuple[int, ...]) -> Array:
    """A vector over rows, repeated in every column."""
    return lax.broadcast_in_dim(vector, shape, (0,))


def positions(shape: tuple[int, ...], axis: int, start: Scalar, repeat: int = 1) -> Array:
    """The position that each row, or column, of a tile stands for, when `repeat` in turn stand for one.

    Args:
        shape: of the tile.
        axis: 0 for rows, 1 for columns.
        start: number of the tile's first row or column in the sequence of them.
        repeat: a power of two, or a multiple of the tile, of which all is then one position.
    """
    if repeat >= shape[axis]:
        return lax.div(start, jnp.int32(repeat))
    index = start + plgpu.broadcasted_iota(jnp.int32, shape, axis, layout=MATRIX)
    return index if repeat == 1 else lax.shift_right_logical(index, repeat.bit_length() - 1)


def scale_into(target: Ref, source: Ref, vector: Ref) -> None:
    """Writes source * vector, the vector over columns, for the matrix unit to read."""
    rows = plgpu.load(source, layout=MATRIX)
    factor = plgpu.load(vector, layout=BY_COLUMN)
    target[...] = rows * along_rows(factor, source.shape)


def row_products(pairs: Sequence[tuple[Ref, Ref]], then: Callable[[], None] = lambda: None) -> list[Array]:
    """The products left right^T of pairs in shared memory.

    `then` is called when they have been issued, before they are waited for.
    """

    def compute(*accumulators):
        for accumulator, (left, right) in zip(accumulators, pairs, strict=True):
            plgpu.wgmma(accumulator, left, right.transpose((1, 0)))
        then()
        return [accumulator[...] for accumulator in accumulators]

    shapes = [plgpu.ACC((left.shape[0], right.shape[0]), jnp.float32) for left, right in pairs]
    return pl.run_scoped(compute, *shapes)


def column_sums(target: Ref, x: Array, ones: Ref) -> Array:
    """The sum of each column of x, a vector over rows, by way of `target`: a matrix of ones times x.

    The sum over rows crosses warps. The matrix unit takes x in its own precision and adds in float32.
    """
    target[...] = x.astype(target.dtype)
    plgpu.commit_smem()

    def compute(accumulator):
        plgpu.wgmma(accumulator, target.transpose((1, 0)), ones)
        return accumulator[...]

    return pl.run_scoped(compute, plgpu.ACC((x.shape[1], ones.shape[1]), jnp.float32)).max(axis=1)


def add_product(total: Array, left: Array, right: Ref, *, interpret: bool) -> Array:
    """The sum total + left right, the left factor in registers."""
    if interpret:  # The interpreter has no matrix product with an operand in registers.
        product = jnp.dot(left, right[...], preferred_element_type=jnp.float32)
        plgpu.commit_smem()  # that was an ordinary read, which the copy engine need not wait for
        return total + product
    multiply = pl.run_state(lambda accumulator: plgpu.wgmma(accumulator, left, right))
    return cast(Array, multiply(plgpu.ACC.init(total)))


# ---- shared memory ------------------------------------------------------------------------------------


def matrix_buffer(*shape: int, dtype: Any) -> Any:
    """Shared memory for matrices that the matrix unit reads, or that pass between it and the copy engine."""
    width = 128 // jnp.dtype(dtype).itemsize
    return plgpu.SMEM(
        shape, dtype, transforms=(plgpu.TilingTransform((8, width)), plgpu.SwizzleTransform(128))
    )


def launch(
    name: str,
    kernel: Callable,
    out: Any,
    buffers: Any,
    barriers: Any,
    *,
    grid: dict[str, int],
    interpret: bool,
) -> Any:
    """The kernel as a function of arrays, in blocks of two computing warpgroups and a copying one.

    Args:
        name: of the kernel, for profiles and dumps.
        kernel: of references to the arrays and the outputs, the buffers and the barriers.
        out: shapes and dtypes of the outputs.
        buffers: what to allocate in shared memory, a tree.
        barriers: likewise.
        grid: names and sizes of the grid's axes; blocks that are next to each other differ in the last.
        interpret: run on a CPU; a data race or a read outside of an array is an error there.
    """

    def with_memory(*arrays):
        def run(*scoped):
            kernel(*arrays, *scoped)

        pl.run_scoped(run, buffers, barriers, collective_axes="warpgroup")

    return plgpu.kernel(
        with_memory,
        kernel_name=name,
        out_type=out,
        grid=tuple(grid.values()),
        grid_names=tuple(grid),
        num_threads=COMPUTE + 1,
        thread_name="warpgroup",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=plgpu.InterpretGPUParams(detect_races=True) if interpret else None,
    )
