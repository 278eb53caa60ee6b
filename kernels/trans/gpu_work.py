"""What the two Hopper kernels of trans share: work dealt out to programs, arrays that are held or read again,
and the softmax's weights of a tile.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from kernels import hopper
from kernels.hopper import ROWS, TILE, Kernel, Ring, Scalar
from kernels.softmax import LOG2E

SQUARE = (ROWS, TILE)

type Positions = tuple[Scalar, ...]  # of the next tile of each ring


@dataclasses.dataclass(frozen=True)
class Work:
    """The pieces of work, (z, block), and the persistent programs that they are dealt out to.

    Attributes:
        kernel: whose programs they are.
        batch: number of z.
        blocks: pieces of each z.
    """

    kernel: Kernel
    batch: int
    blocks: int

    @property
    def block(self) -> int:
        """Rows of a block, 64 for each warpgroup."""
        return self.kernel.warpgroups * ROWS

    def piece(self, item: Array) -> tuple[Array, Array]:
        """The item's (z, block); a program has one item of every round of programs.

        Under a causal mask some blocks cost more than others. The blocks of a z are turned by one place every
        round of programs, or a program would meet the same block in every z.
        """
        (programs,) = self.kernel.grid
        z = lax.div(item, self.blocks)
        return z, lax.rem(item + lax.div(z, max(1, programs // self.blocks)), self.blocks)

    def parts(self, block: Array) -> list[Any]:
        """Where each warpgroup's rows of a block are."""
        starts = (block * self.block + part * ROWS for part in range(self.kernel.warpgroups))
        return [pl.ds(start, ROWS) for start in starts]

    def loop[T](self, body: Callable[[Array, Array, T], T], init: T) -> T:
        """Runs `body(z, block, carry) -> carry` over the pieces of this program."""
        (program,), (programs,) = self.kernel.place(), self.kernel.grid
        count = lax.div(self.batch * self.blocks - program + programs - 1, programs)

        def step(i, carry):
            return body(*self.piece(program + i * programs), carry)

        return lax.fori_loop(0, count, step, init)

    def run(
        self,
        copy: Callable[[Array, Array, Positions], Positions],
        compute: Callable[[Array, Array, Array, Positions], Positions],
        rings: Sequence[Ring],
    ) -> None:
        """Inside the kernel: does all pieces of this program.

        Args:
            copy: `(z, block, positions) -> positions`, what the copying warpgroup does for a piece.
            compute: `(member, z, block, positions) -> positions`, what each computing warpgroup does.
            rings: whose positions go through both, which must advance them alike.
        """
        start = (jnp.int32(0),) * len(rings)

        def copy_all():
            for ring, position in zip(rings, self.loop(copy, start), strict=True):
                ring.drain(position)

        def compute_all(member):
            self.loop(lambda z, block, positions: compute(member, z, block, positions), start)
            plgpu.wait_smem_to_gmem(0)

        self.kernel.split(copy_all, compute_all)


@dataclasses.dataclass(frozen=True)
class Walk:
    """How a piece walks over tiles that all its sweeps need.

    If the ring has room for all of them they are copied once and held until the last sweep; else they are
    copied again in every sweep.

    Attributes:
        ring: where they live.
        position: of the first.
        tiles: how many there are.
        sweeps: how many times they are needed, at least 1 where any is.
        most: the largest number of tiles of any piece, which decides, so that all pieces are treated alike.
    """

    ring: Ring
    position: Scalar
    tiles: Scalar
    sweeps: Scalar
    most: int

    @property
    def held(self) -> bool:
        """Whether the tiles stay."""
        return self.most <= self.ring.slots

    @property
    def end(self) -> Scalar:
        """The position after the piece, which has at least one sweep."""
        return self.position + self.tiles * (1 if self.held else self.sweeps)

    def place(self, sweep: Scalar, tile: Scalar) -> Scalar:
        """The position of a tile in a sweep."""
        return self.position + tile + (0 if self.held else sweep * self.tiles)

    def if_fresh(self, sweep: Scalar, action: Callable[[], None]) -> None:
        """Runs an action if the tiles of this sweep are (to be) copied for it."""
        if self.held:
            pl.when(sweep == 0)(action)
        else:
            action()

    def release(self, sweep: Scalar, tile: Scalar) -> None:
        """Gives a tile up if no later sweep needs it."""
        if self.held:
            pl.when(sweep == self.sweeps - 1)(lambda: self.ring.release(self.place(sweep, tile)))
        else:
            self.ring.release(self.place(sweep, tile))


def visible(first_row: Scalar, first_column: Scalar, row_offset: int) -> Array:
    """The causal mask of a tile: column <= row + row_offset."""
    columns = hopper.index(SQUARE, 1, first_column - row_offset)
    return columns <= hopper.index(SQUARE, 0, first_row)


def weights(logits: Array, lse: Array) -> Array:
    """The softmax's weights of a tile from the log-sum-exp of its rows."""
    return jnp.exp2(logits * LOG2E - hopper.along_columns(lse * LOG2E, SQUARE))


def weigh(ref: Any, lse: Array, first_row: Scalar, first_column: Scalar, row_offset: int | None) -> None:
    """Overwrites a tile of logits in shared memory with the softmax's weights, for the tensor cores."""
    logits = hopper.load(ref)
    if row_offset is not None:
        edge = first_column + (TILE - 1) > first_row + row_offset  # some column is not seen by the first row

        def masked(logits):
            return jnp.where(visible(first_row, first_column, row_offset), logits, -jnp.inf)

        logits = lax.cond(edge, masked, lambda x: x, logits)
    ref[...] = weights(logits, lse).astype(ref.dtype)
    plgpu.commit_smem()


def chunks(x: Array) -> list[Array]:
    """The tiles of a product, from left to right."""
    return [x[:, start : start + TILE] for start in range(0, x.shape[1], TILE)]
