"""The backward pass of trans on Hopper: one kernel, two kinds of work, the weights S recomputed in both.

With u = S v, S = exp(K - lse):  dv = S^T du;  dS = du v^T;  dK = S (dS - Delta),  Delta_x = sum_y du u.

- *dK for a block of rows:* du of these rows is held, the premise is streamed; Delta is summed while du
  arrives, and the gradient overwrites the tile of logits from which S was made.
- *dv for a block of columns:* the forward pass with the weights transposed. All logits of these columns are
  held and exponentiated in place, the tensor cores read them transposed, and du is streamed.

Both kinds read the logits and du. The pieces of one head are dealt out next to each other, so that one of the
two reads is served by the cache: six arrays cross the memory bus and not eight.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from kernels.softmax import LOG2E
from kernels.trans import gpu_pipeline
from kernels.trans.gpu_pipeline import TILE, WARPGROUP_ROWS, Ring, Work


def _weights(logits: Array, lse: Array) -> Array:
    return jnp.exp2(logits * LOG2E - gpu_pipeline.across(lse * LOG2E))


class _Rings:
    """The four rings. Positions go through a piece of work as a tuple in this order.

    Attributes:
        lse: log-sum-exps of 64 rows.
        held: what a piece needs all of: du of its rows, or logits of its columns.
        premise: streamed tiles [width, 64] of v ...
        dout: ... or [64, width] of du, in the same memory.
        passing: what is met once: u for Delta, logits that become gradients, and dv on its way out.
    """

    def __init__(self, lse: Any, held: Any, streamed: Any, passing: Any) -> None:
        self.lse, self.held, self.passing = Ring(*lse), Ring(*held), Ring(*passing)
        (premise, dout), full, empty = streamed
        self.premise, self.dout = Ring(premise, full, empty), Ring(dout, full, empty)
        self.width = dout.shape[2]

    @property
    def chunks(self) -> int:
        """Tiles of a product."""
        return self.width // TILE

    @property
    def deferred(self) -> bool:
        """Whether a product's tiles all have slots, and may leave them while the next product runs."""
        return self.passing.tiles.shape[0] >= self.chunks

    def store(self, warpgroup: Any, position: Any, value: Array, target: Any) -> None:
        """Sends a tile out through its passing slot."""
        ref = self.passing.at(position).at[warpgroup]
        ref[...] = value.astype(ref.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(ref, target)

    def retire(self, position: Any, count: int = 1) -> None:
        """Gives up passing slots from a position on, once all that was stored has been read."""
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
        for index in range(count):
            self.passing.release(position + index)


# ---- dK = S (du v^T - Delta), for a block of rows
# -----------------------------------------------------------------


class _LogitsGradient:
    def __init__(self, rings: _Rings, work: Work, row_offset: int | None, arrays: dict[str, Any]) -> None:
        self.rings, self.work, self.row_offset, self.arrays = rings, work, row_offset, arrays
        self.tiles = pl.cdiv(arrays["dout"].shape[2], TILE)
        self.sweeps = pl.cdiv(arrays["logits"].shape[2], rings.width)

    def needed(self, block):
        """How many sweeps have a column that the block's last row sees. The gradient of the others is 0."""
        if self.row_offset is None:
            return self.sweeps
        seen = jnp.maximum((block + 1) * self.work.block + self.row_offset, 0)
        return jnp.minimum(lax.div(seen + self.rings.width - 1, self.rings.width), self.sweeps)

    def advanced(self, block, positions):
        lse, held, streamed, passing = positions
        return (
            lse + self.work.warpgroups,
            held + self.tiles,
            streamed + self.needed(block) * self.tiles,
            passing + self.tiles + self.sweeps * self.rings.chunks,
        )

    def copy(self, z, block, positions):
        rings, arrays, width = self.rings, self.arrays, self.rings.width
        lse, held, streamed, passing = positions
        parts, needed = self.work.parts(block), self.needed(block)
        for index, part in enumerate(parts):
            rings.lse.fill(lse + index, arrays["lse"].at[z, part])

        def copy_rows(tile, _):
            columns = pl.ds(tile * TILE, TILE)
            rings.held.fill(held + tile, *(arrays["dout"].at[z, part, columns] for part in parts))
            rings.passing.fill(passing + tile, *(arrays["out"].at[z, part, columns] for part in parts))
            return ()

        def copy_sweep(sweep, _):
            def copy_premise(tile, _):
                source = arrays["premise"].at[z, pl.ds(sweep * width, width), pl.ds(tile * TILE, TILE)]
                rings.premise.fill(streamed + sweep * self.tiles + tile, source)
                return ()

            def copy_logits(chunk, _):
                columns = pl.ds(sweep * width + chunk * TILE, TILE)
                position = passing + self.tiles + sweep * self.rings.chunks + chunk
                rings.passing.fill(position, *(arrays["logits"].at[z, part, columns] for part in parts))
                return ()

            lax.fori_loop(0, self.tiles, copy_premise, ())
            lax.fori_loop(0, self.rings.chunks, copy_logits, ())
            return ()

        def skip_logits(chunk, _):
            rings.passing.hand_over(passing + self.tiles + chunk, copies=self.work.warpgroups)
            return ()

        lax.fori_loop(0, self.tiles, copy_rows, ())
        lax.fori_loop(0, needed, copy_sweep, ())
        if self.row_offset is not None:
            lax.fori_loop(needed * self.rings.chunks, self.sweeps * self.rings.chunks, skip_logits, ())
        return self.advanced(block, positions)

    def compute(self, warpgroup, z, block, positions):
        rings, width = self.rings, self.rings.width
        lse_position, held, streamed, passing = positions
        needed = self.needed(block)
        first_row = block * self.work.block + warpgroup * WARPGROUP_ROWS
        lse = self._own_lse(warpgroup, lse_position)

        def sum_products(tile, total):
            dout = gpu_pipeline.load_tile(rings.held.wait(held + tile).at[warpgroup])
            out = gpu_pipeline.load_tile(rings.passing.wait(passing + tile).at[warpgroup])
            total += dout * out
            plgpu.commit_smem()  # the copy into this slot comes after the reads
            rings.passing.release(passing + tile)
            return total

        delta = lax.fori_loop(0, self.tiles, sum_products, gpu_pipeline.full_tile(0.0)).sum(axis=1)

        def target(first_column):
            rows = pl.ds(first_row, WARPGROUP_ROWS)
            return self.arrays["dlogits"].at[z, rows, pl.ds(first_column, TILE)]

        def first_chunk(sweep):
            return passing + self.tiles + sweep * rings.chunks

        def sweep_columns(sweep, _):
            streamed_now = streamed + sweep * self.tiles

            def operands(tile):
                premise = rings.premise.wait(streamed_now + tile)
                return rings.held.at(held + tile).at[warpgroup], premise.transpose((1, 0))

            def free(tile):
                rings.premise.release(streamed_now + tile)
                pl.when(sweep == needed - 1)(lambda: rings.held.release(held + tile))
                if rings.deferred:
                    before = jnp.logical_and(tile == 0, sweep > 0)
                    pl.when(before)(lambda: rings.retire(first_chunk(sweep - 1), rings.chunks))

            dweights = gpu_pipeline.multiply(width, self.tiles, operands, free)
            for index, chunk in enumerate(gpu_pipeline.chunks(dweights)):
                first_column = sweep * width + index * TILE
                position = first_chunk(sweep) + index
                logits = gpu_pipeline.load_tile(rings.passing.wait(position).at[warpgroup])
                gradient = _weights(logits, lse) * (chunk - gpu_pipeline.across(delta))
                if self.row_offset is not None:
                    seen = gpu_pipeline.visible(first_row, first_column, self.row_offset)
                    gradient = jnp.where(seen, gradient, 0.0)
                rings.store(warpgroup, position, gradient, target(first_column))
                if not rings.deferred:
                    rings.retire(position)
            return ()

        def store_zeros(index, _):
            position = passing + self.tiles + index
            rings.passing.wait(position)
            rings.store(warpgroup, position, gpu_pipeline.full_tile(0.0), target(index * TILE))
            rings.retire(position)
            return ()

        def release_held(tile, _):
            rings.held.release(held + tile)
            return ()

        lax.fori_loop(0, needed, sweep_columns, ())
        if rings.deferred:
            pl.when(needed > 0)(lambda: rings.retire(first_chunk(needed - 1), rings.chunks))
        if self.row_offset is not None:
            lax.fori_loop(0, jnp.where(needed == 0, self.tiles, 0), release_held, ())
            lax.fori_loop(needed * self.rings.chunks, self.sweeps * self.rings.chunks, store_zeros, ())
        return self.advanced(block, positions)

    def _own_lse(self, warpgroup, position):
        """Of the warpgroup's rows. It goes past the other's too: both advance alike."""
        positions = [position + index for index in range(self.work.warpgroups)]
        for each in positions:
            self.rings.lse.wait(each)
        own = gpu_pipeline.load_row_vector(self.rings.lse.at(position + warpgroup))
        plgpu.commit_smem()
        for each in positions:
            self.rings.lse.release(each)
        return own


# ---- dv = S^T du, for a block of columns
# --------------------------------------------------------------------------


class _PremiseGradient:
    def __init__(self, rings: _Rings, work: Work, row_offset: int | None, arrays: dict[str, Any]) -> None:
        self.rings, self.work, self.row_offset, self.arrays = rings, work, row_offset, arrays
        self.all_tiles = pl.cdiv(arrays["dout"].shape[1], TILE)
        self.sweeps = pl.cdiv(arrays["dout"].shape[2], rings.width)

    def first(self, block):
        """The first tile of rows that sees the block's first column; the last tile if none does."""
        if self.row_offset is None:
            return 0
        first = lax.div(jnp.maximum(block * self.work.block - self.row_offset, 0), TILE)
        return jnp.minimum(first, self.all_tiles - 1)

    def advanced(self, block, positions):
        lse, held, streamed, passing = positions
        tiles = self.all_tiles - self.first(block)
        return (
            lse + tiles,
            held + tiles,
            streamed + self.sweeps * tiles,
            passing + self.sweeps * self.rings.chunks,
        )

    def copy(self, z, block, positions):
        rings, arrays, width = self.rings, self.arrays, self.rings.width
        lse, held, streamed, passing = positions
        first = self.first(block)
        tiles = self.all_tiles - first

        def copy_logits(tile, _):
            rows, parts = pl.ds((first + tile) * TILE, TILE), self.work.parts(block)
            rings.lse.fill(lse + tile, arrays["lse"].at[z, rows])
            rings.held.fill(held + tile, *(arrays["logits"].at[z, rows, part] for part in parts))
            return ()

        def copy_sweep(sweep, _):
            def copy_dout(tile, _):
                rows = pl.ds((first + tile) * TILE, TILE)
                source = arrays["dout"].at[z, rows, pl.ds(sweep * width, width)]
                rings.dout.fill(streamed + sweep * tiles + tile, source)
                return ()

            lax.fori_loop(0, tiles, copy_dout, ())
            for index in range(self.rings.chunks):
                position = passing + sweep * self.rings.chunks + index
                rings.passing.hand_over(position, copies=self.work.warpgroups)
            return ()

        lax.fori_loop(0, tiles, copy_logits, ())
        lax.fori_loop(0, self.sweeps, copy_sweep, ())
        return self.advanced(block, positions)

    def compute(self, warpgroup, z, block, positions):
        rings, width = self.rings, self.rings.width
        lse_position, held, streamed, passing = positions
        first = self.first(block)
        tiles = self.all_tiles - first
        first_column = block * self.work.block + warpgroup * WARPGROUP_ROWS

        def exponentiate(tile, _, row_offset=None):
            lse = gpu_pipeline.load_row_vector(rings.lse.wait(lse_position + tile))
            ref = rings.held.wait(held + tile).at[warpgroup]
            weights = _weights(gpu_pipeline.load_tile(ref), lse)
            if row_offset is not None:
                seen = gpu_pipeline.visible((first + tile) * TILE, first_column, row_offset)
                weights = jnp.where(seen, weights, 0.0)
            ref[...] = weights.astype(ref.dtype)
            plgpu.commit_smem()
            rings.lse.release(lse_position + tile)
            return ()

        whole = 0  # the first tile whose rows all see the warpgroup's last column
        if self.row_offset is not None:
            row = jnp.maximum(first_column + WARPGROUP_ROWS - 1 - self.row_offset, 0)
            whole = jnp.clip(lax.div(row + TILE - 1, TILE) - first, 0, tiles)
            masked = functools.partial(exponentiate, row_offset=self.row_offset)
            lax.fori_loop(0, whole, masked, ())
        lax.fori_loop(whole, tiles, exponentiate, ())

        def first_chunk(sweep):
            return passing + sweep * rings.chunks

        def sweep_columns(sweep, _):
            streamed_now = streamed + sweep * tiles

            def operands(tile):
                weights = rings.held.at(held + tile).at[warpgroup]
                return weights.transpose((1, 0)), rings.dout.wait(streamed_now + tile)

            def free(tile):
                rings.dout.release(streamed_now + tile)
                pl.when(sweep == self.sweeps - 1)(lambda: rings.held.release(held + tile))
                if rings.deferred:
                    before = jnp.logical_and(tile == 0, sweep > 0)
                    pl.when(before)(lambda: rings.retire(first_chunk(sweep - 1), rings.chunks))

            product = gpu_pipeline.multiply(width, tiles, operands, free)
            for index, chunk in enumerate(gpu_pipeline.chunks(product)):
                position = first_chunk(sweep) + index
                rings.passing.wait(position)
                columns = pl.ds(sweep * width + index * TILE, TILE)
                target = self.arrays["dpremise"].at[z, pl.ds(first_column, WARPGROUP_ROWS), columns]
                rings.store(warpgroup, position, chunk, target)
                if not rings.deferred:
                    rings.retire(position)
            return ()

        lax.fori_loop(0, self.sweeps, sweep_columns, ())
        if rings.deferred:
            rings.retire(first_chunk(self.sweeps - 1), rings.chunks)
        return self.advanced(block, positions)


# ---- both
# -----------------------------------------------------------------------------------------------------


def _kernel(*refs: Any, work: Work, row_blocks: int, row_offset: int | None) -> None:
    names = ("logits", "lse", "premise", "out", "dout", "dlogits", "dpremise")
    arrays, rings = dict(zip(names, refs, strict=False)), _Rings(*refs[len(names) :])
    rows, columns = (kind(rings, work, row_offset, arrays) for kind in (_LogitsGradient, _PremiseGradient))

    def copy(z, block, positions):
        return lax.cond(
            block < row_blocks,
            lambda: rows.copy(z, block, positions),
            lambda: columns.copy(z, block - row_blocks, positions),
        )

    def compute(warpgroup, z, block, positions):
        return lax.cond(
            block < row_blocks,
            lambda: rows.compute(warpgroup, z, block, positions),
            lambda: columns.compute(warpgroup, z, block - row_blocks, positions),
        )

    work.run(copy, compute, (rings.lse, rings.held, rings.premise, rings.passing))


def run(
    logits: Float[Array, "Z X A"],
    lse: Float[Array, "Z X"],
    premise: Float[Array, "Z A8 Y"],
    out: Float[Array, "Z X Y"],
    dout: Float[Array, "Z X Y"],
    sizes: Mapping[str, int],
    *,
    row_offset: int | None,
    programs: int,
    interpret: bool,
) -> tuple[Float[Array, "Z X A"], Float[Array, "Z A8 Y"]]:
    """Gradients of the logits and of the premise.

    Args:
        logits: K; -inf where masked. X is a multiple of 8; A is padded to a multiple of 64.
        lse: from the forward pass.
        premise: v. A8 is A padded to a multiple of 8, Y a multiple of 64.
        out: u, from the forward pass.
        dout: du.
        sizes: those of `gpu._plan`; passing are the tiles that are met once.
        row_offset: of the causal mask, None without one.
        programs: how many the chip runs at once.
        interpret: on a CPU.
    """
    batch, rows, columns = logits.shape
    warpgroups, width, streamed = (sizes[name] for name in ("warpgroups", "width", "streamed"))
    block = warpgroups * WARPGROUP_ROWS
    row_blocks, column_blocks = pl.cdiv(rows, block), pl.cdiv(columns, block)
    work = Work(batch, row_blocks + column_blocks, warpgroups, programs)
    tile = (warpgroups, TILE, TILE)
    streamed_ring = Ring.scratch(streamed, (width, TILE), logits.dtype, warpgroups)
    both = plgpu.RefUnion(streamed_ring[0], gpu_pipeline.tile_scratch((streamed, TILE, width), logits.dtype))
    return work.launch(
        "trans_backward",
        functools.partial(_kernel, work=work, row_blocks=row_blocks, row_offset=row_offset),
        out_type=(
            gpu_pipeline.array_type(logits.shape, logits.dtype, logits),
            gpu_pipeline.array_type(premise.shape, premise.dtype, logits),
        ),
        scratch_types=(
            Ring.scratch(4, (TILE,), jnp.float32, warpgroups, swizzled=False),
            Ring.scratch(sizes["held"], tile, logits.dtype, warpgroups, copies=warpgroups),
            (both, *streamed_ring[1:]),
            Ring.scratch(sizes["passing"], tile, logits.dtype, warpgroups, copies=warpgroups),
        ),
        interpret=interpret,
    )(logits, lse, premise, out, dout)
