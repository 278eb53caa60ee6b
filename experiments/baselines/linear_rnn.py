"""Recurrent cells that are linear in their state, with transitions that depend on the input.

Axis letters: B batch (any number of leading axes), I input features, F state features; H heads, K features of
a key and of a value, S Householder steps per token.
"""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Float, PRNGKeyArray

from experiments.baselines import checks
from experiments.baselines.layers import join_heads


def bounded_columns(matrix: Float[Array, "*B F F"], p: float) -> Float[Array, "*B F F"]:
    """Divides each column whose p-norm exceeds 1 by that norm.

    After Fan et al. (2024), who bound columns at p = 1.2. Permutations stay as they are for any p; at p = 1
    products of bounded matrices are bounded, too.
    """
    # The maximum comes before the root, whose derivative at a column of zeros is infinite.
    power = jnp.maximum(jnp.sum(jnp.abs(matrix) ** p, axis=-2, keepdims=True), 1)
    return matrix / power ** (1 / p)


def full_matrix_step(
    state: Float[Array, "*B F"], transition: Float[Array, "*B F F"], driven: Float[Array, "*B F"]
) -> Float[Array, "*B F"]:
    """h_t = A(x_t) h_{t-1} + B x_t: Merrill et al. (2024), Section 5; A(x_t) and B x_t are given."""
    return jnp.einsum("...ij,...j->...i", transition, state) + driven


class FullMatrixCell(nn.RNNCellBase):
    """Linear RNN with a dense transition that depends on the input: h_t = A(x_t) h_{t-1} + B x_t.

    The input-dependent SSM (IDS4) of Merrill, Petty and Sabharwal, "The Illusion of State in State-Space
    Models" (2024), Section 5: A is affine in x and nothing is squashed, so that the cell can multiply
    permutations. The output is h_t. A(x) starts as the identity plus noise, which for inputs with entries
    around 1 adds about 1 % to the squared length of h at each step; h starts at 0.

    Attributes:
      features: F.
      column_norm: None for no bound on A, or the p of `bounded_columns`: 1.2 in Fan, Chi and Rudnicky,
        "Advancing Regular Language Reasoning in Linear Recurrent Neural Networks" (2024). Without a bound
        the state may grow exponentially with the length of a sequence.
      dtype: dtype of the projections; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters and of the state.
    """

    features: int
    column_norm: float | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @property
    def num_feature_axes(self) -> int:
        """1: an input is a vector."""
        return 1

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> Float[Array, "*B F"]:
        """Returns h_0 = 0 for inputs of shape [*B, I]; the key is not used."""
        return jnp.zeros((*input_shape[:-1], self.features), self.param_dtype)

    @nn.compact
    def __call__(
        self, carry: Float[Array, "*B F"], inputs: Float[Array, "*B I"]
    ) -> tuple[Float[Array, "*B F"], Float[Array, "*B F"]]:
        """Returns the new state and the output, which are the same.

        Raises:
          ValueError: a field or the carry's shape does not fit.
        """
        checks.at_least("features", self.features, 1)
        if self.column_norm is not None and self.column_norm < 1:
            raise ValueError(f"column_norm: got {self.column_norm}, expected None or at least 1")
        checks.shape("carry", carry, "*B F", (*inputs.shape[:-1], self.features))
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}

        def identity(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Dtype) -> Array:
            return jnp.eye(self.features, dtype=dtype).reshape(shape)

        noise = nn.initializers.variance_scaling(0.01 / self.features, "fan_in", "normal")
        matrix = nn.Dense(
            self.features**2, kernel_init=noise, bias_init=identity, name="transition", **types
        )(inputs)
        matrix = matrix.reshape(*inputs.shape[:-1], self.features, self.features).astype(carry.dtype)
        if self.column_norm is not None:
            matrix = bounded_columns(matrix, self.column_norm)
        driven = nn.Dense(self.features, use_bias=False, name="input", **types)(inputs)
        state = full_matrix_step(carry, matrix, driven.astype(carry.dtype))
        return state, state


