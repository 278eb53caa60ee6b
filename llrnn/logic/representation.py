"""Denotations as JAX values, and their addition, scaling and directional derivatives.

    type      value
    atom      array [d]
    1         array []
    A & B     pair of values
    A (x) B   array [dim A, dim B] if neither side has a bang, else a formal sum of pure ones, `PureTensors`
    A -o B    `LinearMap`, a linear callable
    !A        formal sum of kets, `Kets`; at the boundary a point |>_P is the plain value P

Values given from outside are read by their type (`coerce`): an operator may be a matrix [dim B, dim A] or
any callable, a functional A -o 1 also a vector [dim A], a point of !A its plain value. Everything works under
jit, vmap and differentiation, and in the precision of the arrays it is given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from llrnn.logic.types import Atom, Lolli, Tensor, Type, Unit, With, bang_free, dimension

type Value = Any  # by the table above; the type of logic, not of Python, says which


@dataclass(frozen=True, eq=False, repr=False)
class LinearMap:
    """A value of type A -o B: a linear function of values of A.

    Called with several arguments it is curried: `f(a, b)` is `f(a)(b)`. Arguments are read by their type
    (`coerce`), results are given in plain form (`plain`).

    Attributes:
      domain: A.
      codomain: B.
      apply: the function on internal values, in which a value of !A is always `Kets`.
    """

    domain: Type
    codomain: Type
    apply: Callable[[Value], Value]

    @property
    def type(self) -> Lolli:
        """A -o B."""
        return Lolli(self.domain, self.codomain)

    def __call__(self, argument: Value, *more: Value) -> Value:
        from llrnn.logic.boundary import coerce, plain  # reading values needs to know linear maps

        value: Value = self
        for given in (argument, *more):
            if not isinstance(value, LinearMap):
                raise ValueError(f"argument: {1 + len(more)} are too many for a value of type {self.type}")
            value = value.apply(coerce(given, value.domain))
        return plain(value)

    def __repr__(self) -> str:
        return f"<linear map : {self.type}>"


@dataclass(frozen=True, eq=False)
class WeightedKet:
    """coefficient * |vectors>_point; a coefficient that is the integer 1 is known to be 1."""

    coefficient: Value
    point: Value
    vectors: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False)
class Kets:
    """A value of type !A: a formal sum of kets."""

    terms: tuple[WeightedKet, ...]


@dataclass(frozen=True, eq=False)
class PureTensors:
    """A value of A (x) B in which a bang occurs: a formal sum of pure tensors left (x) right."""

    terms: tuple[tuple[Value, Value], ...]


def ket(point: Value, *vectors: Value) -> Kets:
    """|vectors>_point as an argument for a value of type !A -o B; point and vectors are values of A."""
    return Kets((WeightedKet(1, point, vectors),))


def add(first: Value, *more: Value) -> Value:
    """The sum of values of one type: componentwise on pairs, pointwise on callables, formal on kets."""
    values = (first, *more)
    if not more:
        return first
    if isinstance(first, Kets):
        return Kets(tuple(term for value in values for term in value.terms))
    if isinstance(first, PureTensors):
        return PureTensors(tuple(term for value in values for term in value.terms))
    if isinstance(first, LinearMap) and all(isinstance(value, LinearMap) for value in values):
        return LinearMap(first.domain, first.codomain, lambda x: add(*[value.apply(x) for value in values]))
    if any(callable(value) for value in values):
        return lambda *arguments: add(*[value(*arguments) for value in values])
    if isinstance(first, (tuple, list)):
        return tuple(add(*parts) for parts in zip(*values, strict=True))
    total = first
    for value in more:
        total = total + value
    return total


def scale(coefficient: Float[Array, ""] | float, value: Value) -> Value:
    """A scalar times a value of any type."""
    if isinstance(value, Kets):
        return Kets(tuple(_times(coefficient, term) for term in value.terms))
    if isinstance(value, PureTensors):
        return PureTensors(tuple((scale(coefficient, left), right) for left, right in value.terms))
    if isinstance(value, LinearMap):
        return LinearMap(value.domain, value.codomain, lambda x: scale(coefficient, value.apply(x)))
    if callable(value):
        return lambda *arguments: scale(coefficient, value(*arguments))
    if isinstance(value, (tuple, list)):
        return tuple(scale(coefficient, part) for part in value)
    return coefficient * value


def superpose(coefficients: Float[Array | np.ndarray, "n"], values: Sequence[Value]) -> Value:
    """The linear combination sum_i coefficients[i] * values[i] of at least one value of one type.

    Raises:
      ValueError: there are not as many coefficients as values, or none.
    """
    coefficients = jnp.asarray(coefficients)
    if coefficients.ndim != 1 or coefficients.shape[0] != len(values) or not values:
        raise ValueError(
            f"coefficients: expected one for each of {len(values)} values (at least 1), got shape "
            f"{coefficients.shape}"
        )
    return add(*[scale(coefficients[i], value) for i, value in enumerate(values)])


def zero(of: Type) -> Value:
    """The zero of a type, in the precision of whatever it is added to."""
    match of:
        case Atom(_, size):
            return jnp.full((size,), 0.0)  # a Python scalar keeps the dtype weak
        case Unit():
            return jnp.full((), 0.0)
        case With(a, b):
            return zero(a), zero(b)
        case Tensor(a, b) if bang_free(of):
            return jnp.full((dimension(a), dimension(b)), 0.0)
        case Tensor():
            return PureTensors(())
        case Lolli(a, b):
            return LinearMap(a, b, lambda x: zero(b))
    return Kets(())


def is_one(coefficient: Value) -> bool:
    """Whether the coefficient of a ket is known to be 1, without looking into an array."""
    return isinstance(coefficient, int) and coefficient == 1


def _times(coefficient: Value, term: WeightedKet) -> WeightedKet:
    factor = coefficient if is_one(term.coefficient) else coefficient * term.coefficient
    return WeightedKet(factor, term.point, term.vectors)
