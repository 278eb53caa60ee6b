"""Extending functions to tensors and to kets: sums over pure tensors, directional derivatives."""

from collections.abc import Callable, Sequence
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
from llrnn.logic.types import Bang, Lolli, Tensor, Type, With, bang_free


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
