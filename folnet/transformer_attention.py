"""Self-attention with optional information on pairs of tokens, as in T5 and in Shaw et al. (2018).

FOLNet's operators include all of its parts (Chen 2023, Appendix E): assoc computes the scores of attention,
join sums by them, and prod and mu are the two terms that Shaw et al. add.

Axis letters: B batch; T, X, Y, A tokens; D1 features; H heads; S features of a head; R relations; N rows of a
table.
"""

import functools

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from folnet import operators, positions
from folnet.affine import Affine, over_predicates
from folnet.dropout import Dropout
from folnet.linear import Linear, table
from folnet.transformer_configuration import TransformerConfig


def attention(
    query: Float[Array, "B X H S"],
    key: Float[Array, "B A H S"],
    value: Float[Array, "B A H S"],
    *,
    bias: Float[Array, "#B H X A"] | None = None,
    relation_keys: Float[Array, "#B S X A"] | None = None,
    relation_premise: Float[Array, "#B S X A"] | None = None,
    mask: Bool[Array, "#B #H #X #A"] | None = None,
    dropout: operators.Dropout | None = None,
) -> Float[Array, "B X H S"]:
    """Relation-aware self-attention, equations (3) and (4) of Shaw et al. (2018), with an additional bias.

        z_h(x) = sum_a softmax_a(<q_h(x), k_h(a) + k(x, a)> / sqrt(S) + b_h(x, a)) (v_h(a) + v(x, a))

    Here k(x, a) is `relation_keys`, v(x, a) is `relation_premise` and b is `bias`. The mask is True
    where x may attend to a; where there is no such a, z is 0.
    """
    kernel = attention_kernel(query, key, bias=bias, relation_keys=relation_keys, mask=mask, dropout=dropout)
    result = jnp.einsum("bhxa,bahs->bxhs", kernel, value)
    if relation_premise is None:
        return result
    if relation_premise.shape[0] == 1:
        return result + jnp.einsum("bhxa,sxa->bxhs", kernel, relation_premise[0])
    return result + jnp.einsum("bhxa,bsxa->bxhs", kernel, relation_premise)


def attention_kernel(
    query: Float[Array, "B X H S"],
    key: Float[Array, "B A H S"],
    *,
    bias: Float[Array, "#B H X A"] | None = None,
    relation_keys: Float[Array, "#B S X A"] | None = None,
    mask: Bool[Array, "#B 1 #X #A"] | None = None,
    dropout: operators.Dropout | None = None,
) -> Float[Array, "B H X A"]:
    """Returns the weights of `attention`, whose arguments these are."""
    query = query * query.shape[-1] ** -0.5
    scores = operators.assoc(query, key)
    if relation_keys is not None and relation_keys.shape[0] == 1:
        # One table for the whole batch: one product per x.
        scores += jnp.einsum("bxhs,sxa->bhxa", query, relation_keys[0])
    elif relation_keys is not None:
        scores += operators.prod(query, relation_keys)
    if bias is not None:
        scores += bias.astype(scores.dtype)
    return operators.softmax_kernel(scores, mask, dropout=dropout)


def pair_vectors(
    table: Float[Array, "N S"],
    length: int,
    max_distance: int | None,
    counts: Float[Array, "B R T T"] | None,
) -> Float[Array, "#B S T T"]:
    """Returns vectors for all pairs: the sum of those for clipped distances and for relations by `counts`.

    The table has rows for the distances -k to k, with k = `max_distance`, unless that is None, then rows for
    relations.
    """
    vectors = []
    if max_distance is not None:
        offsets = np.clip(np.arange(1 - length, length), -max_distance, max_distance)
        vectors.append(positions.diagonals(positions.rows_of(table, offsets + max_distance))[None])
        table = table[2 * max_distance + 1 :]
    if counts is not None:
        vectors.append(over_predicates(counts, Affine(table)))
    return sum(vectors[1:], start=vectors[0])


class SelfAttention(nn.Module):
    """Attention with its projections, all of which have biases, as in BERT."""

    config: TransformerConfig

    def setup(self):
        config = self.config
        width = config.num_attention_heads * config.head_size
        self.query, self.key, self.value = (Linear(config, config.hidden_size, width) for _ in range(3))
        self.output = Linear(config, width, config.hidden_size)
        self.pair_keys = table(self, "pair_keys", config.num_pair_vectors, config.head_size)
        self.pair_values = table(self, "pair_values", config.num_pair_vectors, config.head_size)
        self.dropout = Dropout(config.attention_probs_dropout_prob)

    def __call__(
        self,
        unary: Float[Array, "B T D1"],
        bias: Float[Array, "#B H T T"] | None,
        counts: Float[Array, "B R T T"] | None,
        mask: Bool[Array, "#B 1 #T #T"] | None,
        deterministic: bool,
    ) -> Float[Array, "B T D1"]:
        """Applies attention; `counts` says how often each given relation holds for a pair."""
        drops = not deterministic and self.config.attention_probs_dropout_prob > 0
        result = attention(
            *(self._heads(project(unary)) for project in (self.query, self.key, self.value)),
            bias=bias,
            relation_keys=self._vectors(self.pair_keys, unary, counts),
            relation_premise=self._vectors(self.pair_values, unary, counts),
            mask=mask,
            dropout=functools.partial(self.dropout, deterministic=False) if drops else None,
        )
        return self.output(result.reshape(*unary.shape[:2], -1))

    def kernels(
        self,
        unary: Float[Array, "B T D1"],
        bias: Float[Array, "#B H T T"] | None,
        counts: Float[Array, "B R T T"] | None,
        mask: Bool[Array, "#B 1 #T #T"] | None,
    ) -> Float[Array, "B H T T"]:
        """Returns the weights of attention, without dropout."""
        keys = self._vectors(self.pair_keys, unary, counts)
        query, key = (self._heads(project(unary)) for project in (self.query, self.key))
        return attention_kernel(query, key, bias=bias, relation_keys=keys, mask=mask)

    @nn.nowrap
    def _heads(self, features: Float[Array, "B T HS"]) -> Float[Array, "B T H S"]:
        return features.reshape(*features.shape[:2], self.config.num_attention_heads, self.config.head_size)

    def _vectors(self, table, unary, counts):
        config = self.config
        if config.relation_attention != "shaw":
            counts = None
        distance = config.max_distance if config.relative_position == "shaw" else None
        if table is None or (distance is None and counts is None):
            return None
        return pair_vectors(table.astype(unary.dtype), unary.shape[1], distance, counts)
