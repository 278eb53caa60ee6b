"""The backward pass of trans on Hopper: two kernels, each recomputes the weights S from logits and log-sum-exp.

With u = S v, S = exp(K - lse):  dv = S^T du;  dS = du v^T;  dK = S (dS - Delta),  Delta_x = sum_y du u.

- `premise_gradient` is the forward pass with the weights transposed: a program holds all rows of a block of columns
  of the logits, exponentiates them in place, and the tensor cores read them transposed.
- `logits_gradient` holds du for a block of rows and streams the premise; Delta is summed while du arrives, and
  the gradient overwrites the tile of logits from which S was made.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from kernels.trans import gpu_pipeline
from kernels.trans.gpu_pipeline import LOG2E, TILE, WARPGROUP_ROWS, Ring, Work


def _weights(logits: jax.Array, lse: jax.Array, seen: jax.Array | None) -> jax.Array:
    weights = jnp.exp2(logits * LOG2E - gpu_pipeline.across(lse * LOG2E))
    return weights if seen is None else jnp.where(seen, weights, 0.0)


# ---- dv = S^T du
# -----------------------------------------------------------------------------------------------


def _premise_kernel(
    logits_gmem: Any,
    lse_gmem: Any,
    dout_gmem: Any,
    dpremise_gmem: Any,
    logits_scratch: Any,
    lse_scratch: Any,
    dout_scratch: Any,
    out_smem: Any,
    *,
    work: Work,
    row_offset: int | None,
) -> None:
    logits_ring, lse_ring, dout_ring = Ring(*logits_scratch), Ring(*lse_scratch), Ring(*dout_scratch)
    width = dout_ring.tiles.shape[2]
    all_tiles, sweeps = pl.cdiv(logits_gmem.shape[1], TILE), pl.cdiv(dout_gmem.shape[2], width)

    def first_tile_of(block):
        """The first tile of rows that sees the block's first column; the last tile if none does."""
        if row_offset is None:
            return 0
        return jnp.minimum(lax.div(jnp.maximum(block * work.block - row_offset, 0), TILE), all_tiles - 1)

    def copy(z, block, positions):
        first = first_tile_of(block)
        tiles = all_tiles - first
        held, streamed = positions

        def copy_logits(tile, _):
            rows = pl.ds((first + tile) * TILE, TILE)
            logits_ring.fill(held + tile, *(logits_gmem.at[z, rows, part] for part in work.parts(block)))
            lse_ring.fill(held + tile, lse_gmem.at[z, rows])
            return ()

        def copy_dout(step, _):
            sweep, tile = lax.div(step, tiles), lax.rem(step, tiles)
            rows = pl.ds((first + tile) * TILE, TILE)
            dout_ring.fill(streamed + step, dout_gmem.at[z, rows, pl.ds(sweep * width, width)])
            return ()

        lax.fori_loop(0, tiles, copy_logits, ())
        lax.fori_loop(0, sweeps * tiles, copy_dout, ())
        return held + tiles, streamed + sweeps * tiles

    def compute(warpgroup, z, block, positions):
        first = first_tile_of(block)
        tiles = all_tiles - first
        held, streamed = positions
        first_column = block * work.block + warpgroup * WARPGROUP_ROWS

        def exponentiate(tile, _):
            lse = gpu_pipeline.load_row_vector(lse_ring.wait(held + tile))
            lse_ring.release(held + tile)
            ref = logits_ring.wait(held + tile).at[warpgroup]
            seen = None
            if row_offset is not None:
                seen = gpu_pipeline.visible((first + tile) * TILE, first_column, row_offset)
            ref[...] = _weights(gpu_pipeline.load_tile(ref), lse, seen).astype(ref.dtype)
            return ()

        lax.fori_loop(0, tiles, exponentiate, ())
        plgpu.commit_smem()

        def sweep_columns(sweep, _):
            streamed_now = streamed + sweep * tiles

            def operands(tile):
                weights = logits_ring.at(held + tile).at[warpgroup]
                return weights.transpose((1, 0)), dout_ring.wait(streamed_now + tile)

            def free(tile):
                dout_ring.release(streamed_now + tile)
                pl.when(sweep == sweeps - 1)(lambda: logits_ring.release(held + tile))

            product = gpu_pipeline.multiply(width, tiles, operands, free)
            for index, chunk in enumerate(gpu_pipeline.chunks(product)):
                columns = pl.ds(sweep * width + index * TILE, TILE)
                target = dpremise_gmem.at[z, pl.ds(first_column, WARPGROUP_ROWS), columns]
                gpu_pipeline.store_tile(chunk, out_smem.at[warpgroup], index, target)
            return ()

        lax.fori_loop(0, sweeps, sweep_columns, ())
        return held + tiles, streamed + sweeps * tiles

    work.run(copy, compute, rings=2)


