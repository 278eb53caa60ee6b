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

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from llrnn.logic.types import Atom, Bang, Lolli, Tensor, Type, Unit, With, bang_free, dimension

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


def superpose(coefficients: Float[Array, "n"], values: Sequence[Value]) -> Value:
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


def coerce(value: Value, of: Type) -> Value:
    """Read a value given from outside by its type; what is already an internal value stays as it is.

    Raises:
      ValueError: the value does not have the form or the shape that the type asks for.
    """
    match of:
        case Atom(_, size):
            return _array(value, (size,), of)
        case Unit():
            return _array(value, (), of)
        case With(a, b):
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise ValueError(f"value: type {of} needs a pair of values, got {_describe(value)}")
            return coerce(value[0], a), coerce(value[1], b)
        case Tensor(a, b):
            if isinstance(value, (tuple, list)) and len(value) == 2:
                return pure_tensor(of, coerce(value[0], a), coerce(value[1], b))
            if bang_free(of):
                return _array(value, (dimension(a), dimension(b)), of)
            if isinstance(value, PureTensors):
                return PureTensors(tuple((coerce(left, a), coerce(right, b)) for left, right in value.terms))
            raise ValueError(
                f"value: type {of} needs a pair of values or PureTensors, got {_describe(value)}"
            )
        case Lolli(a, b):
            return _linear(value, a, b)
        case Bang(a):
            if isinstance(value, Kets):
                return Kets(
                    tuple(
                        WeightedKet(t.coefficient, coerce(t.point, a), tuple(coerce(v, a) for v in t.vectors))
                        for t in value.terms
                    )
                )
            return ket(coerce(value, a))
    raise ValueError(f"of: expected a type, got {of!r}")


def plain(value: Value) -> Value:
    """A value as it is given to the outside: a point of !A as the value of A that it is."""
    if isinstance(value, Kets) and len(value.terms) == 1:
        term = value.terms[0]
        if is_one(term.coefficient) and not term.vectors:
            return plain(term.point)
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    return value


def dense(value: Value) -> Value:
    """The value with every bang-free linear map in it as an array: [dim B, dim A], or [dim A] when B is 1.

    The result is a pytree of arrays, which can be carried through `lax.scan` and given back as an argument.

    Raises:
      ValueError: a linear map has a bang in its type.
    """
    if isinstance(value, LinearMap):
        matrix = _matrix_by_type(value)
        return matrix[0] if isinstance(value.codomain, Unit) else matrix
    if isinstance(value, (tuple, list)):
        return tuple(dense(part) for part in value)
    return value


def matrix(function: Callable[[Value], Value], dimension: int) -> Float[Array, "... dimension"]:
    """The matrix of a linear callable: column j is its value on the j-th vector of the basis.

    Args:
      function: a `LinearMap` without bangs in its type, or any linear callable on arrays [dimension].
      dimension: of its domain.

    Returns:
      [.., dimension], the leading axes those of a value; for a LinearMap [dim of the codomain, dimension].

    Raises:
      ValueError: a LinearMap whose domain has another dimension or whose type has a bang, or something that
        cannot be called.
    """
    if isinstance(function, LinearMap):
        found = _dimension(function.domain, "function")
        if found != dimension:
            raise ValueError(
                f"dimension: the domain {function.domain} has dimension {found}, got {dimension}"
            )
        return _matrix_by_type(function)
    if not callable(function):
        raise ValueError(f"function: expected a linear callable, got {_describe(function)}")
    return jax.vmap(function, out_axes=-1)(_basis(dimension))


def flatten(value: Value, of: Type) -> Float[Array, "d"]:
    """The coordinates of a value of a bang-free type: & concatenates, (x) and -o are row-major."""
    match of:
        case Atom():
            return value
        case With(a, b):
            return jnp.concatenate([flatten(value[0], a), flatten(value[1], b)])
        case Lolli():
            return jnp.reshape(_matrix_by_type(value), (dimension(of),))
    return jnp.reshape(value, (dimension(of),))


