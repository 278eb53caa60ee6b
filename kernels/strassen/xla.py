"""Strassen attention by products of matrices, in plain JAX.

The exponential of a logit is a product of three factors, one for each pair of indices:

    exp(a_ij + b_jk + c_ik) = X_ij Y_jk Z_ik

so that the sum over k is a product of matrices for each query and feature of the values,

    out_ie = sum_j X_ij v_je (Y (Z_i * w_e))_j / sum_j X_ij (Y Z_i)_j

There are N M + M^2 exponentials instead of N M^2, and the products are those of a matrix unit. (The paper
names the attention after fast multiplication, which these products allow in theory; it is not used here.)

Which maxima are subtracted decides whether the factors are safe. Each is at most 1 here: Z is divided by the
largest of its row, Y by those of its rows, which go to X, and X then by the largest of its row. A sum can
still vanish where a query's best k differ from its best j's. Rows whose sum is below `SMALLEST` are computed
again triple by triple, with the maximum of their own logits. This happens only where logits are large, and
costs nothing where it does not happen.

Axis letters: as in `reference`; I queries of a block.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from kernels.arrays import accumulator, einsum, filled
from kernels.softmax import MASKED

SMALLEST = 1e-12
"""Least sum of a row's weights that is trusted. Factors that underflow to 0 lose terms below 1e-37."""
BLOCK = 2**22
"""Numbers in the largest array of a block, which has M (E + 1) for each of its queries and heads."""


def strassen_attention(
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B M H D"],
    key2: Float[Array, "B M H D"],
    value1: Float[Array, "B M H E"],
    value2: Float[Array, "B M H E"],
    mask: Bool[Array, "#B #N #M"] | None = None,
    scale: float = 1.0,
    block: int | None = None,
) -> Float[Array, "B N H E"]:
    """`reference.strassen_attention`, by blocks of queries, whose backward passes compute them again.

    Memory is that of the inputs, of M^2 numbers per head, and of one block. `block` is the number of queries
    in a block, None for `BLOCK`.
    """
    dtype, wide = value1.dtype, accumulator(query, key1, key2, value1, value2)
    query, key1, key2, value1, value2 = (
        jnp.swapaxes(x.astype(wide), 1, 2) for x in (query, key1, key2, value1, value2)
    )
    batch, heads, n, _ = query.shape
    m, features = value1.shape[2:]
    between = scale * einsum("bhjd,bhkd->bhjk", key1, key2)
    top = jax.lax.stop_gradient(jnp.max(between, axis=-1))  # [B, H, M]
    factors = jnp.exp(between - top[..., None])
    ones = jnp.ones((batch, heads, m, 1), wide)  # this column gives the denominator
    first, second = (jnp.concatenate([x, ones], axis=-1) for x in (value1, value2))

    @jax.checkpoint
    def rows(block):
        f, allowed = block
        a = scale * einsum("bhid,bhjd->bhij", f, key1)
        c = scale * einsum("bhid,bhkd->bhik", f, key2)
        if allowed is not None:
            a, c = jnp.where(allowed, a, MASKED), jnp.where(allowed, c, MASKED)
        x, z = _largest_is_one(a + top[:, :, None]), _largest_is_one(c)
        weighted = einsum("bhjk,bhike->bhije", factors, z[..., None] * second[:, :, None])
        sums = einsum("bhij,bhije,bhje->bhie", x, weighted, first)
        vanished = sums[..., -1:] < SMALLEST
        again = jax.lax.cond(
            jnp.any(vanished), _by_triples, lambda *_: jnp.ones_like(sums), a, c, between, first, second
        )
        sums = jnp.where(vanished, again, sums)  # both are finite, and so are their gradients
        out = sums[..., :-1] / sums[..., -1:]
        return out if allowed is None else jnp.where(jnp.any(allowed, axis=-1, keepdims=True), out, 0)

    size = min(block or max(1, BLOCK // (batch * heads * m * (features + 1))), n)
    count = -(-n // size)
    query = _blocks(query, count, size)
    if mask is not None:
        mask = jnp.broadcast_to(mask[:, None], (mask.shape[0], 1, n, m))
        mask = _blocks(mask, count, size)
    out = jax.lax.map(rows, (query, mask))  # [blocks, B, H, I, E]
    out = jnp.moveaxis(out, 0, 2).reshape(batch, heads, count * size, features)[:, :, :n]
    return jnp.swapaxes(out, 1, 2).astype(dtype)


def _blocks(x: Shaped[Array, "B H N K"], count: int, size: int) -> Shaped[Array, "blocks B H I K"]:
    """Cuts the third axis into blocks; what is added to the last is 0 or False."""
    x = filled(x, 2, count * size)
    return jnp.moveaxis(x.reshape(*x.shape[:2], count, size, x.shape[3]), 2, 0)


def _largest_is_one(logits: Float[Array, "B H I M"]) -> Float[Array, "B H I M"]:
    top = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    return jnp.exp(logits - top)


def _by_triples(
    a: Float[Array, "B H I M"],
    c: Float[Array, "B H I M"],
    between: Float[Array, "B H M M"],
    first: Float[Array, "B H M E"],
    second: Float[Array, "B H M E"],
) -> Float[Array, "B H I E"]:
    """The sums of weighted values, of which each query's largest weight is 1, query by query."""

    @jax.checkpoint
    def row(one):
        logits = one[0][..., :, None] + between + one[1][..., None, :]
        top = jax.lax.stop_gradient(jnp.max(logits, axis=(-2, -1), keepdims=True))
        weighted = einsum("bhjk,bhke->bhje", jnp.exp(logits - top), second)
        return jnp.sum(weighted * first, axis=2)

    return jnp.moveaxis(jax.lax.map(row, (jnp.moveaxis(a, 2, 0), jnp.moveaxis(c, 2, 0))), 0, 2)
