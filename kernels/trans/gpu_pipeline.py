"""What the Hopper kernels of trans share: rings of tiles in shared memory, and work dealt out to programs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

WARPGROUP_ROWS = 64  # rows of one wgmma instruction
TILE = 64  # columns of 16-bit numbers in the widest swizzle, 128 bytes
LOWEST = -1e30  # where maxima start: finite, so that a row of -inf does not give inf - inf
TRANSFORMS = (plgpu.TilingTransform((8, TILE)), plgpu.SwizzleTransform(128))


type Positions = tuple[Array, ...]  # of the next tile of each ring

# ---- copies
# ---------------------------------------------------------------------------------------------------


def tile_scratch(shape: tuple[int, ...], dtype: Any) -> Any:
    """Shared memory for tiles as the tensor cores read them."""
    return plgpu.SMEM(shape, dtype, transforms=TRANSFORMS)


@dataclasses.dataclass(frozen=True)
class Ring:
    """Slots of shared memory that the copying warpgroup fills and the computing ones empty, in order.

    Positions count tiles from the start of the program; position p lives in slot p % slots.
    """

    tiles: Any
    full: Any
    empty: Any

    @staticmethod
    def scratch(
        slots: int,
        tile: tuple[int, ...],
        dtype: Any,
        consumers: int,
        *,
        copies: int = 1,
        swizzled: bool = True,
    ) -> tuple:
        """What it needs as `scratch_types`.

        Args:
            slots: how many tiles it holds.
            tile: shape of one.
            dtype: of its numbers.
            consumers: warpgroups that use each tile.
            copies: how many fill one slot; the tile's first axis may count them.
            swizzled: laid out for the tensor cores.
        """
        shape = (slots, *tile)
        return (
            tile_scratch(shape, dtype) if swizzled else plgpu.SMEM(shape, dtype),
            plgpu.Barrier(num_arrivals=copies, num_barriers=slots),
            plgpu.Barrier(num_arrivals=consumers, num_barriers=slots),
        )

    def _slot(self, position: Array) -> Array:
        return lax.rem(position, jnp.int32(self.tiles.shape[0]))

    def _acquire(self, position: Array) -> Array:
        slot = self._slot(position)

        @pl.when(position >= self.tiles.shape[0])
        def _():
            plgpu.barrier_wait(self.empty.at[slot])

        return slot

    def fill(self, position: Array, *sources: Any) -> None:
        """Producer: copies into the position's slot, once what was in it has been used."""
        slot = self._acquire(position)
        for part, source in enumerate(sources):
            target = self.tiles.at[slot]
            target = target if len(target.shape) == len(source.shape) else target.at[part]
            plgpu.copy_gmem_to_smem(source, target, self.full.at[slot])

    def drain(self, position: Array) -> None:
        """Producer, at the end: waits until all that lies before the position has been used."""
        for slot in range(self.tiles.shape[0]):
            self._acquire(position + slot)

    def hand_over(self, position: Array, copies: int) -> None:
        """Producer: gives the position's slot to the consumers as it is, in place of `copies` copies."""
        slot = self._acquire(position)
        for _ in range(copies):
            plgpu.barrier_arrive(self.full.at[slot])

    def wait(self, position: Array) -> Any:
        """Consumer: the position's tile, once it is filled. Once a position only."""
        slot = self._slot(position)
        plgpu.barrier_wait(self.full.at[slot])
        return self.tiles.at[slot]

    def at(self, position: Array) -> Any:
        """Consumer: the position's tile, waited for before."""
        return self.tiles.at[self._slot(position)]

    def release(self, position: Array) -> None:
        """Consumer: this warpgroup does not need the position any more."""
        plgpu.barrier_arrive(self.empty.at[self._slot(position)])


def array_type(shape: tuple[int, ...], dtype: Any, like: Array) -> jax.ShapeDtypeStruct:
    """Of a result that varies over the same `shard_map` axes as an argument."""
    return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=jax.typeof(like).manual_axis_type)


