"""Data parallelism over all devices: one mesh axis, what is split along it and what every device has a copy
of.
"""

from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXIS = "data"
PARALLEL = ("jit", "shard_map", "pmap")
"""The ways to run a step on several devices; all compute the same numbers up to the order of sums."""


def data_mesh() -> Mesh:
    """A mesh of all devices (of all processes) with the one axis `data`.

    Its axis type is Auto: the default of `jax.make_mesh`, Explicit, asks of every model that it states its
    shardings.
    """
    return jax.make_mesh((jax.device_count(),), (AXIS,), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding of what every device holds a copy of."""
    return NamedSharding(mesh, PartitionSpec())


def batch_specs(batch: Any) -> Any:
    """How a batch lies on the mesh: arrays split along their first axis, scalars copied.

    Args:
        batch: a pytree of arrays (or their shapes), those of rank >= 1 with the batch as first axis.

    Returns:
        The same tree of `PartitionSpec`s.
    """
    return jax.tree.map(lambda leaf: PartitionSpec(AXIS) if leaf.ndim else PartitionSpec(), batch)


def check_batch(batch: Any, batch_size: int) -> None:
    """Checks that a batch has the declared size.

    Args:
        batch: a pytree of arrays or their shapes.
        batch_size: what the first axis of every leaf of rank >= 1 must have.

    Raises:
        ValueError: naming the leaf, its shape and the size expected.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        if leaf.ndim and leaf.shape[0] != batch_size:
            raise ValueError(
                f"batch{jax.tree_util.keystr(path)} has shape {tuple(leaf.shape)}: its first axis must be "
                f"batch_size={batch_size} (scalars are shared by the whole batch)"
            )


def check_parallel(parallel: str, batch_size: int, devices: int) -> None:
    """Checks the mode's name and that the batch can be cut into equal parts.

    Raises:
        ValueError: naming the argument and what was expected.
    """
    if parallel not in PARALLEL:
        raise ValueError(f"parallel={parallel!r} is not one of {', '.join(PARALLEL)}")
    if batch_size % devices:
        raise ValueError(f"batch_size={batch_size} must be a multiple of the number of devices, {devices}")
