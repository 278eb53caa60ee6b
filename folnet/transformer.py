"""The Transformers that FOLNet is compared with; they take the same arguments and the same heads.

The default is BERT (Devlin et al. 2019), which normalizes after each residual sum. `TransformerConfig` adds
T5's relative positions or the relation-aware attention of Shaw et al. (2018). The latter also takes relations
of pairs, so that it can read a graph as FOLNet does.

Axis letters: B batch; T tokens; D1 features; H heads; R relations; K relations given per pair; V vocabulary.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from folnet import parameters, positions
from folnet.affine import Affine, activate, over_predicates
from folnet.configuration import FOLNetConfig
from folnet.dropout import Dropout
from folnet.embeddings import Tables, relation_counts
from folnet.layers import UNARY_AXES, rematerialized
from folnet.linear import Linear, table
from folnet.model import FOLNet, FOLNetOutput, encoder_arguments
from folnet.pretrained import Pretrained
from folnet.settings import ModelConfig, check_kind
from folnet.transformer_attention import SelfAttention
from folnet.transformer_configuration import TransformerConfig


class Normalization(nn.Module):
    """LayerNorm with gain and bias; sums in at least float32, the result in the compute dtype."""

    config: TransformerConfig

    @nn.compact
    def __call__(self, inputs: Float[Array, "B T D1"]) -> Float[Array, "B T D1"]:
        norm = nn.LayerNorm(
            epsilon=self.config.layer_norm_eps,
            param_dtype=jnp.dtype(self.config.param_dtype),
            use_fast_variance=False,
            name="affine",
        )
        return norm(inputs).astype(self.config.dtype)


class TransformerLayer(nn.Module):
    """Attention, then a feed-forward layer, each followed by a residual sum and a normalization."""

    config: TransformerConfig

    def setup(self):
        config = self.config
        self.attention = SelfAttention(config)
        self.attention_norm = Normalization(config)
        self.hidden = Linear(config, config.hidden_size, config.intermediate_size)
        self.output = Linear(config, config.intermediate_size, config.hidden_size)
        self.output_norm = Normalization(config)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def __call__(
        self,
        unary: Float[Array, "B T D1"],
        bias: Float[Array, "#B H T T"] | None = None,
        counts: Float[Array, "B R T T"] | None = None,
        mask: Bool[Array, "#B 1 #T #T"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B T D1"]:
        """Returns the features after the layer; arguments are those of `SelfAttention`."""
        taken = self.attention(unary, bias, counts, mask, deterministic)
        unary = self.attention_norm(unary + self.dropout(taken, deterministic=deterministic))
        output = self.output(activate(self.hidden(unary), self.config.activation))
        unary = self.output_norm(unary + self.dropout(output, deterministic=deterministic))
        return nn.with_logical_constraint(unary, UNARY_AXES)

    def kernels(self, unary: Float[Array, "B T D1"], *arguments: Any) -> dict[str, Float[Array, "B H T T"]]:
        """Returns the weights of attention by its name; arguments are those of a call."""
        return {"attention": self.attention.kernels(unary, *arguments)}


class TransformerEmbeddings(Tables):
    """Embeddings of words, segments and positions, normalized."""

    config: TransformerConfig

    def setup(self):
        super().setup()
        self.norm = Normalization(self.config)

    def __call__(
        self,
        input_ids: Int[Array, "B T"] | None,
        token_type_ids: Int[Array, "B T"],
        inputs_embeds: Float[Array, "B T D1"] | None,
        deterministic: bool,
    ) -> Float[Array, "B T D1"]:
        """Returns the features of tokens before the first layer, in the compute dtype."""
        unary = self.properties(input_ids, token_type_ids)
        if inputs_embeds is not None:
            unary += inputs_embeds
        return self.dropout(self.norm(unary), deterministic=deterministic)


class Transformer(nn.Module, Pretrained):
    """The encoder, with its pooled first token."""

    config: TransformerConfig

    def setup(self):
        config = self.config
        check_kind(config, TransformerConfig)
        self.embeddings = TransformerEmbeddings(config)
        heads = config.num_attention_heads
        buckets = config.relative_attention_num_buckets if config.relative_position == "t5" else 0
        self.distance_bias = table(self, "distance_bias", buckets, heads)
        relations = config.relation_vocab_size if config.relation_attention == "bias" else 0
        self.relation_bias = table(self, "relation_bias", relations, heads)
        layer = rematerialized(TransformerLayer, config.remat)
        self.layers = [layer(config) for _ in range(config.num_hidden_layers)]
        self.pooler = Linear(config, config.hidden_size, config.hidden_size)

    def __call__(
        self,
        input_ids: Int[Array, "B T"] | None = None,
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        inputs_embeds: Float[Array, "B T D1"] | None = None,
        relation_ids: Int[Array, "B T T *K"] | None = None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ) -> FOLNetOutput:
        """Computes features of a text's tokens. Arguments mean the same as for `FOLNet`.

        The setting `relation_attention` determines the effect of `relation_ids`.

        Returns:
          `FOLNetOutput` without relations, which a Transformer does not have.

        Raises:
          ValueError: If a shape or type is wrong, or if ids are out of range (not checked while tracing).
        """
        atoms = {"inputs_embeds": inputs_embeds, "relation_ids": relation_ids}
        texts = (input_ids, token_type_ids, attention_mask)
        input_ids, types, mask = encoder_arguments(self.config, *texts, **atoms)
        unary = self.embeddings(input_ids, types, inputs_embeds, deterministic)
        counts = None
        if relation_ids is not None:
            counts = relation_counts(relation_ids, self.config.relation_vocab_size, unary.dtype)
        bias = self._bias(types.shape[1], counts)
        states = [nn.with_logical_constraint(unary, UNARY_AXES)]
        for layer in self.layers:
            states.append(layer(states[-1], bias, counts, mask, deterministic))
        pairs = zip(self.layers, states[:-1], strict=True)
        return FOLNetOutput(
            last_hidden_state=states[-1],
            pooler_output=jnp.tanh(self.pooler(states[-1][:, 0])),
            relation_hidden_state=None,
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(layer.kernels(state, bias, counts, mask) for layer, state in pairs)
            if output_attentions
            else None,
        )

    def _bias(self, length: int, counts: jax.Array | None) -> jax.Array | None:
        """Returns the bias of the attention scores of all layers, None if there is none."""
        bias = None
        if self.distance_bias is not None:
            bias = positions.t5_atoms(self.distance_bias, length, self.config.relative_attention_max_distance)
        if self.relation_bias is not None and counts is not None:
            given = over_predicates(counts, Affine(self.relation_bias))
            bias = given if bias is None else bias + given
        return bias


def num_parameters(model: nn.Module) -> int:
    """Returns a model's number of parameters without computing them."""
    return sum(math.prod(shape) for shape in parameters.shapes(model).values())


