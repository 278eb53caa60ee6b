"""The backward TPU kernel of trilinear attention: all gradients in one sweep over tiles of queries.

Weights are recomputed from the log-sum-exp. Tiles are transposed, [second keys, queries]: what belongs to a
query (its log-sum-exp, its Delta, whether its first key exists) is then a row, as it comes from memory. The
sums of a segment's keys stay in vector memory from its first tile to its last.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from kernels.softmax import LOG2E, MASKED
from kernels.trilinear.tpu_plan import Plan, Tile, side_by_side


def sweep(
    plan: Plan,
    query: Array,
    dout: Array,
    lse: Array,
    delta: Array,
    *keys: Array,
    interpret: Any,
) -> tuple[Array, ...]:
    """The kernel over all tiles.

    Args:
        plan: the sizes.
        query: [B, G, R, n, D], of `Plan.heads_of`.
        dout: likewise, in the query's type.
        lse: [B, G, R, 1, n], of `Plan.rows_of`: log-sum-exps to base 2.
        delta: likewise, sum(dout * out) of each query.
        *keys: those of `tpu_forward.attend`.
        interpret: what `pallas_call` takes.

    Returns:
        The gradient of the query, laid out as it is, and those of key1, value1, key2 and value2, laid out as
        they are, in float32: a position's gradient is the sum over the segments that see it.
    """
    sums = jax.ShapeDtypeStruct(keys[0].shape, jnp.float32)
    return pl.pallas_call(
        functools.partial(_kernel, plan),
        name="trilinear_backward",
        grid=plan.grid,
        in_specs=[*[plan.tile_spec()] * 2, *[plan.row_spec()] * 2, *[plan.resident_spec()] * 4],
        out_specs=[plan.tile_spec(), *[plan.resident_spec()] * 4],
        out_shape=[jax.ShapeDtypeStruct(query.shape, query.dtype), *[sums] * 4],
        scratch_shapes=[pltpu.VMEM((plan.heads, plan.queries, plan.features), jnp.float32)],
        compiler_params=plan.compiler_params(tiles_in_order=True),
        interpret=interpret,
    )(query, dout, lse, delta, *keys)


def _kernel(plan, q_ref, g_ref, lse_ref, delta_ref, k1_ref, v1_ref, k2_ref, v2_ref, *written):
    dq_ref, dk1_ref, dv1_ref, dk2_ref, dv2_ref, dq_sum_ref = written
    tile = Tile(plan)
    heads, queries, features = q_ref.shape
    factor = plan.config.scale * LOG2E  # logits are powers of two

    @pl.when((pl.program_id(3) == 0) & (pl.program_id(4) == 0))
    def _():
        for ref in (dk1_ref, dv1_ref, dk2_ref, dv2_ref):
            ref[...] = jnp.zeros_like(ref)

    q, g = q_ref[...].astype(jnp.float32) * factor, g_ref[...].astype(jnp.float32)
    lse, delta = (side_by_side([ref[h] for h in range(heads)]) for ref in (lse_ref, delta_ref))
    position = tile.positions()
    dq_sum_ref[...] = jnp.zeros_like(dq_sum_ref)

    def pairs(step, first, second, k2, v2, bias):
        k1, v1 = k1_ref[first, :][None], v1_ref[first, :][None]
        a = (q * k1).reshape(heads * queries, features).astype(plan.dtype)
        b = (g * v1).reshape(heads * queries, features).astype(plan.dtype)
        # A first key before position 0 is left out by a row of numbers: its weights are exp(-huge).
        shift = jnp.where(position >= step, lse, -MASKED) if plan.config.causal else lse
        weight = jnp.exp2(plan.product(k2, a, (1, 1)) + bias - shift)
        dlogit = weight * (plan.product(v2, b, (1, 1)) - delta)
        weight, dlogit = weight.astype(plan.dtype), dlogit.astype(plan.dtype)
        dk2_ref[second, :] += plan.product(dlogit, a, (1, 0))
        dv2_ref[second, :] += plan.product(weight, b, (1, 0))
        da = plan.product(dlogit, k2, (0, 0)).reshape(heads, queries, features)
        db = plan.product(weight, v2, (0, 0)).reshape(heads, queries, features)
        dq_sum_ref[...] += da * k1
        dk1_ref[first, :] += _over_queries(plan, da * q)
        dv1_ref[first, :] += _over_queries(plan, db * g)

    tile.over_pairs(k2_ref, v2_ref, pairs)
    dq_ref[...] = (dq_sum_ref[...] * plan.config.scale).astype(dq_ref.dtype)

    @pl.when((pl.program_id(3) == plan.grid[3] - 1) & (pl.program_id(4) == plan.grid[4] - 1))
    def _():
        # What met the keys was the query times `factor`, and a logit's derivative wants it times `scale`.
        for ref in (dk1_ref, dk2_ref):
            ref[...] = ref[...] * math.log(2.0)


def _over_queries(plan: Plan, terms: Array) -> Array:
    """What belongs to the rows that `first_rows` gave: summed over the queries that share one."""
    total = jnp.sum(terms, axis=0)
    return total if plan.config.causal else jnp.sum(total, axis=0, keepdims=True)
