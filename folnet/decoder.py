"""Decoders: FOLNet from left to right, alone or after an encoder, for whole texts or one token at a time.

`FOLNetDecoder` is the decoder-only model (Appendix A.5, Figure 4(a), (b)), causal or with a prefix whose
tokens attend to one another. `encoder_decoder` uses the functions here that both kinds of decoders share.

Generation keeps a `DecodingState`. Per layer and text it holds H S numbers per token for each of join, cjoin
and assoc, and D2 numbers per pair of tokens for trans. With room for M tokens that is L (3 H S M + D2 M^2)
numbers per text: for the base model and M = 512 about 215 million, nearly all of them for trans; without
trans 14 million. A step reads all of it once.

Axis letters: B batch; T tokens of a text; C columns, for a decoder with an input its tokens and then those of
the text; D1 properties; D2 relations.
"""

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import distances, masks
from folnet.configuration import FOLNetConfig
from folnet.decoder_layers import DecoderReasoner, Premises, is_slot
from folnet.distances import Columns
from folnet.embeddings import Embeddings
from folnet.linear import Linear
from folnet.model import check_text, deduced, diagonal_link, linked_back, optional, segments
from folnet.outputs import Kernels, ModelOutput
from folnet.pretrained import Pretrained
from folnet.settings import check_kind


@struct.dataclass
class DecoderOutput(ModelOutput):
    """Like `FOLNetOutput`, without a pooler; relations are 0 where x may not attend to y."""

    last_hidden_state: Float[Array, "B T D1"]
    relation_hidden_state: Float[Array, "B T C D2"]
    hidden_states: tuple[Float[Array, "B T D1"], ...] | None = None
    relation_hidden_states: tuple[Float[Array, "B T C D2"], ...] | None = None
    attentions: Kernels | None = None


@struct.dataclass
class DecodingState:
    """Everything the next token may read from the tokens before it.

    Attributes:
      premises: by layer, with room for tokens to come.
      columns: the tokens that the premises belong to.
      slot: the next token's column, the same for all texts. Padding after a shorter text stays between the
        text and its new tokens, and no token attends to it.
      length: length of each text, which is the position of its next token.
      last_type: segment of each text's last token.
    """

    premises: tuple[Premises, ...]
    columns: Columns
    slot: Int[Array, ""]
    length: Int[Array, "B"]
    last_type: Int[Array, "B"]


