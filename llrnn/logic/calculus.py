"""Extending functions to tensors and to kets: sums over pure tensors, directional derivatives."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from llrnn.logic.coordinates import basis, unflatten
from llrnn.logic.representation import (
    Kets,
    LinearMap,
    PureTensors,
    Value,
    WeightedKet,
    add,
    is_one,
    scale,
    zero,
)
from llrnn.logic.types import Atom, Bang, Lolli, Tensor, Type, Unit, With, bang_free


def contract(of: Tensor, value: Value, body: Callable[[Value, Value], Value], result: Type) -> Value:
    """A bilinear function at a value of A (x) B: the sum of body(a, b) over its pure tensors."""
    if isinstance(value, PureTensors):
        return add(zero(result), *[body(left, right) for left, right in value.terms])
    # Over the shorter side: value = sum_i e_i (x) row_i = sum_j column_j (x) e_j.
    rows, columns = value.shape
    if rows <= columns:
        parts, slices = (basis(rows), value), lambda x: (unflatten(x[0], of.left), unflatten(x[1], of.right))
    else:
        parts, slices = (
            (value.T, basis(columns)),
            lambda x: (unflatten(x[0], of.left), unflatten(x[1], of.right)),
        )
    return _sum_over(lambda part: body(*slices(part)), parts, min(rows, columns), result)


def extend(function: Callable[[Value], Value], kets: Kets, result: Type) -> Value:
    """The linear extension to kets of a function of points; `result` is the type of its values."""
    parts = []
    for term in kets.terms:
        value = directional(function, term.point, term.vectors, result)
        parts.append(value if is_one(term.coefficient) else scale(term.coefficient, value))
    return add(*parts) if parts else zero(result)


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


def _slope(curve: Callable[[Any], Value], of: Type) -> Value:
    """The derivative at 0 of a curve of values of type `of`, itself a value of type `of`.

    All arrays of the value are differentiated in one `jax.jvp`, so that an order of differentiation costs two
    evaluations however many kets it makes; a function is differentiated when it is applied.
    """
    if isinstance(of, Lolli):
        return _tangent(of, None, curve, iter(()))
    # A Python float is weakly typed: the derivative has the precision of the arrays the curve is made of.
    tangents = iter(jax.jvp(lambda t: _arrays(curve(t), of), (0.0,), (1.0,))[1])
    return _tangent(of, None if _is_array(of) else curve(0.0), curve, tangents)


def _tangent(of: Type, now: Value, curve: Callable[[Any], Value], tangents: Iterator[Array]) -> Value:
    """The derivative of a part of a value: `now` is the part at 0, `curve` the part at any time."""
    match of:
        case Lolli(a, b):
            return LinearMap(a, b, lambda x: _slope(lambda t: curve(t).apply(x), b))
        case With(a, b):
            first = _tangent(a, now[0], lambda t: curve(t)[0], tangents)
            return first, _tangent(b, now[1], lambda t: curve(t)[1], tangents)
        case Tensor(a, b) if not bang_free(of):
            pure = []
            for i, (left, right) in enumerate(now.terms):
                pure.append((_tangent(a, left, lambda t, i=i: curve(t).terms[i][0], tangents), right))
                pure.append((left, _tangent(b, right, lambda t, i=i: curve(t).terms[i][1], tangents)))
            return PureTensors(tuple(pure))
        case Bang(a):
            kets = []
            for i, ket in enumerate(now.terms):
                if not is_one(ket.coefficient):
                    kets.append(WeightedKet(next(tangents), ket.point, ket.vectors))
                moved = _tangent(a, ket.point, lambda t, i=i: curve(t).terms[i].point, tangents)
                kets.append(WeightedKet(ket.coefficient, ket.point, (*ket.vectors, moved)))
                for j, vector in enumerate(ket.vectors):
                    turned = _tangent(a, vector, lambda t, i=i, j=j: curve(t).terms[i].vectors[j], tangents)
                    vectors = (*ket.vectors[:j], turned, *ket.vectors[j + 1 :])
                    kets.append(WeightedKet(ket.coefficient, ket.point, vectors))
            return Kets(tuple(kets))
    return next(tangents)


def _arrays(value: Value, of: Type) -> list[Array]:
    """The arrays that a value is made of, in the order in which `_tangent` asks for them."""
    match of:
        case Lolli():
            return []
        case With(a, b):
            return _arrays(value[0], a) + _arrays(value[1], b)
        case Tensor(a, b) if not bang_free(of):
            return [x for left, right in value.terms for x in _arrays(left, a) + _arrays(right, b)]
        case Bang(a):
            found = []
            for ket in value.terms:
                if not is_one(ket.coefficient):
                    found.append(jnp.asarray(ket.coefficient))
                for part in (ket.point, *ket.vectors):
                    found.extend(_arrays(part, a))
            return found
    return [jnp.asarray(value)]


def _is_array(of: Type) -> bool:
    return isinstance(of, (Atom, Unit)) or (isinstance(of, Tensor) and bang_free(of))


def _sum_over(function: Callable[[Any], Value], parts: Any, count: int, of: Type) -> Value:
    """The sum of function(part) over the leading axis of `parts`, for function values of type `of`."""
    match of:
        case Lolli(a, b):
            return LinearMap(a, b, lambda x: _sum_over(lambda part: function(part).apply(x), parts, count, b))
        case With(a, b) if bang_free(of):
            return (
                _sum_over(lambda part: function(part)[0], parts, count, a),
                _sum_over(lambda part: function(part)[1], parts, count, b),
            )
    if _is_array(of):
        return jnp.sum(jax.vmap(function)(parts), axis=0)
    return add(*[function(jax.tree.map(lambda part, i=i: part[i], parts)) for i in range(count)])