def unflatten(coordinates: Float[Array, "d"], of: Type) -> Value:
    """The value of a bang-free type with these coordinates (the inverse of `flatten`)."""
    match of:
        case Atom():
            return coordinates
        case Unit():
            return jnp.reshape(coordinates, ())
        case With(a, b):
            return unflatten(coordinates[: dimension(a)], a), unflatten(coordinates[dimension(a) :], b)
        case Tensor(a, b):
            return jnp.reshape(coordinates, (dimension(a), dimension(b)))
        case Lolli(a, b):
            return _from_matrix(jnp.reshape(coordinates, (dimension(b), dimension(a))), a, b)
    raise ValueError(f"of: only a type without ! has coordinates, got {of}")


def pure_tensor(of: Tensor, left: Value, right: Value) -> Value:
    """Left (x) right as a value of type `of`."""
    if bang_free(of):
        return flatten(left, of.left)[:, None] * flatten(right, of.right)[None, :]
    return PureTensors(((left, right),))


def contract(of: Tensor, value: Value, body: Callable[[Value, Value], Value], result: Type) -> Value:
    """A bilinear function at a value of A (x) B: the sum of body(a, b) over its pure tensors."""
    if isinstance(value, PureTensors):
        return add(zero(result), *[body(left, right) for left, right in value.terms])
    # Over the shorter side: value = sum_i e_i (x) row_i = sum_j column_j (x) e_j.
    rows, columns = value.shape
    if rows <= columns:
        parts, slices = (_basis(rows), value), lambda x: (unflatten(x[0], of.left), unflatten(x[1], of.right))
    else:
        parts, slices = (
            (value.T, _basis(columns)),
            lambda x: (unflatten(x[0], of.left), unflatten(x[1], of.right)),
        )
    return _sum_over(lambda part: body(*slices(part)), parts, min(rows, columns), result)


def directional(
    function: Callable[[Value], Value], point: Value, vectors: Sequence[Value], result: Type
) -> Value:
    """The directional derivative D^s function(point)[v1 .. vs] of a function between values, by nested
    `jax.jvp`.

    It is the value of `function`, made linear, on |v1 .. vs>_point; `result` is the type of its values, and
    the derivative is taken as that type asks: pointwise for functions, by Leibniz' rule for tensors and by
    the chain rule |..>_Q -> |.., dQ>_Q (Faa di Bruno) for kets.
    """
    if not vectors:
        return function(point)
    *rest, last = vectors

    def along(epsilon: Float[Array, ""]) -> Value:
        return directional(function, add(point, scale(epsilon, last)), rest, result)

    return _slope(along, result)


def extend(function: Callable[[Value], Value], kets: Kets, result: Type) -> Value:
    """The linear extension to kets of a function of points; `result` is the type of its values."""
    parts = []
    for term in kets.terms:
        value = directional(function, term.point, term.vectors, result)
        parts.append(value if is_one(term.coefficient) else scale(term.coefficient, value))
    return add(*parts) if parts else zero(result)


def _slope(curve: Callable[[Any], Value], of: Type) -> Value:
    """The derivative at 0 of a curve of values of type `of`, itself a value of type `of`."""
    match of:
        case With(a, b):
            return _slope(lambda t: curve(t)[0], a), _slope(lambda t: curve(t)[1], b)
        case Lolli(a, b):
            return LinearMap(a, b, lambda x: _slope(lambda t: curve(t).apply(x), b))
        case Tensor(a, b) if not bang_free(of):
            terms = []
            for i, (left, right) in enumerate(curve(0.0).terms):
                terms.append((_slope(lambda t, i=i: curve(t).terms[i][0], a), right))
                terms.append((left, _slope(lambda t, i=i: curve(t).terms[i][1], b)))
            return PureTensors(tuple(terms))
        case Bang(a):
            kets = []
            for i, now in enumerate(curve(0.0).terms):
                moved = _slope(lambda t, i=i: curve(t).terms[i].point, a)
                kets.append(WeightedKet(now.coefficient, now.point, (*now.vectors, moved)))
                for j in range(len(now.vectors)):
                    turned = _slope(lambda t, i=i, j=j: curve(t).terms[i].vectors[j], a)
                    vectors = (*now.vectors[:j], turned, *now.vectors[j + 1 :])
                    kets.append(WeightedKet(now.coefficient, now.point, vectors))
                if not is_one(now.coefficient):
                    grown = _derivative(lambda t, i=i: curve(t).terms[i].coefficient)
                    kets.append(WeightedKet(grown, now.point, now.vectors))
            return Kets(tuple(kets))
    return _derivative(curve)


