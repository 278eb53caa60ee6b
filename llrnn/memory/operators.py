"""The NTM that stores operators (Hu & Murfet 2017, Remark 2.11)."""

from flax import linen as nn
from flax.typing import Initializer
from jaxtyping import Array, Float

from llrnn.cells.recurrent import (
    apply_operator,
    matrix_power_superposition,
    operator_init,
    second_order_operator,
)
from llrnn.memory import rings
from llrnn.memory.base import check_powers
from llrnn.memory.ntm import NTMState, OneRingCell, rotation_powers

SOURCES = ("controller", "input")


class OperatorNTMCell(OneRingCell):
    """The NTM that stores operators on h_0 (Remark 2.11): V = End(H_0), and h_0' gains (M'(r'))(h_0).

    h_0' = sigma((M'(r'))(h_0) + H_0 h_0 + U_0 x + B). An operator has entries of both signs, so
    `add_activation` is not applied; `erase` predicts one scalar for the whole operator. With `max_power` the
    operator read is raised to predicted powers, sum_i p_i (M'(r'))^i (h_0); then N = 1 with source="input"
    and everything erased is exactly the higher-order RNN. (Of the remark's term as it stands, N = 1 is the
    second-order RNN: a rotation of one location has no powers to give.)

    Attributes:
      powers: as for `NTMCell`.
      source: where the operator written comes from: "controller", W_a h_0 + B_a, or "input", W^c x.
      max_power: L of the powers 0..L; None for the remark's plain term.
    """

    powers: tuple[int, ...] | None = None
    source: str = "controller"
    max_power: int | None = None
    operator_init: Initializer = operator_init

    @nn.nowrap
    def validate(self) -> None:
        """Raises ValueError, naming the field, when the fields do not make a cell."""
        super().validate()
        check_powers("powers", self.powers)
        if self.source not in SOURCES:
            raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {self.source!r}")
        if self.max_power is not None and self.max_power < 0:
            raise ValueError(f"max_power must be None or at least 0, got {self.max_power}")

    @nn.nowrap
    def content_width(self) -> int:
        """D^2, an operator laid out row by row."""
        return self.features**2

    @nn.nowrap
    def num_moves(self) -> int:
        """How many powers there are."""
        return self.memory_size if self.powers is None else len(self.powers)

    @nn.nowrap
    def move(self, address: Array, coefficients: Array, *, dual: bool) -> Array:
        """sum_i c_i R^i (address), or with R* in the place of R."""
        return rings.rotate(address, coefficients, rotation_powers(self.powers, self.memory_size, dual=dual))

    @nn.compact
    def __call__(
        self, carry: NTMState, inputs: Float[Array, "*B I"]
    ) -> tuple[NTMState, Float[Array, "*B D"]]:
        """One step: (carry, inputs x) to (the new state, h_0')."""
        self.check_inputs(carry.controller, inputs)
        moves, gamma, width = self.num_moves(), int(self.sharpen), self.content_width()
        heads = self.project(
            carry.controller,
            {
                "read": moves,
                "write": moves,
                "add": width if self.source == "controller" else 0,
                "erase": int(self.erase),
                "read_gamma": gamma,
                "write_gamma": gamma,
                "powers": 0 if self.max_power is None else self.max_power + 1,
            },
        )
        if self.source == "controller":
            add = heads["add"]
        else:
            shape = (inputs.shape[-1], self.features, self.features)
            operators = self.param("operators", self.operator_init, shape, self.param_dtype)
            add = second_order_operator(operators, inputs.astype(operators.dtype))
            add = add.reshape(*add.shape[:-2], width)
        ring = self.step_ring(carry.ring, heads, add)
        source = ring if self.read == "updated" else carry.ring
        read = rings.read(source.memory, source.read_address)
        operator = read.reshape(*read.shape[:-1], self.features, self.features)

        if self.max_power is None:
            seen = apply_operator(operator, carry.controller)
        else:
            p = nn.softmax(heads["powers"])
            seen = matrix_power_superposition(p, operator, carry.controller)
        controller = self.control(carry.controller, inputs, seen)
        self.record(ring)
        return NTMState(controller, ring), controller
