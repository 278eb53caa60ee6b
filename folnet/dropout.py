"""Dropout (Srivastava et al. 2014) with sixteen random bits per number.

FOLNet applies dropout to every pair of tokens. On CPUs at T = 128, drawing 32 bits per number takes an eighth
of a training step; sixteen bits take a quarter of that. The rate is rounded to a multiple of 2^-16, and kept
numbers are scaled by the rounded rate, so that expectations are exact.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

LEVELS = 2**16


def kept_levels(rate: float) -> int:
    """Returns how many of 2^16 values keep a number; raises ValueError unless 0 <= rate < 1."""
    if not 0 <= rate < 1:
        raise ValueError(f"rate: got {rate!r}, expected a number of at least 0 and below 1")
    return max(1, round((1 - rate) * LEVELS))


def kept(key: Array, rate: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """Returns True where a number is kept, independently for each."""
    *lead, last = shape if shape else (1,)
    pairs = -(-last // 2)
    words = jax.random.bits(key, (*lead, pairs), jnp.uint32)
    halves = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(*lead, 2 * pairs)[..., :last]
    # Compares with the greatest kept value, since the number of kept values may not fit in sixteen bits.
    return (halves <= jnp.uint16(kept_levels(rate) - 1)).reshape(shape)


def drop(key: Array, rate: float, inputs: Float[Array, "..."]) -> Float[Array, "..."]:
    """Sets some inputs to 0 and scales the others so that the expectation is the input."""
    levels = kept_levels(rate)
    if levels == LEVELS:
        return inputs
    scaled = inputs * jnp.asarray(LEVELS / levels, inputs.dtype)
    return jnp.where(kept(key, rate, inputs.shape), scaled, 0)


class Dropout(nn.Module):
    """`drop` as a module, called like `flax.linen.Dropout`, with the RNG named "dropout"."""

    rate: float

    def __call__(self, inputs: Float[Array, "..."], deterministic: bool) -> Float[Array, "..."]:
        if deterministic or self.rate == 0:
            return inputs
        return drop(self.make_rng("dropout"), self.rate, inputs)
