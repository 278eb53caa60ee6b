"""The parts of `config.Config`: a cell and the task's options; `encoders` has baselines in a cell's place."""

import dataclasses
from typing import Any, Literal

from flax import linen as nn

from experiments import runtime
from llrnn import model as models

Activation = Literal["relu", "tanh"]
ACTIVATIONS: dict[Activation, Any] = {"relu": nn.relu, "tanh": nn.tanh}
NONE = "none"


def set_fields(config: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that are not None."""
    return {name: value for name, value in dataclasses.asdict(config).items() if value is not None}


@dataclasses.dataclass
class CellConfig(runtime.Variant):
    """A recurrent cell, one of the classes below by its name in `llrnn.model.CELLS`, or "none".

    `llrnn.cells` and `llrnn.memory` document the fields, which have the cell's own defaults.
    """

    def make(self) -> nn.RNNCellBase:
        """Builds the cell; raises ValueError for the name "none" and for a value that the cell refuses."""
        options = dict(vars(self))
        if "activation" in options:
            options["activation"] = ACTIVATIONS[options["activation"]]
        return models.make_cell(**options)


@dataclasses.dataclass
class LSTM(CellConfig):
    name: str = "lstm"
    features: int = 64


@dataclasses.dataclass
class _Recurrent(CellConfig):
    features: int = 64
    activation: Activation = "relu"
    update: str = "draft"
    normalize: bool = False


@dataclasses.dataclass
class Elman(_Recurrent):
    name: str = "elman"


@dataclasses.dataclass
class SecondOrder(_Recurrent):
    name: str = "second_order"


@dataclasses.dataclass
class Multiplicative(_Recurrent):
    name: str = "multiplicative"
    factors: int | None = None


@dataclasses.dataclass
class HigherOrder(_Recurrent):
    name: str = "higher_order"
    coupling: str = "predicted"
    max_power: int = 2
    temperature: float = runtime.added(1.0)
    straight_through: bool = runtime.added(False)
    scaled: bool = runtime.added(False)


@dataclasses.dataclass
class Proof(CellConfig):
    """The cell of a proof, `llrnn.cells.cell_of_text`."""

    name: str = "proof"
    features: int = 64
    activation: Activation = "relu"
    normalize: bool = False
    temperature: float = 1.0
    straight_through: bool = False
    proof: str = r"\!x:!E. x"
    inputs: tuple[str, ...] = ("x: input",)
    controller: tuple[int, ...] | None = None
    inside: tuple[int, ...] | None = None
    initial: tuple[str, ...] | None = runtime.added(None)


@dataclasses.dataclass
class _Memory(CellConfig):
    features: int = 64
    activation: Activation = "relu"
    memory_size: int = 64


@dataclasses.dataclass
class StackRNN(_Memory):
    name: str = "stack_rnn"
    memory_width: int = 8


@dataclasses.dataclass
class TapeRNN(_Memory):
    name: str = "tape_rnn"
    memory_width: int = 8
    empty_symbols: int = runtime.added(1)


@dataclasses.dataclass
class _TuringMachine(_Memory):
    erase: bool = False
    sharpen: bool = False
    read: str = "updated"


@dataclasses.dataclass
class NTM(_TuringMachine):
    name: str = "ntm"
    memory_width: int = 12
    powers: tuple[int, ...] | None = None


@dataclasses.dataclass
class DihedralNTM(_TuringMachine):
    name: str = "dihedral_ntm"
    memory_width: int = 12
    words: tuple[str, ...] = ("", "0", "1", "101")


@dataclasses.dataclass
class OperatorNTM(_TuringMachine):
    name: str = "operator_ntm"
    powers: tuple[int, ...] | None = None
    max_power: int | None = None


@dataclasses.dataclass
class _Programmed(_TuringMachine):
    memory_size: int = 128
    memory_width: int = 20
    program_size: int = 20
    powers: tuple[int, ...] = (0, -1, 1)
    direct: bool = True


@dataclasses.dataclass
class PatternNTM(_Programmed):
    name: str = "pattern_ntm"
    program_powers: tuple[int, ...] = (0, 1, 2)


@dataclasses.dataclass
class MultiplePatternNTM(PatternNTM):
    name: str = "multiple_pattern_ntm"
    words: tuple[str, ...] = ("0", "1")


@dataclasses.dataclass
class PolynomialNTM(_Programmed):
    name: str = "polynomial_ntm"
    max_power: int = 2


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
    truncate: bool | None = runtime.added(None)
