"""The pipeline of the Hopper kernels (Pallas Mosaic GPU, sm90); `docs/how_to/hopper.md` explains it.

A program has one warpgroup that copies tiles from global to shared memory and one or two that compute. They
meet at rings of tiles only: the copying warpgroup runs ahead until a ring is full, the computing ones wait
for a tile, use it and give its slot back.

This file has the rings, the launch of a kernel with what it takes of shared memory, register layouts and
matrix products. It knows no operation.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from kernels.arrays import round_up
from kernels.plans import Launch

ROWS = 64  # rows of a tile: what one warpgroup's matrix instruction takes
SWIZZLE = 128  # bytes: a row of a swizzled tile is cut into pieces of this size
TILE = SWIZZLE // 2  # the 16-bit numbers in one such piece
ALIGNMENT = 8  # a copy of a swizzled tile starts at a multiple of so many rows
# Registers of a thread of a computing and of the copying warpgroup. A multiprocessor has 65,536: with two
# computing warpgroups 128 * (2 * 232 + 40) of them.
COMPUTE_REGISTERS, COPY_REGISTERS = 232, 40
ALLOCATION = 1024  # bytes: every buffer in shared memory starts at a multiple of this
BARRIER_BYTES = 8

MATRIX = plgpu.Layout.WGMMA
BY_ROW, BY_COLUMN = MATRIX.reduce(1), MATRIX.reduce(0)

type Ref = Any
type Scalar = Any

# ---- shared memory


def tiles(*shape: int, dtype: Any, swizzle: int = SWIZZLE) -> Any:
    """Returns shared memory for matrices that pass between copies and the tensor cores.

    The factors of a product have the same swizzle.
    """
    transforms = (plgpu.TilingTransform((ALIGNMENT, swizzle // jnp.dtype(dtype).itemsize)),)
    return plgpu.SMEM(shape, dtype, transforms=(*transforms, plgpu.SwizzleTransform(swizzle)))


def widest(dtype: Any, *sizes: int) -> int:
    """Returns the widest swizzle, in bytes, whose pieces cut all sizes evenly."""
    size = jnp.dtype(dtype).itemsize
    return next(s for s in (128, 64, 32) if all(length * size % s == 0 for length in sizes))


def shared_bytes(scratch: Any) -> int:
    """Returns what a tree of buffers, unions of buffers and barriers takes of shared memory."""
    total = 0
    for leaf in jax.tree.leaves(scratch, is_leaf=lambda x: isinstance(x, plgpu.RefUnion)):
        match leaf:
            case plgpu.RefUnion():
                total += max(map(shared_bytes, leaf.refs))
            case plgpu.Barrier():
                count = leaf.num_barriers
                total += BARRIER_BYTES * (count if isinstance(count, int) else math.prod(count))
            case _:
                size = math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize
                total += round_up(size, ALLOCATION)
    return total


# ---- rings


@dataclasses.dataclass(frozen=True)
class Ring:
    """Slots of shared memory that the copying warpgroup fills and the computing ones empty, in order.

    Positions count from 0 and never decrease; position p lives in slot p % slots. Both sides walk through the
    same positions.

    Attributes:
        buffers: [slots, ...] each; a slot has a tile of every buffer, or several parts of one.
        full: a barrier for each slot: all copies of its tiles have arrived.
        empty: a barrier for each slot: every computing warpgroup is done with it.
    """

    buffers: Sequence[Ref]
    full: Ref
    empty: Ref

    @staticmethod
    def scratch(*buffers: Any, consumers: int, copies: int | None = None) -> tuple:
        """Returns what a ring needs as `scratch`, from which `Ring(*scratch)` is made inside the kernel.

        Args:
            *buffers: shared memory, [slots, ...] each.
            consumers: computing warpgroups, each of which uses every tile.
            copies: how many copies fill a slot, None for one for each buffer.
        """
        first = getattr(buffers[0], "refs", buffers)[0]  # of a union
        slots = first.shape[0]
        return (
            buffers,
            plgpu.Barrier(num_arrivals=copies or len(buffers), num_barriers=slots),
            plgpu.Barrier(num_arrivals=consumers, num_barriers=slots),
        )

    @property
    def slots(self) -> int:
        """How many positions are held at a time."""
        return self.buffers[0].shape[0]

    def _slot(self, position: Scalar) -> Scalar:
        return lax.rem(jnp.int32(position), jnp.int32(self.slots))

    def _acquire(self, position: Scalar) -> Scalar:
        slot = self._slot(position)
        pl.when(position >= self.slots)(lambda: plgpu.barrier_wait(self.empty.at[slot]))
        return slot

    def fill(self, position: Scalar, *sources: Any) -> None:
        """Copying side: starts the copies into a position's slot, once what was in it has been used.

        Args:
            position: where.
            *sources: in global memory: for each buffer one, or a sequence of one for each part.
        """
        slot = self._acquire(position)
        for source, buffer in zip(sources, self.buffers, strict=True):
            place = buffer.at[slot]
            if not isinstance(source, Sequence):
                plgpu.copy_gmem_to_smem(source, place, self.full.at[slot])
                continue
            for index, part in enumerate(source):
                plgpu.copy_gmem_to_smem(part, place.at[index], self.full.at[slot])

    def hand_over(self, position: Scalar, copies: int) -> None:
        """Copying side: gives a slot to the computing side as it is, in place of `copies` copies."""
        slot = self._acquire(position)
        for _ in range(copies):
            plgpu.barrier_arrive(self.full.at[slot])

    def drain(self, position: Scalar) -> None:
        """Copying side, at the end: waits until everything before the position has been used.

        A barrier that has completed a phase for which nobody waited must not outlive the program.
        """
        for slot in range(self.slots):
            self._acquire(position + slot)

    def wait(self, position: Scalar) -> Sequence[Ref]:
        """Computing side: the position's tiles, once they have arrived. Once for each position only."""
        self.await_copies(position)
        return self.at(position)

    def await_copies(self, position: Scalar) -> None:
        """Computing side: as `wait`, where no reference can be returned (under a condition)."""
        plgpu.barrier_wait(self.full.at[self._slot(position)])

    def at(self, position: Scalar) -> Sequence[Ref]:
        """Computing side: the position's tiles, which were waited for before."""
        slot = self._slot(position)
        return [buffer.at[slot] for buffer in self.buffers]

    def release(self, position: Scalar) -> None:
        """Computing side: this warpgroup is done with the position.

        If threads have read or written the tiles, `plgpu.commit_smem()` comes first: the next copy into the
        slot is not ordered with ordinary accesses.
        """
        plgpu.barrier_arrive(self.empty.at[self._slot(position)])


