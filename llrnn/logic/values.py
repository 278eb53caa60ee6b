"""Denotations as JAX values: their forms, conversion, addition, coordinates and differentiation.

    type      value
    atom      array [d]
    1         array []
    A & B     pair of values, as is A + B; of top and 0 an array [0]
    A (x) B   array [dim A, dim B] if A, B have no bang, else a formal sum of pure tensors, `PureTensors`
    A -o B    `LinearMap`, a linear callable
    forall    `Family`, a value for every type
    !A        formal sum of kets, `Kets`; callers pass and receive a point |>_P as the plain value P, unless P
              is itself `Kets`

`coerce` converts values from callers by their type: an operator may be a matrix [dim B, dim A] or a callable,
a functional A -o 1 also a vector [dim A], a point of !A a value of A. All functions work under jit, vmap and
differentiation, and in the precision of the arrays they get.

These functions are in one module because they are mutually recursive: a linear map converts its argument when
it is called, and conversion makes linear maps from matrices and from callables on points.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from llrnn.logic.stackless import Steps, each, stackless, steps_of
from llrnn.logic.term import Term, excerpt
from llrnn.logic.types import (
    Atom,
    Bang,
    Falsity,
    ForAll,
    Lolli,
    One,
    Plus,
    Tensor,
    Truth,
    Type,
    Unit,
    With,
    dimension,
    finite_dimensional,
    texts,
)

type Value = Any  # the table above has the forms; which one depends on the type in the logic


@dataclass(frozen=True, eq=False, repr=False)
class LinearMap:
    """A value of type A -o B: a linear function of values of A.

    A call may give several arguments: `f(a, b)` is `f(a)(b)`. It converts arguments by `coerce` and results
    by `plain`.

    Attributes:
      domain: A.
      codomain: B.
      apply: the function on internal values, where a value of !A is always `Kets`; if it is `stackless`, as
        that of a lambda is, a program that applies it any number of times within itself needs no stack.
    """

    domain: Type
    codomain: Type
    apply: Callable[[Value], Value]

    @property
    def type(self) -> Lolli:
        """The type A -o B in the logic."""
        return Lolli(self.domain, self.codomain)

    def __call__(self, argument: Value, *more: Value) -> Value:
        value: Value = self
        for given in (argument, *more):
            if not isinstance(value, LinearMap):
                raise ValueError(f"more: got {1 + len(more)} arguments, expected fewer for type {self.type}")
            value = value.apply(coerce(given, value.domain))
        return plain(value)

    def __repr__(self) -> str:
        return f"<linear map : {self.type}>"


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """A value of type forall X. A: `family[B]` is its value at the type B.

    Attributes:
      of: forall X. A.
      at: the function from a type B to an internal value of A with B for X.
    """

    of: ForAll
    at: Callable[[Type], Value]

    def __getitem__(self, of: Type) -> Value:
        return plain(self.at(of))

    def __repr__(self) -> str:
        return f"<family : {self.of}>"


@dataclass(frozen=True, eq=False)
class WeightedKet:
    """coefficient * |vectors>_point; the Python integer 1 marks a coefficient known to be 1."""

    coefficient: Value
    point: Value
    vectors: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False)
class Kets:
    """A value of type !A: a formal sum of weighted kets."""

    terms: tuple[WeightedKet, ...]


@dataclass(frozen=True, eq=False)
class PureTensors:
    """A value of type A (x) B with a bang in A or B: a formal sum of pure tensors left (x) right."""

    terms: tuple[tuple[Value, Value], ...]


def ket(point: Value, *vectors: Value) -> Kets:
    """Returns |vectors>_point, an argument for a value of type !A -o B; point and vectors are values of A."""
    return Kets((WeightedKet(1, point, vectors),))


def is_one(coefficient: Value) -> bool:
    """Returns whether the coefficient of a ket is known to be 1; arrays are not inspected."""
    return isinstance(coefficient, int) and coefficient == 1


@stackless
def add(first: Value, *more: Value) -> "Steps[Value]":
    """Adds values of one type: componentwise for pairs, pointwise for callables, formally for kets."""
    values = (first, *more)
    if not more:
        return first
    if isinstance(first, (Kets, PureTensors)):
        return type(first)(tuple(term for value in values for term in value.terms))
    if isinstance(first, LinearMap) and all(isinstance(value, LinearMap) for value in values):
        maps = [value.apply for value in values]
        return LinearMap(first.domain, first.codomain, stackless(lambda x: _total(maps, x)))
    if isinstance(first, Family):
        families = [value.at for value in values]
        return Family(first.of, stackless(lambda of: _total(families, of)))
    if any(callable(value) for value in values):
        return lambda *arguments: add(*[value(*arguments) for value in values])
    if isinstance(first, (tuple, list)):
        return tuple((yield from each(add.steps(*parts) for parts in zip(*values, strict=True))))
    return sum(more, start=first)


@stackless
def scale(coefficient: Float[Array, ""] | float, value: Value) -> "Steps[Value]":
    """Multiplies a value of any type by a scalar."""
    match value:
        case Kets(terms):
            factors = [coefficient if is_one(t.coefficient) else coefficient * t.coefficient for t in terms]
            return Kets(tuple(replace(t, coefficient=c) for t, c in zip(terms, factors, strict=True)))
        case PureTensors(terms):
            lefts = yield from each(scale.steps(coefficient, left) for left, _ in terms)
            return PureTensors(tuple((new, right) for new, (_, right) in zip(lefts, terms, strict=True)))
        case LinearMap(a, b, apply):
            return LinearMap(a, b, stackless(lambda x: _scaled(coefficient, apply, x)))
        case Family(of, at):
            return Family(of, stackless(lambda a: _scaled(coefficient, at, a)))
        case tuple() | list():
            return tuple((yield from each(scale.steps(coefficient, part) for part in value)))
    if callable(value):
        return lambda *arguments: scale(coefficient, value(*arguments))
    return coefficient * value


def _total(functions: Sequence[Callable[[Value], Value]], x: Value) -> Steps[Value]:
    return (yield add.steps(*(yield from each(steps_of(function, x) for function in functions))))


def _scaled(coefficient: Value, function: Callable[[Value], Value], x: Value) -> Steps[Value]:
    return (yield scale.steps(coefficient, (yield steps_of(function, x))))


def superpose(coefficients: Float[Array | np.ndarray, "n"], values: Sequence[Value]) -> Value:
    """Returns the linear combination sum_i coefficients[i] * values[i] of one or more values of one type.

    Raises:
      ValueError: there are no values, or the number of coefficients differs from the number of values.
    """
    coefficients = jnp.asarray(coefficients)
    if coefficients.ndim != 1 or coefficients.shape[0] != len(values) or not values:
        raise ValueError(
            f"coefficients: got shape {coefficients.shape} with {len(values)} values, expected [n] with n "
            "values, n >= 1"
        )
    return add(*[scale(coefficients[i], value) for i, value in enumerate(values)])


@stackless
def zero(of: Type) -> "Steps[Value]":
    """Returns the zero of a type; its arrays are weakly typed and take the dtype of the other summand."""
    match of:
        case With() | Plus():
            return tuple((yield from each(zero.steps(part) for part in of.parts)))
        case ForAll():
            return Family(of, lambda a: zero(of.instantiate(a)))
        case Lolli(a, b):
            return LinearMap(a, b, lambda x: zero(b))
        case Tensor() if not is_array(of):
            return PureTensors(())
        case Bang():
            return Kets(())
    return jnp.full(_shape(of), 0.0)  # a Python scalar gives a weakly typed array


def is_array(of: Type) -> bool:
    """Returns whether a value of the type is a single array."""
    return isinstance(of, (Atom, Unit, Truth, Falsity)) or (isinstance(of, Tensor) and finite_dimensional(of))


def _shape(of: Type) -> tuple[int, ...]:
    """Returns the shape of a value that is a single array."""
    match of:
        case Atom(_, size):
            return (size,)
        case Unit():
            return ()
        case Truth() | Falsity():
            return (0,)
        case Tensor(a, b):
            return dimension(a), dimension(b)
    raise ValueError(f"of: got {of!r}, expected a type whose values are arrays")


def flatten(value: Value, of: Type) -> Float[Array, "d"]:
    """Returns the coordinates of a value of a finite-dimensional type.

    & and + concatenate, (x) and -o are row-major.
    """
    found, pending = [], [(value, of)]
    while pending:
        value, of = pending.pop()
        match of:
            case With(a, b) | Plus(a, b):
                pending += [(value[1], b), (value[0], a)]
                continue
            case Lolli():
                value = _matrix_by_type(value)
        found.append(value if isinstance(of, Atom) else jnp.reshape(value, (dimension(of),)))
    return found[0] if len(found) == 1 else jnp.concatenate(found)


def unflatten(coordinates: Float[Array | np.ndarray, "d"], of: Type) -> Value:
    """Returns the value of a finite-dimensional type with these coordinates, the inverse of `flatten`."""
    start, alone = 0, not isinstance(of, (With, Plus))

    @stackless
    def at(of: Type) -> Steps[Value]:
        nonlocal start
        match of:
            case With() | Plus():
                return tuple((yield from each(at.steps(part) for part in of.parts)))
            case Bang() | ForAll():
                raise ValueError(
                    f"of: got {of}, expected a type without ! and quantifiers, whose values have coordinates"
                )
        size = dimension(of)
        found = coordinates if alone else coordinates[start : start + size]
        start += size
        match of:
            case Atom():
                return found
            case Lolli(a, b):
                return _from_matrix(jnp.reshape(found, (dimension(b), dimension(a))), a, b)
        return jnp.reshape(found, _shape(of))

    return at(of)


def basis(size: int) -> Float[Array, "size size"]:
    """Returns the unit vectors, weakly typed, so that a float32 operator gives float32 with x64 enabled."""
    return jnp.where(jnp.eye(size, dtype=bool), 1.0, 0.0)


def pure_tensor(of: Tensor, left: Value, right: Value) -> Value:
    """Returns left (x) right, a value of type `of`."""
    if finite_dimensional(of):
        return flatten(left, of.left)[:, None] * flatten(right, of.right)[None, :]
    return PureTensors(((left, right),))


@stackless
def dense(value: Value) -> "Steps[Value]":
    """Converts every linear map in a value to an array: [dim B, dim A], or [dim A] if B is 1.

    The result is a pytree of arrays, which `lax.scan` can carry and a `LinearMap` accepts as an argument.

    Raises:
      ValueError: the type of a linear map has a bang.
    """
    if isinstance(value, LinearMap):
        matrix = _matrix_by_type(value)
        return matrix[0] if isinstance(value.codomain, Unit) else matrix
    if isinstance(value, (tuple, list)):
        return tuple((yield from each(dense.steps(part) for part in value)))
    return value


def matrix(function: Callable[[Value], Value], dimension: int) -> Float[Array, "... dimension"]:
    """Returns the matrix of a linear callable, whose column j is the value at the j-th unit vector.

    Args:
      function: a `LinearMap` without bangs in its type, or any linear callable on arrays [dimension].
      dimension: the dimension of the domain.

    Returns:
      [dim of the codomain, dimension] for a `LinearMap`; otherwise the axes of a value, then dimension.

    Raises:
      ValueError: the domain of a `LinearMap` has another dimension, its type has a bang, or `function` is not
        callable.
    """
    if isinstance(function, LinearMap):
        found = _dimension(function.domain)
        if found != dimension:
            raise ValueError(
                f"dimension: got {dimension}, expected {found}, the dimension of the domain {function.domain}"
            )
        return _matrix_by_type(function)
    if not callable(function):
        raise ValueError(f"function: got {function!r}, expected a linear callable")
    return jax.vmap(function, out_axes=-1)(basis(dimension))


def _from_matrix(entries: Float[Array | np.ndarray, "m n"], a: Type, b: Type) -> LinearMap:
    return LinearMap(a, b, lambda x: unflatten(entries @ flatten(x, a), b))


def _matrix_by_type(value: LinearMap) -> Float[Array, "m n"]:
    a, b = value.domain, value.codomain
    size = _dimension(a)
    _dimension(b)
    return jax.vmap(lambda x: flatten(value.apply(unflatten(x, a)), b), out_axes=-1)(basis(size))


def _dimension(of: Type) -> int:
    if not finite_dimensional(of):
        raise ValueError(
            f"function: got {of} as domain or codomain, expected types without ! and quantifiers"
        )
    return dimension(of)


def extend(function: Callable[[Value], Value], kets: Kets, result: Type) -> Value:
    """Applies the linear extension to kets of a function of points; `result` is the type of its values."""
    parts = []
    for term in kets.terms:
        value = directional(function, term.point, term.vectors, result)
        parts.append(value if is_one(term.coefficient) else scale(term.coefficient, value))
    return add(*parts) if parts else zero(result)


def directional(
    function: Callable[[Value], Value], point: Value, vectors: Sequence[Value], result: Type
) -> Value:
    """Computes the directional derivative D^s function(point)[v1 .. vs] by nested `jax.jvp`.

    This is the value on |v1 .. vs>_point of the linear extension of `function`. The type of its values,
    `result`, determines the derivative: pointwise for functions, by Leibniz' rule for tensors and by the
    chain rule |..>_Q -> |.., dQ>_Q (Faa di Bruno) for kets.
    """
    if not vectors:
        return function(point)
    *rest, last = vectors
    return _slope(lambda t: directional(function, add(point, scale(t, last)), rest, result), result)


def _slope(curve: Callable[[Any], Value], of: Type) -> Value:
    """Returns the derivative at 0 of a curve of values of type `of`, itself a value of type `of`.

    One `jax.jvp` differentiates all arrays of the value, so that each order of differentiation costs two
    evaluations for any number of kets; a function is differentiated when it is applied.
    """
    if isinstance(of, (Lolli, ForAll)):
        return _tangent(of, None, curve, iter(()))
    # A Python float is weakly typed, so the derivative has the precision of the curve's arrays.
    tangents = iter(jax.jvp(lambda t: _arrays(curve(t), of), (0.0,), (1.0,))[1])
    return _tangent(of, None if is_array(of) else curve(0.0), curve, tangents)


@stackless
def _tangent(
    of: Type, now: Value, curve: Callable[[Any], Value], tangents: Iterator[Array]
) -> "Steps[Value]":
    """Returns the derivative of a part of a value: `now` is the part at 0, `curve` the part at any time."""
    match of:
        case Lolli(a, b):
            return LinearMap(a, b, lambda x: _slope(lambda t: curve(t).apply(x), b))
        case ForAll():
            return Family(of, lambda a: _slope(lambda t: curve(t).at(a), of.instantiate(a)))
        case With(a, b) | Plus(a, b):
            first = yield _tangent.steps(a, now[0], lambda t: curve(t)[0], tangents)
            return first, (yield _tangent.steps(b, now[1], lambda t: curve(t)[1], tangents))
        case Tensor(a, b) if not finite_dimensional(of):
            pure = []
            for i, (left, right) in enumerate(now.terms):
                moved = yield _tangent.steps(a, left, lambda t, i=i: curve(t).terms[i][0], tangents)
                pure.append((moved, right))
                moved = yield _tangent.steps(b, right, lambda t, i=i: curve(t).terms[i][1], tangents)
                pure.append((left, moved))
            return PureTensors(tuple(pure))
        case Bang(a):
            kets = []
            for i, ket in enumerate(now.terms):
                if not is_one(ket.coefficient):
                    kets.append(WeightedKet(next(tangents), ket.point, ket.vectors))
                moved = yield _tangent.steps(a, ket.point, lambda t, i=i: curve(t).terms[i].point, tangents)
                kets.append(WeightedKet(ket.coefficient, ket.point, (*ket.vectors, moved)))
                for j, vector in enumerate(ket.vectors):
                    of_vector = lambda t, i=i, j=j: curve(t).terms[i].vectors[j]  # noqa: E731
                    turned = yield _tangent.steps(a, vector, of_vector, tangents)
                    vectors = (*ket.vectors[:j], turned, *ket.vectors[j + 1 :])
                    kets.append(WeightedKet(ket.coefficient, ket.point, vectors))
            return Kets(tuple(kets))
    return next(tangents)


@stackless
def _arrays(value: Value, of: Type) -> "Steps[list[Array]]":
    """Returns the arrays in a value, in the order in which `_tangent` consumes their derivatives."""
    match of:
        case Lolli() | ForAll():
            return []
        case With(a, b) | Plus(a, b):
            parts = [(value[0], a), (value[1], b)]
        case Tensor(a, b) if not finite_dimensional(of):
            parts = [part for left, right in value.terms for part in ((left, a), (right, b))]
        case Bang(a):
            parts = []
            for ket in value.terms:
                if not is_one(ket.coefficient):
                    parts.append((ket.coefficient, One))
                parts += [(part, a) for part in (ket.point, *ket.vectors)]
        case _:
            array = jnp.asarray(value)  # of integers, which have no derivative in JAX, as numbers
            return [array if jnp.issubdtype(array.dtype, jnp.inexact) else 1.0 * array]
    found = yield from each(_arrays.steps(*part) for part in parts)
    return [array for arrays in found for array in arrays]


@stackless
def coerce(value: Value, of: Type) -> "Steps[Value]":
    """Converts a value from a caller to the internal form of its type; internal values stay unchanged.

    Raises:
      ValueError: the value does not have the form or the shape of the type, or is a term.
    """
    if isinstance(value, Term):  # a term is callable and would pass for an operator until it is called
        raise ValueError(
            f"value: got the term `{excerpt(value)}`, expected a value of type {of}; apply terms to each "
            "other first, or pass the term's denotation"
        )
    pair = isinstance(value, (tuple, list)) and len(value) == 2
    match of:
        case With() | Plus() | Tensor() if pair:
            sides = yield from each(coerce.steps(*part) for part in zip(value, of.parts, strict=True))
            return pure_tensor(of, *sides) if isinstance(of, Tensor) else tuple(sides)
        case Tensor() if isinstance(value, PureTensors) and not finite_dimensional(of):
            terms = []
            for sides in value.terms:
                parts = zip(sides, of.parts, strict=True)
                terms.append(tuple((yield from each(coerce.steps(*part) for part in parts))))
            return PureTensors(tuple(terms))
        case Lolli():
            return _linear(value, of)
        case ForAll() if isinstance(value, Family) and value.of == of:
            return value
        case ForAll():
            raise ValueError(f"value: got {_describe(value)}, expected a family of type {of}")
        case Bang(a) if isinstance(value, Kets):
            kets = []
            for term in value.terms:
                parts = yield from each(coerce.steps(part, a) for part in (term.point, *term.vectors))
                kets.append(WeightedKet(term.coefficient, parts[0], tuple(parts[1:])))
            return Kets(tuple(kets))
        case Bang(a):
            return ket((yield coerce.steps(value, a)))
        case With() | Plus() | Tensor() if not is_array(of):
            pure = " or PureTensors" if isinstance(of, Tensor) else ""
            raise ValueError(f"value: got {_describe(value)}, expected a pair of values{pure} for type {of}")
    return _array(value, _shape(of), of)


@stackless
def plain(value: Value) -> "Steps[Value]":
    """Converts an internal value to the form for callers: a point of !A becomes a value of A.

    A point of !!A stays as it is if its own value is `Kets`, which alone would be taken for those of !!A.
    """
    match value:
        case Kets((WeightedKet(coefficient, point, ()),)) if is_one(coefficient):
            inner = yield plain.steps(point)
            return value if isinstance(inner, Kets) else inner
        case tuple():
            return tuple((yield from each(plain.steps(part) for part in value)))
    return value


def _linear(value: Value, of: Lolli) -> LinearMap:
    a, b = of.domain, of.codomain
    if isinstance(value, LinearMap):
        if value.type != of:
            got, wanted = texts(value.type, of)
            raise ValueError(f"value: got <linear map : {got}>, expected a linear map of type {wanted}")
        return value
    if callable(value):
        if not isinstance(a, Bang):
            return LinearMap(a, b, lambda x: coerce(value(plain(x)), b))
        # A callable on points extends linearly to all kets, by its directional derivatives.
        return LinearMap(a, b, lambda kets: extend(lambda p: coerce(value(plain(p)), b), kets, b))
    if not finite_dimensional(of):
        raise ValueError(f"value: got {_describe(value)}, expected a callable for type {of}")
    if isinstance(b, Unit) and jnp.ndim(value) == 1:
        return _from_matrix(_array(value, (dimension(a),), of)[None, :], a, b)
    return _from_matrix(_array(value, (dimension(b), dimension(a)), of), a, b)


def _array(value: Value, shape: tuple[int, ...], of: Type) -> Array:
    try:
        array = jnp.asarray(value)
    except TypeError as error:
        raise ValueError(
            f"value: got {_describe(value)}, expected an array of shape {shape} for type {of}"
        ) from error
    if array.shape != shape:
        raise ValueError(f"value: got shape {array.shape}, expected {shape} for type {of}")
    # Integer arrays are accepted, but only floats can be differentiated.
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


def _describe(value: Value) -> str:
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if shape is not None else f"{type(value).__name__} {value!r}"[:80]
