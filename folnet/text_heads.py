"""FOLNets that generate text: decoder-only and encoder-decoder (Appendix A.5).

Logits are u_L(x) times the word table, without a transformation in between. `text_objective` defines the
losses and `generation` the loops.

Axis letters: B batch; T tokens of a text or target; I tokens of an input; C columns, the input's tokens and
then the target's; D1 properties; D2 relations; V words.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet.configuration import FOLNetConfig
from folnet.decoder import DecodingState, FOLNetDecoder
from folnet.encoder_decoder import Encoded, FOLNetTargetDecoder
from folnet.generation import Generated, generate, generate_from
from folnet.model import FOLNet, check_text, deduced, optional
from folnet.objective import IGNORED, check_labels, cross_entropy, wide
from folnet.outputs import HeadOutput, Kernels, ModelOutput
from folnet.pretrained import Pretrained
from folnet.settings import check_kind


@struct.dataclass
class CausalLMOutput(HeadOutput):
    """Logits of the word after each token, and the fields of `DecoderOutput`."""

    logits: Float[Array, "B T V"]
    last_hidden_state: Float[Array, "B T D1"]
    relation_hidden_state: Float[Array, "B T T D2"]


@struct.dataclass
class Seq2SeqLMOutput(ModelOutput):
    """Logits of the word after each token of the target, and the last atoms of target and input.

    Relations of the target's tokens, and its kernels, are to the input's tokens, then to the target's. Names
    are those of Hugging Face; fields that must be requested are as in `FOLNetOutput`.
    """

    logits: Float[Array, "B T V"]
    last_hidden_state: Float[Array, "B T D1"]
    relation_hidden_state: Float[Array, "B T C D2"]
    encoder_last_hidden_state: Float[Array, "B I D1"]
    encoder_relation_hidden_state: Float[Array, "B I I D2"]
    loss: Float[Array, ""] | None = None
    decoder_hidden_states: tuple[Float[Array, "B T D1"], ...] | None = None
    decoder_relation_hidden_states: tuple[Float[Array, "B T C D2"], ...] | None = None
    decoder_attentions: Kernels | None = None
    encoder_hidden_states: tuple[Float[Array, "B I D1"], ...] | None = None
    encoder_relation_hidden_states: tuple[Float[Array, "B I I D2"], ...] | None = None
    encoder_attentions: Kernels | None = None


class FOLNetForCausalLM(nn.Module, Pretrained):
    """Language modelling from left to right, optionally with a prefix."""

    config: FOLNetConfig

    def setup(self):
        self.folnet = FOLNetDecoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        labels: Int[Array, "B T"] | None = None,
        **options: Any,
    ) -> CausalLMOutput:
        """Returns logits of the next word after each token; arguments are those of `FOLNetDecoder`.

        With `labels`, such as `input_ids`, the output also has the mean loss of each word given those before
        it. Labels -1 and -100 do not count: padding and the words of a prefix. Nor does what follows padding:
        a text's first word, which no word is before.
        """
        out = self.folnet(input_ids, token_type_ids, attention_mask, deterministic, **options)
        logits = self.folnet.embeddings.logits(out.last_hidden_state)
        loss = None if labels is None else _loss(self.config, logits[:, :-1], labels, 1, attention_mask)
        return CausalLMOutput(logits, loss=loss, **vars(out))

    def prefill(self, *texts: Any, **options: Any) -> tuple[Float[Array, "B V"], DecodingState]:
        """Returns logits after texts and the state to continue from; see `FOLNetDecoder.prefill`."""
        unary, state = self.folnet.prefill(*texts, **options)
        last = jnp.take_along_axis(unary, (state.length - 1)[:, None, None], axis=1)
        return self.folnet.embeddings.logits(last)[:, 0], state

    def step(self, token: Int[Array, "B"], state: DecodingState) -> tuple[Float[Array, "B V"], DecodingState]:
        """Reads one more token of each text; returns logits of the next word and the new state."""
        unary, state = self.folnet.step(token, state)
        return self.folnet.embeddings.logits(unary[:, None])[:, 0], state

    @nn.nowrap
    def generate(self, params: Any, input_ids: Int[Array, "B T"], **options: Any) -> Generated:
        """Continues texts; see `generation.generate`."""
        return generate(self, params, input_ids, **options)


class FOLNetForConditionalGeneration(nn.Module, Pretrained):
    """A target text given an input text: an encoder and a decoder with the same settings.

    The encoder is a complete `FOLNet`, so that a pretrained one can be loaded; its pooler is not used.
    """

    config: FOLNetConfig
    dummy_inputs: ClassVar[int] = 2

    def setup(self):
        """Creates both; the encoder's word table also serves the decoder and the head."""
        check_kind(self.config, FOLNetConfig)
        self.folnet = FOLNet(self.config)
        self.decoder = FOLNetTargetDecoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B I"],
        decoder_input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B I"] | None = None,
        attention_mask: Bool[Array, "B I"] | Int[Array, "B I"] | None = None,
        decoder_attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        labels: Int[Array, "B T"] | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Seq2SeqLMOutput:
        """Returns logits of the next word after each token of the target.

        Args:
          input_ids: tokens of the input.
          decoder_input_ids: tokens of the target, starting with a start token; see
            `text_objective.shift_right`.
          token_type_ids: segments of the input.
          attention_mask: True at real tokens of the input; neither encoder nor decoder attends to others.
            None if all are real.
          decoder_attention_mask: True at real tokens of the target. Padding at the end of a target needs no
            mask, since nothing attends to later tokens.
          deterministic: False enables dropout, which needs an RNG named "dropout".
          labels: words of the target, at the same positions as their logits; with them, the output also has
            their mean loss. -1 and -100 do not count.
          output_hidden_states: whether to return the atoms of all layers, of input and target.
          output_attentions: whether to return the kernels of all operators, likewise.

        Raises:
          ValueError: If an argument does not fit.
        """
        others = {"token_type_ids": token_type_ids, "attention_mask": attention_mask}
        batch, _ = check_text(self.config, "input_ids", input_ids, **others)
        self._check_target(batch, decoder_input_ids, decoder_attention_mask)
        asked = {"output_hidden_states": output_hidden_states, "output_attentions": output_attentions}
        encoded, read = self._encode(input_ids, token_type_ids, attention_mask, deterministic, **asked)
        out = self.decode(encoded, decoder_input_ids, decoder_attention_mask, deterministic, **asked)
        names = ("hidden_states", "relation_hidden_states", "attentions")
        return dataclasses.replace(
            out,
            loss=None if labels is None else _loss(self.config, out.logits, labels, 0),
            **{f"encoder_{name}": getattr(read, name) for name in names},
        )

    def encode(
        self,
        input_ids: Int[Array, "B I"],
        token_type_ids: Int[Array, "B I"] | None = None,
        attention_mask: Bool[Array, "B I"] | Int[Array, "B I"] | None = None,
        deterministic: bool = True,
    ) -> Encoded:
        """Encodes inputs to what the decoder reads."""
        return self._encode(input_ids, token_type_ids, attention_mask, deterministic)[0]

    def _encode(self, input_ids, token_type_ids, attention_mask, deterministic, **asked):
        out = self.folnet(input_ids, token_type_ids, attention_mask, deterministic, **asked)
        shape = jnp.shape(input_ids)
        real = jnp.ones(shape, bool) if attention_mask is None else jnp.asarray(attention_mask, bool)
        relation: Any = out.relation_hidden_state  # None only for a Transformer
        return Encoded(out.last_hidden_state, jnp.moveaxis(relation, -1, 1), real), out

    def decode(
        self,
        encoded: Encoded,
        decoder_input_ids: Int[Array, "B T"],
        decoder_attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> Seq2SeqLMOutput:
        """Like `__call__`, for inputs that are already encoded; the encoder's layers are left out."""
        self._check_target(len(encoded.real), decoder_input_ids, decoder_attention_mask)
        target = (jnp.asarray(decoder_input_ids), optional(decoder_attention_mask, bool))
        unary, states, kernels = self.decoder(
            self.folnet.embeddings, encoded, *target, deterministic, output_attentions
        )
        found = deduced(unary, states, output_hidden_states)
        return Seq2SeqLMOutput(
            logits=self.folnet.embeddings.logits(unary),
            last_hidden_state=unary,
            relation_hidden_state=found["relation_hidden_state"],
            decoder_hidden_states=found["hidden_states"],
            decoder_relation_hidden_states=found["relation_hidden_states"],
            decoder_attentions=kernels,
            encoder_last_hidden_state=encoded.unary,
            encoder_relation_hidden_state=jnp.moveaxis(encoded.relation, 1, -1),
        )

    def prefill(
        self,
        input_ids: Int[Array, "B I"],
        token_type_ids: Int[Array, "B I"] | None = None,
        attention_mask: Bool[Array, "B I"] | Int[Array, "B I"] | None = None,
        *,
        capacity: int,
    ) -> DecodingState:
        """Encodes inputs; returns the state before the first token of targets of up to `capacity` tokens."""
        return self.decoder.prefill(self.encode(input_ids, token_type_ids, attention_mask), capacity)

    def step(self, token: Int[Array, "B"], state: DecodingState) -> tuple[Float[Array, "B V"], DecodingState]:
        """Reads one more token of each target; returns logits of the next word and the new state."""
        unary, state = self.decoder.step(self.folnet.embeddings, token, state)
        return self.folnet.embeddings.logits(unary[:, None])[:, 0], state

    @nn.nowrap
    def generate(self, params: Any, input_ids: Int[Array, "B I"], **options: Any) -> Generated:
        """Generates targets; see `generation.generate_from`."""
        return generate_from(self, params, input_ids, **options)

    @nn.nowrap
    def _check_target(self, batch: int, target: Any, attention_mask: Any) -> None:
        """Raises ValueError if a target does not fit or there is not one target per input."""
        name = "decoder_input_ids"
        given, _ = check_text(self.config, name, target, decoder_attention_mask=attention_mask)
        if given != batch:
            raise ValueError(
                f"{name}: got shape {jnp.shape(target)}, expected [{batch}, T] (one target per input)"
            )


def _loss(
    config: FOLNetConfig, logits: Float[Array, "B M V"], labels: Any, start: int, mask: Any = None
) -> Float[Array, ""]:
    """Returns the mean loss of all labels from `start`, by the logits of real tokens.

    Raises ValueError if the labels do not fit.
    """
    labels, (batch, count) = jnp.asarray(labels), logits.shape[:2]
    if labels.shape != (batch, count + start):
        raise ValueError(f"labels: got shape {labels.shape}, expected {(batch, count + start)}")
    check_labels("labels", labels, config.vocab_size)
    labels = wide(labels[:, start:])
    if mask is not None:
        labels = jnp.where(jnp.asarray(mask, bool)[:, :count], labels, IGNORED[0])
    return cross_entropy(logits, labels).mean
