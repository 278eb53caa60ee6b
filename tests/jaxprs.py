"""What a traced program does."""

from collections.abc import Collection, Iterator
from typing import Any

import jax


def within(equation: Any) -> list[Any]:
    """Returns the programs in an equation's parameters."""
    leaves = jax.tree.leaves(
        list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
    )
    return [each for each in (getattr(leaf, "jaxpr", leaf) for leaf in leaves) if hasattr(each, "eqns")]


def equations(jaxpr: Any, closed: Collection[str] = ()) -> Iterator[Any]:
    """Yields a program's equations, and those of the programs in them except in the primitives `closed`."""
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name not in closed:
            for part in within(equation):
                yield from equations(part, closed)