@functools.cache  # configs of runs ask several times, and tracing takes a second for large models
def matched_to(config: FOLNetConfig, *, multiple_of: int = 1, **changes: Any) -> TransformerConfig:
    """Returns a Transformer whose encoder and pooler have about as many parameters as those of a FOLNet.

    Vocabulary, D1, layers, attention heads and rates are equal. The width of the feed-forward layers makes up
    for FOLNet's operators and relations. One unit of width is L (2 D1 + 1) parameters, so the difference is
    at most half of that times `multiple_of`. For FOLNet Base the width is 4,639, with 138,388,596 parameters
    against 138,381,952.

    Args:
      config: settings of the FOLNet.
      multiple_of: the width is a multiple of this; accelerators prefer multiples of about 64.
      **changes: settings of the Transformer to change before the width is chosen, such as
        `relative_position="t5"`.

    Raises:
      ValueError: If settings do not fit, or the FOLNet has fewer parameters than the smallest Transformer.
    """
    common = {field.name: getattr(config, field.name) for field in dataclasses.fields(ModelConfig)}
    del common["absolute_position"]  # FOLNet needs none, having relations
    least = TransformerConfig.from_dict({**common, **changes, "intermediate_size": multiple_of})
    step = multiple_of * least.num_hidden_layers * (2 * least.hidden_size + 1)
    missing = num_parameters(FOLNet(config)) - num_parameters(Transformer(least))
    steps = 1 + round(missing / step)
    if steps < 1:
        raise ValueError(
            f"config: got {-missing} parameters fewer than a Transformer of width {multiple_of} has, "
            "expected more"
        )
    return least.replace(intermediate_size=multiple_of * steps)
