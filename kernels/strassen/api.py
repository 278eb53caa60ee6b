"""Strassen attention: of every query to pairs of keys, by products of matrices."""

import math
from typing import Literal

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from kernels import checks
from kernels.strassen import reference, xla


def strassen_attention(
    query: Float[ArrayLike, "*batch N H D"],
    key1: Float[ArrayLike, "*batch M H D"],
    key2: Float[ArrayLike, "*batch M H D"],
    value1: Float[ArrayLike, "*batch M H E"],
    value2: Float[ArrayLike, "*batch M H E"],
    *,
    mask: Bool[ArrayLike, "..."] | None = None,
    scale: float | None = None,
    implementation: Literal["reference", "xla"] | None = None,
) -> Float[Array, "*batch N H E"]:
    """Attention of every query to pairs (j, k) of keys (Kozachinskiy et al. 2025, arXiv:2501.19215).

        out_i = sum_jk softmax_jk(scale * (<q_i, k1_j> + <k1_j, k2_k> + <k2_k, q_i>)) (v1_j * v2_k)

    the values multiplied coordinate by coordinate. The exponential of a logit is a product of three factors
    of two indices each, so that the sums are products of matrices, with N M + M^2 exponentials per head
    instead of N M^2. Memory is that of the inputs, M^2 numbers per head, and one block of queries.

    Rows for which the factors would underflow, which takes logits of about 50 or more, are computed triple
    by triple, so that results are as accurate as those of a softmax over all logits. (Under `jax.vmap`, which
    runs both branches of a condition, all rows are; use batch axes.) Logits, softmax and sums are float32
    (float64 for float64 inputs).

    Args:
        query: one vector a query and head.
        key1: first keys.
        key2: second keys, as many as first ones.
        value1: values of the first keys.
        value2: values of the second keys.
        mask: True where query i may attend to key j, [..., N, M], each axis full or of size 1; a pair needs
            both of its keys. A query with nothing allowed gives 0. Keys and values that no query may attend
            to may hold anything.
        scale: what logits are multiplied by, a positive Python number; None for 1 / sqrt(D).
        implementation: "xla", by products of matrices, or "reference", the definition, with arrays over all
            triples; None for "xla". Both are plain JAX.

    Raises:
        ValueError: shapes, types or values that do not fit; it names the argument and what was expected.
    """
    arrays = checks.floating(query=query, key1=key1, key2=key2, value1=value1, value2=value2)
    query, key1, key2, value1, value2 = arrays
    if implementation not in (None, "reference", "xla"):
        raise ValueError(f"implementation: got {implementation!r}, expected None, 'reference' or 'xla'")
    checks.rank("query", query, 3, "[..., N, H, D]")
    checks.rank("key1", key1, 3, "[..., M, H, D]")
    checks.rank("value1", value1, 3, "[..., M, H, E]")
    *batch, n, heads, depth = query.shape
    m, width = key1.shape[-3], value1.shape[-1]
    if depth == 0:
        raise ValueError(f"query: got shape {query.shape}, expected D of at least 1")
    to_query = f"to match the batch, heads and D of query {query.shape}"
    checks.shape("key1", key1, (*batch, m, heads, depth), "[..., M, H, D]", to_query)
    checks.shape("key2", key2, key1.shape, "[..., M, H, D]", "to match key1")
    to_key1 = f"to match key1 {key1.shape}"
    checks.shape("value1", value1, (*batch, m, heads, width), "[..., M, H, E]", to_key1)
    checks.shape("value2", value2, value1.shape, "[..., M, H, E]", "to match value1")
    scale = 1 / math.sqrt(depth) if scale is None else checks.positive("scale", scale)
    mask = checks.mask(mask, (*batch, n, m), "[..., N, M]")
    if 0 in (*batch, n, m, heads, width):  # nothing to attend to, or nobody who does
        return jnp.zeros((*batch, n, heads, width), value1.dtype)
    query, *others = (checks.flatten_batch(x, batch, 3) for x in arrays)
    if mask is not None:
        mask = checks.flatten_batch(mask, batch, 2)
        attended = jnp.any(mask, axis=1)[:, :, None, None]
        others = [jnp.where(attended, x, 0) for x in others]
    key1, key2, value1, value2 = others
    function = (reference if implementation == "reference" else xla).strassen_attention
    return function(query, key1, key2, value1, value2, mask, scale).reshape(*batch, n, heads, width)