def premise_gradient(
    logits: Float[Array, "Z X A"],
    lse: Float[Array, "Z X"],
    dout: Float[Array, "Z X Y"],
    *,
    row_offset: int | None,
    warpgroups: int,
    width: int,
    held: int,
    streamed: int,
    out: int,
    programs: int,
    interpret: bool,
) -> Float[Array, "Z A Y"]:
    """dv = S^T du. Options as for `gpu_forward.run`; `held` counts tiles of rows, `width` columns of du."""
    batch, _, columns = logits.shape
    work = Work(batch, columns, warpgroups, programs)
    held_tile = (warpgroups, TILE, WARPGROUP_ROWS)
    return work.launch(
        functools.partial(_premise_kernel, work=work, row_offset=row_offset),
        out_type=gpu_pipeline.array_type((batch, columns, dout.shape[2]), dout.dtype, logits),
        scratch_types=(
            Ring.scratch(held, held_tile, logits.dtype, warpgroups, copies=warpgroups),
            Ring.scratch(4, (TILE,), jnp.float32, warpgroups, swizzled=False),
            Ring.scratch(streamed, (TILE, width), dout.dtype, warpgroups),
            gpu_pipeline.tile_scratch((warpgroups, out, WARPGROUP_ROWS, TILE), dout.dtype),
        ),
        interpret=interpret,
    )(logits, lse, dout)


# ---- dK = S (du v^T - Delta)
# -----------------------------------------------------------------------------------


def _logits_kernel(
    logits_gmem: Any,
    lse_gmem: Any,
    premise_gmem: Any,
    out_gmem: Any,
    dout_gmem: Any,
    dlogits_gmem: Any,
    dout_scratch: Any,
    lse_scratch: Any,
    premise_scratch: Any,
    passing_scratch: Any,
    *,
    work: Work,
    row_offset: int | None,
) -> None:
    """`passing`: a ring for what is met once, tiles of u for Delta and then tiles of logits."""
    dout_ring, lse_ring = Ring(*dout_scratch), Ring(*lse_scratch)
    premise_ring, passing_ring = Ring(*premise_scratch), Ring(*passing_scratch)
    width = premise_ring.tiles.shape[1]
    chunks = width // TILE
    tiles, sweeps = pl.cdiv(dout_gmem.shape[2], TILE), pl.cdiv(logits_gmem.shape[2], width)

    def sweeps_of(block):
        """How many sweeps have a column that the block's last row sees. The gradient of the others is 0."""
        if row_offset is None:
            return sweeps
        seen = jnp.maximum((block + 1) * work.block + row_offset, 0)
        return jnp.minimum(lax.div(seen + width - 1, width), sweeps)

    def advanced(block, positions):
        lse, held, streamed, passing = positions
        return lse + 1, held + tiles, streamed + sweeps_of(block) * tiles, passing + tiles + sweeps * chunks

    def copy(z, block, positions):
        lse_position, held, streamed, passing = positions
        parts, needed = work.parts(block), sweeps_of(block)
        lse_ring.fill(lse_position, *(lse_gmem.at[z, part] for part in parts))

        def copy_rows(tile, _):
            columns = pl.ds(tile * TILE, TILE)
            dout_ring.fill(held + tile, *(dout_gmem.at[z, part, columns] for part in parts))
            passing_ring.fill(passing + tile, *(out_gmem.at[z, part, columns] for part in parts))
            return ()

        def copy_sweep(sweep, _):
            def copy_premise(tile, _):
                source = premise_gmem.at[z, pl.ds(sweep * width, width), pl.ds(tile * TILE, TILE)]
                premise_ring.fill(streamed + sweep * tiles + tile, source)
                return ()

            def copy_logits(chunk, _):
                columns = pl.ds(sweep * width + chunk * TILE, TILE)
                position = passing + tiles + sweep * chunks + chunk
                passing_ring.fill(position, *(logits_gmem.at[z, part, columns] for part in parts))
                return ()

            lax.fori_loop(0, tiles, copy_premise, ())
            lax.fori_loop(0, chunks, copy_logits, ())
            return ()

        def skip_logits(chunk, _):
            passing_ring.hand_over(passing + tiles + chunk, copies=work.warpgroups)
            return ()

        lax.fori_loop(0, tiles, copy_rows, ())
        lax.fori_loop(0, needed, copy_sweep, ())
        if row_offset is not None:
            lax.fori_loop(needed * chunks, sweeps * chunks, skip_logits, ())
        return advanced(block, positions)

    def compute(warpgroup, z, block, positions):
        lse_position, held, streamed, passing = positions
        needed = sweeps_of(block)
        first_row = block * work.block + warpgroup * WARPGROUP_ROWS
        lse = gpu_pipeline.load_row_vector(lse_ring.wait(lse_position).at[warpgroup])
        lse_ring.release(lse_position)

        def sum_delta(tile, delta):
            dout = gpu_pipeline.load_tile(dout_ring.wait(held + tile).at[warpgroup])
            out = gpu_pipeline.load_tile(passing_ring.wait(passing + tile).at[warpgroup])
            passing_ring.release(passing + tile)
            return delta + (dout * out).sum(axis=1)

        delta = lax.fori_loop(0, tiles, sum_delta, gpu_pipeline.row_vector(0.0))

        def store(position, gradient, first_column):
            """The gradient in place of the tile of logits, which is free again when it has been copied out."""
            ref = passing_ring.at(position).at[warpgroup]
            ref[...] = gradient.astype(ref.dtype)
            plgpu.commit_smem()
            target = dlogits_gmem.at[z, pl.ds(first_row, WARPGROUP_ROWS), pl.ds(first_column, TILE)]
            plgpu.copy_smem_to_gmem(ref, target)
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            passing_ring.release(position)

        def sweep_columns(sweep, _):
            streamed_now = streamed + sweep * tiles

            def operands(tile):
                premise = premise_ring.wait(streamed_now + tile)
                return dout_ring.at(held + tile).at[warpgroup], premise.transpose((1, 0))

            def free(tile):
                premise_ring.release(streamed_now + tile)
                pl.when(sweep == needed - 1)(lambda: dout_ring.release(held + tile))

            dweights = gpu_pipeline.multiply(width, tiles, operands, free)
            for index, chunk in enumerate(gpu_pipeline.chunks(dweights)):
                first_column = sweep * width + index * TILE
                position = passing + tiles + sweep * chunks + index
                logits = gpu_pipeline.load_tile(passing_ring.wait(position).at[warpgroup])
                seen = None
                if row_offset is not None:
                    seen = gpu_pipeline.visible(first_row, first_column, row_offset)
                weights = _weights(logits, lse, seen)
                store(position, weights * (chunk - gpu_pipeline.across(delta)), first_column)
            return ()

        def store_zeros(index, _):
            position = passing + tiles + index
            passing_ring.wait(position)
            store(position, gpu_pipeline.across(gpu_pipeline.row_vector(0.0)), index * TILE)
            return ()

        def release_dout(tile, _):
            dout_ring.release(held + tile)
            return ()

        lax.fori_loop(0, needed, sweep_columns, ())
        if row_offset is not None:
            lax.fori_loop(0, jnp.where(needed == 0, tiles, 0), release_dout, ())
            lax.fori_loop(needed * chunks, sweeps * chunks, store_zeros, ())
        return advanced(block, positions)

    work.run(copy, compute, rings=4)