def unit(x: Float[Array, "*B K"]) -> Float[Array, "*B K"]:
    """Computes x / ||x||; 1e-12 keeps value and gradient finite at 0."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-12)


def delta_step(
    state: Float[Array, "*B V K"],
    key: Float[Array, "*B K"],
    value: Float[Array, "*B V"],
    beta: Float[Array, "*B"],
) -> Float[Array, "*B V K"]:
    """S' = S (I - beta k k^T) + beta v k^T, the delta rule of DeltaNet: Yang et al. (2024).

    Computed as S + beta (v - S k) k^T, without a product of matrices. For a unit key the transition has the
    eigenvalue 1 - beta along k and 1 elsewhere: beta = 2 is a reflection.
    """
    error = value - jnp.einsum("...vk,...k->...v", state, key)
    return state + jnp.einsum("...v,...k->...vk", beta[..., None] * error, key)


class DeltaProductCell(nn.RNNCellBase):
    """DeltaProduct: several steps of the delta rule per token (Siems et al. 2025).

        S_{t,j} = S_{t,j-1} (I - beta_{t,j} k_{t,j} k_{t,j}^T) + beta_{t,j} v_{t,j} k_{t,j}^T,   j = 1 .. S
        o_t = S_{t,S} q_t

    The transition is a product of S generalized Householder matrices. As in Yang et al., "Parallelizing
    Linear Transformers with the Delta Rule over Sequence Length" (2024), q and k are SiLU(W x) divided by
    its length, v is SiLU(W x), and the output is RMSNorm(o_t) for each head. Beta is 2 sigmoid(W x + b), so
    that the eigenvalues of each factor are in [-1, 1]: Grazzi et al. (2025). The output projection is left to
    `RecurrentEncoder`, and there is no short convolution, since a cell sees one input.

    Attributes:
      num_heads: H.
      head_features: K, of keys and values alike; the output has H K features.
      num_householder: S, called n_h in the paper.
      negative_eigenvalues: False for beta = sigmoid(W x) and eigenvalues in [0, 1], as in Yang et al.
      dtype: dtype of the projections; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters and of the state.
    """

    num_heads: int
    head_features: int
    num_householder: int = 2
    negative_eigenvalues: bool = True
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @property
    def num_feature_axes(self) -> int:
        """1: an input is a vector."""
        return 1

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> Float[Array, "*B H K K"]:
        """Returns S_0 = 0 for inputs of shape [*B, I]; the key is not used."""
        sizes = (self.num_heads, self.head_features, self.head_features)
        return jnp.zeros((*input_shape[:-1], *sizes), self.param_dtype)

    @nn.compact
    def __call__(
        self, carry: Float[Array, "*B H K K"], inputs: Float[Array, "*B I"]
    ) -> tuple[Float[Array, "*B H K K"], Float[Array, "*B HK"]]:
        """Returns the new state, values by keys, and the output.

        Raises:
          ValueError: a field or the carry's shape does not fit.
        """
        for name in ("num_heads", "head_features", "num_householder"):
            checks.at_least(name, getattr(self, name), 1)
        heads, features, steps = self.num_heads, self.head_features, self.num_householder
        checks.shape("carry", carry, "*B H K K", (*inputs.shape[:-1], heads, features, features))

        def project(name: str, *sizes: int) -> Array:
            types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
            dense = nn.Dense(math.prod(sizes), use_bias=name == "beta", name=name, **types)
            return dense(inputs).reshape(*inputs.shape[:-1], *sizes).astype(carry.dtype)

        query = unit(nn.silu(project("query", heads, features)))
        key = unit(nn.silu(project("key", steps, heads, features)))
        value = nn.silu(project("value", steps, heads, features))
        beta = nn.sigmoid(project("beta", steps, heads)) * (2 if self.negative_eigenvalues else 1)
        state = carry
        for j in range(steps):
            state = delta_step(state, key[..., j, :, :], value[..., j, :, :], beta[..., j, :])
        outputs = jnp.einsum("...vk,...k->...v", state, query)
        norm = nn.RMSNorm(1e-5, param_dtype=self.param_dtype, use_fast_variance=False, name="norm")
        return state, join_heads(norm(outputs))


class DeltaNetCell(DeltaProductCell):
    """DeltaNet: one step of the delta rule per token (Yang et al. 2024), with eigenvalues in [-1, 1].

    `DeltaProductCell` with `num_householder=1`; fields and equations are there. Negative eigenvalues are from
    Grazzi et al., "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues" (2025).
    """

    num_householder: int = 1