class FOLNetDecoder(nn.Module, Pretrained):
    """The decoder-only FOLNet. Its parameters are those of an encoder without the pooler.

    It always uses the paper's form of cjoin and plain distances (see `distances`).
    """

    config: FOLNetConfig

    def setup(self):
        check_kind(self.config, FOLNetConfig)
        self.embeddings = Embeddings(self.config)
        self.reasoner = DecoderReasoner(self.config)
        self.diagonal = diagonal_link(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        prefix_lengths: Int[Array, "B"] | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> DecoderOutput:
        """Deduces the properties and relations of each token from that token and those before it.

        Arguments are those of `FOLNet`, and `prefix_lengths`: the number of leading tokens of each text that
        attend to one another (prefix LM); None for none (causal LM). A prefix and its target form one text of
        one segment, so there are distances between their tokens. Outputs at real tokens do not depend on
        padding, where `attention_mask` is False, at the end of a text or before it.

        Raises:
          ValueError: If an argument does not fit, or ids or lengths are out of range (not checked while
            tracing).
        """
        unary, states, premises, mask = self._deduce(
            input_ids, token_type_ids, attention_mask, prefix_lengths, deterministic
        )
        kernels = self.reasoner.kernels(states, premises, mask) if output_attentions else None
        return DecoderOutput(attentions=kernels, **deduced(unary, states, output_hidden_states))

    def prefill(
        self,
        input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        *,
        prefix_lengths: Int[Array, "B"] | None = None,
        capacity: int,
    ) -> tuple[Float[Array, "B T D1"], DecodingState]:
        """Reads texts in one pass; returns u_L(x) and the state from which to continue.

        Arguments are those of `__call__`; padding is at the end, and `capacity` is the maximum number of
        tokens, including those to come.

        Raises:
          ValueError: As in `__call__`, or if `capacity` is less than T.
        """
        batch, length = jnp.shape(input_ids)
        if capacity < length:
            raise ValueError(f"capacity: got {capacity}, expected at least {length}, the length of input_ids")
        unary, _, premises, _ = self._deduce(input_ids, token_type_ids, attention_mask, prefix_lengths, True)
        types = segments(token_type_ids, (batch, length)).astype(jnp.int32)
        real = jnp.ones((batch, length), bool) if attention_mask is None else attention_mask.astype(bool)
        lengths = real.sum(axis=1)
        after = ((0, 0), (0, capacity - length))
        columns = Columns(
            positions=jnp.pad(jnp.broadcast_to(jnp.arange(length)[None], (batch, length)), after),
            types=jnp.pad(types, after),
            seen=jnp.pad(real, after),
        )
        last = jnp.take_along_axis(columns.types, jnp.maximum(lengths - 1, 0)[:, None], axis=1)[:, 0]
        kept = tuple(premise.with_room(capacity) for premise in premises)
        return unary, DecodingState(kept, columns, jnp.int32(length), lengths, last)

    def step(
        self, token: Int[Array, "B"], state: DecodingState
    ) -> tuple[Float[Array, "B D1"], DecodingState]:
        """Reads one more token of each text, in its last segment; returns u_L(x) and the new state."""
        return step(self.embeddings, self.reasoner, self.diagonal, token, state)

    def _deduce(self, input_ids, token_type_ids, attention_mask, prefix_lengths, deterministic):
        batch, length = check_text(
            self.config, "input_ids", input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask
        )
        masks.check_prefix_lengths(prefix_lengths, batch, length, attention_mask)
        real = optional(attention_mask, bool)
        mask = masks.decoder(length, optional(prefix_lengths), real)
        types = segments(token_type_ids, (batch, length))
        unary, relation = base_atoms(
            self.embeddings, jnp.asarray(input_ids), types, mask, 0, deterministic, real
        )
        states, premises = self.reasoner(unary, relation, mask, None, deterministic)
        return linked_back(self.diagonal, *states[-1], 0), states, premises, mask


def base_atoms(
    embeddings: Embeddings,
    input_ids: Int[Array, "B T"],
    types: Int[Array, "B T"],
    mask: Bool[Array, "#B 1 T C"],
    inputs: int,
    deterministic: bool,
    real: Bool[Array, "B T"] | None,
) -> tuple[Float[Array, "B T D1"], Float[Array, "B D2 T C"]]:
    """Returns u_0(x), and u_0(x, y) for the tokens y of an input and of the text; 0 outside the mask.

    `inputs` is the number of tokens of the input, 0 without one. Positions count from a text's first real
    token.
    """
    config = embeddings.config
    batch, length = input_ids.shape
    start = None if real is None else -jnp.argmax(real, axis=1)
    unary = embeddings.properties(input_ids, types, start)
    relation = distances.of_texts(config, embeddings.relative, types)
    relation = embeddings.linked(unary, jnp.broadcast_to(relation, (batch, *relation.shape[1:])))
    if inputs:
        across = distances.to_other_text(config, embeddings.relative, batch, length, inputs)
        relation = jnp.concatenate((across, relation), axis=3)
    unary, relation = embeddings.finish(unary, relation, deterministic)
    return unary, jnp.where(mask, relation, 0)


def step(
    embeddings: Embeddings,
    reasoner: DecoderReasoner,
    diagonal: Linear | None,
    token: Int[Array, "B"],
    state: DecodingState,
) -> tuple[Float[Array, "B D1"], DecodingState]:
    """Reads one more token of each text, in its last segment; returns u_L(x) and the new state.

    `embeddings`, `reasoner` and `diagonal` (the link back, or None) are bound modules.
    """
    config, columns, types = embeddings.config, state.columns, state.last_type
    own = is_slot(columns.seen.shape[1], state.slot)
    here = own[0, 0]  # [1, C]
    columns = Columns(
        positions=jnp.where(here, state.length[:, None], columns.positions),
        types=jnp.where(here, types[:, None], columns.types),
        seen=columns.seen | here,
    )
    mask = columns.seen[:, None, None]
    unary = embeddings.properties(token[:, None], types[:, None], state.length)
    relation = distances.of_token(config, embeddings.relative, state.length, types, columns)
    if embeddings.diagonal is not None:
        relation = relation + own * embeddings.diagonal(unary).swapaxes(1, 2)[..., None]
    unary, relation = embeddings.finish(unary, relation)
    unary, relation, premises = reasoner.step(
        unary, jnp.where(mask, relation, 0), mask, state.premises, state.slot
    )
    if diagonal is not None:
        unary = unary + diagonal(jnp.where(own, relation, 0).sum(axis=3).swapaxes(1, 2))
    return unary[:, 0], DecodingState(premises, columns, state.slot + 1, state.length + 1, types)
