"""Triangle attention as it is defined: Jumper et al. (2021), supplement, Algorithms 13 and 14, lines 5 to 7.

This file is the meaning; `attention` is tested against it in float64. It builds all logits of a batch and is
for small shapes.

Axis letters: B batch, N rows of the pair representation, H heads, Q queries and K keys of a row, D features.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels.arrays import accumulator, einsum
from kernels.softmax import MASKED


def triangle_attention(
    q: Float[Array, "B N H Q D"],
    k: Float[Array, "B N H K D"],
    v: Float[Array, "B N H K D"],
    bias: Float[Array, "B 1 H Q K"],
    mask: Bool[Array, "B N 1 1 K"] | None,
    scale: float,
) -> tuple[Float[Array, "B N H Q D"], Float[Array, "B N H Q 1"], Float[Array, "B N H Q 1"]]:
    """softmax_k(scale <q, k> + bias) v for each row and head; the rows of a batch have one bias.

    Args:
        q: queries.
        k: keys.
        v: values.
        bias: added to the logits.
        mask: False where a key is not there.
        scale: factor of the products.

    Returns:
        The attended values in the dtype of `q`; each softmax's log-sum-exp after its largest logit was
        subtracted; and that logit.
    """
    dtype, wide = q.dtype, accumulator(q, k, v, bias)
    q, k, v, bias = (x.astype(wide) for x in (q, k, v, bias))
    logits = scale * einsum("bnhqd,bnhkd->bnhqk", q, k) + bias
    if mask is not None:
        logits = jnp.where(mask, logits, MASKED)
    # Not `jnp.max`, whose derivative is NaN if XLA rounds the logits that it is compared with in another way.
    top = jnp.take_along_axis(logits, jnp.argmax(logits, axis=-1, keepdims=True), axis=-1)
    lse = jax.nn.logsumexp(logits - top, axis=-1, keepdims=True)
    out = einsum("bnhqk,bnhkd->bnhqd", jnp.exp(logits - top - lse), v)
    if mask is not None:
        out = jnp.where(jnp.any(mask, axis=-1, keepdims=True), out, 0)
    return out.astype(dtype), lse, top
