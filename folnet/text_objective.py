"""What text-to-text models are trained on: the next word, as sums with their counts.

Axis letters: B batch; T tokens; V words.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from folnet.objective import IGNORED, Loss, cross_entropy, is_real


def next_word(
    logits: Float[Array, "B T V"],
    input_ids: Int[Array, "B T"],
    attention_mask: Array | None = None,
    prefix_lengths: Int[Array, "B"] | None = None,
) -> Loss:
    """Cross-entropy of each word given those before it: the loss of `FOLNetForCausalLM`.

    Words of a prefix do not count: they are given, and with a prefix mask the tokens before see them. Nor do
    those where `attention_mask`, true where a token is real, is false.

    Raises:
      ValueError: shapes that do not fit.
    """
    if logits.ndim != 3 or logits.shape[:2] != input_ids.shape:
        raise ValueError(f"input_ids has shape {input_ids.shape}, expected logits' {logits.shape[:2]}")
    counts = jnp.ones(input_ids.shape, bool) if attention_mask is None else attention_mask.astype(bool)
    if prefix_lengths is not None:
        counts &= jnp.arange(input_ids.shape[1])[None] >= prefix_lengths[:, None]
    labels = jnp.where(counts, input_ids, IGNORED[0])
    return cross_entropy(logits[:, :-1], labels[:, 1:])


target = cross_entropy
"""Of a target's words, by logits of `FOLNetForConditionalGeneration` at the same places: labels, not shifted,
with -100 where a word does not count."""


def shift_right(
    labels: Int[Array, "B T"], *, decoder_start_token_id: int, pad_token_id: int
) -> Int[Array, "B T"]:
    """What a decoder reads to predict labels: a start token, then all labels but the last.

    Labels that are ignored are read as padding.
    """
    words = jnp.where(is_real(labels), labels, pad_token_id)
    return jnp.pad(words[:, :-1], ((0, 0), (1, 0)), constant_values=decoder_start_token_id)
