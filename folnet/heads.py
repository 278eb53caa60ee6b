"""FOLNets with heads for pretraining, masked words, classes, choices and spans; `objective` has their losses.

The encoder below a head is a FOLNet or, given a `TransformerConfig`, the Transformer it is compared with. All
heads but the span head read the pooled first token or single tokens, as those of BERT do, so that a FOLNet
can replace a Transformer (Appendix A.4).

Axis letters: B batch; N choices; T tokens; M masked tokens; D1 properties; V vocabulary; C classes.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet.affine import activate
from folnet.configuration import FOLNetConfig
from folnet.dropout import Dropout
from folnet.linear import Linear, normalize
from folnet.model import FOLNet
from folnet.pretrained import Pretrained
from folnet.settings import ModelConfig
from folnet.transformer import Transformer
from folnet.transformer_configuration import TransformerConfig


@struct.dataclass
class PreTrainingOutput:
    """Logits of words, at all tokens or at `mlm_positions`, and of the sentence task."""

    prediction_logits: Float[Array, "B M V"]
    seq_relationship_logits: Float[Array, "B 2"]


@struct.dataclass
class MaskedLMOutput:
    """Logits of words, at all tokens or at `mlm_positions`."""

    logits: Float[Array, "B M V"]


@struct.dataclass
class SequenceClassifierOutput:
    """Logits of classes, or predicted numbers for regression."""

    logits: Float[Array, "B C"]


@struct.dataclass
class MultipleChoiceOutput:
    """Logits of the choices of each example."""

    logits: Float[Array, "B N"]


@struct.dataclass
class QuestionAnsweringOutput:
    """Logits of an answer's start and end, for each token."""

    start_logits: Float[Array, "B T"]
    end_logits: Float[Array, "B T"]


def encoder(config: ModelConfig) -> FOLNet | Transformer:
    """Returns the encoder, named "folnet" in parameters; raises ValueError for other kinds of settings."""
    match config:
        case FOLNetConfig():
            return FOLNet(config)
        case TransformerConfig():
            return Transformer(config)
    raise ValueError(f"config: got {config!r}, expected a FOLNetConfig or a TransformerConfig")


class PredictionHead(nn.Module):
    """Predicts words: affine map, activation, normalization, product with the word table, bias."""

    config: ModelConfig

    def setup(self):
        self.transform = Linear(self.config, self.config.hidden_size, self.config.hidden_size)
        self.bias = self.param("bias", nn.initializers.zeros, (self.config.vocab_size,))

    def __call__(self, unary: Float[Array, "B M D1"], embeddings: Any) -> Float[Array, "B M V"]:
        """Returns logits in at least float32."""
        hidden = activate(self.transform(unary), self.config.head_activation)
        logits = embeddings.logits(normalize(hidden, self.config.layer_norm_eps))
        return logits + self.bias.astype(logits.dtype)[None, None]


class _Headed[Output](nn.Module, Pretrained):
    """An encoder with one or more heads."""

    config: ModelConfig

    def setup(self):
        """Creates the encoder; subclasses add heads."""
        self.folnet = encoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"] | None = None,
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        **atoms: Any,
    ) -> Output:
        """Returns the output of the heads; arguments are those of `FOLNet`."""
        out = self.folnet(input_ids, token_type_ids, attention_mask, deterministic, **atoms)
        return self._head(out, deterministic)

    @nn.nowrap
    def _linear(self, outputs: int) -> Linear:
        return Linear(self.config, self.config.hidden_size, outputs)


class _Words[Output](_Headed[Output]):
    """An encoder with a head for masked words."""

    def setup(self):
        super().setup()
        self.predictions = PredictionHead(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"] | None = None,
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        mlm_positions: Int[Array, "B M"] | None = None,
        **atoms: Any,
    ) -> Output:
        """Returns logits of words and, in pretraining, of the sentence task.

        Arguments are those of `FOLNet`, and `mlm_positions`: the tokens to predict, None for all. Only these
        are multiplied with the vocabulary.
        """
        out = self.folnet(input_ids, token_type_ids, attention_mask, deterministic, **atoms)
        logits = self.predictions(at(out.last_hidden_state, mlm_positions), self.folnet.embeddings)
        return self._output(logits, out.pooler_output)