def logits_gradient(
    logits: Float[Array, "Z X A"],
    lse: Float[Array, "Z X"],
    premise: Float[Array, "Z A Y"],
    out: Float[Array, "Z X Y"],
    dout: Float[Array, "Z X Y"],
    *,
    row_offset: int | None,
    warpgroups: int,
    width: int,
    held: int,
    streamed: int,
    passing: int,
    programs: int,
    interpret: bool,
) -> Float[Array, "Z X A"]:
    """dK = S (du v^T - Delta).

    Args:
        logits: K; masked ones -inf; sizes are multiples of 8.
        lse: from the forward pass.
        premise: v.
        out: u, from the forward pass.
        dout: du.
        row_offset: of the causal mask, None without one.
        warpgroups: of a program, 1 or 2; each has 64 rows.
        width: columns of the logits a product covers, 64, 128 or 256.
        held: slots for tiles of du, at least as many as its columns have tiles.
        streamed: slots for tiles of the premise, at least 2.
        passing: slots for tiles of u and of the logits, at least 2.
        programs: how many the chip runs at once.
        interpret: on a CPU.
    """
    batch, rows, _ = logits.shape
    work = Work(batch, rows, warpgroups, programs)
    rows_tile = (warpgroups, WARPGROUP_ROWS, TILE)
    each = {"consumers": warpgroups, "copies": warpgroups}
    return work.launch(
        functools.partial(_logits_kernel, work=work, row_offset=row_offset),
        out_type=gpu_pipeline.array_type(logits.shape, logits.dtype, logits),
        scratch_types=(
            Ring.scratch(held, rows_tile, dout.dtype, **each),
            Ring.scratch(2, (warpgroups, WARPGROUP_ROWS), jnp.float32, **each, swizzled=False),
            Ring.scratch(streamed, (width, TILE), premise.dtype, warpgroups),
            Ring.scratch(passing, rows_tile, logits.dtype, **each),
        ),
        interpret=interpret,
    )(logits, lse, premise, out, dout)
