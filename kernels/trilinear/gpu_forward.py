"""The forward kernel of trilinear attention on Hopper GPUs, which also computes Delta for the backward pass.

Delta, the mean of dP under P, is sum_d dout out. `out` was rounded to 16 bits when it was saved, and where
one weight is almost 1 that error would be all that is left of dP - Delta; so the backward pass computes the
output again, and takes the sum before it is rounded.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from kernels import hopper
from kernels.hopper import ROWS, Kernel, Ring
from kernels.softmax import LOG2E, MASKED
from kernels.trilinear import gpu_sweep as sweep
from kernels.trilinear.gpu_layout import Geometry
from kernels.trilinear.gpu_sweep import COMPUTE, FACTOR_SLOTS, Stream, Sweep


def kernel(plan: Geometry, dtype: Any, columns: int, stages: int, *, delta: bool = False) -> Kernel:
    """The kernel for tiles of so many second keys, `stages` of them in flight."""
    width, vector = plan.padded, plgpu.SMEM((ROWS,), jnp.float32)
    tiles = hopper.tiles(stages, columns, width, dtype=dtype)
    factor = plgpu.SMEM((FACTOR_SLOTS, COMPUTE, width), dtype)
    scratch = (
        (
            hopper.tiles(1, ROWS, width, dtype=dtype),
            hopper.tiles(COMPUTE, 2, ROWS, width, dtype=dtype),
            (vector,) * 3,
        ),
        (plgpu.Barrier(), plgpu.Barrier(), hopper.Turns.scratch()),
        Ring.scratch(factor, factor, consumers=COMPUTE),
        Ring.scratch(tiles, consumers=COMPUTE),
        Ring.scratch(tiles, consumers=COMPUTE),
    )
    name = "trilinear_delta" if delta else "trilinear_forward"
    return Kernel(name, (plan.batch, plan.rows // ROWS), scratch, COMPUTE)


def run(
    plan: Geometry, kernel: Kernel, *arrays: Array, dout: Array | None = None, interpret: bool = False
) -> Any:
    """The rows of the output and their log-sum-exps, or Delta of each row if there is a `dout`.

    Args:
        plan: the layout.
        kernel: as `kernel` planned it.
        *arrays: query, key1, value1, key2 and value2 as `gpu_layout` lays them out.
        dout: the gradient of the output, laid out as the query.
        interpret: run on a CPU.
    """
    query = arrays[0]
    of_rows = hopper.result(query.shape[:2], jnp.float32, query)
    if dout is None:
        types = hopper.result(query.shape, query.dtype, query), of_rows

        def body(query, *refs):
            _body(plan, kernel, interpret, query, None, *refs)

        return kernel.run(body, types, *arrays, interpret=interpret)

    def body_of_delta(query, dout, *refs):
        _body(plan, kernel, interpret, query, dout, *refs[:4], None, *refs[4:])

    return kernel.run(body_of_delta, of_rows, query, dout, *arrays[1:], interpret=interpret)


def _body(plan, kernel, interpret, query, dout, key1, value1, key2, value2, out, numbers, *scratch):
    """`numbers` are the log-sum-exps, or Delta if there is a `dout`."""
    (q, scaled, (maxima, sums, numbers_tile)), (arrived, handed, turns), *rings = scratch
    factors_ring, keys_ring, values_ring = (Ring(*ring) for ring in rings)
    band, width = plan.band, plan.padded
    columns, copies = keys_ring.buffers[0].shape[1], len(plan.fronts(keys_ring.buffers[0].shape[1]))
    scale = plan.scale * LOG2E  # of powers of two

    # Each warpgroup finds its place for itself: what is shared between their branches is spilled.
    def walking(group, index):
        first, stop = band.first(*plan.range_of(index))
        copy, front, low, tiles = plan.window(index, columns)
        window = group * copies + copy
        factors = Stream(factors_ring, lambda rows: (key1.at[group, rows], value1.at[group, rows]))
        keys = Stream(keys_ring, lambda rows: (key2.at[window, rows],))
        values = Stream(values_ring, lambda rows: (value2.at[window, rows],))
        pairs = lax.div(stop - first + (COMPUTE - 1), COMPUTE)
        return Sweep(pairs, first, lambda _: (low, tiles), factors, (keys, values), columns, front)

    def copy():
        group, index = kernel.place()
        plgpu.copy_gmem_to_smem(query.at[group, pl.ds(index * ROWS, ROWS)], q.at[0], arrived)
        walking(group, index).copy()

    def compute(member):
        group, index = kernel.place()
        rows, walk = plan.range_of(index), walking(group, index)
        turn = hopper.Turns(turns, member)
        plgpu.barrier_wait(arrived)

        def begin(member, vectors, total):
            held = q.at[hopper.afresh(0)]
            sweep.scale_into(scaled.at[member], lambda columns: hopper.load(held.at[:, columns]), vectors[0])
            plgpu.commit_smem()
            _, maximum, denominator = total
            return hopper.full((ROWS, width), 0), maximum, denominator

        def tile(member, j, start, step, inner):
            inner, maximum, denominator = inner
            (logits,) = sweep.row_products([(scaled.at[member], keys_ring.wait(step)[0])], turn.change)
            keys_ring.release(step)
            shape = logits.shape

            def masked(logits):
                p = sweep.positions(shape, 0, index * ROWS, plan.slots)
                k = sweep.positions(shape, 1, start)
                return jnp.where(band.allowed(p, j, k), logits, MASKED)

            whole = band.everywhere(rows, j, (start, start + columns))
            logits = lax.cond(whole, lambda x: x, masked, logits)
            new = jnp.maximum(maximum, logits.max(axis=1))
            shrink = jnp.exp2((maximum - new) * scale)
            weights = jnp.exp2(logits * scale - hopper.along_columns(new * scale, shape))
            denominator = denominator * shrink + weights.sum(axis=1)
            inner *= hopper.along_columns(shrink, inner.shape)
            weights = weights.astype(q.dtype)
            inner, new, denominator, weights = lax.optimization_barrier((inner, new, denominator, weights))
            turn.change()
            inner = hopper.add_products(inner, [(weights, values_ring.wait(step)[0])], interpret=interpret)
            values_ring.release(step)
            return inner, new, denominator

        def finish(_, j, vectors, total, inner):
            total, before, _ = total
            inner, maximum, denominator = inner
            shrink = jnp.exp2((before - maximum) * scale)
            factor = hopper.load(vectors[1], hopper.BY_COLUMN)
            total = total * hopper.along_columns(shrink, total.shape)
            return total + inner * hopper.along_rows(factor, total.shape), maximum, denominator

        turn.begin()
        nothing = hopper.full((ROWS, width), 0), hopper.full((ROWS,), sweep.FLOOR), hopper.full((ROWS,), 0)
        total, maximum, denominator = walk.compute(member, begin, tile, finish, nothing)
        turn.end()

        @pl.when(member == 1)
        def give():
            share = 1 / jnp.where(denominator > 0, denominator, 1)
            for of_array, columns in sweep.pieces(width):
                piece = total[:, of_array]
                sweep.give(scaled.at[1, :, :, columns], piece * hopper.along_columns(share, piece.shape))
            maxima[...], sums[...] = maximum, denominator
            plgpu.commit_smem()
            plgpu.barrier_arrive(handed)

        @pl.when(member == 0)
        def take():
            plgpu.barrier_wait(handed)
            here = pl.ds(hopper.afresh(index) * ROWS, ROWS)
            theirs = hopper.load(maxima, hopper.BY_ROW)
            top = jnp.maximum(maximum, theirs)
            ours, theirs = jnp.exp2((maximum - top) * scale), jnp.exp2((theirs - top) * scale)
            theirs *= hopper.load(sums, hopper.BY_ROW)
            sum_ = denominator * ours + theirs
            # A row that sees nothing is one of the padding.
            share = 1 / jnp.where(sum_ > 0, sum_, 1)
            delta = hopper.full((ROWS,), 0)
            for of_array, columns in sweep.pieces(width):
                mean = total[:, of_array]
                mean *= hopper.along_columns(ours * share, mean.shape)
                mean += sweep.taken(scaled.at[1], columns) * hopper.along_columns(theirs * share, mean.shape)
                if dout is None:
                    q[0, :, columns] = mean.astype(q.dtype)  # both are done with the queries
                else:
                    gradient = hopper.load_global(dout.at[group, here, columns])
                    delta += (mean * gradient.astype(jnp.float32)).sum(axis=1)
            lse = jnp.where(sum_ > 0, top * plan.scale + jnp.log(sum_), 0.0)
            numbers_tile[...] = lse if dout is None else delta
            plgpu.commit_smem()
            if out is not None:
                plgpu.copy_smem_to_gmem(q.at[0], out.at[group, here])
            plgpu.copy_smem_to_gmem(numbers_tile, numbers.at[group, here])
            plgpu.wait_smem_to_gmem(0)

    kernel.split(copy, compute)
