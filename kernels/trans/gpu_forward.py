"""The forward pass of trans on Hopper: weights made in place in shared memory, then a matrix product.

Where a program can hold all logits of its rows, it finds their maxima and denominators itself. Where the rows
are too long, the log-sum-exp is an argument, and logits stream through shared memory once for every sweep of
the product, `width` columns of the result at a time.
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
from kernels.softmax import LOG2E
from kernels.trans.gpu_work import SQUARE, Walk, Work, chunks, visible, weigh

LOWEST = -1e30  # where maxima start: finite, so that a row of -inf does not give inf - inf


def scratch(warpgroups: int, width: int, held: int, streamed: int, out: int, dtype: Any) -> tuple:
    """Shared memory of the kernel: rings of logits and premise, tiles of the result, log-sum-exps."""
    return (
        Ring.scratch(
            hopper.tiles(held, warpgroups, ROWS, TILE, dtype=dtype), consumers=warpgroups, copies=warpgroups
        ),
        Ring.scratch(hopper.tiles(streamed, TILE, width, dtype=dtype), consumers=warpgroups),
        hopper.tiles(warpgroups, out, ROWS, TILE, dtype=dtype),
        plgpu.SMEM((warpgroups, ROWS), jnp.float32),
    )


def _kernel(*refs: Any, work: Work, row_offset: int | None, lse_given: bool) -> None:
    logits_gmem, premise_gmem, third, fourth, logits_ring, premise_ring, out_smem, lse_smem = refs
    lse_gmem, out_gmem = (third, fourth) if lse_given else (fourth, third)
    logits_ring, premise_ring = Ring(*logits_ring), Ring(*premise_ring)
    width = premise_ring.buffers[0].shape[2]
    all_tiles, sweeps = logits_gmem.shape[2] // TILE, pl.cdiv(premise_gmem.shape[2], width)

    def tiles_of(block):
        """How many tiles of columns the block's last row sees; one at least, which may be all masked."""
        if row_offset is None:
            return all_tiles
        seen = (block + 1) * work.block + row_offset
        return jnp.clip(lax.div(seen + TILE - 1, TILE), 1, all_tiles)

    def begin(block, positions):
        tiles = tiles_of(block)
        held, streamed = positions
        walk = Walk(logits_ring, held, tiles, sweeps, all_tiles)
        return tiles, walk, streamed, (walk.end, streamed + sweeps * tiles)

    def copy(z, block, positions):
        tiles, walk, streamed, ends = begin(block, positions)

        def copy_logits(sweep, tile):
            at = pl.ds(tile * TILE, TILE)
            sources = [logits_gmem.at[z, rows, at] for rows in work.parts(block)]
            logits_ring.fill(walk.place(sweep, tile), sources)

        def copy_step(step, _):
            sweep, tile = lax.div(step, tiles), lax.rem(step, tiles)
            if not walk.held:
                copy_logits(sweep, tile)
            source = premise_gmem.at[z, pl.ds(tile * TILE, TILE), pl.ds(sweep * width, width)]
            premise_ring.fill(streamed + step, source)
            return ()

        def copy_held(tile, _):
            copy_logits(0, tile)
            return ()

        if walk.held:  # all of them are needed before the first product
            lax.fori_loop(0, tiles, copy_held, ())
        lax.fori_loop(0, sweeps * tiles, copy_step, ())
        return ends

    def softmax(member, walk, first_row, tiles):
        """Makes the weights of all tiles in place, times the denominator; its inverse and the log-sum-exp."""

        def tile_of(ref, tile, masked, dtype):
            logits = hopper.load(ref, dtype=dtype)
            if not masked or row_offset is None:
                return logits
            return jnp.where(visible(first_row, tile * TILE, row_offset), logits, -jnp.inf)

        def over_tiles(body, carry):
            """Only tiles on the diagonal pay for the causal mask."""
            whole = tiles
            if row_offset is not None:
                seen = jnp.maximum(first_row + row_offset + 1, 0)  # by the warpgroup's first row
                whole = jnp.minimum(lax.div(seen, TILE), tiles)
            carry = lax.fori_loop(0, whole, functools.partial(body, masked=False), carry)
            if row_offset is not None:
                carry = lax.fori_loop(whole, tiles, functools.partial(body, masked=True), carry)
            return carry

        def find_maximum(tile, maximum, masked):
            ref = logits_ring.wait(walk.place(0, tile))[0].at[member]
            # In 16 bits, which is exact, two numbers an instruction; along the row only once, at the end.
            return jnp.maximum(maximum, tile_of(ref, tile, masked, ref.dtype))

        lowest = hopper.full(SQUARE, -jnp.inf, logits_gmem.dtype)
        maximum = over_tiles(find_maximum, lowest).astype(jnp.float32).max(axis=1)
        maximum = jnp.maximum(maximum, LOWEST) * LOG2E

        def exponentiate(tile, total, masked):
            ref = logits_ring.at(walk.place(0, tile))[0].at[member]
            logits = tile_of(ref, tile, masked, jnp.float32)
            powers = jnp.exp2(logits * LOG2E - hopper.along_columns(maximum, SQUARE))
            ref[...] = powers.astype(ref.dtype)
            return total + powers

        total = over_tiles(exponentiate, hopper.full(SQUARE, 0.0)).sum(axis=1)
        some = total > 0
        total = jnp.where(some, total, 1.0)
        return jnp.where(some, 1 / total, 0.0), jnp.where(some, (maximum + jnp.log2(total)) / LOG2E, 0.0)

    def compute(member, z, block, positions):
        tiles, walk, streamed, ends = begin(block, positions)
        first_row = block * work.block + member * ROWS
        rows = pl.ds(first_row, ROWS)
        if walk.held:
            scale, lse = softmax(member, walk, first_row, tiles)
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)  # for the piece before, long since read
            lse_smem[member] = lse
            plgpu.commit_smem()  # of the weights, too
            plgpu.copy_smem_to_gmem(lse_smem.at[member], lse_gmem.at[z, rows])
        else:
            scale, lse = None, hopper.load_global(lse_gmem.at[z, rows], hopper.BY_ROW)

        def sweep_columns(sweep, _):
            streamed_now = streamed + sweep * tiles

            def operands(tile):
                place = walk.place(sweep, tile)
                (logits,) = logits_ring.at(place) if walk.held else logits_ring.wait(place)
                if not walk.held:
                    weigh(logits.at[member], lse, first_row, tile * TILE, row_offset)
                return logits.at[member], premise_ring.wait(streamed_now + tile)[0]

            def free(tile):
                premise_ring.release(streamed_now + tile)
                walk.release(sweep, tile)

            product = hopper.sum_of_products(width, tiles, operands, free)
            for index, chunk in enumerate(chunks(product)):
                target = out_gmem.at[z, rows, pl.ds(sweep * width + index * TILE, TILE)]
                if scale is not None:
                    chunk = chunk * hopper.along_columns(scale, SQUARE)
                store_tile(chunk, out_smem.at[member], index, target)
            return ()

        lax.fori_loop(0, sweeps, sweep_columns, ())
        return ends

    work.run(copy, compute, (logits_ring, premise_ring))


