"""Triangle attention, row by row of the pair representation."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from kernels import checks
from kernels.arrays import accumulator, filled
from kernels.softmax import MASKED

BLOCK = 2**22
"""Logits in a block of rows, unless a single row has more: as many as the bias has."""


class TriangleAttentionOutput(NamedTuple):
    """What cuEquivariance's function returns, as a tuple of three.

    Attributes:
        out: the attended values.
        lse: log-sum-exp of each softmax after its largest logit was subtracted, float32 or wider.
        max: the largest logit.
    """

    out: Float[Array, "*batch H Q D"]
    lse: Float[Array, "*batch H Q 1"]
    max: Float[Array, "*batch H Q 1"]


def triangle_attention(
    q: Float[ArrayLike, "*batch N H Q D"],
    k: Float[ArrayLike, "*batch N H K D"],
    v: Float[ArrayLike, "*batch N H K D"],
    bias: Float[ArrayLike, "*batch 1 H Q K"],
    mask: Bool[ArrayLike, "*batch N 1 1 K"] | None = None,
    scale: float | None = None,
    precision: jax.lax.Precision | None = None,
) -> TriangleAttentionOutput:
    """AlphaFold's triangle attention, with the arguments of `cuequivariance_jax.triangle_attention`.

        out_q = sum_k softmax_k(scale <q_q, k_k> + bias_qk) v_k

    for each row n and head; all rows of a batch have one bias (Jumper et al. 2021, supplement, Algorithms 13
    and 14, lines 5 to 7). To switch, replace `from cuequivariance_jax import triangle_attention` by `from
    kernels import triangle_attention`. It is plain JAX, for any chip, size and transformation.

    No array over rows, queries and keys is formed, forward or backward: rows are computed in blocks, whose
    backward passes compute them again, and a block has as many logits as the bias, or 4 million.

    Two differences from cuEquivariance: a row without any key gives 0, and masked keys and values may hold
    anything; logits and sums are float32 at least (float64 for float64 inputs) in every dtype.

    Args:
        q: queries; any number of batch axes.
        k: keys.
        v: values.
        bias: added to the logits.
        mask: False where a key is not there; None for all. Each axis is full or of size 1.
        scale: what products are multiplied by, a positive Python number; None for 1 / sqrt(D).
        precision: of the matrix products; None for full float32 precision.

    Returns:
        The attended values in the dtype of `q`, and the log-sum-exp and the maximum of each row's logits.

    Raises:
        ValueError: shapes, types or values that do not fit; it names the argument and what was expected.
    """
    q, k, v = checks.floating(q=q, k=k, v=v)
    (bias,) = checks.floating(bias=bias)
    checks.rank("q", q, 4, "[..., N, H, Q, D]")
    checks.rank("k", k, 4, "[..., N, H, K, D]")
    *batch, n, heads, queries, depth = q.shape
    keys = k.shape[-2]
    to_q = f"to match q {q.shape}"
    checks.shape("k", k, (*batch, n, heads, keys, depth), "[..., N, H, K, D]", to_q)
    checks.shape("v", v, k.shape, "[..., N, H, K, D]", "to match k")
    to_both = f"to match q {q.shape} and k {k.shape}"
    checks.shape("bias", bias, (*batch, 1, heads, queries, keys), "[..., 1, H, Q, K]", to_both)
    if 0 in (depth, keys):
        raise ValueError(f"k: got shape {k.shape}, expected K and D of at least 1")
    mask = checks.mask(mask, (*batch, n, 1, 1, keys), "[..., N, 1, 1, K]")
    scale = 1 / math.sqrt(depth) if scale is None else checks.positive("scale", scale)
    if 0 in (*batch, n, heads, queries):
        empty = jnp.empty((*batch, n, heads, queries, 1), accumulator(q, bias))
        return TriangleAttentionOutput(q, empty, empty)
    q, k, v, bias = (x.reshape(-1, *x.shape[len(batch) :]) for x in (q, k, v, bias))
    if mask is not None:
        mask = jnp.broadcast_to(mask, (*batch, n, 1, 1, keys)).reshape(-1, n, 1, 1, keys)
    parts = by_rows(q, k, v, bias, mask, scale, jax.lax.Precision.HIGHEST if precision is None else precision)
    return TriangleAttentionOutput(*(x.reshape(*batch, *x.shape[1:]) for x in parts))


def by_rows(
    q: Float[Array, "B N H Q D"],
    k: Float[Array, "B N H K D"],
    v: Float[Array, "B N H K D"],
    bias: Float[Array, "B 1 H Q K"],
    mask: Bool[Array, "B N 1 1 K"] | None,
    scale: float,
    precision: jax.lax.Precision = jax.lax.Precision.HIGHEST,
    block: int | None = None,
) -> tuple[Float[Array, "B N H Q D"], Float[Array, "B N H Q 1"], Float[Array, "B N H Q 1"]]:
    """`reference.triangle_attention`, in blocks of rows; `block` is their number, None for `BLOCK`."""
    dtype, wide = q.dtype, accumulator(q, k, v, bias)
    n, bias = q.shape[1], bias[:, 0].astype(wide)[None]

    @jax.checkpoint
    def rows(arrays):  # [I, B, H, Q or K, D], and a mask [I, B, 1, 1, K]
        q, k, v, mask = arrays
        if mask is not None:  # what is not there may hold anything
            there = jnp.swapaxes(mask, -1, -2)
            k, v = jnp.where(there, k, 0), jnp.where(there, v, 0)
        products = {"precision": precision, "preferred_element_type": wide}
        logits = scale * jnp.einsum("ibhqd,ibhkd->ibhqk", q, k, **products) + bias
        if mask is not None:
            logits = jnp.where(mask, logits, MASKED)
        largest = _largest(logits)
        top = jax.lax.stop_gradient(largest)  # the attended values do not depend on it
        weights = jnp.exp(logits - top)
        total = jnp.sum(weights, axis=-1, keepdims=True)
        out = jnp.einsum("ibhqk,ibhkd->ibhqd", weights.astype(dtype), v, **products) / total
        # The last difference is 0, but its derivative is not.
        return out.astype(dtype), jnp.log(total) + (top - largest), largest

    size = min(block or max(1, BLOCK // bias.size), n)
    count = -(-n // size)

    def blocks(x):
        x = jnp.moveaxis(filled(x, 1, count * size), 1, 0)
        return x.reshape(count, size, *x.shape[1:])

    arrays = *map(blocks, (q, k, v)), None if mask is None else blocks(mask)
    out, lse, top = (jnp.moveaxis(x.reshape(-1, *x.shape[2:])[:n], 0, 1) for x in jax.lax.map(rows, arrays))
    return out, lse, top


@jax.custom_jvp
def _largest(logits: Float[Array, "*B K"]) -> Float[Array, "*B 1"]:
    """Returns the largest logit, and the derivative of the first that is as large.

    `jnp.max` compares for its derivative, which is NaN where XLA computes the logits again and rounds them in
    another way.
    """
    return jnp.max(logits, axis=-1, keepdims=True)


@_largest.defjvp
def _largest_jvp(primals, tangents):
    (logits,), (slope,) = primals, tangents
    first = jax.nn.one_hot(jnp.argmax(logits, axis=-1), logits.shape[-1], dtype=bool)
    return _largest(logits), jnp.sum(jnp.where(first, slope, 0), axis=-1, keepdims=True)