def store_tile(value: Array, slots: Any, turn: int, target: Any) -> None:
    """Starts the copy of a tile from registers to `target`, by way of the warpgroup's `slots` in turn."""
    slot = turn % slots.shape[0]
    plgpu.wait_smem_to_gmem(slots.shape[0] - 1, wait_read_only=True)
    slots[slot] = value.astype(slots.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(slots.at[slot], target)


# ---- work
# -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Work:
    """The pieces of work, (z, block), and the programs they are dealt out to.

    Attributes:
        batch: how many z there are.
        blocks: pieces of each.
        warpgroups: of a program, not counting the one that copies.
        programs: how many the chip runs at once.
    """

    batch: int
    blocks: int
    warpgroups: int
    programs: int

    @property
    def block(self) -> int:
        """Rows of a block, 64 a warpgroup."""
        return self.warpgroups * WARPGROUP_ROWS

    @property
    def launched(self) -> int:
        """How many programs work."""
        return min(self.programs, self.batch * self.blocks)

    def piece(self, item: Array) -> tuple[Array, Array]:
        """The item's (z, block); a program has every `launched`-th item.

        Under a causal mask some blocks cost more than others. The blocks of a z are turned by one place every
        round of programs, or a program would meet the same block in every z.
        """
        z = lax.div(item, self.blocks)
        return z, lax.rem(item + lax.div(z, max(1, self.launched // self.blocks)), self.blocks)

    def parts(self, block: Array) -> list[Any]:
        """Where each warpgroup's rows of a block are."""
        starts = (block * self.block + part * WARPGROUP_ROWS for part in range(self.warpgroups))
        return [pl.ds(start, WARPGROUP_ROWS) for start in starts]

    def loop[T](self, body: Callable[[Array, Array, T], T], init: T) -> T:
        """Runs `body(z, block, carry) -> carry` over the pieces of this program."""
        program = lax.axis_index("program")
        count = lax.div(self.batch * self.blocks - program + self.launched - 1, self.launched)

        def step(i, carry):
            return body(*self.piece(program + i * self.launched), carry)

        return lax.fori_loop(0, count, step, init)

    def run(
        self,
        copy: Callable[[Array, Array, Positions], Positions],
        compute: Callable[[Array, Array, Array, Positions], Positions],
        rings: Sequence[Ring],
    ) -> None:
        """Inside a kernel: each warpgroup's part of the work.

        Args:
            copy: `(z, block, positions) -> positions`, what the copying warpgroup does for a piece.
            compute: `(warpgroup, z, block, positions) -> positions`, what the others do.
            rings: whose positions go through both, which must advance them alike.
        """
        warpgroup = lax.axis_index("warpgroup")
        start = (jnp.int32(0),) * len(rings)

        @pl.when(warpgroup == self.warpgroups)
        def _copy():
            if self.warpgroups == 2:
                plgpu.set_max_registers(40, action="decrease")
            for ring, position in zip(rings, self.loop(copy, start), strict=True):
                ring.drain(position)

        @pl.when(warpgroup < self.warpgroups)
        def _compute():
            if self.warpgroups == 2:  # with one, the compiler's share of registers is all there are
                plgpu.set_max_registers(232, action="increase")
            self.loop(lambda z, block, positions: compute(warpgroup, z, block, positions), start)
            plgpu.wait_smem_to_gmem(0)

    def launch(self, name: str, kernel: Callable[..., None], *, out_type, scratch_types, interpret: bool):
        """The kernel as a function of arrays."""
        return plgpu.kernel(
            kernel,
            kernel_name=name,
            out_type=out_type,
            scratch_types=scratch_types,
            grid=(self.launched,),
            grid_names=("program",),
            num_threads=self.warpgroups + 1,
            thread_name="warpgroup",
            # Reductions stay inside a row, which needs no scratch; exp2 and log2 are the hardware's.
            compiler_params=plgpu.CompilerParams(approx_math=True, reduction_scratch_bytes=0),
            interpret=plgpu.InterpretGPUParams() if interpret else None,
        )


# ---- registers
# ------------------------------------------------------------------------------------------------


def row_vector(value: float) -> Array:
    """A number for each of a warpgroup's rows."""
    x = jnp.full((WARPGROUP_ROWS,), value, jnp.float32)
    return plgpu.layout_cast(x, plgpu.Layout.WGMMA.reduce(1))


def full_tile(value: float, dtype: Any = jnp.float32) -> Array:
    """A tile of one number."""
    return plgpu.layout_cast(jnp.full((WARPGROUP_ROWS, TILE), value, dtype), plgpu.Layout.WGMMA)


def load_row_vector(ref: Any) -> Array:
    """A number for each of a warpgroup's rows, from shared memory."""
    return plgpu.load(ref, layout=plgpu.Layout.WGMMA.reduce(1))


def across(x: Array) -> Array:
    """A number a row, repeated along a tile's row."""
    return lax.broadcast_in_dim(x, (WARPGROUP_ROWS, TILE), [0])


def load_tile(ref: Any, dtype: Any = jnp.float32) -> Array:
    """A tile from shared memory to registers."""
    return plgpu.load(ref, layout=plgpu.Layout.WGMMA).astype(dtype)


def visible(first_row: Array, first_column: Array, row_offset: int) -> Array:
    """The causal mask of a tile: column <= row + row_offset."""
    shape = (WARPGROUP_ROWS, TILE)
    row = plgpu.broadcasted_iota(jnp.int32, shape, 0, layout=plgpu.Layout.WGMMA)
    column = plgpu.broadcasted_iota(jnp.int32, shape, 1, layout=plgpu.Layout.WGMMA)
    return column + (first_column - row_offset) <= row + first_row


# ---- products
# -------------------------------------------------------------------------------------------------


def multiply(
    width: int,
    tiles: int | Array,
    operands: Callable[[Array], tuple[Any, Any]],
    free: Callable[[int | Array], None],
) -> Array:
    """The sum over tiles of A_t B_t, [64, width] in float32.

    Args:
        width: columns of B.
        tiles: how many, at least 1.
        operands: `tile -> (A_t, B_t)` in shared memory; waits for them.
        free: called with each tile whose product is done. One product runs while the next one is started.
    """

    def accumulate(acc):
        def step(tile, _):
            plgpu.wgmma(acc, *operands(tile))
            plgpu.wgmma_wait(1)  # this one may still run, the one before is done
            pl.when(tile > 0)(lambda: free(tile - 1))
            return ()

        lax.fori_loop(0, tiles, step, ())
        result = acc[...]
        free(tiles - 1)
        return result

    return pl.run_scoped(accumulate, plgpu.ACC((WARPGROUP_ROWS, width), jnp.float32))


def chunks(x: Array) -> list[Array]:
    """The tiles of a product, from left to right."""
    return [x[:, start : start + TILE] for start in range(0, x.shape[1], TILE)]
