"""Counts the matrix products of a traced function, and runs them alone as a lower bound on its time.

Each contraction, whatever the order of its axes, is a batch of products [m, k] x [k, n]. To time them alone,
one compiled program runs all of them on arrays in a layout that suits matrix products (on CPUs no other order
of the factors' axes is faster by more than a few percent). Any further time that the function takes goes to
layouts, softmaxes, normalizations and sums.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval


class Contraction(NamedTuple):
    """A batch of `batch` products [m, k] x [k, n] with factors of type `dtype`."""

    batch: int
    m: int
    k: int
    n: int
    dtype: str = "float32"

    @property
    def operations(self) -> int:
        """Number of multiplications and additions."""
        return 2 * self.batch * self.m * self.k * self.n


def operations(found: Sequence[Contraction]) -> int:
    """Returns the total number of multiplications and additions."""
    return sum(contraction.operations for contraction in found)


def of(function: Callable[..., Any], *args: Any) -> list[Contraction]:
    """Returns the contractions of a function of these arrays or shapes, without those that are dead code.

    Raises:
        ValueError: a contraction is inside a loop of unknown length or a branch, and cannot be counted.
    """
    jaxpr = jax.make_jaxpr(function)(*args).jaxpr
    needed, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return list(_of_jaxpr(needed))


def _of_jaxpr(jaxpr: Any) -> Iterator[Contraction]:
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield _of_equation(equation)
            continue
        inner = [found for sub in _inside(equation.params) for found in _of_jaxpr(sub)]
        if inner and equation.primitive.name in ("while", "cond"):
            raise ValueError(
                f"function: got {len(inner)} contractions inside a {equation.primitive.name}, expected none"
            )
        yield from inner * equation.params.get("length", 1)


def _of_equation(equation: Any) -> Contraction:
    (contracted, other), (batched, _) = equation.params["dimension_numbers"]
    left, right = (variable.aval for variable in equation.invars)
    batch = math.prod(left.shape[axis] for axis in batched)
    k = math.prod(left.shape[axis] for axis in contracted)
    assert k == math.prod(right.shape[axis] for axis in other)
    return Contraction(batch, left.size // batch // k, k, right.size // batch // k, str(left.dtype))


def _inside(value: Any) -> Iterator[Any]:
    """Yields the jaxprs in an equation's parameters."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _inside(part)
    elif hasattr(value, "jaxpr"):
        yield value.jaxpr
    elif hasattr(value, "eqns"):
        yield value


def alone(found: Sequence[Contraction]) -> functools.partial[list[jax.Array]]:
    """Returns a compiled function that computes these products and nothing else.

    Arrays of equal shape are shared, except where this would repeat a product, which a compiler would then
    compute only once.
    """
    arrays: dict[tuple[Any, ...], list[jax.Array]] = {}
    seen: dict[tuple[Any, ...], int] = {}

    def array(shape: tuple[int, ...], dtype: str, which: int) -> tuple[tuple[Any, ...], int]:
        held = arrays.setdefault((shape, dtype), [])
        while len(held) <= which:
            key = jax.random.fold_in(jax.random.key(0, impl="rbg"), len(arrays) * 1000 + len(held))
            held.append(jax.random.uniform(key, shape, dtype))
        return (shape, dtype), which

    places = []
    for one in found:
        left, right = (one.batch, one.m, one.k), (one.batch, one.k, one.n)
        again = seen[left, right, one.dtype] = seen.get((left, right, one.dtype), -1) + 1
        places.append((array(left, one.dtype, again), array(right, one.dtype, 0)))

    @jax.jit
    def products(arrays: Any) -> list[jax.Array]:
        results = []
        for (left, i), (right, j) in places:
            # Returning one element behind a barrier forces the whole product to be computed and lets its
            # memory be reused, as in the function.
            product = jax.lax.optimization_barrier(jnp.matmul(arrays[left][i], arrays[right][j]))
            results.append(product[0, 0, 0])
        return results

    return functools.partial(products, arrays)
