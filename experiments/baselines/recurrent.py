"""An encoder around any recurrent cell, with the LSTM as the first of them.

Axis letters: B batch, N positions, D features, F features of the cell's output.
"""

from typing import get_args

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float

from experiments.baselines import checks
from experiments.baselines.layers import Dense, Norm, Stack


def run_cell(
    cell: nn.RNNCellBase,
    inputs: Float[Array, "B N D"],
    mask: Bool[Array, "B N"] | None = None,
    unroll: int = 1,
) -> Float[Array, "B N F"]:
    """Runs a bound cell over a sequence, from its initial state; masked positions leave the state as it is.

    Unlike `flax.linen.RNN`, which takes lengths, it allows padding anywhere. `unroll` is the number of steps
    per iteration of the compiled loop.
    """

    def step(cell: nn.RNNCellBase, carry, arrays):
        x, *keep = arrays
        new, output = cell(carry, x)

        def updated(new: Array, old: Array) -> Array:
            new = new.astype(old.dtype)  # a scan's carry keeps its dtype
            return jnp.where(jnp.expand_dims(keep[0], range(1, new.ndim)), new, old) if keep else new

        return jax.tree.map(updated, new, carry), output

    scan = nn.scan(
        step,
        variable_broadcast="params",
        variable_axes={"intermediates": 0},
        split_rngs={"params": False},
        in_axes=1,
        out_axes=1,
        unroll=unroll,
    )
    # The initial states here are constants; a cell that draws its own always gets this key.
    start = cell.initialize_carry(jax.random.key(0), (inputs.shape[0], inputs.shape[2]))
    return scan(cell, start, (inputs,) if mask is None else (inputs, mask))[1]


class Recurrence(nn.Module):
    """A cell over a sequence and a dense layer back to the features of the inputs: a mixer of `Layer`.

    Attributes:
      cell: unbound cell that takes [B, D].
      unroll: steps per iteration of the compiled loop.
      dtype: dtype of the dense layer's product; None takes the widest of inputs and parameters.
      param_dtype: dtype of the dense layer's parameters.
    """

    cell: nn.RNNCellBase
    unroll: int = 1
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "B N D"], mask: Bool[Array, "B N"] | None = None
    ) -> Float[Array, "B N D"]:
        """Returns the outputs after each position; masked positions do not change the cell's state."""
        outputs = run_cell(self.cell, inputs, mask, self.unroll)
        return Dense(inputs.shape[-1], dtype=self.dtype, param_dtype=self.param_dtype, name="output")(outputs)


class RecurrentEncoder(nn.Module):
    """Recurrent layers over embedded inputs, causal by construction.

    Without `hidden`, cells are stacked output to input and a dense layer follows the last, as is usual for
    LSTMs. With `hidden`, each layer is a residual block with a feed-forward block behind it, as linear RNNs
    are published (such as Yang et al. 2024).

    Attributes:
      cell: unbound cell that takes [B, D], such as `FullMatrixCell(48)`; each layer gets a copy. Any
        `flax.linen.RNNCellBase` does.
      num_layers: number of layers.
      hidden: width of the feed-forward blocks, or None.
      norm: with `hidden`, "pre" or "post"; see `Layer`.
      unroll: steps per iteration of the compiled loop: less overhead, longer compilation.
      dtype: dtype of the products outside the cell; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters outside the cell.
    """

    cell: nn.RNNCellBase
    num_layers: int = 1
    hidden: int | None = None
    norm: Norm = "pre"
    unroll: int = 1
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "B N D"], mask: Bool[Array, "B N"] | None = None
    ) -> Float[Array, "B N D"]:
        """Returns the state after each position.

        Args:
          inputs: embedded inputs.
          mask: False at padding, which leaves the cells' states as they are. The outputs there are
            unspecified.

        Raises:
          ValueError: a field, shape or dtype does not fit.
        """
        checks.floats("inputs", inputs, "B N D")
        checks.mask(mask, inputs.shape[:2])
        checks.at_least("unroll", self.unroll, 1)
        hidden = 1 if self.hidden is None else self.hidden
        checks.encoder(self.num_layers, hidden, self.norm, get_args(Norm))
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        if self.hidden is not None:
            mixer = Recurrence(self.cell.copy(parent=None), self.unroll, parent=None, **types)
            stack = Stack(mixer, self.num_layers, self.hidden, self.norm, name="stack", **types)
            return stack(inputs, mask)
        states = inputs
        for i in range(self.num_layers):
            cell = self.cell.copy(name=f"cell_{i}")
            states = run_cell(cell, states, mask, self.unroll)
        return Dense(inputs.shape[-1], name="output", **types)(states)


def LSTM(features: int, num_layers: int = 1, unroll: int = 1, dtype: Dtype | None = None) -> RecurrentEncoder:
    """Makes an LSTM encoder (Hochreiter and Schmidhuber 1997) of `flax.linen.OptimizedLSTMCell`s.

    With forget gates (Gers, Schmidhuber and Cummins 2000) and without peepholes:

        i, f, o = sigmoid(W x + U h + b),   g = tanh(W_g x + U_g h + b_g)
        c' = f * c + i * g,                 h' = o * tanh(c')

    U is orthogonal at the start, and c and h are 0.

    Args:
      features: of c and h.
      num_layers: number of stacked LSTMs.
      unroll: steps per iteration of the compiled loop.
      dtype: dtype of the products; None takes the widest of inputs and parameters.

    Raises:
      ValueError: `features` is below 1.
    """
    checks.at_least("features", features, 1)
    cell = nn.OptimizedLSTMCell(features, dtype=dtype, parent=None)
    return RecurrentEncoder(cell, num_layers, unroll=unroll, dtype=dtype)
