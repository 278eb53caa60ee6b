"""What the three Hopper kernels of trilinear attention have in common: one sweep over pairs of positions.

Every one of them is a sum over first keys j of a matrix product whose operands are scaled, column by
column, by vectors that belong to j. With L a fixed tile of 64 rows, R tiles of rows that stream past, and
k1, v1 the vectors of j:

    forward           S = (Q * k1_j) K2^T                                        out += v1_j * (P V2)
    dquery            S = (Q * k1_j) K2^T    dP = (dO * v1_j) V2^T               dq  += k1_j * (dS K2)
    dkey2 (, dkey1)   S = (K2 * k1_j) Q^T    dP = (V2 * v1_j) dO^T               dk2 += k1_j * (dS Q)
    dvalue2 (, ...)   S = (K2 * k1_j) Q^T                                        dv2 += v1_j * (P dO)

so a scaled copy of L is made once for each j, in shared memory, and the inner product is scaled once when a
j is done: the tiles R, of which there are many more, are used as they are. The product of two 16-bit numbers
has twice their bits: the copy is in halves, two 16-bit numbers for each, and S and dP take two products.
Logits are then as exact as those of the definition, which matters because an error of a logit is a relative
error of a weight.

A program has one warpgroup that copies and two that compute. The two share L and the tiles R but take turns
at the j (even ones, odd ones), so that a tile of 64 rows - the 64 query heads of one group at one position,
say - keeps both busy and sees its window exactly, without a mask; their sums are added when both are done.
While one is in its exponentials the other has the tensor cores: `hopper.Turns` holds them to that.
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
from kernels.hopper import ALIGNMENT, TILE, Ref, Ring, Scalar

COMPUTE = 2  # computing warpgroups of a program
FACTOR_SLOTS = 2  # pairs of j whose vectors are held at a time
# The least that a running maximum can be. exp(MASKED - FLOOR) is 0, so a row in which nothing has been
# allowed yet adds nothing.
FLOOR = -1e29


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


@dataclasses.dataclass(frozen=True)
class Stream:
    """A ring, and where its tiles come from."""

    ring: Ring
    sources: Callable[[Any], Sequence[Ref]]  # of a slice of rows, in global memory


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The walk over first keys, and over the tiles that stream past for each: the same for both kinds of
    warpgroup.

    Attributes:
        pairs: how many pairs of j.
        first: the first j.
        span: of a pair's number: where its tiles start, and how many there are.
        factors: the vectors that belong to j.
        streams: the tiles.
        size: rows of a tile.
        offset: the row of the sources that is number 0 of the span; tiles start at multiples of 8.
    """

    pairs: Scalar
    first: Scalar
    span: Callable[[Scalar], tuple[Scalar, Scalar]]
    factors: Stream
    streams: Sequence[Stream]
    size: int
    offset: Scalar = 0

    def copy(self) -> None:
        """The copying warpgroup's part: the vectors of each pair of j, then the tiles for it."""

        def pair(t, step):
            rows = pl.ds(self.first + COMPUTE * t, COMPUTE)
            self.factors.ring.fill(t, *self.factors.sources(rows))
            start, tiles = self.span(t)

            def tile(c, step):
                row = self.offset + start + c * self.size
                rows = pl.ds(pl.multiple_of(row, ALIGNMENT), self.size)
                for stream in self.streams:
                    stream.ring.fill(step, *stream.sources(rows))
                return step + 1

            return lax.fori_loop(0, tiles, tile, step)

        steps = lax.fori_loop(0, self.pairs, pair, jnp.int32(0))
        self.factors.ring.drain(jnp.maximum(self.pairs, 0))
        for stream in self.streams:
            stream.ring.drain(steps)

    def compute[Total, Inner](
        self,
        member: Scalar,
        begin: Callable[[Scalar, Sequence[Ref], Total], Inner],
        tile: Callable[[Scalar, Scalar, Scalar, Scalar, Inner], Inner],
        finish: Callable[[Scalar, Scalar, Sequence[Ref], Total, Inner], Total],
        total: Total,
    ) -> Total:
        """A computing warpgroup's part: every second j.

        Args:
            member: which of the computing warpgroups this is; the functions get it `afresh`.
            begin: from the member, j's vectors and the total to what is carried through the tiles.
            tile: one tile, from the member, j, where it starts, and its position in the rings.
            finish: adds what was carried to the total, from the member, j and its vectors.
            total: what to add to.
        """

        def pair(t, carry):
            step, total = carry
            j = self.first + COMPUTE * t + member
            vectors = [buffer.at[member] for buffer in self.factors.ring.wait(t)]
            start, tiles = self.span(t)

            def one(c, carry):
                step, inner = carry
                return step + 1, tile(hopper.afresh(member), j, start + c * self.size, step, inner)

            step, inner = lax.fori_loop(0, tiles, one, (step, begin(hopper.afresh(member), vectors, total)))
            total = finish(hopper.afresh(member), j, vectors, total, inner)
            plgpu.commit_smem()  # the vectors were read by threads, and the copy engine writes over them
            self.factors.ring.release(t)
            return step, total

        return lax.fori_loop(0, self.pairs, pair, (jnp.int32(0), total))[1]


# ---- tiles


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
    index = hopper.index(shape, axis, start)
    return index if repeat == 1 else lax.shift_right_logical(index, repeat.bit_length() - 1)


def pieces(width: int) -> list[tuple[slice, Any]]:
    """The columns of a matrix in pieces, of an array in registers and of a reference.

    Between tiles most registers are taken: what is done to a whole matrix there is done in pieces.
    """
    return [(slice(start, start + TILE), pl.ds(start, TILE)) for start in range(0, width, TILE)]


def scale_into(targets: Ref, source: Callable[[Any], Array], vector: Ref) -> None:
    """Writes a matrix times a vector over its columns for the tensor cores, [2, rows, columns].

    `source` reads the columns of a slice. Each number is the sum of two of 16 bits.
    """
    for _, columns in pieces(vector.shape[0]):
        rows = source(columns).astype(jnp.float32)
        factor = hopper.load(vector.at[columns], hopper.BY_COLUMN)
        give(targets.at[:, :, columns], rows * hopper.along_rows(factor, rows.shape))


def give(targets: Ref, x: Array) -> None:
    """Writes the halves of a matrix, [2, rows, columns]."""
    for part, half in enumerate(hopper.halves(x, targets.dtype)):
        targets[part] = half


def taken(sources: Ref, columns: Any) -> Array:
    """Reads columns of a matrix that `give` wrote."""
    return hopper.load(sources.at[0, :, columns]) + hopper.load(sources.at[1, :, columns])


def row_products(pairs: Sequence[tuple[Ref, Ref]], then: Callable[[], None]) -> list[Array]:
    """The products left right^T, the left factors in halves."""
    factors = [[(left.at[part], right.transpose((1, 0))) for part in range(2)] for left, right in pairs]
    return hopper.products(factors, then)


def column_sums(sums: Ref, target: Ref, left: Array, right: Ref, ones: Ref) -> None:
    """Writes the sum of each column of left * right, by way of `target`: a matrix of ones times the product.

    The sum over rows crosses warps. The tensor cores take the product in its halves and add in float32.
    """
    for of_array, columns in pieces(left.shape[1]):
        piece = target.at[:, :, columns]
        give(piece, left[:, of_array] * hopper.load(right.at[:, columns]))
        plgpu.commit_smem()
        (total,) = hopper.products([[(piece.at[part].transpose((1, 0)), ones) for part in range(2)]])
        sums[columns] = total.max(axis=1)
