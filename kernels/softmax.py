"""Softmax with a mask, and the logit of a masked entry, shared by all packages."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels import checks

MASKED = -1e30
"""The logit of a masked entry: finite, so that a fully masked row does not compute inf - inf."""
LOG2E = math.log2(math.e)
"""exp(x) = 2^(x LOG2E); hand-written kernels compute powers of two."""


def masked_softmax(
    logits: Float[Array, "*B M"], mask: Bool[Array, "*#B #M"] | None = None
) -> Float[Array, "*B M"]:
    """Computes the softmax over the entries of the last axis that a mask allows.

    Args:
        logits: the logits, in the dtype in which to compute the softmax.
        mask: True where allowed; broadcasts to the logits. None allows all.

    Returns:
        The weights, 0 where the mask is False. A row with nothing allowed is 0.

    Raises:
        ValueError: the mask does not broadcast or is not boolean (a float mask of -1e9 would allow all).
    """
    mask = checks.mask(mask, logits.shape, "the logits' shape")
    if mask is None:
        return jax.nn.softmax(logits)
    return jnp.where(mask, jax.nn.softmax(jnp.where(mask, logits, MASKED)), 0)
