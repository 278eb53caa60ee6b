"""2-simplicial attention to a few pairs, forward: the path for the agents' two virtual entities.

With M of two all triples are fewer numbers than the queries have: tiles save nothing. It is the definition,
but for the sum over pairs: as a product of matrices with so few rows it would cost several times as much.
The backward pass is faster in tiles, small enough for the caches.

Axis letters: B batch, H heads, N queries, M keys, D, E, F features of keys, values, outputs, P = M * M pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from kernels.softmax import MASKED
from kernels.two_simplicial import reference
from kernels.two_simplicial.reference import Config

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float


def forward(
    config: Config,
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B M H D"],
    key2: Float[Array, "B M H D"],
    value: Float[Array, "B M H E"],
    bilinear: Float[Array, "H F E E"],
    mask: Bool[Array, "#B #N #M #M"] | None,
    precision: jax.lax.Precision,
) -> tuple[Float[Array, "B N H F"], Float[Array, "B H N"]]:
    """Output and log-sum-exp of inputs in the type to compute in; `precision` of products of values."""
    logits = reference.logits(config, query, key1, key2)
    allowed = None if mask is None else mask[:, None]
    if allowed is not None:
        logits = jnp.where(allowed, logits, MASKED)
    top = jax.lax.stop_gradient(jnp.max(logits, axis=(3, 4), keepdims=True))
    weight = jnp.exp(logits - top)
    if allowed is not None:
        weight = jnp.where(allowed, weight, 0)
    total = jnp.sum(weight, axis=(3, 4), keepdims=True)
    some = total > 0
    total = jnp.where(some, total, 1)
    pairs = jnp.einsum("hfrs,bjhr,bkhs->bhjkf", bilinear, value, value, precision=precision)
    # A barrier, or the loop of the sum would compute its factors again for every feature.
    weight, pairs = jax.lax.optimization_barrier((_queries_first(weight / total), _flat(pairs)))
    out = jnp.sum(weight[..., None] * pairs[:, None], axis=3)
    lse = jnp.where(some, top + jnp.log(total), 0)
    return out, lse[..., 0, 0]


def _flat(pairs: Float[Array, "B H M M F"]) -> Float[Array, "B H P F"]:
    return pairs.reshape(*pairs.shape[:2], -1, pairs.shape[-1])


def _queries_first(weight: Float[Array, "B H N M M"]) -> Float[Array, "B N H P"]:
    weight = jnp.swapaxes(weight, 1, 2)
    return weight.reshape(*weight.shape[:3], -1)
