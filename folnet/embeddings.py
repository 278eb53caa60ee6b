"""Base atoms: what is known of the tokens and pairs of a text before any deduction (Appendix A.4).

Axis letters: B batch; T tokens; D1 properties; D2 relations; K relations given per pair; R all relations that
can be given; V words; C columns of a decoder's relations.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from folnet import positions
from folnet.affine import Affine, over_predicates
from folnet.configuration import FOLNetConfig
from folnet.dropout import Dropout
from folnet.linear import Linear, table
from kernels.normalization import normalize


class Tables(nn.Module):
    """The tables of words, segments and absolute positions that all encoders share."""

    config: Any

    def setup(self):
        config = self.config
        self.word = table(self, "word", config.vocab_size, config.hidden_size)
        self.type = table(self, "type", config.type_vocab_size, config.hidden_size)
        given = config.max_position_embeddings if config.absolute_position else 0
        self.position = table(self, "position", given, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def properties(
        self,
        input_ids: Int[Array, "B T"] | None,
        token_type_ids: Int[Array, "B T"],
        start: Int[Array, "B"] | None = None,
    ) -> Float[Array, "B T D1"]:
        """Returns unary base atoms before normalization, of tokens at positions from `start` (default 0).

        Tokens before position 0, which are padding, have position 0.
        """
        unary = looked_up(self.type, token_type_ids)
        if input_ids is not None:
            unary += looked_up(self.word, input_ids)
        if self.position is not None:
            length = unary.shape[1]
            if start is None:
                unary += self.position[None, :length]
            else:  # texts of different lengths, each continued at its own position
                places = start[:, None] + jnp.arange(length)[None]
                unary += looked_up(self.position, jnp.maximum(places, 0))
        return unary

    def logits(self, unary: Float[Array, "B T D1"]) -> Float[Array, "B T V"]:
        """Returns logits of words for each token, by the word table; sums in at least float32."""
        flat = unary.reshape(-1, unary.shape[-1])
        product = jnp.matmul(
            flat,
            self.word.T.astype(flat.dtype),
            preferred_element_type=jnp.promote_types(flat.dtype, jnp.float32),
        )
        return product.reshape(*unary.shape[:-1], len(self.word))


class Embeddings(Tables):
    """The base atoms of tokens and pairs, as normalized vectors."""

    config: FOLNetConfig

    def setup(self):
        super().setup()
        config = self.config
        self.relative = table(self, "relative", config.num_relative_positions, config.relation_size)
        self.relation = table(self, "relation", config.relation_vocab_size, config.relation_size)
        self.diagonal = (
            Linear(config, config.hidden_size, config.relation_size) if config.diagonal_link else None
        )

    def __call__(
        self,
        input_ids: Int[Array, "B T"] | None,
        token_type_ids: Int[Array, "B T"],
        *,
        inputs_embeds: Float[Array, "B T D1"] | None = None,
        relation_ids: Int[Array, "B T T *K"] | None = None,
        relation_embeds: Float[Array, "B T T D2"] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B T D1"], Float[Array, "B D2 T T"]]:
        """Returns u_0(x) and u_0(x, y) in the compute dtype; arguments are those of `FOLNet`."""
        unary = self.properties(input_ids, token_type_ids)
        if inputs_embeds is not None:
            unary += inputs_embeds
        relation = self.relations(token_type_ids, relation_ids, relation_embeds)
        return self.finish(unary, self.linked(unary, relation), deterministic)

    def linked(
        self, unary: Float[Array, "B T D1"], relation: Float[Array, "#B D2 T T"]
    ) -> Float[Array, "#B D2 T T"]:
        """Adds the mapped unary base atoms to the diagonal of the binary ones, if there is such a link."""
        if self.diagonal is None:
            return relation
        linked = self.diagonal(unary).swapaxes(1, 2)[..., None]
        return relation + jnp.eye(unary.shape[1], dtype=linked.dtype)[None, None] * linked

    def relations(
        self,
        token_type_ids: Int[Array, "B T"],
        relation_ids: Int[Array, "B T T *K"] | None = None,
        relation_embeds: Float[Array, "B T T D2"] | None = None,
    ) -> Float[Array, "B D2 T T"]:
        """Returns binary base atoms of whole texts before normalization."""
        batch, length = token_type_ids.shape
        match self.config.relative_position:
            case "folnet":
                relation = positions.relative_atoms(self.relative, token_type_ids, self.config.max_distance)
            case "t5":
                distance = self.config.relative_attention_max_distance
                relation = positions.t5_atoms(self.relative, length, distance)
            case _:
                relation = jnp.zeros((1, self.config.relation_size, length, length), self.word.dtype)
        relation = jnp.broadcast_to(relation, (batch, *relation.shape[1:]))
        if relation_ids is not None:
            counts = relation_counts(relation_ids, len(self.relation), relation.dtype)
            relation += over_predicates(counts, Affine(self.relation))
        if relation_embeds is not None:
            relation += jnp.moveaxis(relation_embeds, -1, 1)
        return relation

    def finish(
        self, unary: Float[Array, "B T D1"], relation: Float[Array, "#B D2 T C"], deterministic: bool = True
    ) -> tuple[Float[Array, "B T D1"], Float[Array, "#B D2 T C"]]:
        """Normalizes, casts to the compute dtype and applies dropout."""
        eps, dtype = self.config.layer_norm_eps, jnp.dtype(self.config.dtype)
        unary, relation = normalize(unary, eps).astype(dtype), normalize(relation, eps, axis=1).astype(dtype)
        unary = self.dropout(unary, deterministic=deterministic)
        return unary, self.dropout(relation, deterministic=deterministic)


def looked_up(table: Float[Array, "V D1"], ids: Int[Array, "*B"]) -> Float[Array, "*B D1"]:
    """Returns rows of a table by number; NaN for numbers out of range, negative ones too."""
    return jnp.asarray(table).at[ids].get(mode="fill", wrap_negative_indices=False)


def relation_counts(
    relation_ids: Int[Array, "B T T *K"], num_relations: int, dtype: Any = jnp.float32
) -> Float[Array, "B R T T"]:
    """Counts how often each relation is given for a pair; -1 stands for none, other unknown numbers give NaN.

    The product of counts and a table is the sum of the pair's rows, and its gradient is a product too.
    """
    given = jnp.asarray(relation_ids, jnp.int32)  # narrow types may lack -1 or `num_relations`
    given = given.reshape(*given.shape[:3], -1)
    held = functools.partial(jax.nn.one_hot, num_classes=num_relations, dtype=dtype, axis=1)
    known = ((given >= -1) & (given < num_relations)).all(axis=-1)
    counts = jnp.where(known, 0, jnp.nan).astype(dtype)[:, None]
    for k in range(given.shape[-1]):
        counts += held(given[..., k])
    return counts