def store_tile(value: Array, slots: Any, turn: int, target: Any) -> None:
    """Starts the copy of a tile from registers to `target`, by way of the warpgroup's `slots` in turn."""
    slot = turn % slots.shape[0]
    plgpu.wait_smem_to_gmem(slots.shape[0] - 1, wait_read_only=True)
    slots[slot] = value.astype(slots.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(slots.at[slot], target)


def run(
    logits: Float[Array, "Z X A"],
    premise: Float[Array, "Z A8 Y"],
    lse: Float[Array, "Z X2"] | None,
    kernel: Kernel,
    *,
    row_offset: int | None,
    interpret: bool,
) -> tuple[Float[Array, "Z X Y"], Float[Array, "Z _"]]:
    """softmax(logits) @ premise and the log-sum-exp.

    Args:
        logits: -inf where masked. X is a multiple of 8; A is padded to a multiple of 64, which tiles need.
        premise: of the same 16-bit dtype. A8 is A padded to a multiple of 8, Y a multiple of 64.
        lse: None if the kernel has room for all logits of its rows, else of all rows of all blocks.
        kernel: as planned.
        row_offset: of the causal mask, None without one.
        interpret: on a CPU.
    """
    batch, rows, _ = logits.shape
    block = kernel.warpgroups * ROWS
    work = Work(kernel, batch, pl.cdiv(rows, block))
    body = functools.partial(_kernel, work=work, row_offset=row_offset, lse_given=lse is not None)
    out_type = hopper.result((batch, rows, premise.shape[2]), premise.dtype, logits)
    if lse is None:
        # Whole blocks: what a copy of plain numbers has beyond its row goes to the next row.
        types = out_type, hopper.result((batch, work.blocks * block), jnp.float32, logits)
        return kernel.run(body, types, logits, premise, interpret=interpret)
    return kernel.run(body, out_type, logits, premise, lse, interpret=interpret), lse
