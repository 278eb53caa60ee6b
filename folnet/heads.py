"""FOLNets with heads for pretraining, masked words, classes, choices and spans; `objective` has the losses.

With labels, an output also has their mean loss. Programs that add losses of several batches or devices use
`objective` themselves, since a mean does not say of how many labels it is.

The encoder below a head is a FOLNet or, given a `TransformerConfig`, the Transformer it is compared with. All
heads but the span head read the pooled first token or single tokens, as those of BERT do, so that a FOLNet
can replace a Transformer (Appendix A.4).

Axis letters: B batch; N choices; T tokens; M masked tokens; D1 properties; V vocabulary; C classes.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import objective
from folnet.affine import activate
from folnet.configuration import FOLNetConfig
from folnet.dropout import Dropout
from folnet.embeddings import looked_up
from folnet.linear import Linear
from folnet.model import FOLNet, FOLNetOutput, check_ids
from folnet.objective import check_labels
from folnet.outputs import HeadOutput
from folnet.pretrained import Pretrained
from folnet.settings import ModelConfig
from folnet.transformer import Transformer
from folnet.transformer_configuration import TransformerConfig
from kernels.normalization import normalize

ATOMS = ("inputs_embeds", "relation_ids", "relation_embeds")
"""Arguments of `FOLNet` that add base atoms."""


@struct.dataclass
class PreTrainingOutput(HeadOutput):
    """Logits of words, at all tokens or at `mlm_positions`, and of the sentence task."""

    prediction_logits: Float[Array, "B M V"]
    seq_relationship_logits: Float[Array, "B 2"]


@struct.dataclass
class MaskedLMOutput(HeadOutput):
    """Logits of words, at all tokens or at `mlm_positions`."""

    logits: Float[Array, "B M V"]


@struct.dataclass
class SequenceClassifierOutput(HeadOutput):
    """Logits of classes, or predicted numbers for regression."""

    logits: Float[Array, "B C"]


@struct.dataclass
class TokenClassifierOutput(HeadOutput):
    """Logits of classes for each token."""

    logits: Float[Array, "B T C"]


@struct.dataclass
class MultipleChoiceOutput(HeadOutput):
    """Logits of the choices of each example. States and kernels are of all texts, [B * N, ...]."""

    logits: Float[Array, "B N"]


@struct.dataclass
class QuestionAnsweringOutput(HeadOutput):
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
        dtype = jnp.dtype(self.config.param_dtype)
        self.bias = self.param("bias", nn.initializers.zeros, (self.config.vocab_size,), dtype)

    def __call__(self, unary: Float[Array, "B M D1"], embeddings: Any) -> Float[Array, "B M V"]:
        """Returns logits in at least float32."""
        hidden = activate(self.transform(unary), self.config.head_activation)
        logits = embeddings.logits(normalize(hidden, self.config.layer_norm_eps))
        return logits + self.bias[None, None]


class _Headed[Output](nn.Module, Pretrained):
    """An encoder with one or more heads.

    Attributes:
      targets: names of the arguments that give labels.
    """

    config: ModelConfig
    targets: ClassVar[tuple[str, ...]] = ("labels",)

    def setup(self):
        """Creates the encoder; subclasses add heads."""
        self.folnet = encoder(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"] | None = None,
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        **others: Any,
    ) -> Output:
        """Returns the output of the heads, with a loss if labels are given.

        Arguments are those of `FOLNet`, and the labels that the class names. -1 and -100 are no classes
        and are ignored.

        Raises:
          ValueError: If an argument does not fit, or labels are out of range (not checked while tracing).
        """
        labels = {name: others.pop(name, None) for name in self.targets}
        out = self.folnet(input_ids, token_type_ids, attention_mask, deterministic, **others)
        return self._with_loss(self._head(out, deterministic), out, labels)

    @nn.nowrap
    def _with_loss(self, output: Any, out: FOLNetOutput, labels: Mapping[str, Any]) -> Any:
        """Adds the mean loss and what was requested of the encoder to the output of the heads."""
        missing = [name for name, given in labels.items() if given is None]
        if 0 < len(missing) < len(labels):
            given = " and ".join(name for name in labels if name not in missing)
            raise ValueError(f"{missing[0]}: got None, expected an array, since {given} is given")
        return output.replace(
            loss=None if missing else self._loss(output, **labels),
            hidden_states=out.hidden_states,
            relation_hidden_states=out.relation_hidden_states,
            attentions=out.attentions,
        )

    @nn.nowrap
    def _loss(self, output: Any, **labels: Any) -> Float[Array, ""]:
        return _classes("labels", output.logits, labels["labels"]).mean

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
        **others: Any,
    ) -> Output:
        """Returns logits of words and, in pretraining, of the sentence task.

        Arguments are those of `FOLNet`, and `mlm_positions`: the tokens to predict, None for all. Only these
        are multiplied with the vocabulary, and `labels` are theirs.
        """
        labels = {name: others.pop(name, None) for name in self.targets}
        out = self.folnet(input_ids, token_type_ids, attention_mask, deterministic, **others)
        logits = self.predictions(at(out.last_hidden_state, mlm_positions), self.folnet.embeddings)
        return self._with_loss(self._output(logits, out.pooler_output), out, labels)


class FOLNetForMaskedLM(_Words[MaskedLMOutput]):
    """Masked language modelling, without a sentence task; `labels` [B, M] are words."""

    def _output(self, logits, pooled):
        return MaskedLMOutput(logits)


class FOLNetForPreTraining(_Words[PreTrainingOutput]):
    """Masked language modelling and a sentence task (NSP or SOP).

    `labels` [B, M] are words and `next_sentence_label` [B] classes of the sentence task; the loss is the sum
    of both means.
    """

    targets: ClassVar[tuple[str, ...]] = ("labels", "next_sentence_label")

    def setup(self):
        super().setup()
        self.seq_relationship = self._linear(2)

    def _output(self, logits, pooled):
        return PreTrainingOutput(logits, _logits(self.seq_relationship(pooled)))

    @nn.nowrap
    def _loss(self, output, **labels):
        logits = (output.prediction_logits, output.seq_relationship_logits)
        words, sentences = (_classes(name, of, labels[name]) for name, of in zip(labels, logits, strict=True))
        return words.mean + sentences.mean


class FOLNetForSequenceClassification(_Headed[SequenceClassifierOutput]):
    """`num_labels` classes or numbers per text, from its first token.

    `labels` are those of `objective.sequence_classification`, for the type of problem in the settings.
    """

    def setup(self):
        super().setup()
        self.classifier = self._linear(self.config.num_labels)
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def _head(self, out, deterministic):
        pooled = self.dropout(out.pooler_output, deterministic=deterministic)
        return SequenceClassifierOutput(_logits(self.classifier(pooled)))

    @nn.nowrap
    def _loss(self, output, **labels):
        kind = self.config.problem_type
        if kind == "single_label_classification" or (kind is None and self.config.num_labels > 1):
            return super()._loss(output, **labels)
        return objective.sequence_classification(output.logits, jnp.asarray(labels["labels"]), kind).mean


class FOLNetForTokenClassification(_Headed[TokenClassifierOutput]):
    """`num_labels` classes per token; `labels` are [B, T]."""

    def setup(self):
        super().setup()
        self.classifier = self._linear(self.config.num_labels)
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def _head(self, out, deterministic):
        unary = self.dropout(out.last_hidden_state, deterministic=deterministic)
        return TokenClassifierOutput(_logits(self.classifier(unary)))


class FOLNetForMultipleChoice(_Headed[MultipleChoiceOutput]):
    """Choice among several texts, each containing one of the choices; `labels` [B] are their numbers."""

    dummy_shape: ClassVar[tuple[int, ...]] = (1, 1, 1)

    def setup(self):
        super().setup()
        self.classifier = self._linear(1)
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def __call__(
        self,
        input_ids: Int[Array, "B N T"] | None = None,
        token_type_ids: Int[Array, "B N T"] | None = None,
        attention_mask: Bool[Array, "B N T"] | Int[Array, "B N T"] | None = None,
        deterministic: bool = True,
        *,
        labels: Int[Array, "B"] | None = None,
        **requests: Any,
    ) -> MultipleChoiceOutput:
        """Returns logits of the choices; arguments are those of `FOLNet`, each with an axis of choices.

        Raises:
          ValueError: If an argument lacks the axis of choices, or does not fit.
        """
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": attention_mask}
        given |= {name: requests.pop(name) for name in ATOMS if name in requests}
        first = "input_ids" if input_ids is not None else "inputs_embeds"
        leading = () if (array := given.get(first)) is None else jnp.shape(array)[:2]
        for name, array in given.items():
            if leading and array is not None and (jnp.ndim(array) < 3 or jnp.shape(array)[:2] != leading):
                axes = "[B, N, T, ...]" if name in ATOMS else "[B, N, T]"
                like = "" if name == first else f", as in {first}"
                raise ValueError(
                    f"{name}: got shape {jnp.shape(array)}, expected {axes} with N choices{like}"
                )
        rows = math.prod(leading)
        flat: dict[str, Any] = {
            name: array.reshape(rows, *array.shape[2:]) if leading and array is not None else array
            for name, array in given.items()
        }
        out = self.folnet(**flat, deterministic=deterministic, **requests)
        scores = self.classifier(self.dropout(out.pooler_output, deterministic=deterministic))
        output = MultipleChoiceOutput(_logits(scores.reshape(leading)))
        return self._with_loss(output, out, {"labels": labels})


class FOLNetForQuestionAnswering(_Headed[QuestionAnsweringOutput]):
    """Predicts where in a text the answer starts and ends: `start_positions` and `end_positions`, [B].

    Padding has logits too, as released; tasks know which tokens an answer may contain.
    """

    targets: ClassVar[tuple[str, ...]] = ("start_positions", "end_positions")

    def setup(self):
        super().setup()
        self.start, self.end = self._linear(1), self._linear(1)

    def _head(self, out, deterministic):
        unary = out.last_hidden_state
        return QuestionAnsweringOutput(_logits(self.start(unary)[..., 0]), _logits(self.end(unary)[..., 0]))

    @nn.nowrap
    def _loss(self, output, **labels):
        logits = (output.start_logits, output.end_logits)
        start, end = (_classes(name, of, labels[name]) for name, of in zip(labels, logits, strict=True))
        return 0.5 * (start.mean + end.mean)


def _classes(name: str, logits: Float[Array, "*B C"], labels: Any) -> objective.Loss:
    """Returns the cross-entropy; raises ValueError that names the argument if labels do not fit."""
    labels = jnp.asarray(labels)
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"{name}: got shape {labels.shape}, expected {logits.shape[:-1]}")
    check_labels(name, labels, logits.shape[-1])
    return objective.cross_entropy(logits, labels)


def at(unary: Float[Array, "B T D1"], positions: Int[Array, "B M"] | None) -> Float[Array, "B M D1"]:
    """Selects tokens by position, None for all.

    Raises:
      ValueError: If the batch sizes differ, or positions are out of range (not checked while tracing).
    """
    if positions is None:
        return unary
    if positions.ndim != 2 or positions.shape[0] != unary.shape[0]:
        raise ValueError(f"mlm_positions: got shape {positions.shape}, expected [{unary.shape[0]}, M]")
    check_ids("mlm_positions", positions, unary.shape[1], "the number of tokens")
    return jax.vmap(looked_up)(unary, positions)


def _logits(values: jax.Array) -> jax.Array:
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))