def _derivative(curve: Callable[[Any], Array]) -> Array:
    # A Python float is weakly typed: the derivative has the precision of the arrays the curve is made of.
    return jax.jvp(lambda t: jnp.asarray(curve(t)), (0.0,), (1.0,))[1]


def _sum_over(function: Callable[[Any], Value], parts: Any, count: int, of: Type) -> Value:
    """The sum of function(part) over the leading axis of `parts`, for function values of type `of`."""
    match of:
        case With(a, b):
            return (
                _sum_over(lambda part: function(part)[0], parts, count, a),
                _sum_over(lambda part: function(part)[1], parts, count, b),
            )
        case Lolli(a, b):
            return LinearMap(a, b, lambda x: _sum_over(lambda part: function(part).apply(x), parts, count, b))
    if bang_free(of):
        return jnp.sum(jax.vmap(function)(parts), axis=0)
    return add(*[function(jax.tree.map(lambda part, i=i: part[i], parts)) for i in range(count)])


def _linear(value: Value, a: Type, b: Type) -> LinearMap:
    if isinstance(value, LinearMap):
        if value.type != Lolli(a, b):
            raise ValueError(f"value: expected a linear map of type {Lolli(a, b)}, got {value!r}")
        return value
    if callable(value):
        if not isinstance(a, Bang):
            return LinearMap(a, b, lambda x: coerce(value(plain(x)), b))

        def on_kets(kets: Kets) -> Value:
            # A callable on points stands for its linear extension to all kets: its directional derivatives.
            return extend(lambda p: coerce(value(plain(p)), b), kets, b)

        return LinearMap(a, b, on_kets)
    if not (bang_free(a) and bang_free(b)):
        raise ValueError(f"value: type {Lolli(a, b)} needs a callable, got {_describe(value)}")
    if isinstance(b, Unit) and jnp.ndim(value) == 1:
        return _from_matrix(_array(value, (dimension(a),), Lolli(a, b))[None, :], a, b)
    return _from_matrix(_array(value, (dimension(b), dimension(a)), Lolli(a, b)), a, b)


def _from_matrix(entries: Array, a: Type, b: Type) -> LinearMap:
    return LinearMap(a, b, lambda x: unflatten(entries @ flatten(x, a), b))


def _matrix_by_type(value: LinearMap) -> Float[Array, "m n"]:
    a, b = value.domain, value.codomain
    size = _dimension(a, "function")
    _dimension(b, "function")
    return jax.vmap(lambda x: flatten(value.apply(unflatten(x, a)), b), out_axes=-1)(_basis(size))


def _dimension(of: Type, argument: str) -> int:
    if not bang_free(of):
        raise ValueError(f"{argument}: only a linear map between types without ! has a matrix, got {of}")
    return dimension(of)


def _basis(size: int) -> Float[Array, "size size"]:
    # Weakly typed, so that a float32 operator stays float32 where 64-bit floats are enabled.
    return jnp.where(jnp.eye(size, dtype=bool), 1.0, 0.0)


def _array(value: Value, shape: tuple[int, ...], of: Type) -> Array:
    try:
        array = jnp.asarray(value)
    except TypeError as error:
        raise ValueError(
            f"value: type {of} needs an array of shape {shape}, got {_describe(value)}"
        ) from error
    if array.shape != shape:
        raise ValueError(f"value: type {of} needs an array of shape {shape}, got {array.shape}")
    # Whole numbers are vectors too, but only floats can be differentiated.
    return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(float)


def _times(coefficient: Value, term: WeightedKet) -> WeightedKet:
    factor = coefficient if is_one(term.coefficient) else coefficient * term.coefficient
    return WeightedKet(factor, term.point, term.vectors)


def is_one(coefficient: Value) -> bool:
    """Whether the coefficient of a ket is known to be 1, without looking into an array."""
    return isinstance(coefficient, int) and coefficient == 1


def _describe(value: Value) -> str:
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if shape is not None else f"{type(value).__name__} {value!r}"[:80]
