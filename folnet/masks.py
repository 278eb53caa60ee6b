"""Which pairs of tokens a text-to-text FOLNet may relate: Figure 4(b) and 4(d), Table 5.

One mask says all of it, True where x may look at y. A decoder uses it twice:

1. In every softmax over tokens, that is on the kernels of join, cjoin, mu and trans. Table 5 multiplies
   kernels by 0 and 1; were that done after the softmax, later tokens would still count in its denominator.
2. On the binary atoms: u(x, y) = 0 outside it, among the base atoms and after every stage. Zeros stay zeros
   when normalised, so the premises that Table 5 masks are zero too: v(x, a) of mu and v(a, y) of trans, whose
   projections have no bias. Those of cjoin and prod have one: what cjoin makes of it meets a kernel of 0,
   and what prod makes of it, like assoc, the biases of writers and the boolean operator, is set to 0 again.

Table 5 alone is not enough: assoc and the boolean operator, which it lists without a mask, make relations to
later tokens, and the boolean operator of v(y, x) would read them.

Axis letters: B batch; X tokens that conclude; C tokens they may look at; T tokens of a text, I of an input.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


def causal(length: int) -> Bool[Array, "1 1 T T"]:
    """The causal language model of Figure 4(b): y <= x."""
    return jnp.tril(jnp.ones((length, length), bool))[None, None]


def prefix(prefix_lengths: Int[Array, "B"], length: int) -> Bool[Array, "B 1 T T"]:
    """The prefix language model of Figure 4(b): y <= x, or both in the prefix.

    The prefix sees all of itself and nothing of the target; the target sees all of the prefix, and itself up
    to the token. With a prefix of 0 or 1 tokens this is `causal`.
    """
    inside = jnp.arange(length)[None] < prefix_lengths[:, None]
    return causal(length) | (inside[:, None, :, None] & inside[:, None, None, :])


def decoder(
    length: int,
    prefix_lengths: Int[Array, "B"] | None = None,
    attention_mask: Bool[Array, "B T"] | None = None,
) -> Bool[Array, "#B 1 T T"]:
    """The mask of a decoder-only model, causal without `prefix_lengths`; nobody looks at tokens not real."""
    mask = causal(length) if prefix_lengths is None else prefix(prefix_lengths, length)
    return mask if attention_mask is None else mask & attention_mask[:, None, None, :]


def encoder_decoder(
    length: int,
    inputs: Bool[Array, "B I"],
    attention_mask: Bool[Array, "B T"] | None = None,
) -> Bool[Array, "B 1 T I+T"]:
    """The mask of the decoder of Figure 4(d): the input's real tokens, then the target up to the token."""
    batch, count = inputs.shape
    target = decoder(length, None, attention_mask)
    read = jnp.broadcast_to(inputs[:, None, None, :], (batch, 1, length, count))
    return jnp.concatenate((read, jnp.broadcast_to(target, (batch, 1, length, length))), axis=3)


def check_prefix_lengths(prefix_lengths: Any, batch: int, length: int, attention_mask: Any = None) -> None:
    """Raises ValueError: no integers [B], or, on the host, a prefix that is longer than its text."""
    if prefix_lengths is None:
        return
    shape, dtype = jnp.shape(prefix_lengths), jnp.result_type(prefix_lengths)
    if shape != (batch,) or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(f"prefix_lengths has shape {shape} and type {dtype}, expected integers ({batch},)")
    if isinstance(prefix_lengths, jax.core.Tracer) or isinstance(attention_mask, jax.core.Tracer):
        return
    real = np.ones((batch, length), bool) if attention_mask is None else np.asarray(attention_mask, bool)
    for row, (count, mask) in enumerate(zip(np.asarray(prefix_lengths), real, strict=True)):
        longest = int(np.max(np.flatnonzero(mask), initial=-1)) + 1
        if not 0 <= count <= longest:
            raise ValueError(
                f"prefix_lengths has {count} at [{row}], expected 0 to {longest}, the tokens of that text"
            )
