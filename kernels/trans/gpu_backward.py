"""The backward pass of trans on Hopper: one kernel, two kinds of work, the weights S recomputed in both.

With u = S v, S = exp(K - lse):  dv = S^T du;  dS = du v^T;  dK = S (dS - Delta),  Delta_x = sum_a S dS.

- *dK for a block of rows:* du of these rows is held, the premise is streamed, and the gradient overwrites the
  tile of logits from which S was made. Delta is the same sum as sum_y du u, but u was rounded to 16 bits when
  it was saved, and where one weight is almost 1 the error would be all that is left of dS - Delta. So Delta
  is summed first: with dS of all columns in registers if there are few, else in sweeps of their own.
- *dv for a block of columns:* the forward pass with the weights transposed. All logits of these columns are
  held and exponentiated in place, the tensor cores read them transposed, and du is streamed.

What does not fit into shared memory is not held but copied again in every sweep (`Walk`). Both kinds read the
logits and du; the pieces of one head are dealt out next to each other, so that one of the two reads is served
by the cache.
"""

import functools
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from kernels import hopper
from kernels.hopper import ROWS, TILE, Kernel, Ring
from kernels.trans.gpu_work import SQUARE, Walk, Work, chunks, visible, weigh, weights

union = plgpu.RefUnion  # by name, for the search for races, which takes a union for one piece of memory


def scratch(warpgroups: int, width: int, held: int, streamed: int, passing: int, dtype: Any) -> tuple:
    """Shared memory of the kernel: the four rings of `_Rings`."""
    parts = {"consumers": warpgroups, "copies": warpgroups}
    both = union(
        hopper.tiles(streamed, width, TILE, dtype=dtype), hopper.tiles(streamed, TILE, width, dtype=dtype)
    )
    return (
        Ring.scratch(plgpu.SMEM((4, ROWS), jnp.float32), consumers=warpgroups),
        Ring.scratch(hopper.tiles(held, warpgroups, ROWS, TILE, dtype=dtype), **parts),
        Ring.scratch(both, consumers=warpgroups),
        Ring.scratch(hopper.tiles(passing, warpgroups, ROWS, TILE, dtype=dtype), **parts),
    )


