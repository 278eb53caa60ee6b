"""The objective: cross-entropy of the next symbol, as sums from which the mean over real symbols is formed.

Axis letters: B batch, T target positions, V vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int


@struct.dataclass
class Sums:
    """Sums over a batch: those of several batches, or devices, add up.

    Attributes:
      loss: negative log-probabilities of the right symbols, in nats.
      symbols: how many symbols there are, end symbols included and padding not.
      correct_symbols: how many of them had the greatest logit.
      answers: how many rows have any symbol.
      correct_answers: how many of them had all symbols right. Given the right symbols before each: but that
        is also when greedy decoding gives the whole answer, since then it is what comes before each.
    """

    loss: Float[Array, ""]
    symbols: Int[Array, ""]
    correct_symbols: Int[Array, ""]
    answers: Int[Array, ""]
    correct_answers: Int[Array, ""]


def shifted(answer: Int[Array, "B T+1"]) -> tuple[Int[Array, "B T"], Int[Array, "B T"]]:
    """What the decoder is given of an answer, start symbol first, and what it is to say: all but that."""
    return answer[:, :-1], answer[:, 1:]


def next_symbol_sums(logits: Float[Array, "B T V"], labels: Int[Array, "B T"], *, pad: int = 0) -> Sums:
    """How well logits tell the labels (`pad` where there is none); the paper's loss is `loss / symbols`.

    Raises:
      ValueError: logits and labels of different shapes.
    """
    if logits.ndim != 3 or logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"labels have shape {labels.shape}, expected logits' {logits.shape} without the last"
        )
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    right = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    real = labels != pad
    hit = (jnp.argmax(logits, axis=-1) == labels) & real
    answers = jnp.any(real, axis=-1)
    return Sums(
        loss=jnp.sum(jnp.where(real, jax.nn.logsumexp(logits, axis=-1) - right, 0)),
        symbols=jnp.sum(real),
        correct_symbols=jnp.sum(hit),
        answers=jnp.sum(answers),
        correct_answers=jnp.sum(jnp.all(hit | ~real, axis=-1) & answers),
    )
