"""Values given from outside, read by their type, and values given to the outside."""

import jax.numpy as jnp
from jaxtyping import Array

from llrnn.logic.calculus import extend
from llrnn.logic.coordinates import from_matrix, pure_tensor
from llrnn.logic.representation import Kets, LinearMap, PureTensors, Value, WeightedKet, is_one, ket
from llrnn.logic.terms import Term, excerpt
from llrnn.logic.types import Atom, Bang, Lolli, Tensor, Type, Unit, With, bang_free, dimension


def coerce(value: Value, of: Type) -> Value:
    """Read a value given from outside by its type; what is already an internal value stays as it is.

    Raises:
      ValueError: the value does not have the form or the shape that the type asks for, or is a term.
    """
    if isinstance(value, Term):  # which can be called, as an operator can be, and would fail where it is
        raise ValueError(
            f"value: expected a value of type {of}, got the term `{excerpt(value)}`; apply terms to each "
            "other before, or give its denotation"
        )
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
        return from_matrix(_array(value, (dimension(a),), Lolli(a, b))[None, :], a, b)
    return from_matrix(_array(value, (dimension(b), dimension(a)), Lolli(a, b)), a, b)


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


def _describe(value: Value) -> str:
    shape = getattr(value, "shape", None)
    return f"an array of shape {shape}" if shape is not None else f"{type(value).__name__} {value!r}"[:80]