class _Rings:
    """The four rings. Positions go through a piece of work as a tuple in this order.

    Attributes:
        lse: log-sum-exps of 64 rows, for dv.
        held: what every sweep needs: du of the piece's rows, or logits of its columns.
        premise: streamed tiles [width, 64] of v ...
        dout: ... or [64, width] of du, in the same memory.
        passing: what is met once: logits that become gradients, and dv on its way out.
    """

    def __init__(self, lse: Any, held: Any, streamed: Any, passing: Any) -> None:
        self.lse, self.held, self.passing = Ring(*lse), Ring(*held), Ring(*passing)
        ((premise, dout),), full, empty = streamed
        self.premise, self.dout = Ring((premise,), full, empty), Ring((dout,), full, empty)
        self.width = dout.shape[2]

    @property
    def chunks(self) -> int:
        """Tiles of a product."""
        return self.width // TILE

    @property
    def deferred(self) -> bool:
        """Whether a product's tiles all have slots, and may leave them while the next product runs."""
        return self.passing.slots >= self.chunks

    def store(self, member: Any, position: Any, value: Array, target: Any) -> None:
        """Sends a tile out through its passing slot."""
        ref = self.passing.at(position)[0].at[member]
        ref[...] = value.astype(ref.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(ref, target)

    def retire(self, position: Any, count: int = 1) -> None:
        """Gives up passing slots from a position on, once all that was stored has been read."""
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        for index in range(count):
            self.passing.release(position + index)


class _Piece:
    """What both kinds of work have: the arrays, the rings, and whether the columns are causal."""

    def __init__(self, rings: _Rings, work: Work, row_offset: int | None, arrays: dict[str, Any]) -> None:
        self.rings, self.work, self.row_offset, self.arrays = rings, work, row_offset, arrays

    def logits(self, z, rows, columns):
        """The sources of a tile for each warpgroup; one of `rows` and `columns` is a list."""
        parts = [(r, columns) for r in rows] if isinstance(rows, list) else [(rows, c) for c in columns]
        return [self.arrays["logits"].at[z, r, c] for r, c in parts]


# ---- dK = S (du v^T - Delta), for a block of rows


class _LogitsGradient(_Piece):
    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.tiles = pl.cdiv(self.arrays["dout"].shape[2], TILE)
        self.sweeps = pl.cdiv(self.arrays["logits"].shape[2], self.rings.width)
        # With one sweep, all of dS is in registers and of the logits in shared memory when Delta is known.
        self.rounds = 1 if self.sweeps == 1 and self.rings.deferred else 2

    def begin(self, block, positions):
        """How many sweeps are needed, the walk over du, and the positions of the other rings."""
        lse, held, streamed, passing = positions
        needed = self.sweeps
        if self.row_offset is not None:  # in the other sweeps the block's last row sees nothing
            seen = jnp.maximum((block + 1) * self.work.block + self.row_offset, 0)
            needed = jnp.minimum(lax.div(seen + self.rings.width - 1, self.rings.width), self.sweeps)
        walk = Walk(self.rings.held, held, self.tiles, self.rounds * needed, self.tiles)
        end = jnp.where(needed > 0, walk.end, held)
        unseen = (self.sweeps - needed) * self.rings.chunks
        seen = self.rounds * needed
        ends = lse, end, streamed + seen * self.tiles, passing + seen * self.rings.chunks + unseen
        return needed, walk, streamed, passing, ends

    def copy(self, z, block, positions):
        rings, arrays, width = self.rings, self.arrays, self.rings.width
        needed, walk, streamed, passing, ends = self.begin(block, positions)
        parts = self.work.parts(block)

        def copy_sweep(index, _):
            sweep = index if self.rounds == 1 else lax.rem(index, needed)

            def copy_factors(tile, _):
                columns = pl.ds(tile * TILE, TILE)
                sources = [arrays["dout"].at[z, part, columns] for part in parts]
                walk.if_fresh(index, lambda: rings.held.fill(walk.place(index, tile), sources))
                source = arrays["premise"].at[z, pl.ds(sweep * width, width), columns]
                rings.premise.fill(streamed + index * self.tiles + tile, source)
                return ()

            def copy_logits(chunk, _):
                columns = pl.ds(sweep * width + chunk * TILE, TILE)
                position = passing + index * rings.chunks + chunk
                rings.passing.fill(position, self.logits(z, parts, columns))
                return ()

            lax.fori_loop(0, self.tiles, copy_factors, ())
            lax.fori_loop(0, rings.chunks, copy_logits, ())
            return ()

        def skip_logits(chunk, _):
            position = passing + self.rounds * needed * rings.chunks + chunk
            rings.passing.hand_over(position, copies=self.work.kernel.warpgroups)
            return ()

        lax.fori_loop(0, self.rounds * needed, copy_sweep, ())
        if self.row_offset is not None:
            lax.fori_loop(0, (self.sweeps - needed) * rings.chunks, skip_logits, ())
        return ends

    def compute(self, member, z, block, positions):
        rings, width = self.rings, self.rings.width
        needed, walk, streamed, passing, ends = self.begin(block, positions)
        first_row = block * self.work.block + member * ROWS
        rows = pl.ds(first_row, ROWS)
        lse = hopper.load_global(self.arrays["lse"].at[z, rows], hopper.BY_ROW)

        def target(first_column):
            return self.arrays["dlogits"].at[z, rows, pl.ds(first_column, TILE)]

        def first_chunk(index):
            return passing + index * rings.chunks

        def products(index, before=lambda: None):
            """Computes dS of a sweep, [64, width]."""
            streamed_now = streamed + index * self.tiles

            def operands(tile):
                place = walk.place(index, tile)
                walk.if_fresh(index, lambda: rings.held.await_copies(place))
                premise = rings.premise.wait(streamed_now + tile)[0]
                return rings.held.at(place)[0].at[member], premise.transpose((1, 0))

            def free(tile):
                rings.premise.release(streamed_now + tile)
                walk.release(index, tile)
                pl.when(tile == 0)(before)

            return hopper.sum_of_products(width, self.tiles, operands, free)

        def softmax(position, first_column):
            tile = weights(hopper.load(rings.passing.at(position)[0].at[member]), lse)
            if self.row_offset is None:
                return tile
            return jnp.where(visible(first_row, first_column, self.row_offset), tile, 0.0)

        def add_to_delta(index, dweights, total, *, last):
            for chunk, tile in enumerate(chunks(dweights)):
                position = first_chunk(index) + chunk
                rings.passing.wait(position)
                total += softmax(position, index * width + chunk * TILE) * tile
                if not last:
                    plgpu.commit_smem()  # the copy into this slot comes after the reads
                    rings.passing.release(position)
            return total

        def store_gradient(index, sweep, dweights, delta, *, waited):
            for chunk, tile in enumerate(chunks(dweights)):
                first_column = sweep * width + chunk * TILE
                position = first_chunk(index) + chunk
                if not waited:
                    rings.passing.wait(position)
                gradient = softmax(position, first_column) * (tile - hopper.along_columns(delta, SQUARE))
                rings.store(member, position, gradient, target(first_column))
                if not rings.deferred:
                    rings.retire(position)

        def sweep_sum(sweep, total):
            return add_to_delta(sweep, products(sweep), total, last=False)

        def sweep_gradient(sweep, delta):
            index = needed + sweep

            def retire():
                if rings.deferred:
                    pl.when(sweep > 0)(lambda: rings.retire(first_chunk(index - 1), rings.chunks))

            store_gradient(index, sweep, products(index, retire), delta, waited=False)
            return delta

        def only_sweep(sweep, _):
            dweights = products(sweep)
            delta = add_to_delta(sweep, dweights, hopper.full(SQUARE, 0.0), last=True).sum(axis=1)
            store_gradient(sweep, sweep, dweights, delta, waited=True)
            return ()

        if self.rounds == 1:
            lax.fori_loop(0, needed, only_sweep, ())
        else:
            total = lax.fori_loop(0, needed, sweep_sum, hopper.full(SQUARE, 0.0))
            lax.fori_loop(0, needed, sweep_gradient, total.sum(axis=1))
        end = first_chunk(self.rounds * needed)
        if rings.deferred:
            pl.when(needed > 0)(lambda: rings.retire(end - rings.chunks, rings.chunks))

        def store_zeros(index, _):
            position = end + index
            rings.passing.wait(position)
            first_column = (needed * rings.chunks + index) * TILE
            rings.store(member, position, hopper.full(SQUARE, 0.0), target(first_column))
            rings.retire(position)
            return ()

        if self.row_offset is not None:
            lax.fori_loop(0, (self.sweeps - needed) * rings.chunks, store_zeros, ())
        return ends


# ---- dv = S^T du, for a block of columns


class _PremiseGradient(_Piece):
    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.all_tiles = pl.cdiv(self.arrays["dout"].shape[1], TILE)
        self.sweeps = pl.cdiv(self.arrays["dout"].shape[2], self.rings.width)

    def begin(self, block, positions):
        """The first tile of rows that matters, the walk over the logits from there, and other positions."""
        lse, held, streamed, passing = positions
        first = 0
        if self.row_offset is not None:  # it sees the block's first column; the last tile if none does
            first = lax.div(jnp.maximum(block * self.work.block - self.row_offset, 0), TILE)
            first = jnp.minimum(first, self.all_tiles - 1)
        tiles = self.all_tiles - first
        walk = Walk(self.rings.held, held, tiles, self.sweeps, self.all_tiles)
        ends = (
            lse + (walk.end - held),
            walk.end,
            streamed + self.sweeps * tiles,
            passing + self.sweeps * self.rings.chunks,
        )
        return first, walk, lse - held, streamed, passing, ends

    def copy(self, z, block, positions):
        rings, arrays, width = self.rings, self.arrays, self.rings.width
        first, walk, to_lse, streamed, passing, ends = self.begin(block, positions)
        parts = self.work.parts(block)

        def copy_sweep(sweep, _):
            def copy_tile(tile, _):
                rows = pl.ds((first + tile) * TILE, TILE)
                place = walk.place(sweep, tile)

                @functools.partial(walk.if_fresh, sweep)
                def copy_logits():
                    rings.lse.fill(to_lse + place, arrays["lse"].at[z, rows])
                    rings.held.fill(place, self.logits(z, rows, parts))

                source = arrays["dout"].at[z, rows, pl.ds(sweep * width, width)]
                rings.dout.fill(streamed + sweep * walk.tiles + tile, source)
                return ()

            lax.fori_loop(0, walk.tiles, copy_tile, ())
            for index in range(rings.chunks):
                position = passing + sweep * rings.chunks + index
                rings.passing.hand_over(position, copies=self.work.kernel.warpgroups)
            return ()

        lax.fori_loop(0, self.sweeps, copy_sweep, ())
        return ends

    def compute(self, member, z, block, positions):
        rings, width = self.rings, self.rings.width
        first, walk, to_lse, streamed, passing, ends = self.begin(block, positions)
        first_column = block * self.work.block + member * ROWS

        def first_chunk(sweep):
            return passing + sweep * rings.chunks

        def sweep_columns(sweep, _):
            streamed_now = streamed + sweep * walk.tiles

            def operands(tile):
                place = walk.place(sweep, tile)
                logits = rings.held.at(place)[0].at[member]

                @functools.partial(walk.if_fresh, sweep)
                def exponentiate():
                    rings.held.await_copies(place)
                    lse = hopper.load(rings.lse.wait(to_lse + place)[0], hopper.BY_ROW)
                    weigh(logits, lse, (first + tile) * TILE, first_column, self.row_offset)
                    rings.lse.release(to_lse + place)

                return logits.transpose((1, 0)), rings.dout.wait(streamed_now + tile)[0]

            def free(tile):
                rings.dout.release(streamed_now + tile)
                walk.release(sweep, tile)
                if rings.deferred:
                    before = jnp.logical_and(tile == 0, sweep > 0)
                    pl.when(before)(lambda: rings.retire(first_chunk(sweep - 1), rings.chunks))

            product = hopper.sum_of_products(width, walk.tiles, operands, free)
            for index, chunk in enumerate(chunks(product)):
                position = first_chunk(sweep) + index
                rings.passing.wait(position)
                columns = pl.ds(sweep * width + index * TILE, TILE)
                target = self.arrays["dpremise"].at[z, pl.ds(first_column, ROWS), columns]
                rings.store(member, position, chunk, target)
                if not rings.deferred:
                    rings.retire(position)
            return ()

        lax.fori_loop(0, self.sweeps, sweep_columns, ())
        if rings.deferred:
            rings.retire(first_chunk(self.sweeps - 1), rings.chunks)
        return ends


# ---- both


def _kernel(*refs: Any, work: Work, row_blocks: int, row_offset: int | None) -> None:
    names = ("logits", "lse", "premise", "dout", "dlogits", "dpremise")
    arrays, rings = dict(zip(names, refs, strict=False)), _Rings(*refs[len(names) :])
    rows, columns = (kind(rings, work, row_offset, arrays) for kind in (_LogitsGradient, _PremiseGradient))

    def copy(z, block, positions):
        return lax.cond(
            block < row_blocks,
            lambda: rows.copy(z, block, positions),
            lambda: columns.copy(z, block - row_blocks, positions),
        )

    def compute(member, z, block, positions):
        return lax.cond(
            block < row_blocks,
            lambda: rows.compute(member, z, block, positions),
            lambda: columns.compute(member, z, block - row_blocks, positions),
        )

    work.run(copy, compute, (rings.lse, rings.held, rings.premise, rings.passing))


def run(
    logits: Float[Array, "Z X A"],
    lse: Float[Array, "Z X2"],
    premise: Float[Array, "Z A8 Y"],
    dout: Float[Array, "Z X Y"],
    kernel: Kernel,
    *,
    row_offset: int | None,
    interpret: bool,
) -> tuple[Float[Array, "Z X A"], Float[Array, "Z A8 Y"]]:
    """Gradients of the logits and of the premise.

    Args:
        logits: K; -inf where masked. X is a multiple of 8; A is padded to a multiple of 64.
        lse: from the forward pass, of all rows of all blocks.
        premise: v. A8 is A padded to a multiple of 8, Y a multiple of 64.
        dout: du.
        kernel: as planned.
        row_offset: of the causal mask, None without one.
        interpret: on a CPU.
    """
    batch, rows, columns = logits.shape
    block = kernel.warpgroups * ROWS
    row_blocks, column_blocks = pl.cdiv(rows, block), pl.cdiv(columns, block)
    work = Work(kernel, batch, row_blocks + column_blocks)
    body = functools.partial(_kernel, work=work, row_blocks=row_blocks, row_offset=row_offset)
    types = (
        hopper.result(logits.shape, logits.dtype, logits),
        hopper.result(premise.shape, premise.dtype, logits),
    )
    return kernel.run(body, types, logits, lse, premise, dout, interpret=interpret)
