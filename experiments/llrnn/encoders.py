"""Baselines in place of a cell: embedded tokens, an encoder of `experiments.baselines`, and a read-out.

Axis letters: B sequences, T time steps, I input features, D features, O outputs.
"""

from collections.abc import Callable
from typing import Any

from flax import linen as nn
from jaxtyping import Array, Float

from experiments import baselines
from llrnn import cells
from llrnn.model import RecurrentModel, RecurrentOutput, call, fields_of


def _transformer(
    features: int, layers: int = 2, heads: int = 4, hidden: int | None = None
) -> baselines.Transformer:
    """Pre-LN, causal, with rotary positions, which are defined at any length."""
    hidden = 4 * features if hidden is None else hidden
    return baselines.Transformer(layers, heads, hidden, positions="rotary", causal=True)


def _lstm(features: int, state: int, layers: int = 1) -> baselines.RecurrentEncoder:
    return baselines.LSTM(state, layers)


def _full_matrix(features: int, state: int, column_norm: float | None = None) -> baselines.RecurrentEncoder:
    return baselines.RecurrentEncoder(baselines.FullMatrixCell(state, column_norm))


def _delta_product(
    features: int, layers: int = 1, heads: int = 4, hidden: int | None = None, steps: int = 2
) -> baselines.RecurrentEncoder:
    """Residual blocks, as published; each head has D / heads features."""
    if heads < 1 or features % heads:
        raise ValueError(f"encoder.heads: got {heads}, expected a divisor of encoder.features = {features}")
    cell = baselines.DeltaProductCell(heads, features // heads, steps)
    return baselines.RecurrentEncoder(cell, layers, 4 * features if hidden is None else hidden)


def _content_ntm(
    features: int, state: int, memory_size: int = 32, memory_width: int = 16
) -> baselines.RecurrentEncoder:
    return baselines.RecurrentEncoder(baselines.ContentNTMCell(state, memory_size, memory_width))


def _mlp_operator(
    features: int, state: int, hidden: int = 64, operators: int = 24
) -> baselines.RecurrentEncoder:
    return baselines.RecurrentEncoder(baselines.MLPOperatorCell(state, operators, hidden))


ENCODERS: dict[str, Callable[..., nn.Module]] = {
    "transformer": _transformer,
    "lstm": _lstm,
    "full_matrix": _full_matrix,
    "delta_product": _delta_product,
    "content_ntm": _content_ntm,
    "mlp_operator": _mlp_operator,
}
"""Encoders by name; their arguments are the fields of `experiments.llrnn.parts.EncoderConfig`."""


def make(name: str, features: int, **options: Any) -> nn.Module:
    """Returns the encoder `name`, a key of `ENCODERS`.

    Raises:
        ValueError: the name is unknown, the encoder has no such option, or a size does not fit.
    """
    if name not in ENCODERS:
        raise ValueError(f"encoder.name: got {name!r}, expected one of {', '.join(map(repr, ENCODERS))}")
    if "state" in fields_of(ENCODERS[name]):
        options.setdefault("state", features)
    return call(ENCODERS[name], f"encoder {name}", features=features, **options)


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