# ---- launch


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel as it is planned and as it is run.

    Attributes:
        name: for profiles and dumps.
        grid: the sizes that the programs are numbered by, the last one fastest.
        scratch: buffers and barriers, a tree.
        warpgroups: computing warpgroups of a program; one more copies.
        reduction: bytes of shared memory that sums over rows take. They cross warps, and all warpgroups use
            the same bytes: one after the other.
    """

    name: str
    grid: tuple[int, ...]
    scratch: Any
    warpgroups: int
    reduction: int = 0

    @property
    def launch(self) -> Launch:
        """What the kernel needs of a chip.

        All programs are along x: the limits of y and z are too low for a batch.
        """
        return Launch(self.name, (math.prod(self.grid),), shared_bytes(self.scratch) + self.reduction)

    def place(self) -> list[Array]:
        """Inside the kernel: the program's index along each axis of `grid`."""
        return places(lax.axis_index("program"), self.grid)

    def split(self, copy: Callable[[], None], compute: Callable[[Array], None]) -> None:
        """Inside the kernel: gives each warpgroup its part.

        Args:
            copy: what the copying warpgroup does.
            compute: `member -> None`, what each of the computing ones does.
        """
        warpgroup = lax.axis_index("warpgroup")

        @pl.when(warpgroup == self.warpgroups)
        def _copy():
            if self.warpgroups == 2:
                plgpu.set_max_registers(COPY_REGISTERS, action="decrease")
            copy()

        @pl.when(warpgroup < self.warpgroups)
        def _compute():
            if self.warpgroups == 2:  # with one, the compiler's share of registers is the maximum
                plgpu.set_max_registers(COMPUTE_REGISTERS, action="increase")
            compute(warpgroup)

    def run(self, body: Callable[..., None], out_type: Any, *arrays: Array, interpret: bool) -> Any:
        """Runs the kernel.

        Args:
            body: of references to the arrays, to the results, and of the scratch tree's parts.
            out_type: the results' shapes and dtypes, from `result`.
            *arrays: the arguments.
            interpret: run on a CPU, where a data race and a read outside of an array are errors. Races are
                not looked for in a kernel with a union: the interpreter takes it for one piece of memory.
        """
        leaves = jax.tree.leaves(self.scratch, is_leaf=lambda x: isinstance(x, plgpu.RefUnion))
        races = not any(isinstance(leaf, plgpu.RefUnion) for leaf in leaves)
        return plgpu.kernel(
            body,
            kernel_name=self.name,
            out_type=out_type,
            scratch_types=self.scratch,
            grid=(math.prod(self.grid),),
            grid_names=("program",),
            num_threads=self.warpgroups + 1,
            thread_name="warpgroup",
            # exp2 and log2 are those of the hardware.
            compiler_params=plgpu.CompilerParams(approx_math=True, reduction_scratch_bytes=self.reduction),
            interpret=plgpu.InterpretGPUParams(detect_races=races) if interpret else None,
        )(*arrays)


