"""The losses of text-to-text models, as sums with counts.

Axis letters: B batch; T tokens; V words.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from folnet.objective import IGNORED, Loss, cross_entropy, is_real, wide


def next_word(
    logits: Float[Array, "B T V"],
    input_ids: Int[Array, "B T"],
    attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
    prefix_lengths: Int[Array, "B"] | None = None,
) -> Loss:
    """Returns the cross-entropy of each word given those before it: the loss of `FOLNetForCausalLM`.

    A text's first word does not count, since no word is before it. Words of a prefix do not, since they are
    given and, under a prefix mask, visible to the tokens before them. Neither do words where `attention_mask`
    (True at real tokens) is False.

    Raises:
      ValueError: If the shapes do not match.
    """
    if logits.ndim != 3 or logits.shape[:2] != input_ids.shape:
        raise ValueError(f"input_ids: got shape {input_ids.shape}, expected {logits.shape[:2]} as in logits")
    counts = jnp.ones(input_ids.shape, bool) if attention_mask is None else attention_mask.astype(bool)
    first = jnp.argmax(counts, axis=1)  # padding may precede a text
    given = 1 if prefix_lengths is None else jnp.maximum(prefix_lengths, 1)
    counts &= jnp.arange(input_ids.shape[1])[None] >= (first + given)[:, None]
    labels = jnp.where(counts, wide(input_ids), IGNORED[0])
    return cross_entropy(logits[:, :-1], labels[:, 1:])


target = cross_entropy
"""Loss of a target's words, by the logits of `FOLNetForConditionalGeneration` at the same positions. Labels
are not shifted; -100 marks words that do not count."""


def shift_right(
    labels: Int[Array, "B T"], *, decoder_start_token_id: int, pad_token_id: int
) -> Int[Array, "B T"]:
    """Returns the decoder's input for predicting labels: a start token, then all labels but the last.

    Ignored labels are replaced by padding.
    """
    words = jnp.where(is_real(labels), wide(labels), pad_token_id)
    return jnp.pad(words[:, :-1], ((0, 0), (1, 0)), constant_values=decoder_start_token_id)
