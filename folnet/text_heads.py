"""FOLNets that write text: decoder-only, and encoder-decoder (Appendix A.5).

Logits are u_L(x) against the table of words, with nothing between. `text_objective` has the losses,
`generation` the loops.

Axis letters: B batch; T tokens of a text or a target, I of an input; D1 properties; D2 relations; V words.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float, Int

from folnet.configuration import FOLNetConfig
from folnet.decoder import DecodingState, FOLNetDecoder, check_config
from folnet.encoder_decoder import Encoded, FOLNetTargetDecoder
from folnet.generation import Generated, generate, generate_from
from folnet.model import FOLNet, check_text, optional
from folnet.pretrained import Pretrained


@struct.dataclass
class CausalLMOutput:
    """Logits of the word after each token, and the fields of `DecoderOutput`."""

    logits: Float[Array, "B T V"]
    last_hidden_state: Float[Array, "B T D1"]
    relation_hidden_state: Float[Array, "B T T D2"]
    hidden_states: tuple[Float[Array, "B T D1"], ...] | None = None
    relation_hidden_states: tuple[Float[Array, "B T T D2"], ...] | None = None


@struct.dataclass
class Seq2SeqLMOutput:
    """Logits of the word after each token of the target, and the last atoms of target and input.

    Relations of the target's tokens are to those of the input and then of the target.
    """

    logits: Float[Array, "B T V"]
    last_hidden_state: Float[Array, "B T D1"]
    relation_hidden_state: Float[Array, "B T I+T D2"]
    encoder_last_hidden_state: Float[Array, "B I D1"]
    encoder_relation_hidden_state: Float[Array, "B I I D2"]


class FOLNetForCausalLM(nn.Module, Pretrained):
    """Language modelling from left to right, with or without a prefix."""

    config: FOLNetConfig

    def setup(self):
        self.folnet = FOLNetDecoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Array | None = None,
        deterministic: bool = True,
        *,
        prefix_lengths: Int[Array, "B"] | None = None,
        output_hidden_states: bool = False,
    ) -> CausalLMOutput:
        """Logits of the next word after each token; arguments are those of `FOLNetDecoder`."""
        options = {"prefix_lengths": prefix_lengths, "output_hidden_states": output_hidden_states}
        out = self.folnet(input_ids, token_type_ids, attention_mask, deterministic, **options)
        return CausalLMOutput(self.folnet.embeddings.logits(out.last_hidden_state), **vars(out))

    def prefill(self, *texts: Any, **options: Any) -> tuple[Float[Array, "B V"], DecodingState]:
        """Logits after texts, and the state to go on with; arguments are those of `FOLNetDecoder.prefill`."""
        unary, state = self.folnet.prefill(*texts, **options)
        last = jnp.take_along_axis(unary, (state.length - 1)[:, None, None], axis=1)
        return self.folnet.embeddings.logits(last)[:, 0], state

    def step(self, token: Int[Array, "B"], state: DecodingState) -> tuple[Float[Array, "B V"], DecodingState]:
        """Logits after one more token of each text, and the state with it."""
        unary, state = self.folnet.step(token, state)
        return self.folnet.embeddings.logits(unary[:, None])[:, 0], state

    @nn.nowrap
    def generate(self, params: Any, input_ids: Int[Array, "B T"], **options: Any) -> Generated:
        """Goes on with texts; see `generation.generate`."""
        return generate(self, params, input_ids, **options)


class FOLNetForConditionalGeneration(nn.Module, Pretrained):
    """A target text given an input text: an encoder, and a decoder that reads it, of the same settings.

    The encoder is a whole `FOLNet`, so that a pretrained one can be loaded; its pooler is not read.
    """

    config: FOLNetConfig
    dummy_inputs: ClassVar[int] = 2

    def setup(self):
        """Both; the encoder's table of words is the decoder's and the head."""
        check_config(self.config)
        self.folnet = FOLNet(self.config)
        self.decoder = FOLNetTargetDecoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B I"],
        decoder_input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B I"] | None = None,
        attention_mask: Array | None = None,
        decoder_attention_mask: Array | None = None,
        deterministic: bool = True,
    ) -> Seq2SeqLMOutput:
        """Logits of the next word after each token of the target.

        Args:
          input_ids: tokens of the input.
          decoder_input_ids: tokens of the target, a start token first; see `text_objective.shift_right`.
          token_type_ids: segments of the input.
          attention_mask: true where a token of the input is real: neither encoder nor decoder looks at the
            others. None: all are.
          decoder_attention_mask: true where a token of the target is real. Padding after a target needs
            none: nothing looks at later tokens.
          deterministic: False to drop; needs a key "dropout".

        Raises:
          ValueError: an argument that does not fit, by its name.
        """
        others = {"token_type_ids": token_type_ids, "attention_mask": attention_mask}
        batch, _ = check_text(self.config, "input_ids", input_ids, **others)
        self._check_target(batch, decoder_input_ids, decoder_attention_mask)
        encoded = self.encode(input_ids, token_type_ids, attention_mask, deterministic)
        return self.decode(encoded, decoder_input_ids, decoder_attention_mask, deterministic)

    def encode(
        self,
        input_ids: Int[Array, "B I"],
        token_type_ids: Int[Array, "B I"] | None = None,
        attention_mask: Array | None = None,
        deterministic: bool = True,
    ) -> Encoded:
        """What the decoder reads of inputs."""
        out = self.folnet(input_ids, token_type_ids, attention_mask, deterministic)
        shape = jnp.shape(input_ids)
        real = jnp.ones(shape, bool) if attention_mask is None else jnp.asarray(attention_mask, bool)
        relation: Any = out.relation_hidden_state  # a FOLNet always has one
        return Encoded(out.last_hidden_state, jnp.moveaxis(relation, -1, 1), real)

    def decode(
        self,
        encoded: Encoded,
        decoder_input_ids: Int[Array, "B T"],
        decoder_attention_mask: Array | None = None,
        deterministic: bool = True,
    ) -> Seq2SeqLMOutput:
        """As a call, for inputs that were encoded before."""
        self._check_target(len(encoded.real), decoder_input_ids, decoder_attention_mask)
        target = (jnp.asarray(decoder_input_ids), optional(decoder_attention_mask, bool))
        unary, states = self.decoder(self.folnet.embeddings, encoded, *target, deterministic)
        return Seq2SeqLMOutput(
            logits=self.folnet.embeddings.logits(unary),
            last_hidden_state=unary,
            relation_hidden_state=jnp.moveaxis(states[-1][1], 1, -1),
            encoder_last_hidden_state=encoded.unary,
            encoder_relation_hidden_state=jnp.moveaxis(encoded.relation, 1, -1),
        )

    def prefill(
        self,
        input_ids: Int[Array, "B I"],
        token_type_ids: Int[Array, "B I"] | None = None,
        attention_mask: Array | None = None,
        *,
        capacity: int,
    ) -> DecodingState:
        """The state before the first token of a target of at most `capacity` tokens."""
        return self.decoder.prefill(self.encode(input_ids, token_type_ids, attention_mask), capacity)

    def step(self, token: Int[Array, "B"], state: DecodingState) -> tuple[Float[Array, "B V"], DecodingState]:
        """Logits after one more token of each target, and the state with it."""
        unary, state = self.decoder.step(self.folnet.embeddings, token, state)
        return self.folnet.embeddings.logits(unary[:, None])[:, 0], state

    @nn.nowrap
    def generate(self, params: Any, input_ids: Int[Array, "B I"], **options: Any) -> Generated:
        """Writes targets; see `generation.generate_from`."""
        return generate_from(self, params, input_ids, **options)

    @nn.nowrap
    def _check_target(self, batch: int, target: Any, attention_mask: Any) -> None:
        """Raises ValueError: a target that does not fit, or not as many as there are inputs."""
        name = "decoder_input_ids"
        given, _ = check_text(self.config, name, target, decoder_attention_mask=attention_mask)
        if given != batch:
            raise ValueError(
                f"{name} has shape {jnp.shape(target)}, expected [{batch}, T]: as many targets as inputs"
            )
