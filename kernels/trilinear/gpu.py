"""Trilinear attention on Hopper GPUs: Pallas, Mosaic GPU, for compute capability 9.0.

Forward here, backward in `gpu_backward`; how a call lies in memory is in `gpu_layout`, and what the kernels
have in common, which is most of them, in `gpu_sweep`.

Products of two keys, or of a query and a key, are rounded to the arrays' own precision before the matrix
unit takes them, and so are the softmax's weights; logits, softmax and sums are float32. A bfloat16 logit of
size s may be wrong by s / 512, and the backward pass rounds another product than the forward pass did: with
16 or more features and logits of ordinary size, values are within 0.3 % of float64 and gradients within 1
%, in norm.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from kernels.softmax import LOG2E, MASKED
from kernels.trilinear import gpu_sweep as sweep
from kernels.trilinear.gpu_backward import CANDIDATES as BACKWARD_CANDIDATES
from kernels.trilinear.gpu_backward import backward
from kernels.trilinear.gpu_layout import (
    FEATURES,
    Geometry,
    arranged,
    as_keys,
    as_rows,
    as_windows,
    from_row_scalars,
    from_rows,
)
from kernels.trilinear.gpu_sweep import COMPUTE, ROWS
from kernels.trilinear.reference import Config

__all__ = ["backward", "block_candidates", "forward", "unsupported"]

DTYPES = ("bfloat16", "float16")
CANDIDATES = tuple({"columns": columns, "stages": stages} for columns, stages in ((128, 2), (64, 4), (64, 3)))


def unsupported(config: Config, query: Any, *keys: Any) -> str | None:
    """Why these arguments cannot be served, from their shapes and dtypes alone; None if they can."""
    del config
    dtypes = {jnp.dtype(a.dtype).name for a in (query, *keys)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        found = ", ".join(sorted(dtypes))
        return f"arrays: got dtypes {found}, expected {' or '.join(DTYPES)} for all of them"
    if query.shape[-1] > max(FEATURES):
        return f"D: got {query.shape[-1]} features per head, expected at most {max(FEATURES)}"
    if not query.size:
        return f"query: got shape {query.shape}, expected at least one position, head and feature"
    return None


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Block sizes to try; the first is the default."""
    del config, arrays
    return {"forward": list(CANDIDATES), "backward": list(BACKWARD_CANDIDATES)}


def forward(
    config: Config, *arrays: Array, blocks: Mapping[str, int] | None = None, interpret: bool = False
) -> tuple[Float[Array, "B N H D"], Float[Array, "B H N"]]:
    """`reference.trilinear_attention` (Roy et al. 2025, Algorithm 1): its arrays and its results.

    Args:
        config: windows, causality and scale.
        *arrays: query, key1, key2, value1, value2.
        blocks: "columns", second keys of a tile; "stages", tiles in flight.
        interpret: run on a CPU, slowly.
    """
    plan, (query, key1, key2, value1, value2) = arranged(config, arrays)
    blocks = {**CANDIDATES[0], **(blocks or {})}
    firsts = (as_keys(plan, a) for a in (key1, value1))
    seconds = (as_windows(plan, a, blocks["columns"]) for a in (key2, value2))
    kernel = _forward_kernel(plan, columns=blocks["columns"], stages=blocks["stages"], interpret=interpret)
    out, lse = kernel(as_rows(plan, query), *firsts, *seconds)
    batch = query.shape[0]
    return from_rows(plan, out, batch), from_row_scalars(plan, lse, batch)


