"""The forward pass of trans on Hopper: softmax in place in shared memory, then a matrix product."""

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
from kernels.trans.gpu_pipeline import LOWEST, TILE, WARPGROUP_ROWS, Ring, Work


def _kernel(*refs: Any, work: Work, row_offset: int | None) -> None:
    (logits_gmem, premise_gmem, out_gmem, lse_gmem), (*scratch, out_smem, lse_smem) = refs[:4], refs[4:]
    logits_ring, premise_ring = (Ring(*buffers) for buffers in scratch)
    width = premise_ring.tiles.shape[2]
    all_tiles, sweeps = logits_gmem.shape[2] // TILE, pl.cdiv(premise_gmem.shape[2], width)

    def tiles_of(block):
        """How many tiles of columns the block's last row sees; one at least, which may be all masked."""
        if row_offset is None:
            return all_tiles
        seen = (block + 1) * work.block + row_offset
        return jnp.clip(lax.div(seen + TILE - 1, TILE), 1, all_tiles)

    def copy(z, block, positions):
        tiles = tiles_of(block)
        held, streamed = positions

        def copy_logits(tile, _):
            at = pl.ds(tile * TILE, TILE)
            logits_ring.fill(held + tile, *(logits_gmem.at[z, rows, at] for rows in work.parts(block)))
            return ()

        def copy_premise(step, _):
            sweep, tile = lax.div(step, tiles), lax.rem(step, tiles)
            source = premise_gmem.at[z, pl.ds(tile * TILE, TILE), pl.ds(sweep * width, width)]
            premise_ring.fill(streamed + step, source)
            return ()

        lax.fori_loop(0, tiles, copy_logits, ())
        lax.fori_loop(0, sweeps * tiles, copy_premise, ())
        return held + tiles, streamed + sweeps * tiles

    def compute(warpgroup, z, block, positions):
        tiles = tiles_of(block)
        held, streamed = positions
        first_row = block * work.block + warpgroup * WARPGROUP_ROWS
        rows = pl.ds(first_row, WARPGROUP_ROWS)

        def load(ref, tile, masked, dtype):
            logits = gpu_pipeline.load_tile(ref, dtype)
            if not masked or row_offset is None:
                return logits
            seen = gpu_pipeline.visible(first_row, tile * TILE, row_offset)
            return jnp.where(seen, logits, -jnp.inf)

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
            ref = logits_ring.wait(held + tile).at[warpgroup]
            # In 16 bits, which is exact, two numbers an instruction; along the row only once, at the end.
            return jnp.maximum(maximum, load(ref, tile, masked, ref.dtype))

        lowest = gpu_pipeline.full_tile(-jnp.inf, logits_gmem.dtype)
        maximum = over_tiles(find_maximum, lowest).astype(jnp.float32).max(axis=1)
        maximum = jnp.maximum(maximum, LOWEST) * LOG2E

        def exponentiate(tile, total, masked):
            ref = logits_ring.at(held + tile).at[warpgroup]
            logits = load(ref, tile, masked, jnp.float32)
            weights = jnp.exp2(logits * LOG2E - gpu_pipeline.across(maximum))
            ref[...] = weights.astype(ref.dtype)
            return total + weights

        total = over_tiles(exponentiate, gpu_pipeline.full_tile(0.0)).sum(axis=1)
        some = total > 0
        total = jnp.where(some, total, 1.0)
        scale = jnp.where(some, 1 / total, 0.0)
        lse = lse_smem.at[warpgroup]
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)  # for the piece before, long since read
        lse[...] = jnp.where(some, (maximum + jnp.log2(total)) / LOG2E, 0.0)
        plgpu.commit_smem()  # of the weights, too
        plgpu.copy_smem_to_gmem(lse, lse_gmem.at[z, rows])

        def sweep_columns(sweep, _):
            streamed_now = streamed + sweep * tiles

            def operands(tile):
                weights = logits_ring.at(held + tile).at[warpgroup]
                return weights, premise_ring.wait(streamed_now + tile)

            def free(tile):
                premise_ring.release(streamed_now + tile)
                pl.when(sweep == sweeps - 1)(lambda: logits_ring.release(held + tile))

            product = gpu_pipeline.multiply(width, tiles, operands, free)
            for index, chunk in enumerate(gpu_pipeline.chunks(product)):
                target = out_gmem.at[z, rows, pl.ds(sweep * width + index * TILE, TILE)]
                chunk = chunk * gpu_pipeline.across(scale)
                gpu_pipeline.store_tile(chunk, out_smem.at[warpgroup], index, target)
            return ()

        lax.fori_loop(0, sweeps, sweep_columns, ())
        return held + tiles, streamed + sweeps * tiles

    work.run(copy, compute, (logits_ring, premise_ring))


def run(
    logits: Float[Array, "Z X A"],
    premise: Float[Array, "Z A8 Y"],
    sizes: Mapping[str, int],
    *,
    row_offset: int | None,
    programs: int,
    interpret: bool,
) -> tuple[Float[Array, "Z X Y"], Float[Array, "Z X"]]:
    """softmax(logits) @ premise and the log-sum-exp.

    Args:
        logits: -inf where masked. X is a multiple of 8; A is padded to a multiple of 64, which tiles need.
        premise: of the same 16-bit dtype. A8 is A padded to a multiple of 8, Y a multiple of 64.
        sizes: those of `gpu._plan`; held are the logits, streamed the premise.
        row_offset: of the causal mask, None without one.
        programs: how many the chip runs at once.
        interpret: on a CPU.
    """
    batch, rows, _ = logits.shape
    warpgroups, width = sizes["warpgroups"], sizes["width"]
    out = min(sizes["out"], width // TILE)  # chunks take turns in these slots, in every sweep from the first
    work = Work(batch, pl.cdiv(rows, warpgroups * WARPGROUP_ROWS), warpgroups, programs)
    held_tile = (warpgroups, WARPGROUP_ROWS, TILE)
    return work.launch(
        "trans_forward",
        functools.partial(_kernel, work=work, row_offset=row_offset),
        out_type=(
            gpu_pipeline.array_type((batch, rows, premise.shape[2]), premise.dtype, logits),
            gpu_pipeline.array_type((batch, rows), jnp.float32, logits),
        ),
        scratch_types=(
            Ring.scratch(sizes["held"], held_tile, logits.dtype, warpgroups, copies=warpgroups),
            Ring.scratch(sizes["streamed"], (TILE, width), premise.dtype, warpgroups),
            gpu_pipeline.tile_scratch((warpgroups, out, WARPGROUP_ROWS, TILE), premise.dtype),
            plgpu.SMEM((warpgroups, WARPGROUP_ROWS), jnp.float32),
        ),
        interpret=interpret,
    )(logits, premise)
