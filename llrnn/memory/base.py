"""Base classes of the cells with a memory: a controller, one product for all heads, sharpened addresses."""

from collections.abc import Callable
from typing import Literal, get_args

from flax import linen as nn
from flax.typing import Initializer
from jaxtyping import Array, Float

from llrnn.cells.base import Cell, at_least, checked, one_of
from llrnn.memory import rings

Read = Literal["updated", "previous"]


class ControlledCell(Cell):
    """A controller h_0 that predicts all heads of its memory by one matrix product.

    Axis letters: B batch (any number of leading axes), I input features, D controller features.

    Attributes:
      features: D, the dimension of the controller's state h_0.
      activation: sigma of (2.15); relu in the paper, tanh in the authors' experiments.
    """

    features: int
    activation: Callable[[Array], Array] = nn.relu

    checks = checked(features=at_least(1))

    @nn.nowrap
    def check_inputs(self, controller: Array, inputs: Array) -> None:
        """Raises ValueError if a field is not allowed, or if the shapes of controller and inputs disagree."""
        self.validate()
        self.check_state("carry.controller", controller, inputs, self.features)

    def project(self, controller: Float[Array, "*B D"], widths: dict[str, int]) -> dict[str, Array]:
        """Computes W h_0 + B for all heads in one product and splits it by `widths`, omitting width 0.

        The heads have the controller's dtype, so that addresses and memory keep the state's precision.
        """
        widths = {name: width for name, width in widths.items() if width}
        together = self.dense("heads", sum(widths.values()), bias_init=self.head_bias_init())(controller)
        together = together.astype(controller.dtype)
        heads, start = {}, 0
        for name, width in widths.items():
            heads[name] = together[..., start : start + width]
            start += width
        return heads

    @nn.nowrap
    def head_bias_init(self) -> Initializer:
        """Returns the initialiser of the biases of all heads."""
        return self.bias_init

    def control(
        self,
        controller: Float[Array, "*B D"],
        inputs: Float[Array, "*B I"],
        seen: Float[Array, "*B D"],
    ) -> Float[Array, "*B D"]:
        """Computes sigma(seen + H_0 h_0 + U_0 x + B), where `seen` is the V M'(r') of (2.15)."""
        recurrent = self.dense(
            "hidden", self.features, use_bias=False, kernel_init=self.recurrent_kernel_init
        )
        total = seen + recurrent(controller) + self.dense("input", self.features)(inputs)
        return self.activation(total).astype(controller.dtype)


class MemoryCell(ControlledCell):
    """A controller of a ring: Hu & Murfet (2017), Example 2.10, with the options of the authors' code.

    Axis letters: those of `ControlledCell`, N locations, V content of a location.

    Attributes:
      add_activation: activation of the vector u that is written to the memory; relu in the paper.
      erase: also predict e = sigmoid(..) and write M - M * (w (x) e) + w (x) u.
      sharpen: sharpen addresses by gamma = 1 + relu(..) after every move.
      read: what the controller reads: "updated", M'(r') as in (2.15), or "previous", M(r) as in the authors'
        code.
      initial_memory: initial value of every entry of the memory.
      dtype: dtype of the controller's products; None infers it from inputs and parameters.
      param_dtype: dtype of the parameters, the carried state and all values on a ring.
    """

    add_activation: Callable[[Array], Array] = nn.relu
    erase: bool = False
    sharpen: bool = False
    read: Read = "updated"
    initial_memory: float = 1e-6

    checks = checked(read=one_of(get_args(Read)))

    def record(self, ring: rings.Ring, suffix: str = "") -> None:
        """Sows this step's addresses into the collection "intermediates"."""
        self.sow("intermediates", "read_address" + suffix, ring.read_address)
        self.sow("intermediates", "write_address" + suffix, ring.write_address)

    @nn.nowrap
    def sharpened(
        self, address: Float[Array, "*B N"], logit: Float[Array, "*B 1"] | None
    ) -> Float[Array, "*B N"]:
        """Returns the address sharpened by gamma = 1 + relu(logit); a logit of None leaves it unchanged."""
        return address if logit is None else rings.sharpen(address, 1 + nn.relu(logit))


def check_powers(name: str, powers: tuple[int, ...] | None) -> None:
    """Raises ValueError if a field with powers of the rotation is empty."""
    if powers is not None and not powers:
        raise ValueError(f"{name}: got (), expected at least one power of the rotation")


def check_words(name: str, words: tuple[str, ...]) -> None:
    """Raises ValueError if a field is not a non-empty tuple of binary words."""
    if not words or isinstance(words, str) or any(set(word) - set("01") for word in words):
        raise ValueError(f"{name}: got {words!r}, expected a non-empty tuple of words over 0 and 1")
