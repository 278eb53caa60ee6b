"""Trilinear attention as it is defined: Roy et al. (2025), "Fast and Simplex", arXiv:2507.02754, Section 4.

This file is the meaning; every other implementation is tested against it in float64. It builds an array over
all triples of positions and is for small shapes.

Axis letters: B batch, N positions (i of a query; j and k of the two keys), H query heads, G groups (heads of
keys and values), R = H / G query heads a group, D features.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels.arrays import accumulator, einsum
from kernels.softmax import MASKED


@dataclasses.dataclass(frozen=True)
class Config:
    """What is fixed when a call is compiled.

    Attributes:
        window1: a query sees the first keys i - window1 < j <= i; None for the whole past. Needs `causal`.
        window2: likewise i - window2 < k <= i for the second keys.
        causal: whether only the past and the query's own position are seen.
        scale: factor of the logit (the paper's is 1 / sqrt(D)).
    """

    window1: int | None = None
    window2: int | None = None
    causal: bool = False
    scale: float = 1.0

    def reach(self, length: int) -> tuple[int, int]:
        """How many first and second keys the last of `length` queries sees."""
        return min(self.window1 or length, length), min(self.window2 or length, length)

    def smaller_window_first(self, arrays: Sequence[Any]) -> tuple["Config", tuple[Any, ...]]:
        """Exchanges the two keys, and the two values, where that makes the first window the smaller one."""
        query, key1, key2, value1, value2 = arrays[:5]
        window1, window2 = self.reach(query.shape[1])
        if window1 <= window2:
            return self, (query, key1, key2, value1, value2)
        swapped = dataclasses.replace(self, window1=self.window2, window2=self.window1)
        return swapped, (query, key2, key1, value2, value1)


def in_order(exchanged: bool, gradients: tuple[Array, ...], arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Gradients of the arguments, each in its type, of which keys and values may have been exchanged."""
    dquery, dkey1, dkey2, dvalue1, dvalue2 = gradients
    if exchanged:
        gradients = dquery, dkey2, dkey1, dvalue2, dvalue1
    return tuple(g.astype(a.dtype) for g, a in zip(gradients, arrays, strict=True))


def visible(length: int, window: int | None, causal: bool) -> Bool[Array, "N N"]:
    """Which keys (second axis) each query (first axis) sees."""
    if not causal:
        return jnp.ones((length, length), bool)
    back = jnp.arange(length)[:, None] - jnp.arange(length)[None, :]
    seen = back >= 0
    return seen if window is None else seen & (back < window)


def trilinear_attention(
    config: Config,
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B N G D"],
    key2: Float[Array, "B N G D"],
    value1: Float[Array, "B N G D"],
    value2: Float[Array, "B N G D"],
) -> tuple[Float[Array, "B N H D"], Float[Array, "B H N"]]:
    """sum_jk softmax_jk(scale * sum_d q_id k1_jd k2_kd) (v1_j * v2_k): Section 4 and Algorithm 1.

    Query head h uses group h // (H / G) of the keys and values.

    Args:
        config: windows, causality and scale.
        query: Q of the paper.
        key1: K, of the positions j.
        key2: K', of the positions k.
        value1: V.
        value2: V'.

    Returns:
        The attended values in the dtype of `value1`, and the logarithm of each softmax's denominator (float32
        at least). Every query sees at least its own position, so that no softmax is empty.
    """
    dtype, groups = value1.dtype, key1.shape[2]
    accumulation = accumulator(query, key1, key2, value1, value2)
    batch, length, heads, features = query.shape
    query, key1, key2, value1, value2 = (a.astype(accumulation) for a in (query, key1, key2, value1, value2))
    query = query.reshape(batch, length, groups, heads // groups, features)
    logit = config.scale * einsum("bigrd,bjgd,bkgd->bgrijk", query, key1, key2)
    first, second = (visible(length, w, config.causal) for w in (config.window1, config.window2))
    logit = jnp.where((first[:, :, None] & second[:, None, :])[None, None, None], logit, MASKED)
    lse = jax.nn.logsumexp(logit, axis=(-2, -1))
    weight = jnp.exp(logit - lse[..., None, None])
    out = einsum("bgrijk,bjgd,bkgd->bigrd", weight, value1, value2)
    return out.reshape(batch, length, heads, features).astype(dtype), lse.reshape(batch, heads, length)
