"""Which pairs of tokens a text-to-text FOLNet may relate: Figure 4(b) and 4(d), Table 5.

A single mask defines it: True where x may attend to y. A decoder applies the mask in two places:

1. In every softmax over tokens, which are the kernels of join, cjoin, mu and trans. Table 5 multiplies
   kernels by 0 and 1; doing so after the softmax would leave later tokens in its denominator.
2. On the binary atoms: u(x, y) = 0 where the mask is False, for the base atoms and after every stage. Zeros
   stay zeros under normalization, so the premises that Table 5 masks are zero too: v(x, a) of mu and v(a, y)
   of trans, whose projections have no bias. The projections of cjoin and prod have one. The result of cjoin
   there meets a kernel of 0; the results of prod and assoc, and the biases of writers and of the boolean
   operator, are set to 0 again.

Table 5 alone is not sufficient. It lists assoc and the boolean operator without a mask, but both produce
relations to later tokens, and the boolean operator would read them through v(y, x).

Axis letters: B batch; X tokens that conclude; C tokens they may attend to; T tokens of a text; I tokens of an
input.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


def causal(length: int) -> Bool[Array, "1 1 T T"]:
    """Returns the mask of the causal language model of Figure 4(b): y <= x."""
    return jnp.tril(jnp.ones((length, length), bool))[None, None]


def prefix(prefix_lengths: Int[Array, "B"], length: int) -> Bool[Array, "B 1 T T"]:
    """Returns the mask of the prefix language model of Figure 4(b): y <= x, or both in the prefix.

    Tokens of the prefix attend to the whole prefix and not to the target; tokens of the target attend to the
    prefix and causally to the target. With prefixes of 0 or 1 tokens this equals `causal`.
    """
    inside = jnp.arange(length)[None] < prefix_lengths[:, None]
    return causal(length) | (inside[:, None, :, None] & inside[:, None, None, :])


def decoder(
    length: int,
    prefix_lengths: Int[Array, "B"] | None = None,
    attention_mask: Bool[Array, "B T"] | None = None,
) -> Bool[Array, "#B 1 T T"]:
    """Returns the mask of a decoder-only model; causal if `prefix_lengths` is None.

    Padding is masked; a prefix begins with the first real token.
    """
    if prefix_lengths is not None and attention_mask is not None:
        prefix_lengths = prefix_lengths + jnp.argmax(attention_mask, axis=1)
    mask = causal(length) if prefix_lengths is None else prefix(prefix_lengths, length)
    return mask if attention_mask is None else mask & attention_mask[:, None, None, :]


def encoder_decoder(
    length: int,
    inputs: Bool[Array, "B I"],
    attention_mask: Bool[Array, "B T"] | None = None,
) -> Bool[Array, "B 1 T C"]:
    """Returns the mask of the decoder of Figure 4(d): real input tokens, then the causal target."""
    batch, count = inputs.shape
    target = decoder(length, None, attention_mask)
    read = jnp.broadcast_to(inputs[:, None, None, :], (batch, 1, length, count))
    return jnp.concatenate((read, jnp.broadcast_to(target, (batch, 1, length, length))), axis=3)


def check_prefix_lengths(prefix_lengths: Any, batch: int, length: int, attention_mask: Any = None) -> None:
    """Raises ValueError unless these are integers [B], each at most its text's length (if not traced)."""
    if prefix_lengths is None:
        return
    shape, dtype = jnp.shape(prefix_lengths), jnp.result_type(prefix_lengths)
    if shape != (batch,) or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(
            f"prefix_lengths: got shape {shape} and type {dtype}, expected integers of shape ({batch},)"
        )
    if isinstance(prefix_lengths, jax.core.Tracer) or isinstance(attention_mask, jax.core.Tracer):
        return
    real = np.ones((batch, length), bool) if attention_mask is None else np.asarray(attention_mask, bool)
    for row, (count, mask) in enumerate(zip(np.asarray(prefix_lengths), real, strict=True)):
        longest = int(np.ptp(np.flatnonzero(mask))) + 1 if mask.any() else 0
        if not 0 <= count <= longest:
            raise ValueError(
                f"prefix_lengths: got {count} at [{row}], expected 0 to {longest}, the length of that text"
            )
