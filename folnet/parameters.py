"""Parameters as a table of names, and whether a table fits a model."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util

ENCODER = "folnet."
"""What the names of an encoder's parameters begin with in a model with a head."""
POOLER = "pooler."
"""What the names of an encoder's pooler begin with; decoders have none."""


def flatten(params: Mapping[str, Any]) -> dict[str, Any]:
    """Nested parameters as "a.b.c" -> array."""
    return traverse_util.flatten_dict(dict(params), sep=".")


def nest(table: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`."""
    return traverse_util.unflatten_dict(dict(table), sep=".")


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model's parameters; nothing is computed."""
    params = jax.eval_shape(lambda key: _drawn(model, key), jax.random.key(0))
    return {name: leaf.shape for name, leaf in flatten(params).items()}


def draw(model: nn.Module, key: jax.Array, names: Iterable[str]) -> dict[str, jax.Array]:
    """Initial values of some parameters; the others are not computed."""
    names = list(names)

    def chosen(key):
        params = flatten(_drawn(model, key))
        return {name: params[name] for name in names}

    return jax.jit(chosen)(key)


def is_head(name: str, expected: Iterable[str]) -> bool:
    """Whether a parameter is one of a head, in a model that has these names."""
    return not name.startswith(ENCODER) and any(other.startswith(ENCODER) for other in expected)


def misfits(expected: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> list[str]:
    """All that is wrong with names and shapes, a line each."""
    lines = [f"{name} is missing, expected {shape}" for name, shape in expected.items() if name not in given]
    lines += [f"{name} {shape} does not belong" for name, shape in given.items() if name not in expected]
    lines += [
        f"{name} has shape {shape}, expected {expected[name]}"
        for name, shape in given.items()
        if name in expected and tuple(shape) != tuple(expected[name])
    ]
    return lines


def complain(what: str, model: nn.Module, lines: list[str]) -> None:
    """Raises ValueError with all lines, if there are any."""
    if lines:
        raise ValueError(f"{what} does not fit {type(model).__name__}:\n  " + "\n  ".join(lines))


def filled(
    model: nn.Module, table: Mapping[str, np.ndarray], what: str, *, key: jax.Array | None = None
) -> dict[str, Any]:
    """A model's parameters, float32, from a table of arrays by our names "a.b.c".

    A key draws the parameters of heads that are missing; without one they are an error. `what` is what the
    error calls the table.

    Raises:
      ValueError: what is missing, does not belong or has another shape, all of it at once.
    """
    expected = shapes(model)
    drawn = missing_heads(expected, table) if key is not None else []
    wanted = {name: shape for name, shape in expected.items() if name not in drawn}
    complain(what, model, misfits(wanted, {name: np.shape(array) for name, array in table.items()}))
    params: dict[str, Any] = {name: jnp.asarray(array, jnp.float32) for name, array in table.items()}
    if key is not None and drawn:
        params |= draw(model, key, drawn)
    return nest({name: params[name] for name in expected})


def missing_heads(expected: Mapping[str, Any], given: Iterable[str]) -> list[str]:
    """Names of a model's head parameters that are not given."""
    given = set(given)
    return [name for name in expected if name not in given and is_head(name, expected)]


def adapted(table: Mapping[str, Any], expected: Iterable[str]) -> dict[str, Any]:
    """The parameters of any class of model by the `expected` names of this one.

    Those of other heads are left out, and so is the pooler, for a class without one.
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
