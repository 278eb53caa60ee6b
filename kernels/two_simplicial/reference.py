"""2-simplicial attention as it is defined: Clift et al. (2020, arXiv:1909.00668), equations (7), (8), (10).

This file is the meaning; every other implementation is tested against it in float64. It builds arrays over
all triples and is for small shapes.

Axis letters: B batch, H heads, N queries (index i), M keys (indices j and k), D query and key features,
E value features, F output features; C pieces of three coordinates.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels.arrays import accumulator, einsum
from kernels.softmax import MASKED

Logit = Literal["unsigned", "trilinear", "signed"]
"""How a query and two keys give one number; `Config` says how."""
LOGITS: tuple[Logit, ...] = get_args(Logit)


@dataclass(frozen=True)
class Config:
    """What is static about a call.

    Attributes:
      logit: "unsigned", the norm of the scalar triple product (equation (7)); "trilinear", the sum of
        q_d k1_d k2_d (Roy et al. 2025, arXiv:2507.02754); "signed", the sum of the determinants of the pieces
        of three coordinates (the same, Section 5).
      scale: factor of the logit (the paper has none: 1).
      eps: the unsigned logit is sqrt(square + eps^2), which has a gradient where the square is 0.
    """

    logit: Logit = "unsigned"
    scale: float = 1.0
    eps: float = 1e-6

    def __post_init__(self):
        """Raises a ValueError if the logit is unknown."""
        if self.logit not in LOGITS:
            raise ValueError(f"logit: got {self.logit!r}, expected one of {', '.join(map(repr, LOGITS))}")


def logits(
    config: Config,
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B M H D"],
    key2: Float[Array, "B M H D"],
) -> Float[Array, "B H N M M"]:
    """The logit of every triple (i, j, k)."""
    if config.logit == "unsigned":
        # Equation (8). Its difference loses nothing: with u, v, w the cosines of the three angles it is
        # |a|^2 |b|^2 |c|^2 (u^2 + v^2 + w^2 - 2uvw), and 2uvw <= 2/3 (u^2 + v^2 + w^2).
        ab = einsum("bihd,bjhd->bhij", query, key1)[:, :, :, :, None]
        ac = einsum("bihd,bkhd->bhik", query, key2)[:, :, :, None, :]
        bc = einsum("bjhd,bkhd->bhjk", key1, key2)[:, :, None, :, :]
        aa = einsum("bihd,bihd->bhi", query, query)[:, :, :, None, None]
        bb = einsum("bjhd,bjhd->bhj", key1, key1)[:, :, None, :, None]
        cc = einsum("bkhd,bkhd->bhk", key2, key2)[:, :, None, None, :]
        square = ab * ab * cc + bc * bc * aa + ac * ac * bb - 2 * ab * ac * bc
        return config.scale * jnp.sqrt(square + config.eps**2)
    if config.logit == "trilinear":
        return config.scale * einsum("bihd,bjhd,bkhd->bhijk", query, key1, key2)
    query, key1, key2 = (a.reshape(*a.shape[:-1], -1, 3) for a in (query, key1, key2))
    # det[a, b, c] = a . (b x c)
    cross = jnp.cross(key1[:, :, None], key2[:, None, :])
    return config.scale * einsum("bihcx,bjkhcx->bhijk", query, cross)


def two_simplicial_attention(
    config: Config,
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B M H D"],
    key2: Float[Array, "B M H D"],
    value: Float[Array, "B M H E"],
    bilinear: Float[Array, "H F E E"],
    mask: Bool[Array, "#B #N #M #M"] | None = None,
) -> tuple[Float[Array, "B N H F"], Float[Array, "B H N"]]:
    """Equation (10): the mean of B(value_j, value_k) over all pairs, weighted by the softmax of the logits.

    Args:
      config: logit, scale and eps.
      query: p of the paper.
      key1: l1 of the paper.
      key2: l2 of the paper.
      value: u of the paper.
      bilinear: B of the paper, one map of pairs to F features for each head.
      mask: True where query i may attend to the pair (j, k).

    Returns:
      The attended values, in the type of `value`, and the logarithm of each softmax's denominator. Where
      nothing is allowed both are 0.
    """
    dtype, accumulation = value.dtype, accumulator(query, key1, key2, value, bilinear)
    query, key1, key2, value, bilinear = (
        a.astype(accumulation) for a in (query, key1, key2, value, bilinear)
    )
    logit = logits(config, query, key1, key2)
    allowed = jnp.broadcast_to(True if mask is None else mask[:, None], logit.shape)
    logit = jnp.where(allowed, logit, MASKED)
    top = jax.lax.stop_gradient(jnp.max(logit, axis=(-2, -1), keepdims=True))
    weight = jnp.where(allowed, jnp.exp(logit - top), 0)
    total = jnp.sum(weight, axis=(-2, -1), keepdims=True)
    some = total > 0
    total = jnp.where(some, total, 1)
    pairs = einsum("hfrs,bjhr,bkhs->bhjkf", bilinear, value, value)
    out = einsum("bhijk,bhjkf->bihf", weight / total, pairs)
    lse = jnp.where(some, jnp.log(total) + top, 0)
    return out.astype(dtype), lse[..., 0, 0]


def plain(
    config: Config,
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B M H D"],
    key2: Float[Array, "B M H D"],
    value: Float[Array, "B M H E"],
    bilinear: Float[Array, "H F E E"],
    mask: Bool[Array, "#B #N #M #M"] | None = None,
) -> Float[Array, "B N H F"]:
    """The einsum path that a user would write for equation (10), and what benchmarks compare with.

    For each head an array over all triples, and for the backward pass several. Arguments as those of
    `two_simplicial_attention`. A row with nothing allowed gives the mean over all pairs, not 0, as a softmax
    does.
    """
    arrays = query, key1, key2, value, bilinear
    dtype, accumulation = value.dtype, accumulator(*arrays)
    query, key1, key2, value, bilinear = (a.astype(accumulation) for a in arrays)
    logit = logits(config, query, key1, key2)
    if mask is not None:
        logit = jnp.where(mask[:, None], logit, MASKED)
    weight = jax.nn.softmax(logit, axis=(-2, -1))
    pairs = einsum("hfrs,bjhr,bkhs->bhjkf", bilinear, value, value)
    return einsum("bhijk,bhjkf->bihf", weight, pairs).astype(dtype)
