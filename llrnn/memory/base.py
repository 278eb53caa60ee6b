"""What every cell with a memory has: a controller, one product for all of its heads, sharpened addresses."""

from collections.abc import Callable

from flax import linen as nn
from flax.typing import Initializer
from jaxtyping import Array, Float

from llrnn.cells.base import Cell, at_least, checked, one_of
from llrnn.memory import rings

READS = ("updated", "previous")


class MemoryCell(Cell):
    """The controller h_0 of a memory; Hu & Murfet (2017), Example 2.10, and the options of the authors' code.

    The controller predicts all there is to predict from h_0, through one product for all heads. Axis letters:
    B batch (any number of leading axes), I input features, D controller features, V content of a location.

    Attributes:
      features: D, the dimension of the controller's state h_0.
      activation: sigma of (2.15); relu in the paper, tanh in the authors' experiments.
      add_activation: of the vector u written to the memory; relu in the paper.
      erase: also predict e = sigmoid(..) and write M - M * (w (x) e) + w (x) u.
      sharpen: sharpen addresses by gamma = 1 + relu(..) after every move.
      read: "updated": the controller sees M'(r'), as in (2.15). "previous": M(r), as in the authors' code.
      initial_memory: what every entry of the memory is at the start.
      dtype: dtype of the controller's products; None takes it from inputs and parameters.
      param_dtype: dtype of the parameters, the carried state and everything on a ring.
    """

    features: int
    activation: Callable[[Array], Array] = nn.relu
    add_activation: Callable[[Array], Array] = nn.relu
    erase: bool = False
    sharpen: bool = False
    read: str = "updated"
    initial_memory: float = 1e-6
    checks = checked(features=at_least(1), read=one_of(READS))

    @nn.nowrap
    def check_inputs(self, controller: Array, inputs: Array) -> None:
        """Raises ValueError when the fields, the controller's state or the inputs do not fit each other."""
        self.validate()
        self.check_state("carry.controller", controller, inputs, self.features)

    def project(self, controller: Float[Array, "*B D"], widths: dict[str, int]) -> dict[str, Array]:
        """W h_0 + B for every named head, in one product cut by `widths`; heads of width 0 are left out.

        The heads come back in the controller's dtype: addresses and memory keep the state's precision.
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
        """The initialiser of the biases of all heads."""
        return self.bias_init

    def control(
        self,
        controller: Float[Array, "*B D"],
        inputs: Float[Array, "*B I"],
        seen: Float[Array, "*B D"],
    ) -> Float[Array, "*B D"]:
        """sigma(seen + H_0 h_0 + U_0 x + B), `seen` being the memory's part, V M'(r') in (2.15)."""
        recurrent = self.dense(
            "hidden", self.features, use_bias=False, kernel_init=self.recurrent_kernel_init
        )
        total = seen + recurrent(controller) + self.dense("input", self.features)(inputs)
        return self.activation(total).astype(controller.dtype)

    def record(self, ring: rings.Ring, suffix: str = "") -> None:
        """Sows the addresses of this step; nothing is kept unless "intermediates" is mutable."""
        self.sow("intermediates", "read_address" + suffix, ring.read_address)
        self.sow("intermediates", "write_address" + suffix, ring.write_address)

    @nn.nowrap
    def sharpened(self, address: Float[Array, "*B N"], logit: Float[Array, "*B 1"] | None) -> Array:
        """The address sharpened by gamma = 1 + relu(logit), or as it is where there is no such head."""
        return address if logit is None else rings.sharpen(address, 1 + nn.relu(logit))


def check_powers(name: str, powers: tuple[int, ...] | None) -> None:
    """Raises ValueError when a field that lists powers of the rotation lists none."""
    if powers is not None and not powers:
        raise ValueError(f"{name} must name at least one power of the rotation, got ()")


def check_words(name: str, words: tuple[str, ...]) -> None:
    """Raises ValueError unless a field is a non-empty tuple of binary words."""
    if not words or isinstance(words, str) or any(set(word) - set("01") for word in words):
        raise ValueError(f"{name} must be a tuple of words over 0 and 1, got {words!r}")
