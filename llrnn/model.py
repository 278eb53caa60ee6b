"""The sequence model around a recurrent cell, and the cells by name.

Axis letters: B batch, T time, I input features, D features of the cell's output, Y hidden outputs, O outputs.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jaxtyping import Array, Float

from llrnn import cells, memory

CELLS: dict[str, Callable[..., nn.RNNCellBase]] = {
    "elman": cells.ElmanCell,
    "second_order": cells.SecondOrderCell,
    "multiplicative": cells.MultiplicativeCell,
    "higher_order": cells.HigherOrderCell,
    "ntm": memory.NTMCell,
    "dihedral_ntm": memory.DihedralNTMCell,
    "pattern_ntm": memory.PatternNTMCell,
    "multiple_pattern_ntm": memory.MultiplePatternNTMCell,
    "polynomial_ntm": memory.PolynomialStepNTMCell,
    "operator_ntm": memory.OperatorNTMCell,
    "lstm": nn.OptimizedLSTMCell,
}


def cell_fields(name: str) -> tuple[str, ...]:
    """The fields of the cell called `name` that can be set.

    Raises:
      ValueError: no cell has this name; the message lists the names.
    """
    if name not in CELLS:
        raise ValueError(f"no cell is called {name!r}; there are {', '.join(sorted(CELLS))}")
    fields = inspect.signature(CELLS[name]).parameters
    return tuple(field for field in fields if field not in ("parent", "name"))


def make_cell(name: str, **options: Any) -> nn.RNNCellBase:
    """The cell called `name`, a key of `CELLS`, with its fields set by `options`, `features` among them.

    Raises:
      ValueError: no cell has this name, or the cell has no such field.
    """
    fields = cell_fields(name)
    unknown = sorted(set(options) - set(fields))
    if unknown:
        raise ValueError(f"cell {name!r} has no option {', '.join(unknown)}; it has {', '.join(fields)}")
    return CELLS[name](**options)


@struct.dataclass
class RecurrentOutput:
    """What the model returns.

    Attributes:
      logits: o^(t) before the softmax.
      hidden: the cell's output h^(t).
      intermediates: what the cell recorded at each step, by name (a memory's addresses); None unless asked
        for.
    """

    logits: Float[Array, "B T O"]
    hidden: Float[Array, "B T D"]
    intermediates: Mapping[str, Float[Array, "B T _"]] | None = None


class RecurrentModel(nn.Module):
    """A recurrent cell over a sequence and its output equations.

    y = relu(W_y h + B_y) (2.2), o = W_o y + B_o, of which the paper takes the softmax.

    Attributes:
      cell: any `flax.linen.RNNCellBase`, ours or flax's.
      num_outputs: O, the number of classes.
      hidden_outputs: Y, the dimension of y; None leaves (2.2) out, y = h.
      unroll: steps of the scan laid out in one iteration of its loop: less overhead, longer compilation.
      dtype: dtype of the output layers' products; the logits are float32 at least.
      param_dtype: dtype of the output layers' parameters.
    """

    cell: nn.RNNCellBase
    num_outputs: int
    hidden_outputs: int | None = None
    unroll: int = 1
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "B T I"]) -> RecurrentOutput:
        """Runs the sequence from the cell's initial state; see `run_with_intermediates` for addresses."""
        if inputs.ndim != 3:
            raise ValueError(f"inputs must be [B, T, I], got {inputs.shape}")
        if self.num_outputs < 1:
            raise ValueError(f"num_outputs must be at least 1, got {self.num_outputs}")
        if self.hidden_outputs is not None and self.hidden_outputs < 1:
            raise ValueError(f"hidden_outputs must be None or at least 1, got {self.hidden_outputs}")
        rnn = nn.RNN(self.cell, variable_axes={"intermediates": 0}, unroll=self.unroll, name="rnn")
        hidden = cast(Array, rnn(inputs))  # a pair only where the carry is asked for
        shared = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        outputs = hidden
        if self.hidden_outputs is not None:
            outputs = nn.relu(nn.Dense(self.hidden_outputs, name="hidden_outputs", **shared)(hidden))  # (2.2)
        logits = nn.Dense(self.num_outputs, name="outputs", **shared)(outputs)
        return RecurrentOutput(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)), hidden)


def run_with_intermediates(
    model: RecurrentModel, variables: Mapping[str, Any], inputs: Float[Array, "B T I"]
) -> RecurrentOutput:
    """The model's output with what its cell recorded: for an NTM "read_address" and "write_address", [B, T,
    N].
    """
    output, state = cast(
        tuple[RecurrentOutput, Mapping[str, Any]], model.apply(variables, inputs, mutable=["intermediates"])
    )
    recorded = state.get("intermediates", {}).get("cell", {})
    # A recording is a tuple of one array, its time axis first.
    by_name = {name: jnp.moveaxis(values[0], 0, 1) for name, values in recorded.items()}
    return dataclasses.replace(output, intermediates=by_name)
