"""Sources of a command's coordinates p: the state, the input, both, or a table from tokens to programs.

The introduction of Hu & Murfet (2017) lets commands depend on state and input; (2.10) has the state only.

    "predicted"   p = softmax(W h + B)                     (2.10)
    "input"       p = softmax(U x + B)
    "both"        p = softmax(W h + U x + B)
    "table"       p = softmax(T k), k the first features of the input: a program for each one-hot k
    "given"       p = k, the first features of the input; nothing is learned

x is the input without the features that given commands and tables take. Learned coordinates are mixtures of
programs. Three ways make them choose one: `temperature` divides the logits; `straight_through` uses the most
probable program and the gradient of the mixture (Bengio, Leonard and Courville 2013); and `entropy` of the
coordinates, which cells record as intermediates, can be added to a loss.

Axis letters: B batch (any number of leading axes), N coordinates.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

Coupling = Literal["predicted", "given", "input", "both", "table"]

TAKES_FEATURES: tuple[Coupling, ...] = ("given", "table")
"""The couplings that read the first features of the input."""

COORDINATES = "_coordinates"
"""Ending of the intermediates in which cells record the coordinates that they compute."""

TABLE = "_table"
"""Ending of the names of learned tables among a cell's parameters."""

table_init = nn.initializers.normal(0.3)


def coordinates(
    logits: Float[Array, "*B N"], temperature: float = 1.0, straight_through: bool = False
) -> Float[Array, "*B N"]:
    """Computes softmax(logits / temperature), or the one-hot vector of its maximum with its gradient."""
    soft = nn.softmax(logits / temperature if temperature != 1 else logits)
    if not straight_through:
        return soft
    hard = jax.nn.one_hot(jnp.argmax(soft, axis=-1), soft.shape[-1], dtype=soft.dtype)
    return hard + (soft - jax.lax.stop_gradient(soft))  # in this order exactly `hard`


def entropy(coordinates: Float[Array, "*B N"]) -> Float[Array, "*B"]:
    """Computes -sum_i p_i log p_i in nats, with 0 log 0 = 0 and a finite gradient there."""
    positive = coordinates > 0
    logs = jnp.log(jnp.where(positive, coordinates, 1))
    return -jnp.sum(jnp.where(positive, coordinates * logs, 0), axis=-1)
