"""What the cells of all families share: initialisers and dtypes, named affine maps, checks."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype, Initializer
from jaxtyping import Array

type Check = Callable[[str, Any], None]


def at_least(least: int, *, or_none: bool = False) -> Check:
    """Raises ValueError when a field is less; with `or_none` it may be None."""

    def check(name: str, value: int | None) -> None:
        if not (or_none and value is None) and (value is None or value < least):
            expected = f"None or at least {least}" if or_none else f"at least {least}"
            raise ValueError(f"{name} must be {expected}, got {value}")

    return check


def one_of(choices: tuple[str, ...]) -> Check:
    """Raises ValueError when a field is none of the choices."""

    def check(name: str, value: str) -> None:
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")

    return check


def checked(**by_field: Check) -> Mapping[str, Check]:
    """The checks of the fields that a class adds, for its `checks`."""
    return MappingProxyType(by_field)


class Cell(nn.RNNCellBase, kw_only=True):
    """A recurrent cell whose input is a vector; axis letters: B batch (any number of leading axes), I input.

    Attributes:
      kernel_init: of the maps of the input and of predictions (commands, data, heads).
      recurrent_kernel_init: of H, the map of the state.
      bias_init: of the biases.
      dtype: dtype of the maps' products; None takes it from inputs and parameters.
      param_dtype: dtype of the parameters and of the carried state.
    """

    kernel_init: Initializer = nn.initializers.lecun_normal()
    recurrent_kernel_init: Initializer = nn.initializers.orthogonal()
    bias_init: Initializer = nn.initializers.zeros_init()
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    checks: ClassVar[Mapping[str, Check]] = checked()

    @property
    def num_feature_axes(self) -> int:
        """One: an input is a vector."""
        return 1

    @nn.nowrap
    def validate(self) -> Any:
        """Raises ValueError, naming the field, when the fields do not make a cell."""
        for kind in reversed(type(self).__mro__):
            for name, check in vars(kind).get("checks", {}).items():
                check(name, getattr(self, name))

    @nn.nowrap
    def check_state(self, name: str, state: Array, inputs: Array, size: int) -> None:
        """Raises ValueError unless the state is [*B, size] where the inputs are [*B, I]."""
        if state.shape != (*inputs.shape[:-1], size):
            raise ValueError(
                f"{name} must be [*B, {size}] with the batch axes of inputs, got {state.shape} and "
                f"{inputs.shape}"
            )

    @nn.nowrap
    def affine(self, features: int, hidden: Array, inputs: Array) -> Array:
        """H h + U x + B of (2.1)."""
        recurrent = self.dense("hidden", features, use_bias=False, kernel_init=self.recurrent_kernel_init)
        return recurrent(hidden) + self.dense("input", features)(inputs)

    @nn.nowrap
    def dense(
        self,
        name: str,
        features: int,
        *,
        use_bias: bool = True,
        kernel_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> nn.Dense:
        """A named affine map; it starts as the cell's fields say or by initialisers of its own."""
        return nn.Dense(
            features,
            use_bias=use_bias,
            kernel_init=kernel_init or self.kernel_init,
            bias_init=bias_init or self.bias_init,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            name=name,
        )
