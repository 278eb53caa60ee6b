"""Decoders: FOLNet from left to right, alone or after an encoder, and token by token.

Decoder-only (Appendix A.5, Figure 4(a), (b)): `FOLNetDecoder`, causal or with a prefix that sees all of
itself. What the decoder of an encoder-decoder has in common with it, `encoder_decoder` takes from here.

Generation keeps a `DecodingState`: per layer, text and token H S numbers for each of join, cjoin and assoc,
and per pair of tokens D2 for trans. With M tokens room that is L (3 H S M + D2 M^2) numbers a text: for the
base model and M = 512 some 215 million, nearly all of them for trans; without it 14 million. A step reads
all of it once.

Axis letters: B batch; T tokens of a text, C tokens there is room for; D1 properties; D2 relations.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import distances, masks
from folnet.configuration import FOLNetConfig
from folnet.decoder_layers import DecoderReasoner, Premises, is_slot
from folnet.distances import Columns
from folnet.embeddings import Embeddings
from folnet.model import check_text, deduced, diagonal_link, linked_back, optional, segments
from folnet.pretrained import Pretrained


@struct.dataclass
class DecoderOutput:
    """As `FOLNetOutput`, but without a pooler; relations are 0 where x may not look at y."""

    last_hidden_state: Float[Array, "B T D1"]
    relation_hidden_state: Float[Array, "B T C D2"]
    hidden_states: tuple[Float[Array, "B T D1"], ...] | None = None
    relation_hidden_states: tuple[Float[Array, "B T C D2"], ...] | None = None


@struct.dataclass
class DecodingState:
    """All that the next token may need to know of those before.

    Attributes:
      premises: by layer, with room for tokens to come.
      columns: whose they are.
      slot: which of the columns the next token has, the same for all texts. Padding after a shorter text
        stays between it and its next tokens; nobody looks at it.
      length: of the texts, that is the position of the next token in its own.
      last_type: the segment of the last token.
    """

    premises: tuple[Premises, ...]
    columns: Columns
    slot: Int[Array, ""]
    length: Int[Array, "B"]
    last_type: Int[Array, "B"]


class FOLNetDecoder(nn.Module, Pretrained):
    """The decoder-only FOLNet. Its parameters are an encoder's but for the pooler.

    cjoin is the paper's whatever the settings say; distances are plain: see `distances`.
    """

    config: FOLNetConfig

    def setup(self):
        check_config(self.config)
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
    ) -> DecoderOutput:
        """Properties and relations deduced of each token from it and those before it.

        Arguments are those of `FOLNet` and `prefix_lengths`: how many first tokens of a text see one another
        (Prefix LM); None: none do (Causal LM). A prefix and its target are one text of one segment, so there
        are distances between them. Nothing at real tokens depends on those where `attention_mask` is false.

        Raises:
          ValueError: an argument that does not fit, by its name; ids or lengths out of range, unless they
            are traced.
        """
        unary, states, _ = self._deduce(
            input_ids, token_type_ids, attention_mask, prefix_lengths, deterministic
        )
        return DecoderOutput(**deduced(unary, states, output_hidden_states))

    def prefill(
        self,
        input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        *,
        prefix_lengths: Int[Array, "B"] | None = None,
        capacity: int,
    ) -> tuple[Float[Array, "B T D1"], DecodingState]:
        """u_L(x) of texts to continue, in one pass, and the state to continue with.

        Arguments are those of a call; padding comes after the tokens, and `capacity` is the maximum number of
        tokens, T and those to come.

        Raises:
          ValueError: as in a call; a capacity of less than T.
        """
        batch, length = jnp.shape(input_ids)
        if capacity < length:
            raise ValueError(f"capacity is {capacity}, expected at least the {length} tokens of input_ids")
        unary, _, premises = self._deduce(input_ids, token_type_ids, attention_mask, prefix_lengths, True)
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
        """u_L(x) of one more token of each text, of its last segment, and the state with it."""
        return step(self.embeddings, self.reasoner, self.diagonal, token, state)

    def _deduce(self, input_ids, token_type_ids, attention_mask, prefix_lengths, deterministic):
        batch, length = check_text(
            self.config, "input_ids", input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask
        )
        masks.check_prefix_lengths(prefix_lengths, batch, length, attention_mask)
        mask = masks.decoder(length, optional(prefix_lengths), optional(attention_mask, bool))
        types = segments(token_type_ids, (batch, length))
        unary, relation = base_atoms(self.embeddings, jnp.asarray(input_ids), types, mask, 0, deterministic)
        states, premises = self.reasoner(unary, relation, mask, None, deterministic)
        return linked_back(self.diagonal, *states[-1], 0), states, premises


def check_config(config: Any) -> None:
    """Raises ValueError: settings of another model, such as a directory may have."""
    if not isinstance(config, FOLNetConfig):
        raise ValueError(f"config is {config!r}, expected a FOLNetConfig: only a FOLNet has these decoders")


def base_atoms(
    embeddings: Any,
    input_ids: Int[Array, "B T"],
    types: Int[Array, "B T"],
    mask: Bool[Array, "#B 1 T I+T"],
    inputs: int,
    deterministic: bool,
) -> tuple[Float[Array, "B T D1"], Float[Array, "B D2 T I+T"]]:
    """u_0(x), and u_0(x, y) of the tokens y of an input and then of the text itself, 0 outside the mask."""
    config = embeddings.config
    batch, length = input_ids.shape
    unary = embeddings.properties(input_ids, types)
    relation = distances.of_texts(config, embeddings.relative, types)
    relation = embeddings.linked(unary, jnp.broadcast_to(relation, (batch, *relation.shape[1:])))
    if inputs:
        across = distances.to_other_text(config, embeddings.relative, batch, length, inputs)
        relation = jnp.concatenate((across, relation), axis=3)
    unary, relation = embeddings.finish(unary, relation, deterministic)
    return unary, jnp.where(mask, relation, 0)


def step(
    embeddings: Any, reasoner: Any, diagonal: Any, token: Int[Array, "B"], state: DecodingState
) -> tuple[Float[Array, "B D1"], DecodingState]:
    """u_L(x) of one more token of each text, of the segment of the one before, and the state with it.

    `embeddings`, `reasoner` and the link back, `diagonal` (or None), are bound modules.
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
