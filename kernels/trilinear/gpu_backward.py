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

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from kernels import hopper
from kernels.hopper import ROWS, Kernel, Ring
from kernels.softmax import LOG2E, MASKED
from kernels.trilinear import gpu_sweep as sweep
from kernels.trilinear.gpu_layout import Geometry
from kernels.trilinear.gpu_sweep import COMPUTE, FACTOR_SLOTS, Stream, Sweep

COLUMNS = 64  # of a tile: with two products of a tile at once the registers have no room for more


def sum_of_shares(plan: Geometry, tiles: int, shares: Float[Array, "G tiles J D"]) -> Float[Array, "G N D"]:
    """Adds up what the tiles of second keys have for each j; a tile's shares begin at the first j it met."""
    j = jnp.arange(plan.length)
    start, stop = partners(plan, jnp.arange(tiles))
    start, stop = (jnp.broadcast_to(jnp.asarray(a), (tiles,)) for a in (start, stop))
    last = jnp.searchsorted(start, j, side="right") - 1  # the starts ascend

    def add(back, total):
        tile = jnp.maximum(last - back, 0)
        met = (last >= back) & (j < stop[tile])
        share = shares[:, tile, j - start[tile]]
        # What no block has written may be anything, NaN included, and so is what lies outside the shares.
        return total + jnp.where(met[None, :, None], share, 0.0)

    # How many tiles meet one j.
    reach = tiles if not plan.band.causal else (plan.band.window1 + plan.band.window2 - 2 + ROWS) // ROWS + 1
    total = jnp.zeros_like(shares[:, 0, :1], shape=(shares.shape[0], plan.length, shares.shape[-1]))
    return lax.fori_loop(0, min(reach, tiles), add, total)


def partners(plan: Geometry, tile):
    """The j, [start, stop), of a tile of second keys."""
    return plan.band.partners(tile * ROWS, tile * ROWS + ROWS)


def most_partners(plan: Geometry) -> int:
    """The most j that a tile of second keys has."""
    band = plan.band
    return min(band.length, band.window1 + band.window2 - 2 + ROWS) if band.causal else band.length


def _fixed(plan: Geometry, dtype: Any) -> tuple[Any, Any, Any]:
    """A tile of 64 rows, its two scaled copies in halves, and the ring of the vectors of j."""
    tile = hopper.tiles(1, ROWS, plan.padded, dtype=dtype)
    scaled = hopper.tiles(COMPUTE, 2, ROWS, plan.padded, dtype=dtype)
    factor = plgpu.SMEM((FACTOR_SLOTS, COMPUTE, plan.padded), dtype)
    return tile, scaled, Ring.scratch(factor, factor, consumers=COMPUTE)


