"""Baselines that say what every person is to every other: an encoder in loops, read from pairs.

They are compared with `pairs.PairClassifier`, so they are trained in the same way: the same loops, with one
set of weights, and a loss after each. The graph convolutional network is not looped: it has a layer of its
own for each loop. A relation (x, r, y) is also an edge from y to x, with the inverse of r as its relation.

Axis letters: B batch; T tokens; N nodes; D features; R relations; C classes.
"""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from experiments import baselines
from experiments.baselines.transformer import Positions
from experiments.kinship import parts
from experiments.kinship.pairs import CLASSES
from experiments.kinship.parts import PairConfig
from folnet import TransformerConfig
from folnet.looped import settled

BASES = 4
"""Matrices that the relations of the graph convolutional network share."""


def positions_of(name: str) -> Positions:
    """Returns how a model that cannot take relations sees the order of its tokens."""
    return "t5" if name == parts.T5 else "learned"


class EncoderClassifier(nn.Module):
    """A baseline whose last states of pairs, or of both people of a pair, are read as relations.

    Attributes:
      name_of: the model, one of `parts.ENCODERS`.
      config: sizes. Fields that no such model has are not used.
      pairs: numbers of loops.
      num_nodes: N, for models that read a graph as tokens: the first N tokens are its nodes. None: all are.
      ordered: whether the tokens of a model that cannot take relations have positions.
    """

    name_of: str
    config: TransformerConfig
    pairs: PairConfig
    num_nodes: int | None = None
    ordered: bool = True

    def setup(self):
        config, hidden = self.config, self.config.intermediate_size
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        relations = 2 * config.relation_vocab_size
        self.encoder: Any
        self.tokens = nn.Embed(config.vocab_size, config.hidden_size)
        self.segments = nn.Embed(config.type_vocab_size, config.hidden_size)
        match self.name_of:
            case parts.RELATION_AWARE:
                self.encoder = baselines.RelationAwareTransformer(layers, heads, hidden, relations)
            case parts.EDGE_TRANSFORMER:
                self.edges = baselines.EdgeEmbedding(config.hidden_size, relations)
                self.encoder = baselines.EdgeTransformer(layers, heads, hidden)
            case parts.RGCN:
                self.encoder = baselines.RGCN(layers * self.pairs.loops, hidden, BASES)
            case _:
                self.encoder = baselines.Transformer(
                    layers,
                    heads,
                    hidden,
                    norm="post" if self.name_of == parts.BERT else "pre",
                    positions=positions_of(self.name_of) if self.ordered else "none",
                    max_length=config.max_position_embeddings,
                )
        if self.name_of != parts.EDGE_TRANSFORMER:
            self.first, self.second = nn.Dense(config.hidden_size), nn.Dense(config.hidden_size)
        self.classes = nn.Dense(CLASSES)

    def __call__(
        self,
        input_ids: Int[Array, "B T"],
        token_type_ids: Int[Array, "B T"] | None = None,
        attention_mask: Bool[Array, "B T"] | None = None,
        deterministic: bool = True,
        *,
        inputs_embeds: Float[Array, "B T D"] | None = None,
        relation_ids: Int[Array, "B T T"] | None = None,
        num_loops: int | None = None,
        ahead: int | Int[Array, ""] = 0,
    ) -> list[Float[Array, "B N N C"]]:
        """Returns the logits of all pairs after each loop; arguments are those of `LoopedFOLNet`."""
        nodes = self.tokens(input_ids)
        if token_type_ids is not None or self.is_initializing():
            nodes += self.segments(jnp.zeros_like(input_ids) if token_type_ids is None else token_type_ids)
        if inputs_embeds is not None:
            nodes += inputs_embeds
        batch, length = input_ids.shape
        if relation_ids is None:
            relation_ids = jnp.full((batch, length, length), -1)
        turned, count = jnp.swapaxes(relation_ids, 1, 2), self.config.relation_vocab_size
        both = jnp.where(relation_ids >= 0, relation_ids, jnp.where(turned >= 0, count + turned, -1))
        inputs: Any = nodes
        context: Any = ()
        match self.name_of:
            case parts.EDGE_TRANSFORMER:
                inputs = self.edges(both, nodes)
            case parts.RELATION_AWARE:
                context = (both,)
            case parts.RGCN:
                context = (baselines.adjacency_of(both, 2 * count),)
        still: Any = (inputs, context, attention_mask, deterministic)
        if self.name_of == parts.RGCN:
            return [self._read(self.encoder(inputs, *context, attention_mask))]
        (states,) = settled(self, (jnp.zeros_like(inputs),), still, ahead)
        every = []
        for _ in range(self.pairs.loops if num_loops is None else num_loops):
            (states,) = self.loop(states, *still)
            every.append(self._read(states))
        return every

    def loop(
        self,
        states: Float[Array, "B *N D"],
        inputs: Float[Array, "B *N D"],
        context: Any,
        mask: Bool[Array, "B T"] | None,
        deterministic: bool,
    ) -> tuple[Float[Array, "B *N D"]]:
        """Returns the states after one more loop, to which the inputs are added before it."""
        del deterministic
        return (self.encoder(states + inputs, *context, mask),)

    def _read(self, states: Array) -> Float[Array, "B N N C"]:
        if self.name_of == parts.EDGE_TRANSFORMER:
            return self.classes(states)
        nodes = states[:, : self.num_nodes]
        return self.classes(nn.relu(self.first(nodes)[:, :, None] + self.second(nodes)[:, None]))
