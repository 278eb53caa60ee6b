"""The decoder of the encoder-decoder FOLNet (Appendix A.5, Figure 4(c) and (d)); its encoder is `FOLNet`.

The encoder is that of the main paper. The decoder has its own atoms: u(x) for the target's tokens x, and
u(x, y) for the target's tokens x and, as y, the input's tokens followed by the target's up to x. Relations
only go from the target to the input; their base atom says that one end is in another text (`distances`).

With I the input's tokens, T the target's, and a and y in both, the operators become:

- join, assoc: the premises v(a), v(y) are projections of the encoder's u_L for I, of the decoder's u for T.
- cjoin: likewise for the kernel K(a).
- mu, prod: unchanged, on the decoder's own u(x, y).
- trans: in two parts (`Premises.before`), with v(a, y) from the encoder's u_L(a, y) for a and y in I, and
  from the decoder's u(a, y) for a in T.
- bool: on u(x, y) and its converse u(y, x). For y in I there is no converse, since an input has no relations
  to the target, and 0 is used, as for every masked relation. The paper leaves this open.

Kernels are softmaxes over I and T together. For y in T, the two-part trans uses the part of the kernel over
T, which sums to less than 1: the formula has one kernel for both cases.

The tables of words, segments, positions and distances are shared with the encoder, as in T5: what holds
within a text is the same on both sides.

Axis letters: B batch; I tokens of the input; T tokens of the target; C columns, I and then T; D1 properties;
D2 relations.
"""

import functools

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import masks
from folnet.configuration import FOLNetConfig
from folnet.decoder import DecodingState, base_atoms, step
from folnet.decoder_layers import DecoderReasoner
from folnet.distances import OTHER_TEXT, Columns
from folnet.embeddings import Embeddings
from folnet.model import diagonal_link, linked_back
from folnet.outputs import Kernels


@struct.dataclass
class Encoded:
    """What a decoder reads of an input: the encoder's u_L(x) and u_L(x, y), and which tokens are real."""

    unary: Float[Array, "B I D1"]
    relation: Float[Array, "B D2 I I"]
    real: Bool[Array, "B I"]


class FOLNetTargetDecoder(nn.Module):
    """The decoder of an encoder-decoder.

    Its methods take the encoder's bound module of base atoms. Settings are the encoder's, except that it
    always uses the paper's form of cjoin.
    """

    config: FOLNetConfig

    def setup(self):
        self.reasoner = DecoderReasoner(self.config, reads_input=True)
        self.diagonal = diagonal_link(self.config)

    def __call__(
        self,
        embeddings: Embeddings,
        encoded: Encoded,
        target_ids: Int[Array, "B T"],
        attention_mask: Bool[Array, "B T"] | None,
        deterministic: bool,
        output_attentions: bool = False,
    ) -> tuple[
        Float[Array, "B T D1"],
        list[tuple[Float[Array, "B T D1"], Float[Array, "B D2 T C"]]],
        Kernels | None,
    ]:
        """Returns u_L(x) of the target, whose tokens all have segment 0, and atoms and kernels of all layers.

        Kernels, over the input's tokens and then the target's, are None unless requested.
        """
        inputs, length = encoded.real.shape[1], target_ids.shape[1]
        mask = masks.encoder_decoder(length, encoded.real, attention_mask)
        types = jnp.zeros_like(target_ids)
        unary, relation = base_atoms(
            embeddings, target_ids, types, mask, inputs, deterministic, attention_mask
        )
        read = self.reasoner.read_input(encoded.unary, encoded.relation)
        states, premises = self.reasoner(unary, relation, mask, read, deterministic)
        kernels = self.reasoner.kernels(states, premises, mask) if output_attentions else None
        return linked_back(self.diagonal, *states[-1], inputs), states, kernels

    def prefill(self, encoded: Encoded, capacity: int) -> DecodingState:
        """Returns the state before the first token of targets of up to `capacity` tokens."""
        batch, inputs = encoded.real.shape
        read = self.reasoner.read_input(encoded.unary, encoded.relation)
        after = ((0, 0), (0, capacity))
        columns = Columns(
            positions=jnp.zeros((batch, inputs + capacity), jnp.int32),
            types=jnp.pad(jnp.full((batch, inputs), OTHER_TEXT, jnp.int32), after),
            seen=jnp.pad(encoded.real, after),
        )
        none = functools.partial(jnp.zeros, batch, jnp.int32)  # one array each, so that both can be donated
        kept = tuple(premise.with_room(inputs + capacity) for premise in read)
        return DecodingState(kept, columns, jnp.int32(inputs), none(), none())

    def step(
        self, embeddings: Embeddings, token: Int[Array, "B"], state: DecodingState
    ) -> tuple[Float[Array, "B D1"], DecodingState]:
        """Reads one more token of each target; returns u_L(x) and the new state."""
        return step(embeddings, self.reasoner, self.diagonal, token, state)
