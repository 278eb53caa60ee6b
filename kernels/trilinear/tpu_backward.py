"""The backward TPU kernel of trilinear attention: all gradients in one sweep over tiles of queries.

Weights are recomputed from the log-sum-exp. Tiles are transposed, [second keys, queries]: what belongs to a
query (its log-sum-exp, its Delta, whether its first key exists) is then a row, as it comes from memory. The
sums of a segment's keys stay in vector memory from its first tile to its last.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from kernels.softmax import MASKED
from kernels.trilinear.tpu_plan import Keys, Plan, Tile, side_by_side


def sweep(
    plan: Plan,
    query: Array,
    dout: Array,
    lse: Array,
    delta: Array | None,
    *keys: Array,
    interpret: Any,
) -> tuple[Array, ...]:
    """The kernel over all tiles.

    Args:
        plan: the sizes.
        query: [B, G, R, n, D], of `Plan.heads_of`.
        dout: likewise, in the query's type.
        lse: [B, G, R, 1, n], of `Plan.rows_of`: log-sum-exps to base 2.
        delta: likewise, sum(dout * out) of each query; None to compute it here, from all pairs of a tile, as
            an output that was saved in 16 bits does not give it.
        *keys: those of `tpu_forward.attend`.
        interpret: what `pallas_call` takes.

    Returns:
        The gradient of the query, laid out as it is, and those of key1, value1, key2 and value2, laid out as
        they are, in float32: a position's gradient is the sum over the segments that see it.
    """
    sums = jax.ShapeDtypeStruct(keys[0].shape, jnp.float32)
    rows = [lse] if delta is None else [lse, delta]
    arrays = [query, dout, *rows, *keys]
    specs = [*[plan.tile_spec()] * 2, *[plan.row_spec()] * len(rows), *[plan.keys_spec()] * 4]
    aliases = {}
    if plan.streamed:  # sums in main memory: zeros that the kernel adds to
        aliases = {len(arrays) + n: 1 + n for n in range(4)}
        arrays += [jnp.zeros(sums.shape, sums.dtype)] * 4
        specs += [plan.keys_spec()] * 4
    row = pltpu.VMEM((1, plan.heads * plan.queries), jnp.float32)
    dquery, *found = pl.pallas_call(
        functools.partial(_kernel, plan, len(rows), len(arrays)),
        name="trilinear_backward",
        grid=plan.grid,
        in_specs=specs,
        out_specs=[plan.tile_spec(), *[plan.keys_spec()] * 4],
        out_shape=[jax.ShapeDtypeStruct(query.shape, query.dtype), *[sums] * 4],
        scratch_shapes=[
            pltpu.VMEM((plan.heads, plan.queries, plan.width), jnp.float32),
            row,
            row,
            *plan.scratch("backward"),
        ],
        input_output_aliases=aliases,
        compiler_params=plan.compiler_params("backward"),
        interpret=interpret,
    )(*arrays)
    # What met the keys was the query as `factors` has it, and a logit's derivative wants it times `scale`.
    dkey1, dvalue1, dkey2, dvalue2 = found
    rest = plan.config.scale / plan.factors[0]
    return dquery, dkey1 * rest, dvalue1, dkey2 * rest, dvalue2


def _kernel(plan, row_count, input_count, q_ref, g_ref, *refs):
    rows, all_keys = refs[:row_count], Keys(*refs[row_count : row_count + 4])
    dq_ref, *sums, dq_sum_ref, delta_sum_ref, total_ref = refs[input_count - 2 : input_count + 6]
    copies, all_sums = refs[input_count + 6 :], Keys(*sums)
    tile = Tile(plan)
    heads, queries, features = q_ref.shape
    before_product, after_product = plan.factors

    if not plan.streamed:

        @pl.when((pl.program_id(3) == 0) & (pl.program_id(4) == 0))
        def _():
            for ref in all_sums:
                ref[...] = jnp.zeros_like(ref)

    q, g = q_ref[...].astype(jnp.float32) * before_product, g_ref[...].astype(jnp.float32)
    lse, *delta = (side_by_side([ref[h] for h in range(heads)]) for ref in rows)
    position = tile.positions()
    dq_sum_ref[...] = jnp.zeros_like(dq_sum_ref)

    def factors(first, keys):
        """What meets second keys and values, [heads * T, D] or as `Plan.split` has it, and the first ones."""
        k1, v1 = keys.key1[first, :][None], keys.value1[first, :][None]
        a, b = (plan.split((x * y).reshape(heads * queries, features)) for x, y in ((q, k1), (g, v1)))
        return a, b, k1

    def weights(step, a, b, k2, v2, bias):
        """P and dP."""
        # A first key before position 0 is left out by a row of numbers: its weights are exp(-huge).
        shift = jnp.where(position >= step, lse, -MASKED) if plan.config.causal else lse
        logit = plan.product(plan.repeated(k2), a, (1, 1)) * after_product + bias
        return jnp.exp2(logit - shift), plan.product(plan.repeated(v2), b, (1, 1))

    if not delta:
        for ref in (delta_sum_ref, total_ref):
            ref[...] = jnp.zeros_like(ref)

        def add(step, first, _, k2, v2, bias, keys):
            a, b, _ = factors(first, keys)
            weight, dweight = weights(step, a, b, k2, v2, bias)
            total_ref[...] += jnp.sum(weight, axis=0, keepdims=True)
            delta_sum_ref[...] += jnp.sum(weight * dweight, axis=0, keepdims=True)

        tile.over_pairs(all_keys, copies, add)
        delta = [delta_sum_ref[...] / total_ref[...]]

    def pairs(step, first, second, k2, v2, bias, keys, sums):
        a, b, k1 = factors(first, keys)
        weight, dweight = weights(step, a, b, k2, v2, bias)
        # dlogit sums to 0 over the pairs of a query; rounded it would not, and dq would be wrong by that.
        dlogit, *rest = plan.exact(weight * (dweight - delta[0]))
        sums.key2[second, :] += plan.joined_halves(plan.product(dlogit, a, (1, 0)))
        sums.value2[second, :] += plan.joined_halves(plan.product(weight, b, (1, 0)))
        da = plan.product(dlogit, k2, (0, 0))
        for part in rest:
            da += plan.product(part, k2, (0, 0))
        da = da.reshape(heads, queries, features)
        db = plan.product(weight, v2, (0, 0)).reshape(heads, queries, features)
        dq_sum_ref[...] += da * k1
        sums.key1[first, :] += _over_queries(plan, da * q)
        sums.value1[first, :] += _over_queries(plan, db * g)

    tile.over_pairs(all_keys, copies, pairs, all_sums)
    dq_ref[...] = (dq_sum_ref[...] * plan.config.scale).astype(dq_ref.dtype)


def _over_queries(plan: Plan, terms: Array) -> Array:
    """What belongs to the rows that `first_rows` gave: summed over the queries that share one."""
    total = jnp.sum(terms, axis=0)
    return total if plan.config.causal else jnp.sum(total, axis=0, keepdims=True)
