"""Strassen attention as it is defined: Kozachinskiy et al. (2025), arXiv:2501.19215.

This file is the meaning; `xla` is tested against it in float64. It builds an array over all triples and is
for small shapes.

Axis letters: B batch, N queries (index i), M keys (indices j and k), H heads, D features of queries and keys,
E features of values.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels.arrays import accumulator, einsum
from kernels.softmax import masked_softmax


def strassen_attention(
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B M H D"],
    key2: Float[Array, "B M H D"],
    value1: Float[Array, "B M H E"],
    value2: Float[Array, "B M H E"],
    mask: Bool[Array, "#B #N #M"] | None = None,
    scale: float = 1.0,
) -> Float[Array, "B N H E"]:
    """sum_jk softmax_jk(scale (<f_i, g_j> + <g_j, h_k> + <h_k, f_i>)) (v_j * w_k).

    Args:
        query: f of the paper.
        key1: g of the paper.
        key2: h of the paper.
        value1: v, the values of the first keys.
        value2: w, the values of the second keys.
        mask: True where query i may attend to key j; a pair needs both of its keys.
        scale: factor of the logit (the paper's is 1 / sqrt(D)).
    """
    dtype, wide = value1.dtype, accumulator(query, key1, key2, value1, value2)
    query, key1, key2, value1, value2 = (x.astype(wide) for x in (query, key1, key2, value1, value2))
    logits = (
        einsum("bihd,bjhd->bhij", query, key1)[:, :, :, :, None]
        + einsum("bjhd,bkhd->bhjk", key1, key2)[:, :, None, :, :]
        + einsum("bihd,bkhd->bhik", query, key2)[:, :, :, None, :]
    )
    flat = (*logits.shape[:3], -1)
    if mask is not None:
        pairs = (mask[..., :, None] & mask[..., None, :])[:, None]
        mask = jnp.broadcast_to(pairs, logits.shape).reshape(flat)
    weights = masked_softmax(scale * logits.reshape(flat), mask).reshape(logits.shape)
    return einsum("bhijk,bjhe,bkhe->bihe", weights, value1, value2).astype(dtype)