def _forward_kernel(plan: Geometry, *, columns: int, stages: int, interpret: bool) -> Any:
    """The kernel, of arrays as `as_rows` and `as_keys` lay them out."""
    band, width, copies = plan.band, plan.padded, len(plan.fronts(columns))
    scale = plan.scale * LOG2E  # of powers of two

    def kernel(query, key1, value1, key2, value2, out, lse, buffers, barriers):
        group, index, role = (lax.axis_index(name) for name in ("group", "tile", "warpgroup"))
        here = pl.ds(index * ROWS, ROWS)
        q, scaled, totals, (maxima, sums, lse_tile), vectors_held, keys_held, values_held = buffers
        arrived, handed, turns, vectors_ready, keys_ready, values_ready = barriers
        turns = sweep.Turns(turns, role)

        def walking():  # by each warpgroup for itself: what is shared between their branches is spilled
            first, stop = band.first(*plan.range_of(index))
            copy, front, low, tiles = plan.window(index, columns)
            window = group * copies + copy
            factors = sweep.Stream((key1.at[group], value1.at[group]), vectors_held, *vectors_ready)
            keys = sweep.Stream((key2.at[window],), keys_held, *keys_ready)
            values = sweep.Stream((value2.at[window],), values_held, *values_ready)
            pairs = lax.div(stop - first + (COMPUTE - 1), COMPUTE)
            return sweep.Sweep(
                pairs, first, lambda _: (low, tiles), factors, (keys, values), stages, columns, front
            )

        @pl.when(role == COMPUTE)
        def copy_tiles():
            plgpu.set_max_registers(sweep.COPY_REGISTERS, action="decrease")
            plgpu.copy_gmem_to_smem(query.at[group, here], q, arrived)
            walking().copy()

        @pl.when(role < COMPUTE)
        def compute():
            plgpu.set_max_registers(sweep.COMPUTE_REGISTERS, action="increase")
            mine, rows, walk = scaled.at[role], plan.range_of(index), walking()
            keys, values = walk.streams
            plgpu.barrier_wait(arrived)

            def begin(vectors, total):
                sweep.scale_into(mine, q, vectors[0])
                plgpu.commit_smem()
                _, maximum, denominator = total
                return sweep.full((ROWS, width), 0), maximum, denominator

            def tile(j, start, stage, inner):
                inner, maximum, denominator = inner
                (logits,) = sweep.row_products([(mine, keys.wait(stage)[0])], turns.change)
                keys.release(stage)
                shape = logits.shape

                def masked(logits):
                    p = sweep.positions(shape, 0, index * ROWS, plan.slots)
                    k = sweep.positions(shape, 1, start)
                    return jnp.where(band.allowed(p, j, k), logits, MASKED)

                whole = band.everywhere(rows, j, (start, start + columns))
                logits = lax.cond(whole, lambda x: x, masked, logits)
                new = jnp.maximum(maximum, logits.max(axis=1))
                shrink = jnp.exp2((maximum - new) * scale)
                weights = jnp.exp2(logits * scale - sweep.along_columns(new * scale, shape))
                denominator = denominator * shrink + weights.sum(axis=1)
                inner *= sweep.along_columns(shrink, inner.shape)
                weights = weights.astype(mine.dtype)
                inner, new, denominator, weights = lax.optimization_barrier(
                    (inner, new, denominator, weights)
                )
                turns.change()
                inner = sweep.add_product(inner, weights, values.wait(stage)[0], interpret=interpret)
                values.release(stage)
                return inner, new, denominator

            def finish(_, vectors, total, inner):
                total, before, _ = total
                inner, maximum, denominator = inner
                shrink = jnp.exp2((before - maximum) * scale)
                factor = plgpu.load(vectors[1], layout=sweep.BY_COLUMN).astype(jnp.float32)
                total = total * sweep.along_columns(shrink, total.shape)
                return total + inner * sweep.along_rows(factor, total.shape), maximum, denominator

            turns.begin()
            nothing = sweep.full((ROWS, width), 0), sweep.full((ROWS,), sweep.FLOOR), sweep.full((ROWS,), 0)
            total, maximum, denominator = walk.compute(role, begin, tile, finish, nothing)
            turns.end()

            @pl.when(role == 1)
            def give():
                totals[...], maxima[...], sums[...] = total, maximum, denominator
                plgpu.commit_smem()
                plgpu.barrier_arrive(handed)

            @pl.when(role == 0)
            def take():
                plgpu.barrier_wait(handed)
                theirs = plgpu.load(maxima, layout=sweep.BY_ROW)
                top = jnp.maximum(maximum, theirs)
                ours, theirs = jnp.exp2((maximum - top) * scale), jnp.exp2((theirs - top) * scale)
                sum_ = denominator * ours + plgpu.load(sums, layout=sweep.BY_ROW) * theirs
                # A row that sees nothing is one of the padding.
                share = 1 / jnp.where(sum_ > 0, sum_, 1)
                other = plgpu.load(totals, layout=sweep.MATRIX)
                mean = total * sweep.along_columns(ours * share, total.shape)
                mean += other * sweep.along_columns(theirs * share, total.shape)
                q[...] = mean.astype(q.dtype)  # both are done with the queries
                lse_tile[...] = jnp.where(sum_ > 0, top * plan.scale + jnp.log(sum_), 0.0)
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(q, out.at[group, here])
                plgpu.copy_smem_to_gmem(lse_tile, lse.at[group, here])
                plgpu.wait_smem_to_gmem(0)

    def call(query, *keys):
        dtype, matrix = query.dtype, sweep.matrix_buffer
        buffers = (
            matrix(ROWS, width, dtype=dtype),
            matrix(COMPUTE, ROWS, width, dtype=dtype),
            matrix(ROWS, width, dtype=jnp.float32),
            (plgpu.SMEM((ROWS,), jnp.float32),) * 3,
            (plgpu.SMEM((sweep.FACTOR_SLOTS, COMPUTE, width), dtype),) * 2,
            *((matrix(stages, columns, width, dtype=dtype),),) * 2,
        )
        barriers = (
            plgpu.Barrier(),
            plgpu.Barrier(),
            plgpu.Barrier(num_arrivals=COMPUTE),
            sweep.stream_barriers(sweep.FACTOR_SLOTS, 2),
            *(sweep.stream_barriers(stages, 1),) * 2,
        )
        return sweep.launch(
            "trilinear_forward",
            kernel,
            (jax.ShapeDtypeStruct(query.shape, dtype), jax.ShapeDtypeStruct(query.shape[:2], jnp.float32)),
            buffers,
            barriers,
            grid={"group": plan.batch, "tile": plan.rows // ROWS},
            interpret=interpret,
        )(query, *keys)

    return call
