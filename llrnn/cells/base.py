"""Base class of all cells: initialisers and dtypes, named affine maps, and checks of fields and shapes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype, Initializer
from jaxtyping import Array, Float

from llrnn.cells.coupling import TABLE, Coupling, table_init

type Check = Callable[[str, Any], None]


def at_least(least: int, *, or_none: bool = False) -> Check:
    """Returns a check that raises ValueError for a field below `least`; `or_none` also allows None."""

    def check(name: str, value: int | None) -> None:
        if not (or_none and value is None) and (value is None or value < least):
            expected = f"None or at least {least}" if or_none else f"at least {least}"
            raise ValueError(f"{name}: got {value}, expected {expected}")

    return check


def above(bound: float) -> Check:
    """Returns a check that raises ValueError for a field that is not greater than `bound`."""

    def check(name: str, value: float) -> None:
        if not value > bound:
            raise ValueError(f"{name}: got {value}, expected more than {bound}")

    return check


def one_of(choices: tuple[str, ...]) -> Check:
    """Returns a check that raises ValueError for a field that is not one of `choices`."""

    def check(name: str, value: str) -> None:
        if value not in choices:
            expected = ", ".join(map(repr, choices))
            raise ValueError(f"{name}: got {value!r}, expected one of {expected}")

    return check


def checked(**by_field: Check) -> Mapping[str, Check]:
    """Returns the read-only mapping from field names to checks that a class assigns to `checks`."""
    return MappingProxyType(by_field)


class Cell(nn.RNNCellBase, kw_only=True):
    """Base class of recurrent cells whose input is a vector.

    Axis letters: B batch (any number of leading axes), I input features, D hidden features.

    Attributes:
      kernel_init: initialiser of the maps from the input and of those that predict commands, data and heads.
      recurrent_kernel_init: initialiser of H, the map from the state.
      bias_init: initialiser of the biases.
      dtype: dtype in which the maps are applied; None infers it from inputs and parameters.
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
        """Number of feature axes of an input, as `flax.linen.RNN` asks: 1, since inputs are vectors."""
        return 1

    @nn.nowrap
    def validate(self) -> object:
        """Raises ValueError, naming the field, if the value of a field is not allowed."""
        for kind in reversed(type(self).__mro__):
            for name, check in vars(kind).get("checks", {}).items():
                check(name, getattr(self, name))

    @nn.nowrap
    def check_state(self, name: str, state: Array, inputs: Array, size: int) -> None:
        """Raises ValueError unless `state` is [*B, size] for inputs [*B, I]."""
        expected = (*inputs.shape[:-1], size)
        if state.shape != expected:
            raise ValueError(
                f"{name}: got shape {state.shape}, expected [*B, {size}] = {expected} for inputs "
                f"{inputs.shape}"
            )

    @nn.nowrap
    def affine(
        self, features: int, hidden: Float[Array, "*B _"], inputs: Float[Array, "*B _"]
    ) -> Float[Array, "*B {features}"]:
        """Computes H h + U x + B of (2.1)."""
        recurrent = self.dense("hidden", features, use_bias=False, kernel_init=self.recurrent_kernel_init)
        return recurrent(hidden) + self.dense("input", features)(inputs)

    @nn.nowrap
    def command_logits(
        self,
        name: str,
        count: int,
        coupling: Coupling,
        hidden: Float[Array, "*B _"],
        inputs: Float[Array, "*B _"],
        tokens: Float[Array, "*B _"],
    ) -> Float[Array, "*B {count}"]:
        """Computes the logits of a learned command; `llrnn.cells.coupling` has the equations.

        Its parameters are `name`, with "both" also `name`_input, and of a table `name`_table.
        """
        match coupling:
            case "table":
                return self.dense(name + TABLE, count, use_bias=False, kernel_init=table_init)(tokens)
            case "input":
                return self.dense(name, count)(inputs)
            case "both":
                of_input = self.dense(name + "_input", count, use_bias=False)(inputs)
                return self.dense(name, count)(hidden) + of_input
        return self.dense(name, count)(hidden)

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
        """Returns a named affine map with the cell's dtypes; initialisers default to the cell's."""
        return nn.Dense(
            features,
            use_bias=use_bias,
            kernel_init=kernel_init or self.kernel_init,
            bias_init=bias_init or self.bias_init,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            name=name,
        )
