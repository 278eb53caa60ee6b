"""The decoder of the encoder-decoder FOLNet (Appendix A.5, Figure 4(c) and (d)); its encoder is `FOLNet`.

The encoder is the one of the main paper. The decoder has atoms of its own: u(x) of the target's tokens x, and
u(x, y) of the target's tokens x and, for y, the input's tokens and then the target's up to x. Relations go
from the target to the input only; that one end is of another text is their base atom (`distances`).

What the operators become, with I the input's tokens and T the target's, a and y in both:

- join, assoc: the premises v(a), v(y) are projections of the encoder's u_L for I, of the decoder's u for T.
- cjoin: so is the kernel K(a).
- mu, prod: as before, of the decoder's own u(x, y).
- trans: in two parts (`Premises.before`), with v(a, y) of the encoder's u_L(a, y) for a and y in I, and of
  the decoder's u(a, y) for a in T.
- bool: of u(x, y) and its converse u(y, x). For y in I there is none, since an input has no relations to
  the target: 0 stands in for it, as for every relation that is masked. The paper does not say.

Kernels are softmaxes over I and T together. For y in T the two-part trans takes the part of the kernel over T
as it is, which sums to less than 1: the formula has one kernel for both cases.

Tables of words, segments, positions and distances are the encoder's, as in T5: what holds of a text by itself
is the same on both sides.

Axis letters: B batch; I tokens of the input, T of the target; D1 properties; D2 relations.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import masks
from folnet.configuration import FOLNetConfig
from folnet.decoder import DecodingState, base_atoms, step
from folnet.decoder_layers import DecoderReasoner
from folnet.distances import OTHER_TEXT, Columns
from folnet.model import diagonal_link, linked_back


@struct.dataclass
class Encoded:
    """What a decoder knows of an input: u_L(x), u_L(x, y) of the encoder, and which tokens are real."""

    unary: Float[Array, "B I D1"]
    relation: Float[Array, "B D2 I I"]
    real: Bool[Array, "B I"]


class FOLNetTargetDecoder(nn.Module):
    """The decoder of an encoder-decoder.

    Its methods are given the bound module of base atoms, which is the encoder's, and so are the settings;
    cjoin is the paper's whatever they say.
    """

    config: FOLNetConfig

    def setup(self):
        self.reasoner = DecoderReasoner(self.config, reads_input=True)
        self.diagonal = diagonal_link(self.config)

    def __call__(
        self,
        embeddings: Any,
        encoded: Encoded,
        target_ids: Int[Array, "B T"],
        attention_mask: Bool[Array, "B T"] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B T D1"], list[tuple[Float[Array, "B T D1"], Float[Array, "B D2 T I+T"]]]]:
        """u_L(x) of the target, whose tokens are all of segment 0, and the atoms of all layers."""
        inputs, length = encoded.real.shape[1], target_ids.shape[1]
        mask = masks.encoder_decoder(length, encoded.real, attention_mask)
        types = jnp.zeros_like(target_ids)
        unary, relation = base_atoms(embeddings, target_ids, types, mask, inputs, deterministic)
        read = self.reasoner.read_input(encoded.unary, encoded.relation)
        states, _ = self.reasoner(unary, relation, mask, read, deterministic)
        return linked_back(self.diagonal, *states[-1], inputs), states

    def prefill(self, encoded: Encoded, capacity: int) -> DecodingState:
        """The state before the first token of a target of at most `capacity`: the input's premises."""
        batch, inputs = encoded.real.shape
        read = self.reasoner.read_input(encoded.unary, encoded.relation)
        after = ((0, 0), (0, capacity))
        columns = Columns(
            positions=jnp.zeros((batch, inputs + capacity), jnp.int32),
            types=jnp.pad(jnp.full((batch, inputs), OTHER_TEXT, jnp.int32), after),
            seen=jnp.pad(encoded.real, after),
        )
        none = jnp.zeros(batch, jnp.int32)
        kept = tuple(premise.with_room(inputs + capacity) for premise in read)
        return DecodingState(kept, columns, jnp.int32(inputs), none, none)

    def step(
        self, embeddings: Any, token: Int[Array, "B"], state: DecodingState
    ) -> tuple[Float[Array, "B D1"], DecodingState]:
        """u_L(x) of one more token of each target, and the state with it."""
        return step(embeddings, self.reasoner, self.diagonal, token, state)
