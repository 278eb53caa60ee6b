"""The trans operator as the paper defines it, and the plain path that a user would write for it.

Letters: B batch, H heads, X rows of the kernel and the result, A the reduced index, Y columns of the premise.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels.arrays import accumulator, einsum
from kernels.softmax import MASKED


@dataclasses.dataclass(frozen=True)
class Config:
    """What is fixed when a call is compiled.

    Attributes:
        causal: only a <= x + row_offset is allowed.
        row_offset: where row 0 of the kernel stands among the columns. 0 when X = A; a shard of the rows
            that starts at row r has r.
    """

    causal: bool = False
    row_offset: int = 0


def allowed(
    config: Config, rows: int, columns: int, mask: Bool[Array, "b h #X #A"] | None
) -> Bool[Array, "b2 h2 #X #A"] | None:
    """Where attention is allowed, each axis full or of size 1; None if everywhere."""
    if config.causal:
        # An arange a side, compared: [X, A] without a batch, so that it costs almost nothing.
        past = jnp.arange(columns)[None, :] <= jnp.arange(rows)[:, None] + config.row_offset
        past = past[None, None]
        return past if mask is None else jnp.logical_and(mask, past)
    return mask


def trans(
    config: Config,
    kernel_logits: Float[Array, "B H X A"],
    premise: Float[Array, "B H A Y"],
    mask: Bool[Array, "b h x a"] | None = None,
) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """u_h(x, y) = sum_a K_h(x, a) v_h(a, y), K = softmax_a of the logits: Chen (2023), Table 2, row "t".

    The body of a transitive rule, u(x, y) <- K(x, a), v(a, y), summed over a with the kernel as its weights.

    Args:
        config: whether later columns are masked.
        kernel_logits: the kernel before its softmax.
        premise: v.
        mask: True where allowed; each size is full or 1.

    Returns:
        The result in the premise's dtype, and the log of the softmax's denominator (float32 at least). A row
        with nothing allowed gives 0 in both, and gradients of 0.
    """
    dtype = accumulator(kernel_logits, premise)
    logits = kernel_logits.astype(dtype)
    rows, columns = logits.shape[2:]
    where = allowed(config, rows, columns, mask)
    where = jnp.ones(logits.shape, bool) if where is None else jnp.broadcast_to(where, logits.shape)
    some = where.any(axis=-1)
    # Nothing infinite: a row without an allowed entry takes the value 0 for its maximum, and where() keeps
    # what is masked out of the exponential, so that its derivative is 0 and not 0 * inf.
    maximum = jnp.max(logits, axis=-1, where=where, initial=jnp.finfo(dtype).min)
    maximum = jax.lax.stop_gradient(jnp.where(some, maximum, 0))[..., None]
    weights = jnp.where(where, jnp.exp(jnp.where(where, logits - maximum, 0)), 0)
    denominator = jnp.where(some, weights.sum(axis=-1), 1)
    kernel = weights / denominator[..., None]
    out = einsum("bhxa,bhay->bhxy", kernel, premise.astype(dtype))
    return out.astype(premise.dtype), jnp.where(some, maximum[..., 0] + jnp.log(denominator), 0)


def plain(
    kernel_logits: Float[Array, "B X A H"], premise: Float[Array, "B A Y H"], causal: bool = False
) -> Float[Array, "B X Y H"]:
    """What a user would write, and what benchmarks compare with: heads last, one softmax, one einsum.

    Binary atoms are features of pairs of tokens, [B, T, T, H], so this is the layout of a direct reading of
    Table 2. No mask but the causal one.
    """
    if causal:
        past = jnp.tril(jnp.ones(kernel_logits.shape[1:3], bool))
        kernel_logits = jnp.where(past[:, :, None], kernel_logits, MASKED)
    kernel = jax.nn.softmax(kernel_logits, axis=2)
    return jnp.einsum("bxah,bayh->bxyh", kernel, premise)


def plain_head_major(
    kernel_logits: Float[Array, "B H X A"], premise: Float[Array, "B H A Y"], causal: bool = False
) -> Float[Array, "B H X Y"]:
    """`plain` on the layout of `trans`: the second baseline, which isolates what is not the layout."""
    if causal:
        past = jnp.tril(jnp.ones(kernel_logits.shape[2:], bool))
        kernel_logits = jnp.where(past, kernel_logits, MASKED)
    return jnp.einsum("bhxa,bhay->bhxy", jax.nn.softmax(kernel_logits, axis=-1), premise)
