"""Calls in programs for several devices, of which the type of an array tells by its mesh.

With mesh axes of type Explicit, the default of `jax.make_mesh`, every intermediate result has a sharding by
its type, which loops over blocks cannot have. An operation therefore runs with these axes made Auto, and its
result gets the sharding that `jnp.einsum` would give it: each of its axes is sharded as the axis of that name
of the first array that has one.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AxisType
from jaxtyping import Array


def automatic(function: Callable[..., Array], arrays: Sequence[Any], axes: Sequence[str], out: str) -> Array:
    """Calls `function(*arrays)` with mesh axes of type Auto where they were Explicit.

    Args:
        function: returns an array.
        arrays: its arguments; those after the last entry of `axes` (masks) say nothing about the result.
        axes: a letter for each of the last axes of an array: "nhd"; a star before them for batch axes.
        out: the same for the result.
    """
    meshes = [sharding.mesh for x in arrays if x is not None and _explicit(sharding := _sharding(x))]
    if not meshes:
        return function(*arrays)
    found: dict[str | int, Any] = {}
    for x, letters in zip(arrays, axes, strict=False):
        spec = _sharding(x).spec
        names = _names(letters, x.ndim)
        for name, part in zip(names, (*spec, *[None] * (x.ndim - len(spec))), strict=True):
            if found.get(name) is None:
                found[name] = part
    batch = arrays[0].ndim - len(axes[0].removeprefix("*"))
    spec, used = [], set()
    for name in _names(out, batch + len(out.removeprefix("*"))):
        part = found.get(name)
        own = () if part is None else part if isinstance(part, tuple) else (part,)
        spec.append(part if used.isdisjoint(own) else None)
        used.update(own)
    mesh = meshes[0]
    explicit = tuple(
        name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Explicit
    )
    target = jax.NamedSharding(mesh, jax.P(*spec))
    sharded: Any = jax.sharding.auto_axes(function, axes=explicit, out_sharding=target)
    return sharded(*arrays)


def devices(*arrays: Any) -> int:
    """Returns over how many devices the compiler may split work on these arrays, 1 if types do not tell."""
    meshes = [jax.sharding.get_abstract_mesh(), *(_sharding(x).mesh for x in arrays)]
    split = (AxisType.Auto, AxisType.Explicit)
    return max(
        math.prod(size for size, kind in zip(mesh.axis_sizes, mesh.axis_types, strict=True) if kind in split)
        for mesh in meshes
    )


def _sharding(x: Any) -> Any:
    return jax.typeof(x).sharding


def _explicit(sharding: Any) -> bool:
    return AxisType.Explicit in sharding.mesh.axis_types


def _names(letters: str, rank: int) -> list[str | int]:
    """Returns a name for each axis: a letter, or the position of a batch axis."""
    named = letters.removeprefix("*")
    return [*range(rank - len(named)), *named]
