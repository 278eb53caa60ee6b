"""Parameters as flat tables of names, and the check that a table fits a model."""

from collections.abc import Container, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util

from logic_zoo.folders import complain, misfits

ENCODER = "folnet."
"""Prefix of the encoder's parameter names in a model with a head."""
POOLER = "pooler."
"""Prefix of the pooler's parameter names within an encoder; decoders have no pooler."""


def flatten(params: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens nested parameters to "a.b.c" -> array."""
    return traverse_util.flatten_dict(dict(params), sep=".")


def nest(table: Mapping[str, Any]) -> dict[str, Any]:
    """Nests a flat table of parameters; the inverse of `flatten`."""
    return traverse_util.unflatten_dict(dict(table), sep=".")


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Returns the names and shapes of a model's parameters without computing them."""
    params = jax.eval_shape(lambda key: _drawn(model, key), jax.random.key(0))
    return {name: leaf.shape for name, leaf in flatten(params).items()}


def draw(model: nn.Module, key: jax.Array, names: Iterable[str]) -> dict[str, jax.Array]:
    """Returns initial values of the named parameters only."""

    def chosen(key):
        params = flatten(_drawn(model, key))
        return {name: params[name] for name in names}

    return jax.jit(chosen)(key)


def is_head(name: str, expected: Iterable[str]) -> bool:
    """Returns whether a parameter belongs to a head, in a model with the names `expected`."""
    return not name.startswith(ENCODER) and any(other.startswith(ENCODER) for other in expected)


def filled(
    model: nn.Module, table: Mapping[str, np.ndarray], what: str, *, key: jax.Array | None = None
) -> dict[str, Any]:
    """Builds a model's parameters, of the type in its settings, from a table with our names "a.b.c".

    A key initializes the parameters of missing heads; without one they are an error. Errors refer to the
    table as `what`.

    Raises:
      ValueError: If arrays are missing, unexpected or of another shape; lists all of them.
    """
    expected = shapes(model)
    drawn = missing_heads(expected, table) if key is not None else []
    wanted = {name: shape for name, shape in expected.items() if name not in drawn}
    complain(what, model, misfits(wanted, {name: np.shape(array) for name, array in table.items()}))
    config: Any = model.config  # pyrefly: ignore
    params: dict[str, Any] = {n: jnp.asarray(array, config.param_dtype) for n, array in table.items()}
    if key is not None and drawn:
        params |= draw(model, key, drawn)
    return nest({name: params[name] for name in expected})


def missing_heads(expected: Mapping[str, Any], given: Container[str]) -> list[str]:
    """Returns the names of a model's head parameters that are not given."""
    return [name for name in expected if name not in given and is_head(name, expected)]


def adapted(table: Mapping[str, Any], expected: Iterable[str]) -> dict[str, Any]:
    """Renames the parameters of any model class to the names `expected` by another.

    Leaves out the parameters of other heads, and the pooler if the class has none.
    """
    expected = list(expected)
    before = ENCODER if any(name.startswith(ENCODER) for name in expected) else ""
    found = {}
    for name, array in table.items():
        bare = name.removeprefix(ENCODER)
        if not is_head(name, table):
            if before + bare in expected or not bare.startswith(POOLER):
                found[before + bare] = array
        elif before and name in expected:
            found[name] = array
    return found


def _drawn(model: nn.Module, key: jax.Array) -> Mapping[str, Any]:
    dummy = jnp.zeros(getattr(model, "dummy_shape", (1, 1)), jnp.int32)
    return model.init(key, *[dummy] * getattr(model, "dummy_inputs", 1))["params"]
