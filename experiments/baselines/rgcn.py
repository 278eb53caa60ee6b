"""The relational graph convolutional network, for graphs with several types of edges.

Axis letters: B batch, N nodes, R relations, D features, F output features of a layer, P bases.
"""

import jax.numpy as jnp
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from experiments.baselines import checks
from experiments.baselines.layers import one_hot_relations


def adjacency_of(relations: Int[Array, "B N N"], num_relations: int) -> Float[Array, "B R N N"]:
    """Returns the adjacency of graphs with one relation per pair: 1 at [b, r, i, j] where r_ij = r.

    A relation of -1 makes no edge.

    Raises:
      ValueError: the shape, the dtype or (unless traced) a relation does not fit.
    """
    checks.square(relations)
    batch, length, _ = relations.shape
    checks.relations(relations, num_relations, (batch, length, length))
    return jnp.moveaxis(one_hot_relations(relations, num_relations), -1, 1)


def normalized(edges: Float[Array, "B R N N"]) -> Float[Array, "B R N N"]:
    """Divides edges by c_ir = |N_i^r|, the number of edges of relation r into node i; no edges stay 0."""
    degree = jnp.sum(edges, axis=-1, keepdims=True)
    return edges / jnp.where(degree == 0, 1, degree)


def aggregate(
    states: Float[Array, "B N D"], edges: Float[Array, "B P N N"], weights: Float[Array, "P D F"]
) -> Float[Array, "B N F"]:
    """Computes sum_p sum_j edges_pij W_p h_j, the messages in Schlichtkrull et al. (2018), equation 2."""
    messages = jnp.einsum("bjd,pdf->bpjf", states, weights)
    return jnp.einsum("bpij,bpjf->bif", edges, messages)


class RelationalConvolution(nn.Module):
    """One layer of an R-GCN before its activation: Schlichtkrull et al. (2018), equations 2 and 3.

        sum_r sum_{j in N_i^r} 1/c_ir W_r h_j + W_0 h_i,    W_r = sum_b a_rb V_b

    Edges are combined by a_rb before messages are formed: P products, not R.

    Attributes:
      features: F.
      num_bases: P, the number of matrices V_b; None gives each relation a matrix of its own.
      dtype: dtype of the products; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    features: int
    num_bases: int | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, states: Float[Array, "B N D"], edges: Float[Array, "B R N N"]
    ) -> Float[Array, "B N F"]:
        """Returns the sums above for normalized edges."""
        num_relations = edges.shape[1]
        count = num_relations if self.num_bases is None else self.num_bases
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal", batch_axis=(0,))
        weights = self.param("bases", init, (count, states.shape[-1], self.features), self.param_dtype)
        states, edges, weights = promote_dtype(states, edges, weights, dtype=self.dtype)
        if self.num_bases is not None:
            # A row has length 1 on average, so that W_r starts at the scale of the bases.
            init, shape = nn.initializers.normal(count**-0.5), (num_relations, count)
            coefficients = self.param("coefficients", init, shape, self.param_dtype)
            edges = jnp.einsum("brij,rp->bpij", edges, coefficients.astype(edges.dtype))
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        own = nn.Dense(self.features, use_bias=False, name="self_loop", **types)(states)
        return aggregate(states, edges, weights) + own


class RGCN(nn.Module):
    """Relational graph convolutional network of Schlichtkrull et al. (2018) on embedded nodes.

    A ReLU follows each layer but the last. There are no biases.

    Attributes:
      num_layers: number of layers, 2 at least.
      hidden: F of all layers but the last, whose F is D.
      num_bases: P, the number of basis matrices that relations share; None for a matrix per relation.
      dtype: dtype of the products; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    num_layers: int
    hidden: int
    num_bases: int | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        adjacency: Float[Array, "B R N N"] | Bool[Array, "B R N N"],
        mask: Bool[Array, "B N"] | None = None,
    ) -> Float[Array, "B N D"]:
        """Returns the states of the last layer.

        Args:
          inputs: embedded nodes.
          adjacency: 1 or True at [b, r, i, j] where node i receives messages of relation r from node j, as
            from `adjacency_of`. The paper also has the inverse of each relation, as another relation.
          mask: False at padding, which no node receives messages from. The states there are unspecified.

        Raises:
          ValueError: a field, shape or dtype does not fit.
        """
        checks.floats("inputs", inputs, "B N D")
        batch, length, features = inputs.shape
        if adjacency.ndim != 4:
            raise ValueError(f"adjacency: got shape {adjacency.shape}, expected [B, R, N, N]")
        checks.shape("adjacency", adjacency, "B R N N", (batch, adjacency.shape[1], length, length))
        if adjacency.dtype != jnp.bool_ and not jnp.issubdtype(adjacency.dtype, jnp.floating):
            raise ValueError(f"adjacency: got dtype {adjacency.dtype}, expected bool or floating point")
        checks.mask(mask, (batch, length))
        checks.at_least("num_layers", self.num_layers, 2)
        checks.at_least("hidden", self.hidden, 1)
        if self.num_bases is not None:
            checks.at_least("num_bases", self.num_bases, 1)
        edges = adjacency.astype(inputs.dtype)
        if mask is not None:
            edges = edges * mask[:, None, None, :].astype(edges.dtype)
        edges = normalized(edges)
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        states = inputs
        for i in range(self.num_layers - 1):
            layer = RelationalConvolution(self.hidden, self.num_bases, name=f"layer_{i}", **types)
            states = nn.relu(layer(states, edges))
        name = f"layer_{self.num_layers - 1}"
        return RelationalConvolution(features, self.num_bases, name=name, **types)(states, edges)
