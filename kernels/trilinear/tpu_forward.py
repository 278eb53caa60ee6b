"""The forward TPU kernel of trilinear attention: an online softmax, one first key (or distance) at a time.

Tiles are transposed, [second keys, queries], as in the backward kernel: maxima and sums go down sublanes.
Weights are taken against a maximum known before the logits are, that of earlier steps: the exponential
of the first logits runs while the matrix unit is still at the last. Only where a logit is far above that
maximum (in a tile's first step, then hardly ever) is the step done again against its own.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array

from kernels.softmax import MASKED
from kernels.trilinear.tpu_plan import LANES, Keys, Plan, Tile

# How far logits (powers of two) may rise above the maximum that weights are taken against before sums are
# rescaled: sums of weights up to 2^64 are as exact as sums of weights up to 1, and far from overflow.
MARGIN = 64.0


def attend(plan: Plan, query: Array, *keys: Array, interpret: Any) -> tuple[Array, Array]:
    """The kernel over all tiles.

    Args:
        plan: the sizes.
        query: [B, G, R, n, D], of `Plan.heads_of`.
        *keys: key1 and value1 in float32, key2 and value2 in the type of the inputs: [B, G, S, rows, D], of
            `Plan.segmented`.
        interpret: what `pallas_call` takes.

    Returns:
        The output, laid out as the query, and the log-sum-exp [B, G, R, 1, n].
    """
    return pl.pallas_call(
        functools.partial(_kernel, plan),
        name="trilinear_forward",
        grid=plan.grid,
        in_specs=[plan.tile_spec(), *[plan.keys_spec()] * 4],
        out_specs=[plan.tile_spec(), plan.row_spec()],
        out_shape=[
            jax.ShapeDtypeStruct(query.shape, query.dtype),
            jax.ShapeDtypeStruct((*query.shape[:3], 1, query.shape[3]), jnp.float32),
        ],
        scratch_shapes=[
            pltpu.VMEM((plan.heads, plan.queries, plan.width), jnp.float32),
            pltpu.VMEM((1, plan.heads * plan.queries), jnp.float32),
            pltpu.VMEM((1, plan.heads * plan.queries), jnp.float32),
            *plan.scratch("forward"),
        ],
        compiler_params=plan.compiler_params("forward"),
        interpret=interpret,
    )(query, *keys)


def _kernel(plan, q_ref, *refs):
    keys, (out_ref, lse_ref, sum_ref, top_ref, total_ref, *copies) = Keys(*refs[:4]), refs[4:]
    tile = Tile(plan)
    heads, queries, features = q_ref.shape
    before_product, after_product = plan.factors
    q = q_ref[...].astype(jnp.float32) * before_product
    position = tile.positions()
    sum_ref[...] = jnp.zeros_like(sum_ref)
    top_ref[...] = jnp.full_like(top_ref, MASKED)
    total_ref[...] = jnp.zeros_like(total_ref)

    def by_query(row):
        """A number a query, [1, heads * T], as a factor of its features, [heads, T, D]."""
        spread = jnp.broadcast_to(row, (max(features, LANES), heads * queries))
        parts = [spread[:, h * queries : (h + 1) * queries] for h in range(heads)]
        return jnp.stack([jnp.transpose(part)[:, :features] for part in parts])

    def pairs(step, first, _, k2, v2, bias, keys):
        # Where the first key is before position 0 its row is zeros. A row of numbers is enough to leave
        # such a query out: its maximum does not count, and its weights are exp(-huge).
        there = position >= step if plan.config.causal else jnp.full(position.shape, True)

        def logits():
            left = (q * keys.key1[first, :][None]).reshape(heads * queries, features)
            return plan.product(plan.repeated(k2), plan.split(left), (1, 1)) * after_product + bias

        def weighted(logit, top):
            weight = jnp.exp2(logit - jnp.where(there, top, -MASKED))
            part = plan.product(weight, v2, (0, 0)).reshape(heads, queries, features)
            return part * keys.value1[first, :][None], jnp.sum(weight, axis=0, keepdims=True)

        logit, before = logits(), top_ref[...]
        top = jnp.where(there, jnp.maximum(before, jnp.max(logit, axis=0, keepdims=True)), before)
        part, total = weighted(logit, before)

        @pl.when(jnp.max(top - before) <= MARGIN)
        def _():
            sum_ref[...] += part
            total_ref[...] += total

        @pl.when(jnp.max(top - before) > MARGIN)
        def _():
            part, total = weighted(logits(), top)
            rescale = jnp.exp2(before - top)
            sum_ref[...] = sum_ref[...] * by_query(rescale) + part
            total_ref[...] = total_ref[...] * rescale + total
            top_ref[...] = top

    tile.over_pairs(keys, copies, pairs)
    total = total_ref[...]
    out_ref[...] = (sum_ref[...] * by_query(1 / total)).astype(out_ref.dtype)
    lse = (top_ref[...] + jnp.log2(total)) * math.log(2.0)
    for head in range(heads):
        lse_ref[head] = lse[:, head * queries : (head + 1) * queries]
