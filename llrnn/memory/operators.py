"""The NTM that stores operators (Hu & Murfet 2017, Remark 2.11)."""

from typing import Literal, get_args

from flax import linen as nn
from flax.typing import Initializer
from jaxtyping import Array, Float

from llrnn.cells.base import at_least, checked, one_of
from llrnn.cells.recurrent import (
    apply_operator,
    matrix_power_superposition,
    operator_init,
    second_order_operator,
)
from llrnn.memory.ntm import RotatedCell

Source = Literal["controller", "input"]


class OperatorNTMCell(RotatedCell):
    """The NTM that stores operators on h_0 (Remark 2.11): V = End(H_0), and h_0' gains (M'(r'))(h_0).

    h_0' = sigma((M'(r'))(h_0) + H_0 h_0 + U_0 x + B). An operator has entries of both signs, so
    `add_activation` is not applied; `erase` predicts one scalar for the whole operator. With `max_power` the
    step instead applies a superposition of powers of the operator it reads, sum_i p_i (M'(r'))^i (h_0), with
    predicted p. With N = 1, source="input" and everything erased, this is exactly the higher-order RNN. (The
    remark's own term gives the second-order RNN at N = 1: a rotation of one location is the identity.)

    Attributes:
      powers: as for `NTMCell`.
      source: the operator to write: "controller", W_a h_0 + B_a, or "input", W^c x.
      max_power: L of the powers 0..L; None for the remark's own term.
      operator_init: initialiser of W^c.
    """

    source: Source = "controller"
    max_power: int | None = None
    operator_init: Initializer = operator_init

    checks = checked(source=one_of(get_args(Source)), max_power=at_least(0, or_none=True))

    @nn.nowrap
    def content_width(self) -> int:
        """Returns V = D^2, the size of an operator laid out row by row."""
        return self.features**2

    @nn.nowrap
    def head_widths(self) -> dict[str, int]:
        """Returns the widths of a vector memory, but a scalar `erase`, and the weights of the powers last."""
        widths = super().head_widths()
        add = widths["add"] if self.source == "controller" else 0
        powers = 0 if self.max_power is None else self.max_power + 1
        return {**widths, "add": add, "erase": int(self.erase), "powers": powers}

    def written(self, heads: dict[str, Array], inputs: Float[Array, "*B I"]) -> Float[Array, "*B V"]:
        """Returns the operator to write, row by row."""
        if self.source == "controller":
            return heads["add"]
        shape = (inputs.shape[-1], self.features, self.features)
        operators = self.param("operators", self.operator_init, shape, self.param_dtype)
        add = second_order_operator(operators, inputs.astype(operators.dtype))
        return add.reshape(*add.shape[:-2], self.content_width())

    def seen(
        self, read: Float[Array, "*B V"], controller: Float[Array, "*B D"], heads: dict[str, Array]
    ) -> Float[Array, "*B D"]:
        """Computes (M'(r'))(h_0), or with `max_power` the superposition of powers."""
        operator = read.reshape(*read.shape[:-1], self.features, self.features)
        if self.max_power is None:
            return apply_operator(operator, controller)
        return matrix_power_superposition(nn.softmax(heads["powers"]), operator, controller)
