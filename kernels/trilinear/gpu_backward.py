"""The gradients of trilinear attention on Hopper GPUs.

With P the softmax's weights, made again from the logits and their saved log-sum-exp, and
dS = P (dP - sum(dout * out)), the gradients are

    dq_i  = sum_j  k1_j * (dS_ij K2)
    dk2_k = sum_j  k1_j * Z_jk      dk1_j = sum_k  k2_k * Z_jk      Z_jk = sum_i dS_ijk q_i
    dv2_k = sum_j  v1_j * Y_jk      dv1_j = sum_k  v2_k * Y_jk      Y_jk = sum_i P_ijk dout_i

times the logit's scale for the first three (i runs over positions and the heads of a group). Three kernels:
one over tiles of queries, and two over tiles of second keys, which hold Z and Y in registers: only one of
them fits at a time together with the sum over j. That is eight matrix products where one pass that adds to
all five gradients in memory would take six; there are no atomic additions, and the result is the same bit
for bit every time.

A block of the latter two has all of its second keys but only its own share of dk1 and dv1: a vector for
each j, which the caller adds up over the blocks. To keep these shares small compared with the arguments,
groups are taken a few at a time, as many as fill the chip.
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
from kernels.trilinear.gpu_layout import (
    Geometry,
    arranged,
    as_keys,
    as_rows,
    as_windows,
    from_keys,
    from_rows,
    row_scalars,
)
from kernels.trilinear.gpu_sweep import COMPUTE, ROWS
from kernels.trilinear.reference import Config, in_order

COLUMNS = 64  # of a tile: with two products of a tile at once the registers have no room for more
CHIP = 132  # blocks that run at once on the chips these kernels are for, one a multiprocessor
CANDIDATES = ({"stages": 3}, {"stages": 2})


def backward(
    config: Config, *operands: Array, blocks: Mapping[str, int] | None = None, interpret: bool = False
) -> tuple[Array, ...]:
    """The gradients of query, key1, key2, value1 and value2.

    Args:
        config: windows, causality and scale.
        *operands: the arrays of the forward pass, its output and log-sum-exp, and the output's gradient.
        blocks: "stages", tiles in flight; "splits", blocks that share the j of a tile of second keys;
            "groups", how many groups are taken at a time.
        interpret: run on a CPU, slowly.
    """
    *arguments, out, lse, dout = operands
    plan, (query, key1, key2, value1, value2) = arranged(config, arguments)
    blocks = {**CANDIDATES[0], **(blocks or {})}
    queries, douts = (as_rows(plan, a.astype(query.dtype)) for a in (query, dout))
    mean = jnp.einsum("bihd,bihd->bhi", dout, out, preferred_element_type=jnp.float32)
    # Of each row the power of two that its weights are to be divided by, and the mean of its dP.
    numbers = jnp.stack([row_scalars(plan, a) for a in (lse * LOG2E, mean)], axis=1)
    firsts = [as_keys(plan, a) for a in (key1, value1)]
    seconds = [as_windows(plan, a, COLUMNS) for a in (key2, value2)]
    options = {"stages": blocks["stages"], "interpret": interpret}
    dquery = _query_kernel(plan, **options)(queries, douts, numbers, *firsts, *seconds)
    dquery = from_rows(plan, dquery, query.shape[0])

    tiles = -(-plan.length // ROWS)
    # Short of tiles, the chip is filled by sharing out the j of each, eight pairs of them at least.
    pairs = -(-_most_partners(plan) // COMPUTE)
    splits = blocks.get("splits") or max(1, min(-(-CHIP // (plan.batch * tiles)), pairs // 8))
    keys = [as_keys(plan, a, tiles * ROWS - plan.length) for a in (key2, value2)]
    arrays = (queries, douts, numbers, *firsts, *keys)

    def key_gradients(arrays):
        found = []
        for of_values in (False, True):
            kernel = _key_kernel(plan, tiles, splits, of_values=of_values, **options)
            totals, shares = kernel(*arrays)
            found += [_sum_of_shares(plan, tiles, shares), totals.sum(1)]
        return tuple(found)

    # As many groups at a time as fill the chip twice, and no more, for the sake of the memory for their
    # shares.
    enough = blocks.get("groups") or -(-2 * CHIP // (tiles * splits))
    at_once = next(
        n for n in range(1, plan.batch + 1) if plan.batch % n == 0 and n >= min(enough, plan.batch)
    )
    if at_once == plan.batch:
        found = key_gradients(arrays)
    else:
        parts = [a.reshape(-1, at_once, *a.shape[1:]) for a in arrays]
        found = [a.reshape(plan.batch, *a.shape[2:]) for a in lax.map(key_gradients, parts)]
    factors = (plan.scale * plan.sign, plan.scale, 1.0, 1.0)
    found = (from_keys(plan, x * f, query.shape[0]) for x, f in zip(found, factors, strict=True))
    return in_order(plan.exchanged, (dquery, *found), arguments)


def _sum_of_shares(plan: Geometry, tiles: int, shares: Float[Array, "G tiles J D"]) -> Float[Array, "G N D"]:
    """Adds up what the tiles of second keys have for each j; a tile's shares begin at the first j it met."""
    j = jnp.arange(plan.length)
    start, stop = _partners(plan, jnp.arange(tiles))
    start, stop = (jnp.broadcast_to(jnp.asarray(a), (tiles,)) for a in (start, stop))
    last = jnp.searchsorted(start, j, side="right") - 1  # the starts ascend

    def add(back, total):
        tile = jnp.maximum(last - back, 0)
        met = (last >= back) & (j < stop[tile])
        share = shares[:, tile, jnp.where(met, j - start[tile], 0)]
        # What no block has written may be anything, NaN included.
        return total + jnp.where(met[None, :, None], share, 0.0)

    # How many tiles meet one j.
    reach = tiles if not plan.band.causal else (plan.band.window1 + plan.band.window2 - 2 + ROWS) // ROWS + 1
    total = jnp.zeros_like(shares[:, 0, :1], shape=(shares.shape[0], plan.length, shares.shape[-1]))
    return lax.fori_loop(0, min(reach, tiles), add, total)


