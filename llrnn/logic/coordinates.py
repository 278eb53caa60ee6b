"""Values of bang-free types as coordinates: flat vectors, matrices of linear maps, pytrees of arrays."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from llrnn.logic.representation import LinearMap, PureTensors, Value
from llrnn.logic.types import Atom, Lolli, Tensor, Type, Unit, With, bang_free, dimension


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
            return from_matrix(jnp.reshape(coordinates, (dimension(b), dimension(a))), a, b)
    raise ValueError(f"of: only a type without ! has coordinates, got {of}")


def pure_tensor(of: Tensor, left: Value, right: Value) -> Value:
    """Left (x) right as a value of type `of`."""
    if bang_free(of):
        return flatten(left, of.left)[:, None] * flatten(right, of.right)[None, :]
    return PureTensors(((left, right),))


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
        raise ValueError(f"function: expected a linear callable, got {function!r}")
    return jax.vmap(function, out_axes=-1)(basis(dimension))


def from_matrix(entries: Array, a: Type, b: Type) -> LinearMap:
    return LinearMap(a, b, lambda x: unflatten(entries @ flatten(x, a), b))


def _matrix_by_type(value: LinearMap) -> Float[Array, "m n"]:
    a, b = value.domain, value.codomain
    size = _dimension(a, "function")
    _dimension(b, "function")
    return jax.vmap(lambda x: flatten(value.apply(unflatten(x, a)), b), out_axes=-1)(basis(size))


def _dimension(of: Type, argument: str) -> int:
    if not bang_free(of):
        raise ValueError(f"{argument}: only a linear map between types without ! has a matrix, got {of}")
    return dimension(of)


def basis(size: int) -> Float[Array, "size size"]:
    # Weakly typed, so that a float32 operator stays float32 where 64-bit floats are enabled.
    return jnp.where(jnp.eye(size, dtype=bool), 1.0, 0.0)
