"""The einsum path that a user would write, which the kernels are measured against.

Equation (8) from its dot products, one softmax over all pairs, B(value_j, value_k) computed once: for each
head an array over all triples, and for the backward pass several. It is a baseline for `benchmarks/`, not a
backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from kernels.arrays import accumulator, einsum
from kernels.softmax import MASKED
from kernels.two_simplicial.reference import Config, logits

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float


def plain(
    config: Config,
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B M H D"],
    key2: Float[Array, "B M H D"],
    value: Float[Array, "B M H E"],
    bilinear: Float[Array, "H F E E"],
    mask: Bool[Array, "#B #N #M #M"] | None = None,
) -> Float[Array, "B N H F"]:
    """Clift et al. (2020), equation (10), in a few lines.

    Arguments as those of `reference.two_simplicial_attention`.

    A row in which nothing is allowed gives the mean over all pairs, not 0, as a softmax does.

    Raises:
      ValueError: for an unknown logit.
    """
    dtype, accumulation = value.dtype, accumulator(query, key1, key2, value, bilinear)
    query, key1, key2, value, bilinear = (
        a.astype(accumulation) for a in (query, key1, key2, value, bilinear)
    )

    logit = logits(config, query, key1, key2)
    if mask is not None:
        logit = jnp.where(mask[:, None], logit, MASKED)
    weight = jax.nn.softmax(logit, axis=(-2, -1))
    pairs = einsum("hfrs,bjhr,bkhs->bhjkf", bilinear, value, value)
    return einsum("bhijk,bhjkf->bihf", weight, pairs).astype(dtype)
