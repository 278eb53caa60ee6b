"""The parts of `config.Config`: a cell, a baseline in its place, and the task's options."""

import dataclasses
import functools
from typing import Any, Literal, get_args

from absl import logging
from flax import linen as nn

from experiments import runtime
from llrnn import model as models

Activation = Literal["relu", "tanh"]
ACTIVATIONS: dict[Activation, Any] = {"relu": nn.relu, "tanh": nn.tanh}
NONE = "none"


def set_fields(config: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that are not None."""
    return {name: value for name, value in dataclasses.asdict(config).items() if value is not None}


@functools.cache
def _warn_once(text: str) -> None:
    logging.warning("%s", text)


@dataclasses.dataclass
class CellConfig:
    """Configures a recurrent cell by its name and fields; None keeps the cell's own default.

    `llrnn.cells` and `llrnn.memory` document the fields. Setting a field that the cell does not have is an
    error. However, if the cell replaces the preset's (`--config.cell.name=lstm`), fields that it does not
    have are ignored with a warning.
    """

    name: str = "ntm"
    features: int = 64
    activation: Activation | None = None
    # recurrent cells
    update: str | None = None
    normalize: bool | None = None
    factors: int | None = None
    coupling: str | None = None
    max_power: int | None = None
    temperature: float | None = runtime.added(None)
    straight_through: bool | None = runtime.added(None)
    scaled: bool | None = runtime.added(None)
    # the cell of a proof, `llrnn.cells.cell_of_text`
    proof: str | None = runtime.added(None)
    inputs: tuple[str, ...] | None = runtime.added(None)
    controller: tuple[int, ...] | None = runtime.added(None)
    inside: tuple[int, ...] | None = runtime.added(None)
    initial: tuple[str, ...] | None = runtime.added(None)
    # memories
    memory_size: int | None = None
    memory_width: int | None = None
    program_size: int | None = None
    powers: tuple[int, ...] | None = None
    program_powers: tuple[int, ...] | None = None
    words: tuple[str, ...] | None = None
    erase: bool | None = None
    sharpen: bool | None = None
    read: str | None = None
    direct: bool | None = None
    empty_symbols: int | None = runtime.added(None)

    def __post_init__(self):
        self._preset_name = self.name  # flags set attributes after construction

    def make(self) -> nn.RNNCellBase:
        """Builds the cell; raises ValueError for an unknown name, activation or field."""
        options = set_fields(self)
        del options["name"]
        if self.activation is not None:
            runtime.one_of("cell.activation", self.activation, get_args(Activation))
            options["activation"] = ACTIVATIONS[self.activation]
        if self.name != self._preset_name:
            known = models.cell_fields(self.name)
            if left_out := sorted(set(options) - set(known)):
                _warn_once(
                    f"cell {self.name} has no fields {', '.join(left_out)}; ignoring the preset's values for "
                    f"{self._preset_name}"
                )
            options = {name: value for name, value in options.items() if name in known}
        return models.make_cell(self.name, **options)


@dataclasses.dataclass
class EncoderConfig:
    """Configures a baseline of `experiments.baselines` in place of the cell; None keeps its own default.

    Attributes:
        name: one of `experiments.llrnn.encoders.ENCODERS`; "none" for a cell.
        features: of the embedded tokens and of the layers' outputs.
        state: features of the state of "lstm", "full_matrix", "content_ntm" and "mlp_operator"; `features` by
            default.
        layers: of "transformer", "lstm" and "delta_product".
        heads: of "transformer" and "delta_product".
        hidden: width of their feed-forward blocks, or of the perceptron of "mlp_operator".
        steps: Householder steps per token of "delta_product".
        column_norm: bound of "full_matrix", a p of `experiments.baselines.linear_rnn.bounded_columns`.
        memory_size: locations of "content_ntm".
        memory_width: features of each.
        operators: operators that the perceptron of "mlp_operator" mixes.
    """

    name: str = runtime.added(NONE)
    features: int = runtime.added(64)
    state: int | None = runtime.added(None)
    layers: int | None = runtime.added(None)
    heads: int | None = runtime.added(None)
    hidden: int | None = runtime.added(None)
    steps: int | None = runtime.added(None)
    column_norm: float | None = runtime.added(None)
    memory_size: int | None = runtime.added(None)
    memory_width: int | None = runtime.added(None)
    operators: int | None = runtime.added(None)


@dataclasses.dataclass
class TaskOptions:
    """Overrides of the task's attributes, documented in `llrnn.tasks`; None keeps the task's default."""

    train_lengths: tuple[int, ...] | None = None
    test_lengths: tuple[int, ...] | None = None
    group: str | None = None
    powers: int | None = None
    operators: int | None = None
    held_out: int | None = None
    seed: int | None = None
    computation: int | None = runtime.added(None)