def places(number: Scalar, grid: Sequence[int]) -> list[Scalar]:
    """The indices along each axis of a grid, the last one fastest."""
    found = []
    for size in reversed(grid[1:]):
        found.append(lax.rem(number, jnp.int32(size)))
        number = lax.div(number, jnp.int32(size))
    return [number, *reversed(found)]


def result(shape: tuple[int, ...], dtype: Any, like: Array) -> jax.ShapeDtypeStruct:
    """Returns the type of a result that varies over the same `shard_map` axes as an argument."""
    return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=jax.typeof(like).manual_axis_type)


class Turns:
    """Gives the tensor cores, or other things, to one of two computing warpgroups at a time.

    Each changes twice a step, or twice for what is done only once.
    """

    def __init__(self, barrier: Ref, member: Scalar) -> None:
        self._barrier, self._member = barrier, member

    @staticmethod
    def scratch() -> Any:
        """Returns the barrier."""
        return plgpu.Barrier(num_arrivals=2)

    def change(self) -> None:
        """To be called twice a step by both: one's first change meets the other's second."""
        plgpu.barrier_arrive(self._barrier)
        plgpu.barrier_wait(self._barrier)

    def begin(self) -> None:
        """Puts the second warpgroup half a step behind."""
        pl.when(self._member == 1)(self.change)

    def end(self) -> None:
        """Meets the second warpgroup's last change."""
        pl.when(self._member == 0)(self.change)


# ---- registers


def afresh(number: Scalar) -> Array:
    """The same number, from which addresses are computed again here.

    The compiler moves what no step of a loop changes out of the loop. Descriptors of operands in shared
    memory are that, and take two registers each.
    """
    return lax.optimization_barrier(jnp.int32(number))


def full(shape: tuple[int, ...], value: float, dtype: Any = jnp.float32) -> Array:
    """A constant in registers: a matrix as the tensor cores lay it out, or a vector over its rows."""
    return plgpu.layout_cast(jnp.full(shape, value, dtype), MATRIX if len(shape) == 2 else BY_ROW)