def query_kernel(plan: Geometry, dtype: Any, stages: int) -> Kernel:
    """The kernel of dquery, by tiles of 64 rows of queries, as the forward pass goes."""
    tile, scaled, factors = _fixed(plan, dtype)
    stream = hopper.tiles(stages, COLUMNS, plan.padded, dtype=dtype)
    scratch = (
        ((tile,) * 2, (scaled,) * 2),
        (plgpu.Barrier(num_arrivals=2), plgpu.Barrier(), hopper.Turns.scratch()),
        factors,
        Ring.scratch(stream, stream, consumers=COMPUTE),
    )
    return Kernel("trilinear_dquery", (plan.batch, plan.rows // ROWS), scratch, COMPUTE)


def run_query_kernel(plan: Geometry, kernel: Kernel, *arrays: Array, interpret: bool) -> Array:
    """The rows of dquery, from those of query and dout, two numbers a row, and keys and values."""
    query = arrays[0]

    def body(*refs):
        _query_body(plan, kernel, interpret, *refs)

    return kernel.run(body, hopper.result(query.shape, query.dtype, query), *arrays, interpret=interpret)


def _query_body(plan, kernel, interpret, query, dout, numbers, key1, value1, key2, value2, dquery, *scratch):
    (fixed, scaled), (arrived, handed, turns), *rings = scratch
    factors_ring, ring = (Ring(*ring) for ring in rings)
    band, width, copies = plan.band, plan.padded, len(plan.fronts(COLUMNS))
    scale = plan.scale * LOG2E

    # Each warpgroup finds its place for itself: what is shared between their branches is spilled.
    def walking(group, index):
        first, stop = band.first(*plan.range_of(index))
        copy, front, low, tiles = plan.window(index, COLUMNS)
        window = group * copies + copy
        factors = Stream(factors_ring, lambda rows: (key1.at[group, rows], value1.at[group, rows]))
        stream = Stream(ring, lambda rows: (key2.at[window, rows], value2.at[window, rows]))
        pairs = lax.div(stop - first + (COMPUTE - 1), COMPUTE)
        return Sweep(pairs, first, lambda _: (low, tiles), factors, (stream,), COLUMNS, front)

    def copy():
        group, index = kernel.place()
        for source, target in zip((query, dout), fixed, strict=True):
            plgpu.copy_gmem_to_smem(source.at[group, pl.ds(index * ROWS, ROWS)], target.at[0], arrived)
        walking(group, index).copy()

    def compute(member):
        group, index = kernel.place()
        here, rows, walk = pl.ds(index * ROWS, ROWS), plan.range_of(index), walking(group, index)
        turn = hopper.Turns(turns, member)
        plgpu.barrier_wait(arrived)
        # Once a tile, so straight from global memory: shared memory is full.
        power, mean = (hopper.load_global(numbers.at[group, n, here], hopper.BY_ROW) for n in range(2))

        def begin(member, vectors, _):
            for target, source, vector in zip(scaled, fixed, vectors, strict=True):
                held = source.at[hopper.afresh(0)]
                sweep.scale_into(
                    target.at[member], lambda columns, s=held: hopper.load(s.at[:, columns]), vector
                )
            plgpu.commit_smem()
            return hopper.full((ROWS, width), 0)

        def tile(member, j, start, step, inner):
            tiles = ring.wait(step)
            pairs = [(a.at[member], b) for a, b in zip(scaled, tiles, strict=True)]
            logits, dweights = sweep.row_products(pairs, turn.change)
            shape = logits.shape

            def masked(logits):
                p = sweep.positions(shape, 0, index * ROWS, plan.slots)
                return jnp.where(band.allowed(p, j, sweep.positions(shape, 1, start)), logits, MASKED)

            whole = band.everywhere(rows, j, (start, start + COLUMNS))
            logits = lax.cond(whole, lambda x: x, masked, logits)
            weights = jnp.exp2(logits * scale - hopper.along_columns(power, shape))
            dlogits = (weights * (dweights - hopper.along_columns(mean, shape))).astype(query.dtype)
            inner, dlogits = lax.optimization_barrier((inner, dlogits))
            turn.change()
            inner = hopper.add_products(inner, [(dlogits, tiles[0])], interpret=interpret)
            ring.release(step)
            return inner

        def finish(_, j, vectors, total, inner):
            factor = hopper.load(vectors[0], hopper.BY_COLUMN)
            return total + inner * hopper.along_rows(factor, total.shape)

        turn.begin()
        total = walk.compute(member, begin, tile, finish, hopper.full((ROWS, width), 0))
        turn.end()

        @pl.when(member == 1)
        def give():
            for of_array, columns in sweep.pieces(width):
                sweep.give(scaled[0].at[1, :, :, columns], total[:, of_array] * plan.scale)
            plgpu.commit_smem()
            plgpu.barrier_arrive(handed)

        @pl.when(member == 0)
        def take():
            plgpu.barrier_wait(handed)
            for of_array, columns in sweep.pieces(width):
                both = total[:, of_array] * plan.scale + sweep.taken(scaled[0].at[1], columns)
                fixed[0][0, :, columns] = both.astype(query.dtype)  # both are done with the queries
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(fixed[0].at[0], dquery.at[group, here])
            plgpu.wait_smem_to_gmem(0)

    kernel.split(copy, compute)


def key_kernel(
    plan: Geometry, dtype: Any, grid: tuple[int, int, int], stages: int, *, of_values: bool
) -> Kernel:
    """The kernel of Z and what follows from it (Y with `of_values`), by tiles of 64 second keys.

    Args:
        plan: the layout.
        dtype: of the arrays.
        grid: how many groups at a time; blocks that share the j of a tile; tiles.
        stages: tiles of queries in flight.
        of_values: for dvalue1 and dvalue2.
    """
    tile, scaled, factors = _fixed(plan, dtype)
    rows = hopper.tiles(stages, COLUMNS, plan.padded, dtype=dtype)
    numbers = plgpu.SMEM((stages, 2, COLUMNS), jnp.float32)
    scratch = (
        (
            tile,
            hopper.tiles(ROWS, ROWS, dtype=dtype),
            (scaled,) * (1 if of_values else 2),
            plgpu.SMEM((COMPUTE, plan.padded), jnp.float32),
        ),
        (plgpu.Barrier(num_arrivals=2), hopper.Turns.scratch()),
        factors,
        Ring.scratch(rows, rows, numbers, consumers=COMPUTE),
    )
    return Kernel("trilinear_dvalues" if of_values else "trilinear_dkeys", grid, scratch, COMPUTE)


def run_key_kernel(
    plan: Geometry, kernel: Kernel, *arrays: Array, of_values: bool, interpret: bool
) -> tuple[Float[Array, "G S keys D"], Float[Array, "G tiles J D"]]:
    """The sums over j, one for each computing warpgroup, and each tile's shares in the sums over k.

    The arrays are rows of query and dout, two numbers a row, and keys and values.
    """
    query = arrays[0]
    groups, splits, tiles = kernel.grid
    most = most_partners(plan) + splits * COMPUTE  # every split may end with half a pair
    types = (
        hopper.result((groups, splits * COMPUTE, tiles * ROWS, plan.padded), jnp.float32, query),
        hopper.result((groups, tiles, most, plan.padded), jnp.float32, query),
    )

    def body(*refs):
        _key_body(plan, kernel, of_values, interpret, *refs)

    return kernel.run(body, types, *arrays, jnp.ones((ROWS, ROWS), query.dtype), interpret=interpret)


def _key_body(plan, kernel, of_values, interpret, query, dout, numbers, *refs):
    key1, value1, key2, value2, one, totals, shares, *scratch = refs
    (fixed, ones, scaled, sums), (arrived, turns), *rings = scratch
    factors_ring, ring = (Ring(*ring) for ring in rings)
    band, width, splits = plan.band, plan.padded, kernel.grid[1]
    scale = plan.scale * LOG2E
    which = 1 if of_values else 0  # of (query, dout), (key1, value1) and (key2, value2)

    # Each warpgroup finds its place for itself: what is shared between their branches is spilled.
    def placed():
        group, split, index = kernel.place()
        return group, split, index, (index * ROWS, index * ROWS + ROWS), (group, pl.ds(index * ROWS, ROWS))

    def walking(group, split, index, here, _):
        begun, stop = partners(plan, index)
        pairs = lax.div(stop - begun + (COMPUTE - 1), COMPUTE)
        chunk = lax.div(pairs + (splits - 1), splits)
        first = begun + COMPUTE * chunk * split
        pairs = lax.clamp(0, pairs - chunk * split, chunk)

        def span(t):
            j = first + COMPUTE * t
            low, high = band.seers((j, j + COMPUTE), here)
            start = lax.div(low * plan.slots, COLUMNS) * COLUMNS  # no tile reaches beyond the last row
            return start, lax.div(lax.max(high * plan.slots - start, 0) + (COLUMNS - 1), COLUMNS)

        def rows_of(rows):
            return query.at[group, rows], dout.at[group, rows], numbers.at[group, :, rows]

        factors = Stream(factors_ring, lambda rows: (key1.at[group, rows], value1.at[group, rows]))
        return Sweep(pairs, first, span, factors, (Stream(ring, rows_of),), COLUMNS)

    def copy():
        place = *_, own = placed()
        # Of the two, shared memory has room for the one that is read twice for each j.
        plgpu.copy_gmem_to_smem((value2 if of_values else key2).at[own], fixed.at[0], arrived)
        plgpu.copy_gmem_to_smem(one, ones, arrived)
        walking(*place).copy()

    def compute(member):
        group, split, index, here, own = place = placed()
        walk = walking(*place)
        turn = hopper.Turns(turns, member)
        plgpu.barrier_wait(arrived)

        def held():
            source = fixed.at[hopper.afresh(0)]
            return lambda columns: hopper.load(source.at[:, columns])

        def global_rows(source):
            here = hopper.afresh(group), own[1]
            return lambda columns: hopper.load_global(source.at[(*here, columns)])

        def begin(member, vectors, _):
            sources = [global_rows(key2)] if of_values else [held(), global_rows(value2)]
            for target, source, vector in zip(scaled, sources, vectors, strict=False):
                sweep.scale_into(target.at[member], source, vector)
            plgpu.commit_smem()
            return hopper.full((ROWS, width), 0)

        def tile(member, j, row, step, inner):
            *tiles, rows = ring.wait(step)
            pairs = [(a.at[member], b) for a, b in zip(scaled, tiles, strict=False)]
            logits, *dweights = sweep.row_products(pairs, turn.change)
            shape = logits.shape
            low = lax.div(row, jnp.int32(plan.slots))
            high = lax.div(row + (COLUMNS - 1), jnp.int32(plan.slots)) + 1

            def masked(logits):
                p = sweep.positions(shape, 1, row, plan.slots)
                k = sweep.positions(shape, 0, here[0])
                return jnp.where(band.allowed(p, j, k), logits, MASKED)

            logits = lax.cond(band.everywhere((low, high), j, here), lambda x: x, masked, logits)
            power, mean = (hopper.load(rows.at[n], hopper.BY_COLUMN) for n in range(2))
            plgpu.commit_smem()  # they were read by threads, and the copy engine writes over them
            weights = jnp.exp2(logits * scale - hopper.along_rows(power, shape))
            if dweights:
                weights *= dweights[0] - hopper.along_rows(mean, shape)
            inner, weights = lax.optimization_barrier((inner, weights.astype(query.dtype)))
            turn.change()
            inner = hopper.add_products(inner, [(weights, tiles[which])], interpret=interpret)
            ring.release(step)
            return inner

        def finish(member, j, vectors, total, inner):
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)
            held = fixed.at[hopper.afresh(0)]
            sweep.column_sums(sums.at[member], scaled[0].at[member], inner, held, ones)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(sums.at[member], shares.at[group, index, j - partners(plan, index)[0]])
            factor = hopper.load(vectors[which], hopper.BY_COLUMN)
            return total + inner * hopper.along_rows(factor, total.shape)

        turn.begin()
        total = walk.compute(member, begin, tile, finish, hopper.full((ROWS, width), 0))
        turn.end()
        totals.at[group, COMPUTE * split + member, pl.ds(here[0], ROWS)][...] = total
        plgpu.wait_smem_to_gmem(0)

    kernel.split(copy, compute)
