"""A control without programs: a multilayer perceptron makes the operator of each step from its input.

Axis letters: B batch (any number of leading axes), I input features, M features of the operator, D features
of the state.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Float, PRNGKeyArray

from experiments.baselines import checks
from llrnn.cells.recurrent import unit_or


class MLPOperatorCell(nn.RNNCellBase):
    """h' = V(z) h / |V(z) h| with z = relu(W_2 relu(W_1 x + b_1) + b_2) and V(z) = sum_m z_m V_m.

    It has the state, the update and the read-out of a normalized linear logic cell, and can represent any
    operator for each input, but nothing ties the operator of (k, g) to those of g with other k: what it lacks
    is the program. The state starts at the first unit vector, and the output is the state. As in the linear
    logic cell, a new state of length 0, here of an input for which all of z are 0, does not replace the old
    one; otherwise the gradient overflows, and one such input ends a run.

    Attributes:
      features: D.
      operator_features: M.
      hidden: width of the perceptron's hidden layer.
      dtype: dtype of the products; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters and of the state.
    """

    features: int
    operator_features: int = 24
    hidden: int = 64
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @property
    def num_feature_axes(self) -> int:
        """1: an input is a vector."""
        return 1

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> Float[Array, "*B D"]:
        """Returns the first unit vector for inputs of shape [*B, I]; the key is not used."""
        first = jax.nn.one_hot(0, self.features, dtype=self.param_dtype)
        return jnp.broadcast_to(first, (*input_shape[:-1], self.features))

    @nn.compact
    def __call__(
        self, carry: Float[Array, "*B D"], inputs: Float[Array, "*B I"]
    ) -> tuple[Float[Array, "*B D"], Float[Array, "*B D"]]:
        """Returns the new state and the output, which are the same.

        Raises:
          ValueError: a field or the carry's shape does not fit.
        """
        for name in ("features", "operator_features", "hidden"):
            checks.at_least(name, getattr(self, name), 1)
        checks.shape("carry", carry, "*B D", (*inputs.shape[:-1], self.features))
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        hidden = nn.relu(nn.Dense(self.hidden, name="hidden", **types)(inputs))
        made = nn.relu(nn.Dense(self.operator_features, name="made", **types)(hidden))
        drawn = nn.initializers.normal((self.features * self.operator_features) ** -0.5)
        flat = nn.Dense(self.features**2, use_bias=False, kernel_init=drawn, name="operators", **types)(made)
        operator = flat.reshape(*inputs.shape[:-1], self.features, self.features).astype(carry.dtype)
        state = unit_or(jnp.einsum("...ij,...j->...i", operator, carry), carry)
        return state, state