class FOLNetForMaskedLM(_Words[MaskedLMOutput]):
    """Masked language modelling, without a sentence task."""

    def _output(self, logits, pooled):
        return MaskedLMOutput(logits)


class FOLNetForPreTraining(_Words[PreTrainingOutput]):
    """Masked language modelling and a sentence task (NSP or SOP)."""

    def setup(self):
        super().setup()
        self.seq_relationship = self._linear(2)

    def _output(self, logits, pooled):
        return PreTrainingOutput(logits, _logits(self.seq_relationship(pooled)))


class FOLNetForSequenceClassification(_Headed[SequenceClassifierOutput]):
    """`num_labels` classes or numbers per text, from its first token."""

    def setup(self):
        super().setup()
        self.classifier = self._linear(self.config.num_labels)
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def _head(self, out, deterministic):
        pooled = self.dropout(out.pooler_output, deterministic=deterministic)
        return SequenceClassifierOutput(_logits(self.classifier(pooled)))


class FOLNetForMultipleChoice(_Headed[MultipleChoiceOutput]):
    """Choice among several texts, each containing one of the choices."""

    dummy_shape: ClassVar[tuple[int, ...]] = (1, 1, 1)

    def setup(self):
        super().setup()
        self.classifier = self._linear(1)
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def __call__(
        self,
        input_ids: Int[Array, "B N T"],
        token_type_ids: Int[Array, "B N T"] | None = None,
        attention_mask: Bool[Array, "B N T"] | Int[Array, "B N T"] | None = None,
        deterministic: bool = True,
    ) -> MultipleChoiceOutput:
        """Returns logits of the choices; arguments are those of `FOLNet`, each with an axis of choices.

        Raises:
          ValueError: If an argument lacks the axis of choices.
        """
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": attention_mask}
        for name, array in given.items():
            if array is not None and jnp.ndim(array) != 3:
                raise ValueError(f"{name}: got shape {jnp.shape(array)}, expected [B, N, T] with N choices")
        batch, choices, length = jnp.shape(input_ids)
        flat: dict[str, Any] = {
            name: None if array is None else array.reshape(batch * choices, length)
            for name, array in given.items()
        }
        pooled = self.folnet(**flat, deterministic=deterministic).pooler_output
        scores = self.classifier(self.dropout(pooled, deterministic=deterministic))
        return MultipleChoiceOutput(_logits(scores.reshape(batch, choices)))


class FOLNetForQuestionAnswering(_Headed[QuestionAnsweringOutput]):
    """Predicts where in a text the answer starts and ends.

    Padding has logits too, as released; tasks know which tokens an answer may contain.
    """

    def setup(self):
        super().setup()
        self.start, self.end = self._linear(1), self._linear(1)

    def _head(self, out, deterministic):
        unary = out.last_hidden_state
        return QuestionAnsweringOutput(_logits(self.start(unary)[..., 0]), _logits(self.end(unary)[..., 0]))


def at(unary: Float[Array, "B T D1"], positions: Int[Array, "B M"] | None) -> Float[Array, "B M D1"]:
    """Selects tokens by position, None for all; raises ValueError if the batch sizes differ."""
    if positions is None:
        return unary
    if positions.ndim != 2 or positions.shape[0] != unary.shape[0]:
        raise ValueError(f"mlm_positions: got shape {positions.shape}, expected [{unary.shape[0]}, M]")
    return jnp.take_along_axis(unary, positions[..., None], axis=1)


def _logits(values: jax.Array) -> jax.Array:
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))