def load(source: Ref, layout: Any = MATRIX, dtype: Any = jnp.float32) -> Array:
    """From shared memory to registers."""
    return plgpu.load(source, layout=layout).astype(dtype)


def load_global(source: Ref, layout: Any = MATRIX) -> Array:
    """From global memory to registers, for what is read once and has no room in shared memory."""
    return plgpu.load(source, layout=layout, optimized=False)


def store_global(target: Ref, value: Array) -> None:
    """From registers to global memory, for what is written once: some cache lines in part."""
    if hasattr(plgpu, "store"):
        plgpu.store(target, value, optimized=False)
    else:  # JAX 0.11, whose assignment also reads; the compiler drops what is not used
        target[...] = value


def along_rows(vector: Array, shape: tuple[int, ...]) -> Array:
    """A vector over columns, repeated in every row."""
    return lax.broadcast_in_dim(vector, shape, (1,))


def along_columns(vector: Array, shape: tuple[int, ...]) -> Array:
    """A vector over rows, repeated in every column."""
    return lax.broadcast_in_dim(vector, shape, (0,))


def index(shape: tuple[int, ...], axis: int, start: Scalar) -> Array:
    """The row (axis 0) or column number of each element of a tile whose first one has number `start`."""
    return start + plgpu.broadcasted_iota(jnp.int32, shape, axis, layout=MATRIX)


def halves(x: Array, dtype: Any) -> tuple[Array, Array]:
    """Two 16-bit numbers whose sum is x: to twice the bits of `dtype`, which a product of two has."""
    high = x.astype(dtype)
    return high, (x - high.astype(jnp.float32)).astype(dtype)


# ---- products


def products(pairs: Sequence[Sequence[tuple[Ref, Ref]]], then: Callable[[], None] = lambda: None) -> list:
    """Matrix products left right of pairs in shared memory, summed for each of several sequences of pairs.

    `then` is called when they have been issued, before they are waited for.
    """

    def compute(*accumulators):
        for accumulator, factors in zip(accumulators, pairs, strict=True):
            for left, right in factors:
                plgpu.wgmma(accumulator, left, right)
        then()
        return [accumulator[...] for accumulator in accumulators]

    shapes = [(factors[0][0].shape[0], factors[0][1].shape[1]) for factors in pairs]
    return pl.run_scoped(compute, *(plgpu.ACC(shape, jnp.float32) for shape in shapes))


def add_products(total: Array, factors: Sequence[tuple[Any, Ref]], *, interpret: bool) -> Array:
    """The sum of `total` and of products left right, the left factors in registers or in shared memory."""
    if interpret:  # the interpreter has no matrix product with an operand in registers
        for left, right in factors:
            total += jnp.dot(left[...], right[...], preferred_element_type=jnp.float32)
        plgpu.commit_smem()  # those were ordinary reads, which a copy need not wait for
        return total

    def multiply(accumulator):
        for left, right in factors:
            plgpu.wgmma(accumulator, left, right)

    return cast(Array, pl.run_state(multiply)(plgpu.ACC.init(total)))


def sum_of_products(
    width: int,
    count: int | Array,
    operands: Callable[[Array], tuple[Ref, Ref]],
    free: Callable[[int | Array], None],
) -> Array:
    """The sum over t of A_t B_t, [ROWS, width].

    Args:
        width: columns of B.
        count: how many t there are, at least 1.
        operands: `t -> (A_t, B_t)` in shared memory. It waits for them, and may compute A_t in place: the
            product of t - 1 still runs.
        free: called with each t whose product is done.
    """

    def accumulate(accumulator):
        def step(t, _):
            plgpu.wgmma(accumulator, *operands(t))
            plgpu.wgmma_wait(1)  # this one may still run, the one before is done
            pl.when(t > 0)(lambda: free(t - 1))
            return ()

        lax.fori_loop(0, count, step, ())
        total = accumulator[...]
        free(count - 1)
        return total

    return pl.run_scoped(accumulate, plgpu.ACC((ROWS, width), jnp.float32))
