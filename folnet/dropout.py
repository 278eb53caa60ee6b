"""Dropout (Srivastava et al. 2014) by sixteen random bits a number.

FOLNet drops from every pair of tokens. On CPUs at T = 128 to draw 32 bits for each takes an eighth of a
training step; sixteen take a fourth of that. The rate is rounded to a multiple of 2^-16, and what is kept is
scaled by the rate as rounded, so that expectations are exact.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

LEVELS = 2**16


def kept_levels(rate: float) -> int:
    """How many of 2^16 values mean that a number is kept; a rate that is not in [0, 1) raises ValueError."""
    if not 0 <= rate < 1:
        raise ValueError(f"rate is {rate!r}, expected a number from 0 up to 1")
    return max(1, round((1 - rate) * LEVELS))


def kept(key: Array, rate: float, shape: tuple[int, ...]) -> Bool[Array, "..."]:
    """True where a number is kept, each by itself."""
    *lead, last = shape if shape else (1,)
    pairs = -(-last // 2)
    words = jax.random.bits(key, (*lead, pairs), jnp.uint32)
    halves = jax.lax.bitcast_convert_type(words, jnp.uint16).reshape(*lead, 2 * pairs)[..., :last]
    # The greatest value that is kept: the number of them would not fit into sixteen bits.
    return (halves <= jnp.uint16(kept_levels(rate) - 1)).reshape(shape)


def drop(key: Array, rate: float, inputs: Float[Array, "..."]) -> Float[Array, "..."]:
    """The inputs, some of them 0, the others scaled so that the expectation is the input."""
    levels = kept_levels(rate)
    if levels == LEVELS:
        return inputs
    scaled = inputs * jnp.asarray(LEVELS / levels, inputs.dtype)
    return jnp.where(kept(key, rate, inputs.shape), scaled, 0)


class Dropout(nn.Module):
    """`drop` as a module, called as `flax.linen.Dropout` is, with its key "dropout"."""

    rate: float

    def __call__(self, inputs: Float[Array, "..."], deterministic: bool) -> Float[Array, "..."]:
        if deterministic or self.rate == 0:
            return inputs
        return drop(self.make_rng("dropout"), self.rate, inputs)
