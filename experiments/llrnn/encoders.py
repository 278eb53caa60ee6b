"""Baselines in place of a cell: embedded tokens, an encoder of `experiments.baselines`, and a read-out.

Axis letters: B sequences, T time steps, I input features, D features, O outputs.
"""

import dataclasses
from typing import Any

from flax import linen as nn
from jaxtyping import Array, Float

from experiments import baselines, runtime
from llrnn import cells
from llrnn.model import RecurrentModel, RecurrentOutput


@dataclasses.dataclass
class EncoderConfig(runtime.Variant):
    """A baseline of `experiments.baselines` in place of the cell, one of the classes below by name.

    Attributes:
        name: "none" for a cell.
    """

    def make(self) -> nn.Module:
        """Builds the encoder; raises ValueError for the name "none" and for a size that does not fit."""
        raise ValueError(f"encoder.name: got {self.name!r}, expected the name of an encoder")


@dataclasses.dataclass
class _Encoder(EncoderConfig):
    """A baseline with an embedding of the tokens.

    Attributes:
        features: of the embedded tokens and of the layers' outputs.
    """

    features: int = 64


@dataclasses.dataclass
class Transformer(_Encoder):
    """Pre-LN, causal, with rotary positions, which are defined at any length.

    Attributes:
        hidden: width of the feed-forward blocks; 4 `features` by default.
    """

    name: str = "transformer"
    layers: int = 2
    heads: int = 4
    hidden: int | None = None

    def make(self) -> nn.Module:
        hidden = 4 * self.features if self.hidden is None else self.hidden
        return baselines.Transformer(self.layers, self.heads, hidden, positions="rotary", causal=True)


@dataclasses.dataclass
class DeltaProduct(_Encoder):
    """Residual blocks, as published; each head has D / heads features.

    Attributes:
        hidden: width of the feed-forward blocks; 4 `features` by default.
        steps: Householder steps per token.
    """

    name: str = "delta_product"
    layers: int = 1
    heads: int = 4
    hidden: int | None = None
    steps: int = 2

    def make(self) -> nn.Module:
        if self.heads < 1 or self.features % self.heads:
            raise ValueError(
                f"encoder.heads: got {self.heads}, expected a divisor of encoder.features = {self.features}"
            )
        cell = baselines.DeltaProductCell(self.heads, self.features // self.heads, self.steps)
        hidden = 4 * self.features if self.hidden is None else self.hidden
        return baselines.RecurrentEncoder(cell, self.layers, hidden)


@dataclasses.dataclass
class _Stateful(_Encoder):
    """A baseline with a state of another size.

    Attributes:
        state: features of the state; `features` by default.
    """

    state: int | None = None

    @property
    def _state(self) -> int:
        return self.features if self.state is None else self.state


@dataclasses.dataclass
class LSTM(_Stateful):
    name: str = "lstm"
    layers: int = 1

    def make(self) -> nn.Module:
        return baselines.LSTM(self._state, self.layers)


@dataclasses.dataclass
class FullMatrix(_Stateful):
    """The full-matrix RNN.

    Attributes:
        column_norm: bound, a p of `experiments.baselines.linear_rnn.bounded_columns`.
    """

    name: str = "full_matrix"
    column_norm: float | None = runtime.added(None)

    def make(self) -> nn.Module:
        return baselines.RecurrentEncoder(baselines.FullMatrixCell(self._state, self.column_norm))


@dataclasses.dataclass
class ContentNTM(_Stateful):
    """The NTM with addressing by content.

    Attributes:
        memory_size: locations.
        memory_width: features of each.
    """

    name: str = "content_ntm"
    memory_size: int = 32
    memory_width: int = 16

    def make(self) -> nn.Module:
        cell = baselines.ContentNTMCell(self._state, self.memory_size, self.memory_width)
        return baselines.RecurrentEncoder(cell)


@dataclasses.dataclass
class MLPOperator(_Stateful):
    """An operator per token, a mixture that a perceptron gives.

    Attributes:
        hidden: width of the perceptron.
        operators: operators that it mixes.
    """

    name: str = "mlp_operator"
    hidden: int = 64
    operators: int = 24

    def make(self) -> nn.Module:
        return baselines.RecurrentEncoder(baselines.MLPOperatorCell(self._state, self.operators, self.hidden))


class EncodedModel(nn.Module):
    """An encoder over embedded inputs and a read-out: the counterpart of `llrnn.model.RecurrentModel`.

    Attributes:
      encoder: from [B, T, D] to [B, T, D]; no output may depend on later inputs.
      features: D.
      num_outputs: O, the number of classes.
    """

    encoder: nn.Module
    features: int
    num_outputs: int

    @nn.compact
    def __call__(self, inputs: Float[Array, "B T I"]) -> RecurrentOutput:
        """Returns the logits after each step, and the encoder's states."""
        states = self.encoder(nn.Dense(self.features, name="embed")(inputs))
        return RecurrentOutput(nn.Dense(self.num_outputs, name="outputs")(states), states)


type Model = RecurrentModel | EncodedModel


def operators(model: Model, params: Any) -> dict[str, Any]:
    """Returns the operators [I, D, D] among the parameters of a model's cell, by name; {} if it has none."""
    return cells.read_operators(model.cell, params["cell"]) if isinstance(model, RecurrentModel) else {}
