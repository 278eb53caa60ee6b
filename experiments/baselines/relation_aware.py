"""The relation-aware Transformer, for graphs in which each pair of nodes has a relation.

Axis letters: B batch, N nodes, D features, H heads, K features of a head, R relations.
"""

from typing import get_args

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from experiments.baselines import checks
from experiments.baselines.layers import (
    Dense,
    Norm,
    Stack,
    attention_weights,
    join_heads,
    one_hot_relations,
    project_heads,
)


def relation_aware_attend(
    query: Float[Array, "B N H K"],
    key: Float[Array, "B N H K"],
    value: Float[Array, "B N H K"],
    relations: Float[Array, "B N N R"],
    relation_keys: Float[Array, "R K"],
    relation_values: Float[Array, "R K"],
    mask: Bool[Array, "#B #H #N #N"] | None = None,
) -> Float[Array, "B N H K"]:
    """Attention with relations on keys and values: Shaw et al. (2018), equations 3 and 4.

        z_i = sum_j alpha_ij (v_j + a^V_ij)                                   (3)
        e_ij = q_i . (k_j + a^K_ij) / sqrt(K),  alpha_ij = softmax_j(e_ij)    (4)

    `relations` are one-hot and a_ij is the row of relation r_ij. In the manner of their equation 5 no
    [B, N, N, K] array is formed: queries meet the R rows before the pairs, and weights are summed by relation
    before they meet the rows.
    """
    wide = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.einsum("bihk,bjhk->bhij", query, key, preferred_element_type=wide)
    by_relation = jnp.einsum("bihk,rk->bhir", query, relation_keys, preferred_element_type=wide)
    logits += jnp.einsum("bhir,bijr->bhij", by_relation, relations.astype(wide))
    weights = attention_weights(logits, query.shape[-1], mask).astype(value.dtype)
    mixed = jnp.einsum("bhij,bjhk->bihk", weights, value)
    by_relation = jnp.einsum("bhij,bijr->bhir", weights, relations)
    return mixed + jnp.einsum("bhir,rk->bihk", by_relation, relation_values)


class RelationAwareAttention(nn.Module):
    """Multi-head self-attention of Shaw et al. (2018); its heads share the vectors of relations.

    Attributes:
      num_heads: H, a divisor of D.
      num_relations: R.
      dtype: dtype of the products; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    num_heads: int
    num_relations: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        relations: Float[Array, "B N N R"],
        mask: Bool[Array, "B 1 1 N"] | None = None,
    ) -> Float[Array, "B N D"]:
        """Attends from each node to the nodes that the mask allows; `relations` are one-hot."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        features = inputs.shape[-1]
        query, key, value = project_heads(inputs, self.num_heads, "query", "key", "value", **types)
        shape = (self.num_relations, features // self.num_heads)
        init = nn.initializers.normal(shape[1] ** -0.5)
        keys, values = (
            self.param(name, init, shape, self.param_dtype).astype(value.dtype)
            for name in ("relation_keys", "relation_values")
        )
        mixed = relation_aware_attend(query, key, value, relations.astype(value.dtype), keys, values, mask)
        return Dense(features, name="output", **types)(join_heads(mixed))


class RelationAwareTransformer(nn.Module):
    """Transformer encoder whose attention sees a relation per ordered pair of nodes: Shaw et al. (2018).

    Each layer has its own vectors of relations. On a sequence, relations can be clipped distances.

    Attributes:
      num_layers: number of layers.
      num_heads: H, a divisor of D.
      hidden: width of the feed-forward blocks.
      num_relations: R.
      norm: "pre" (Xiong et al. 2020) or "post" (Vaswani et al. 2017, as in Shaw et al.).
      dtype: dtype of the products; None takes the widest of inputs and parameters. Softmax is float32 at
        least.
      param_dtype: dtype of the parameters.
    """

    num_layers: int
    num_heads: int
    hidden: int
    num_relations: int
    norm: Norm = "pre"
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        relations: Int[Array, "B N N"],
        mask: Bool[Array, "B N"] | None = None,
    ) -> Float[Array, "B N D"]:
        """Returns the states of the last layer.

        Args:
          inputs: embedded nodes.
          relations: r_ij, from 0 to R - 1, or -1 for a pair without a relation, which adds nothing.
          mask: False at padding, which no node attends to. The states there are unspecified.

        Raises:
          ValueError: a field, shape, dtype or (unless traced) relation does not fit.
        """
        checks.floats("inputs", inputs, "B N D")
        batch, length, features = inputs.shape
        checks.relations(relations, self.num_relations, (batch, length, length))
        checks.mask(mask, (batch, length))
        checks.encoder(self.num_layers, self.hidden, self.norm, get_args(Norm))
        checks.divides("num_heads", self.num_heads, "the features of inputs", features)
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        attention = RelationAwareAttention(self.num_heads, self.num_relations, parent=None, **types)
        stack = Stack(attention, self.num_layers, self.hidden, self.norm, name="stack", **types)
        allowed = None if mask is None else mask[:, None, None, :]
        return stack(inputs, one_hot_relations(relations, self.num_relations), allowed)
