"""The forward TPU kernel of trilinear attention: an online softmax, one first key (or distance) at a time."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from kernels.trilinear.reference import MASKED
from kernels.trilinear.tpu_plan import Plan, Tile


def attend(
    plan: Plan,
    query: jax.Array,
    key1: jax.Array,
    value1: jax.Array,
    key2: jax.Array,
    value2: jax.Array,
    *,
    interpret: Any,
) -> tuple[jax.Array, jax.Array]:
    """The kernel over all tiles.

    Args:
        plan: the sizes.
        query: [B, G, R, n, D], of `Plan.heads_of`.
        key1: [B, G, S, rows, D], of `Plan.segmented`, in float32, as is value1.
        value1: the values of the first keys.
        key2: likewise, in the type of the inputs, as is value2.
        value2: the values of the second keys.
        interpret: what `pallas_call` takes.

    Returns:
        The output, laid out as the query, and the log-sum-exp [B, G, R, 1, n].
    """
    rows = plan.heads * plan.queries
    return pl.pallas_call(
        functools.partial(_kernel, plan),
        name="trilinear_forward",
        grid=plan.grid,
        in_specs=[plan.tile_spec(), *[plan.resident_spec()] * 4],
        out_specs=[plan.tile_spec(), plan.row_spec()],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype),
            jax.ShapeDtypeStruct((*query.shape[:3], 1, query.shape[3]), jnp.float32),
        ],
        scratch_shapes=[
            pltpu.VMEM((rows, plan.features), jnp.float32),
            pltpu.VMEM((rows, 1), jnp.float32),
            pltpu.VMEM((rows, 1), jnp.float32),
        ],
        compiler_params=plan.compiler_params(tiles_in_order=False),
        interpret=interpret,
    )(query, key1, value1, key2, value2)


def _kernel(plan, q_ref, k1_ref, v1_ref, k2_ref, v2_ref, out_ref, lse_ref, sum_ref, top_ref, total_ref):
    tile = Tile(plan)
    heads, queries, features = q_ref.shape
    # Logits are powers of two: the exponential's own factor goes into the scale.
    q = q_ref[...].astype(jnp.float32) * (plan.config.scale * math.log2(math.e))
    position = jax.lax.broadcasted_iota(jnp.int32, (heads, queries, 1), 1).reshape(-1, 1) + tile.start

    sum_ref[...] = jnp.zeros_like(sum_ref)
    top_ref[...] = jnp.full_like(top_ref, MASKED)
    total_ref[...] = jnp.zeros_like(total_ref)

    def block(n, _):
        low = blocks_low + n * plan.second
        second = tile.second_rows(low)
        k2, v2 = k2_ref[second, :], v2_ref[second, :]
        bias = tile.bias(low)

        def pairs(step, _):
            first = tile.first_rows(step)
            left = (q * k1_ref[first, :][None]).reshape(heads * queries, features)
            logit = plan.product(left, k2, (1, 1)).reshape(heads, queries, plan.second) + bias[None]
            logit = logit.reshape(heads * queries, plan.second)
            highest = jnp.max(logit, axis=1, keepdims=True)
            shift = top = jnp.maximum(top_ref[...], highest)
            if plan.config.causal:
                # Where the first key is before position 0 its row is zeros. A column of numbers is enough to
                # leave such a row out: its maximum does not count, and its weights are exp(-huge).
                there = position >= step
                top = jnp.where(there, top, top_ref[...])
                shift = jnp.where(there, top, -MASKED)
            rescale = jnp.exp2(top_ref[...] - top)
            weight = jnp.exp2(logit - shift)
            part = plan.product(weight, v2, (1, 0)).reshape(heads, queries, features)
            part = (part * v1_ref[first, :][None]).reshape(heads * queries, features)
            total_ref[...] = total_ref[...] * rescale + jnp.sum(weight, axis=1, keepdims=True)
            sum_ref[...] = sum_ref[...] * rescale + part
            top_ref[...] = top
            return 0

        return jax.lax.fori_loop(0, tile.steps(), pairs, 0)

    blocks_low, count = tile.blocks()
    jax.lax.fori_loop(0, count, block, 0)
    total = total_ref[...]
    out = sum_ref[...] / total
    out_ref[...] = out.reshape(heads, queries, features).astype(out_ref.dtype)
    lse = (top_ref[...] + jnp.log2(total)) * math.log(2.0)
    for head in range(heads):  # a column of sublanes becomes a row of lanes
        column = jnp.broadcast_to(lse[head * queries : (head + 1) * queries], (queries, 128))
        lse_ref[head] = jnp.transpose(column)[:1]
