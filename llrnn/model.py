"""The sequence model around a recurrent cell, and a table of cells by name.

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
    "proof": cells.cell_of_text,
    "ntm": memory.NTMCell,
    "dihedral_ntm": memory.DihedralNTMCell,
    "pattern_ntm": memory.PatternNTMCell,
    "multiple_pattern_ntm": memory.MultiplePatternNTMCell,
    "polynomial_ntm": memory.PolynomialStepNTMCell,
    "operator_ntm": memory.OperatorNTMCell,
    "stack_rnn": memory.StackRNNCell,
    "tape_rnn": memory.TapeRNNCell,
    "lstm": nn.OptimizedLSTMCell,
}


def cell_fields(name: str) -> tuple[str, ...]:
    """Returns the names of the fields of the cell `name` that can be set.

    Raises:
      ValueError: `name` is not a key of `CELLS`; the message lists the keys.
    """
    if name not in CELLS:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(map(repr, sorted(CELLS)))}")
    return fields_of(CELLS[name])


def fields_of(make: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of the arguments of a module's class, or of a function that makes a module."""
    return tuple(name for name in inspect.signature(make).parameters if name not in ("parent", "name"))


def make_cell(name: str, **options: Any) -> nn.RNNCellBase:
    """Returns the cell `name`, a key of `CELLS`, with `options` as its fields, which include `features`.

    Raises:
      ValueError: `name` is not a key of `CELLS`, or the cell has no such field.
    """
    cell_fields(name)  # refuses an unknown name
    return call(CELLS[name], name, **options)


def call[T](make: Callable[..., T], what: str, **options: Any) -> T:
    """Returns `make(**options)`, for a module's class or a function that makes a module.

    Raises:
      ValueError: it has no such arguments; the message names `what` and lists those it has.
    """
    fields = fields_of(make)
    if unknown := sorted(set(options) - set(fields)):
        raise ValueError(
            f"options of {what}: got {', '.join(map(repr, unknown))}, expected a subset of "
            f"{', '.join(map(repr, fields))}"
        )
    return make(**options)


@struct.dataclass
class RecurrentOutput:
    """The output of `RecurrentModel`.

    Attributes:
      logits: o^(t), before the softmax.
      hidden: h^(t), the cell's output.
      intermediates: values that the cell recorded at each step, such as a memory's addresses, by name; None
        except from `run_with_intermediates`.
    """

    logits: Float[Array, "B T O"]
    hidden: Float[Array, "B T D"]
    intermediates: Mapping[str, Float[Array, "B T _"]] | None = None


class RecurrentModel(nn.Module):
    """A recurrent cell over a sequence, followed by the output equations.

    y = relu(W_y h + B_y) (2.2), o = W_o y + B_o; the paper applies a softmax to o.

    Attributes:
      cell: any `flax.linen.RNNCellBase`, from this package or from Flax.
      num_outputs: O, the number of classes.
      hidden_outputs: Y, the dimension of y; None omits (2.2), so that y = h.
      unroll: number of steps per iteration of the scan's loop; more steps reduce overhead and lengthen
        compilation.
      dtype: dtype of the output layers' products; the logits are at least float32.
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
        """Runs the cell over the sequence from its initial state, and applies the output equations."""
        if inputs.ndim != 3:
            raise ValueError(f"inputs: got shape {inputs.shape}, expected [B, T, I]")
        if self.num_outputs < 1:
            raise ValueError(f"num_outputs: got {self.num_outputs}, expected at least 1")
        if self.hidden_outputs is not None and self.hidden_outputs < 1:
            raise ValueError(f"hidden_outputs: got {self.hidden_outputs}, expected None or at least 1")
        rnn = nn.RNN(self.cell, variable_axes={"intermediates": 0}, unroll=self.unroll, name="rnn")
        hidden = cast(Array, rnn(inputs))  # an array: only `return_carry=True` gives a pair
        shared = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        outputs = hidden
        if self.hidden_outputs is not None:
            outputs = nn.relu(nn.Dense(self.hidden_outputs, name="hidden_outputs", **shared)(hidden))  # (2.2)
        logits = nn.Dense(self.num_outputs, name="outputs", **shared)(outputs)
        return RecurrentOutput(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)), hidden)


def with_room[M: nn.Module](model: M, steps: int) -> M:
    """Returns a model whose cell's memory has room for so many steps, with the same parameters.

    The memories of `llrnn.memory.tapes` can grow; other models are returned as they are.
    """
    grown = getattr(getattr(model, "cell", None), "with_room", None)
    return model if grown is None else model.clone(cell=grown(steps))


def run_with_intermediates(
    model: nn.Module, variables: Mapping[str, Any], inputs: Float[Array, "B T I"]
) -> RecurrentOutput:
    """Returns the output of a `RecurrentModel` with the values that its cell records at each step.

    A module of another kind that returns a `RecurrentOutput` has no such values. An NTM records
    "read_address" and "write_address", both [B, T, N].
    """
    output, state = cast(
        tuple[RecurrentOutput, Mapping[str, Any]], model.apply(variables, inputs, mutable=["intermediates"])
    )
    recorded = state.get("intermediates", {}).get("cell", {})
    # Each recorded value is a tuple of one array with the time axis first.
    by_name = {name: jnp.moveaxis(values[0], 0, 1) for name, values in recorded.items()}
    return dataclasses.replace(output, intermediates=by_name)
