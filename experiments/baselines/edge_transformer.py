"""The Edge Transformer, for graphs: it keeps a state for each ordered pair of nodes.

Axis letters: B batch, N nodes, D features, H heads, K features of a head, R relations, I features of a node.
In einsum strings an edge leads from i to j, and l is the node between two edges.
"""

from typing import get_args

import jax
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


def triangular_attend(
    query: Float[Array, "B N N H K"],
    key: Float[Array, "B N N H K"],
    value1: Float[Array, "B N N H K"],
    value2: Float[Array, "B N N H K"],
    mask: Bool[Array, "B N"] | None = None,
) -> Float[Array, "B N N H K"]:
    """Triangular attention: Bergen, O'Donnell and Bahdanau (2021), equations 2 to 4.

        a_ij = sum_l alpha_ilj v_ilj,   alpha_ilj = softmax_l(q_il . k_lj / sqrt(K)),   v_ilj = v1_il * v2_lj

    Rows i are computed one after the other, and again for the gradient: memory is O(B N^2 H K), where all
    v_ilj at once take O(B N^3 H K). On two CPU cores that is also faster.

    Edge (i, j) is at [:, i, j]; a node where the mask is False is no l.
    """
    wide = jnp.promote_types(query.dtype, jnp.float32)
    allowed = None if mask is None else mask[:, None, None, :]

    @jax.checkpoint
    def row(edges: tuple[Array, Array]) -> Array:
        query, value1 = edges  # of the edges from i, [B, L, H, K]
        logits = jnp.einsum("blhk,bljhk->bhjl", query, key, preferred_element_type=wide)
        weights = attention_weights(logits, query.shape[-1], allowed).astype(value1.dtype)
        return jnp.einsum("bhjl,blhk,bljhk->bjhk", weights, value1, value2)

    by_source = jnp.moveaxis(query, 1, 0), jnp.moveaxis(value1, 1, 0)
    return jnp.moveaxis(jax.lax.map(row, by_source), 0, 1)


class TriangularAttention(nn.Module):
    """Multi-head triangular attention of Bergen et al. (2021).

    Attributes:
      num_heads: H, a divisor of D.
      dtype: dtype of the products; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    num_heads: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, edges: Float[Array, "B N N D"], mask: Bool[Array, "B N"] | None = None
    ) -> Float[Array, "B N N D"]:
        """Updates each edge from the pairs of edges that connect its source and its target."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        names = ("query", "key", "value1", "value2")
        query, key, value1, value2 = project_heads(edges, self.num_heads, *names, **types)
        mixed = triangular_attend(query, key, value1, value2, mask)
        return Dense(edges.shape[-1], name="output", **types)(join_heads(mixed))


class EdgeTransformer(nn.Module):
    """Edge Transformer of Bergen, O'Donnell and Bahdanau (2021) on embedded edges.

    Layers are those of a Transformer with triangular attention (their equation 1): pre-LN, x + f(LN(x)), or
    post-LN. The authors' released code for relational reasoning adds f(LN(x)) to LN(x) instead.

    Attributes:
      num_layers: number of layers.
      num_heads: H, a divisor of D.
      hidden: width of the feed-forward blocks.
      norm: "pre" or "post".
      dtype: dtype of the products; None takes the widest of inputs and parameters. Softmax is float32 at
        least.
      param_dtype: dtype of the parameters.
    """

    num_layers: int
    num_heads: int
    hidden: int
    norm: Norm = "pre"
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, edges: Float[Array, "B N N D"], mask: Bool[Array, "B N"] | None = None
    ) -> Float[Array, "B N N D"]:
        """Returns the states of all edges after the last layer.

        Args:
          edges: embedded edges, as from `EdgeEmbedding`.
          mask: False at nodes that are padding, which attention does not pass through. The states of their
            edges are unspecified.

        Raises:
          ValueError: a field, shape or dtype does not fit.
        """
        checks.floats("edges", edges, "B N N D")
        batch, length, _, features = edges.shape
        checks.shape("edges", edges, "B N N D", (batch, length, length, features))
        checks.mask(mask, (batch, length))
        checks.encoder(self.num_layers, self.hidden, self.norm, get_args(Norm))
        checks.divides("num_heads", self.num_heads, "the features of edges", features)
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        attention = TriangularAttention(self.num_heads, parent=None, **types)
        return Stack(attention, self.num_layers, self.hidden, self.norm, name="stack", **types)(edges, mask)


class EdgeEmbedding(nn.Module):
    """Embeds the relation of each ordered pair of nodes: the inputs of an Edge Transformer.

    x_ij = E[r_ij], as Bergen et al. (2021) embed graphs; with nodes n, x_ij = E[r_ij] + W_1 n_i + W_2 n_j.

    Attributes:
      features: D.
      num_relations: R.
      dtype: dtype of the products; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    features: int
    num_relations: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, relations: Int[Array, "B N N"], nodes: Float[Array, "B N I"] | None = None
    ) -> Float[Array, "B N N D"]:
        """Returns the embedded edges; a relation of -1 adds nothing.

        Raises:
          ValueError: a shape, dtype or (unless traced) relation does not fit.
        """
        checks.square(relations)
        batch, length, _ = relations.shape
        checks.relations(relations, self.num_relations, (batch, length, length))
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        shape = (self.num_relations, self.features)
        table = self.param("relations", nn.initializers.normal(1.0), shape, self.param_dtype)
        dtype = self.dtype or self.param_dtype
        edges = one_hot_relations(relations, self.num_relations, dtype) @ table.astype(dtype)
        if nodes is None:
            return edges
        checks.floats("nodes", nodes, "B N I")
        checks.shape("nodes", nodes, "B N I", (batch, length, nodes.shape[-1]))
        source, target = (
            Dense(self.features, use_bias=False, name=name, **types)(nodes) for name in ("source", "target")
        )
        return edges + source[:, :, None] + target[:, None]
