"""Cross-entropy of the next symbol, as sums from which the mean over symbols other than padding is formed.

Axis letters: B batch, T target positions, A = T + 1 symbols of an answer, V vocabulary.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int


@struct.dataclass
class Sums:
    """Sums over a batch; those of several batches or devices add up.

    Attributes:
      loss: total negative log-probability of the correct symbols, in nats.
      symbols: number of symbols, including end symbols but not padding.
      correct_symbols: number of symbols whose logit was the largest.
      answers: number of rows with at least one symbol.
      correct_answers: number of rows with all symbols correct, given the correct symbols before each. Greedy
        decoding finds the whole answer in exactly these rows, because it then has the same symbols before
        each.
    """

    loss: Float[Array, ""]
    symbols: Int[Array, ""]
    correct_symbols: Int[Array, ""]
    answers: Int[Array, ""]
    correct_answers: Int[Array, ""]


def shifted(answer: Int[Array, "B A"]) -> tuple[Int[Array, "B T"], Int[Array, "B T"]]:
    """Splits an answer into the decoder's input, all but the last symbol, and labels, all but the first."""
    return answer[:, :-1], answer[:, 1:]


def next_symbol_sums(logits: Float[Array, "B T V"], labels: Int[Array, "B T"], *, pad: int = 0) -> Sums:
    """Compares logits with labels (`pad` where there is none); the paper's loss is `loss / symbols`.

    Raises:
      ValueError: the shapes of logits and labels do not match.
    """
    if logits.ndim != 3 or logits.shape[:-1] != labels.shape:
        raise ValueError(f"labels: got shape {labels.shape}, expected {logits.shape[:-1]}, logits' without V")
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