def _partners(plan: Geometry, tile):
    """The j, [start, stop), of a tile of second keys."""
    return plan.band.partners(tile * ROWS, tile * ROWS + ROWS)


def _most_partners(plan: Geometry) -> int:
    """The most j that a tile of second keys has."""
    band = plan.band
    return min(band.length, band.window1 + band.window2 - 2 + ROWS) if band.causal else band.length


def _query_kernel(plan: Geometry, *, stages: int, interpret: bool) -> Any:
    """dquery, by tiles of 64 rows of queries, as the forward pass goes."""
    band, width, copies = plan.band, plan.padded, len(plan.fronts(COLUMNS))
    scale = plan.scale * LOG2E

    def kernel(query, dout, numbers, key1, value1, key2, value2, dquery, buffers, barriers):
        group, index, role = (lax.axis_index(name) for name in ("group", "tile", "warpgroup"))
        here = pl.ds(index * ROWS, ROWS)
        fixed, scaled, totals, vectors_held, tiles_held = buffers
        arrived, handed, turns, vectors_ready, tiles_ready = barriers
        turns = sweep.Turns(turns, role)

        def walking():  # by each warpgroup for itself: what is shared between their branches is spilled
            first, stop = band.first(*plan.range_of(index))
            copy, front, low, tiles = plan.window(index, COLUMNS)
            window = group * copies + copy
            factors = sweep.Stream((key1.at[group], value1.at[group]), vectors_held, *vectors_ready)
            stream = sweep.Stream((key2.at[window], value2.at[window]), tiles_held, *tiles_ready)
            pairs = lax.div(stop - first + (COMPUTE - 1), COMPUTE)
            return sweep.Sweep(
                pairs, first, lambda _: (low, tiles), factors, (stream,), stages, COLUMNS, front
            )

        @pl.when(role == COMPUTE)
        def copy_tiles():
            plgpu.set_max_registers(sweep.COPY_REGISTERS, action="decrease")
            for source, target in zip((query, dout), fixed, strict=True):
                plgpu.copy_gmem_to_smem(source.at[group, here], target, arrived)
            walking().copy()

        @pl.when(role < COMPUTE)
        def compute():
            plgpu.set_max_registers(sweep.COMPUTE_REGISTERS, action="increase")
            mine, rows, walk = [a.at[role] for a in scaled], plan.range_of(index), walking()
            (stream,) = walk.streams
            plgpu.barrier_wait(arrived)
            # Once a tile, so straight from global memory: shared memory is full.
            power, mean = (
                plgpu.load(numbers.at[group, n, here], layout=sweep.BY_ROW, optimized=False) for n in range(2)
            )

            def begin(vectors, _):
                for target, source, vector in zip(mine, fixed, vectors, strict=True):
                    sweep.scale_into(target, source, vector)
                plgpu.commit_smem()
                return sweep.full((ROWS, width), 0)

            def tile(j, start, stage, inner):
                tiles = stream.wait(stage)
                logits, dweights = sweep.row_products(list(zip(mine, tiles, strict=True)), turns.change)
                shape = logits.shape

                def masked(logits):
                    p = sweep.positions(shape, 0, index * ROWS, plan.slots)
                    return jnp.where(band.allowed(p, j, sweep.positions(shape, 1, start)), logits, MASKED)

                whole = band.everywhere(rows, j, (start, start + COLUMNS))
                logits = lax.cond(whole, lambda x: x, masked, logits)
                weights = jnp.exp2(logits * scale - sweep.along_columns(power, shape))
                dlogits = (weights * (dweights - sweep.along_columns(mean, shape))).astype(mine[0].dtype)
                inner, dlogits = lax.optimization_barrier((inner, dlogits))
                turns.change()
                inner = sweep.add_product(inner, dlogits, tiles[0], interpret=interpret)
                stream.release(stage)
                return inner

            def finish(_, vectors, total, inner):
                factor = plgpu.load(vectors[0], layout=sweep.BY_COLUMN).astype(jnp.float32)
                return total + inner * sweep.along_rows(factor, total.shape)

            turns.begin()
            total = walk.compute(role, begin, tile, finish, sweep.full((ROWS, width), 0))
            turns.end()

            @pl.when(role == 1)
            def give():
                totals[...] = total
                plgpu.commit_smem()
                plgpu.barrier_arrive(handed)

            @pl.when(role == 0)
            def take():
                plgpu.barrier_wait(handed)
                both = total + plgpu.load(totals, layout=sweep.MATRIX)
                fixed[0][...] = (both * plan.scale).astype(fixed[0].dtype)  # both are done with the queries
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(fixed[0], dquery.at[group, here])
                plgpu.wait_smem_to_gmem(0)

    def call(query, *rest):
        matrix = sweep.matrix_buffer
        dtype = query.dtype
        tile = matrix(ROWS, width, dtype=dtype)
        scaled = matrix(COMPUTE, ROWS, width, dtype=dtype)
        factor = plgpu.SMEM((sweep.FACTOR_SLOTS, COMPUTE, width), dtype)
        stream = matrix(stages, COLUMNS, width, dtype=dtype)
        sums = matrix(ROWS, width, dtype=jnp.float32)
        buffers = ((tile,) * 2, (scaled,) * 2, sums, (factor,) * 2, (stream,) * 2)
        barriers = (
            plgpu.Barrier(num_arrivals=2),
            plgpu.Barrier(),
            plgpu.Barrier(num_arrivals=COMPUTE),
            sweep.stream_barriers(sweep.FACTOR_SLOTS, 2),
            sweep.stream_barriers(stages, 2),
        )
        return sweep.launch(
            "trilinear_dquery",
            kernel,
            jax.ShapeDtypeStruct((query.shape[0], plan.rows, width), dtype),
            buffers,
            barriers,
            grid={"group": query.shape[0], "tile": plan.rows // ROWS},
            interpret=interpret,
        )(query, *rest)

    return call


def _key_kernel(
    plan: Geometry, tiles: int, splits: int, *, of_values: bool, stages: int, interpret: bool
) -> Any:
    """Z and what follows from it (Y with `of_values`), by tiles of 64 second keys.

    `splits` blocks share the j of each of the `tiles`; `stages` tiles of queries are in flight. Returns a
    function to the sums over j, one a computing warpgroup, [G, splits * 2, keys, D], and the shares of each
    tile in the sums over k, [G, tiles, J, D].
    """
    band, width = plan.band, plan.padded
    scale = plan.scale * LOG2E
    which = 1 if of_values else 0  # of (query, dout), (key1, value1) and (key2, value2)
    most = _most_partners(plan) + splits * COMPUTE  # every split may end with half a pair

    def kernel(query, dout, numbers, key1, value1, key2, value2, one, totals, shares, buffers, barriers):
        group, split, index, role = (lax.axis_index(name) for name in ("group", "split", "tile", "warpgroup"))
        here = (index * ROWS, index * ROWS + ROWS)
        fixed, ones, scaled, sums, vectors_held, tiles_held, numbers_held = buffers
        arrived, turns, vectors_ready, tiles_ready = barriers
        turns = sweep.Turns(turns, role)

        def walking():  # by each warpgroup for itself: what is shared between their branches is spilled
            begun, stop = _partners(plan, index)
            pairs = lax.div(stop - begun + (COMPUTE - 1), COMPUTE)
            chunk = lax.div(pairs + (splits - 1), splits)
            first = begun + COMPUTE * chunk * split
            pairs = lax.clamp(0, pairs - chunk * split, chunk)

            def span(t):
                j = first + COMPUTE * t
                low, high = band.seers((j, j + COMPUTE), here)
                start = lax.div(low * plan.slots, COLUMNS) * COLUMNS  # no tile reaches beyond the last row
                return start, lax.div(lax.max(high * plan.slots - start, 0) + (COLUMNS - 1), COLUMNS)

            factors = sweep.Stream((key1.at[group], value1.at[group]), vectors_held, *vectors_ready)
            rows = (query.at[group], dout.at[group])
            stream = sweep.Stream(rows, tiles_held, *tiles_ready, numbers=(numbers.at[group], numbers_held))
            return sweep.Sweep(pairs, first, span, factors, (stream,), stages, COLUMNS)

        @pl.when(role == COMPUTE)
        def copy_tiles():
            plgpu.set_max_registers(sweep.COPY_REGISTERS, action="decrease")
            for source, target in zip((key2, value2), fixed, strict=True):
                plgpu.copy_gmem_to_smem(source.at[group, pl.ds(here[0], ROWS)], target, arrived)
            plgpu.copy_gmem_to_smem(one, ones, arrived)
            walking().copy()

        @pl.when(role < COMPUTE)
        def compute():
            plgpu.set_max_registers(sweep.COMPUTE_REGISTERS, action="increase")
            mine, walk = [a.at[role] for a in scaled], walking()
            (stream,) = walk.streams
            plgpu.barrier_wait(arrived)

            def begin(vectors, _):
                for target, source, vector in zip(mine, fixed, vectors, strict=False):
                    sweep.scale_into(target, source, vector)
                plgpu.commit_smem()
                return sweep.full((ROWS, width), 0)

            def tile(j, row, stage, inner):
                *tiles, rows = stream.wait(stage)
                logits, *dweights = sweep.row_products(list(zip(mine, tiles, strict=False)), turns.change)
                shape = logits.shape
                low = lax.div(row, jnp.int32(plan.slots))
                high = lax.div(row + (COLUMNS - 1), jnp.int32(plan.slots)) + 1

                def masked(logits):
                    p = sweep.positions(shape, 1, row, plan.slots)
                    k = sweep.positions(shape, 0, here[0])
                    return jnp.where(band.allowed(p, j, k), logits, MASKED)

                logits = lax.cond(band.everywhere((low, high), j, here), lambda x: x, masked, logits)
                power, mean = (plgpu.load(rows.at[n], layout=sweep.BY_COLUMN) for n in range(2))
                plgpu.commit_smem()  # they were read by threads, and the copy engine writes over them
                weights = jnp.exp2(logits * scale - sweep.along_rows(power, shape))
                if dweights:
                    weights *= dweights[0] - sweep.along_rows(mean, shape)
                inner, weights = lax.optimization_barrier((inner, weights.astype(mine[0].dtype)))
                turns.change()
                inner = sweep.add_product(inner, weights, tiles[which], interpret=interpret)
                stream.release(stage)
                return inner

            def finish(j, vectors, total, inner):
                partner = plgpu.load(fixed[which], layout=sweep.MATRIX).astype(jnp.float32)
                share = sweep.column_sums(mine[0], inner * partner, ones)
                plgpu.wait_smem_to_gmem(0, wait_read_only=True)
                sums.at[role][...] = share
                plgpu.commit_smem()
                plgpu.copy_smem_to_gmem(sums.at[role], shares.at[group, index, j - _partners(plan, index)[0]])
                factor = plgpu.load(vectors[which], layout=sweep.BY_COLUMN).astype(jnp.float32)
                return total + inner * sweep.along_rows(factor, total.shape)

            turns.begin()
            total = walk.compute(role, begin, tile, finish, sweep.full((ROWS, width), 0))
            turns.end()
            totals.at[group, COMPUTE * split + role, pl.ds(here[0], ROWS)][...] = total
            plgpu.wait_smem_to_gmem(0)

    def call(query, *rest):
        matrix = sweep.matrix_buffer
        dtype, groups = query.dtype, query.shape[0]
        buffers = (
            (matrix(ROWS, width, dtype=dtype),) * 2,
            matrix(ROWS, ROWS, dtype=dtype),
            (matrix(COMPUTE, ROWS, width, dtype=dtype),) * (1 if of_values else 2),
            plgpu.SMEM((COMPUTE, width), jnp.float32),
            (plgpu.SMEM((sweep.FACTOR_SLOTS, COMPUTE, width), dtype),) * 2,
            (matrix(stages, COLUMNS, width, dtype=dtype),) * 2,
            plgpu.SMEM((stages, 2, COLUMNS), jnp.float32),
        )
        barriers = (
            plgpu.Barrier(num_arrivals=3),
            plgpu.Barrier(num_arrivals=COMPUTE),
            sweep.stream_barriers(sweep.FACTOR_SLOTS, 2),
            sweep.stream_barriers(stages, 3),
        )
        return sweep.launch(
            "trilinear_dvalues" if of_values else "trilinear_dkeys",
            kernel,
            (
                jax.ShapeDtypeStruct((groups, splits * COMPUTE, tiles * ROWS, width), jnp.float32),
                jax.ShapeDtypeStruct((groups, tiles, most, width), jnp.float32),
            ),
            buffers,
            barriers,
            grid={"group": groups, "split": splits, "tile": tiles},
            interpret=interpret,
        )(query, *rest, jnp.ones((ROWS, ROWS), dtype))

    return call
