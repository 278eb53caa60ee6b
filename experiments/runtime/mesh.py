"""How a run lies on the devices: the mesh, what is split along its axes, what every device has a copy of."""

import contextlib
import dataclasses
import re
from collections.abc import Generator
from typing import Any

import jax
from flax import linen as nn
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from experiments.runtime import processes

AXIS = "data"
MODEL_AXIS = "model"
PARALLEL = ("jit", "shard_map", "pmap")
"""The ways to run a step on several devices; all compute the same numbers up to the order of sums."""
RULES = (("batch", AXIS), ("rows", MODEL_AXIS))
"""The mesh axes of what models name by `flax.linen.with_logical_constraint`: a batch is split along `data`,
and one axis of what is large in a single example (the rows of a tensor over pairs of tokens) along `model`.
"""


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a run lies on the devices; `--parallel`, `--mesh` and `--fsdp` on the command line.

    Attributes:
        mode: `jit` (the compiler splits the step), `shard_map` or `pmap` (the step is written for a device).
        data: devices along the axis `data`, each with its part of a batch; 0 for as many as there are.
        model: devices along the axis `model`, which share what is large in one example; only under `jit`, and
            of use only to a model that names its rows (`RULES`).
        fsdp: whether matrices of the state (parameters and the optimizer's moments) are split along `data`
            instead of copied; only under `jit`. The compiler gathers each where it is used.
    """

    mode: str = "jit"
    data: int = 0
    model: int = 1
    fsdp: bool = False

    def __post_init__(self):
        """Checks the fields against each other; raises ValueError naming the field."""
        if self.mode not in PARALLEL:
            raise ValueError(f"parallel={self.mode!r} is not one of {', '.join(PARALLEL)}")
        if self.data < 0 or self.model < 1:
            raise ValueError(f"mesh has {self.data} x {self.model} devices; each axis must have at least one")
        if self.mode != "jit" and (self.model > 1 or self.fsdp):
            what = f"{MODEL_AXIS}:{self.model}" if self.model > 1 else "fsdp"
            raise ValueError(
                f"{what} needs parallel=jit, where the compiler splits the step; got {self.mode}"
            )

    @classmethod
    def of(cls, parallel: "str | Layout") -> "Layout":
        """Returns a mode's name as a layout over all devices; a layout as it is."""
        return parallel if isinstance(parallel, Layout) else cls(parallel)

    @classmethod
    def parse(cls, mode: str, mesh: str = "", fsdp: bool = False) -> "Layout":
        """Returns the layout that the values of the flags `--parallel`, `--mesh` and `--fsdp` name.

        `mesh` is `data:4,model:2`, either alone, or nothing for all devices along `data`.

        Raises:
            ValueError: naming the flag's value and what was expected.
        """
        sizes = {AXIS: 0, MODEL_AXIS: 1}
        for part in filter(None, mesh.split(",")):
            match = re.fullmatch(rf"\s*({AXIS}|{MODEL_AXIS}):([1-9]\d*)\s*", part)
            if not match:
                raise ValueError(f"mesh={mesh!r} must be like {AXIS}:4,{MODEL_AXIS}:2; {part!r} is not")
            sizes[match[1]] = int(match[2])
        return cls(mode, sizes[AXIS], sizes[MODEL_AXIS], fsdp)

    def __str__(self):
        """As the summary of a run tells it: the mode, and what else was chosen."""
        sizes = [f"{AXIS}:{self.data}"] * (self.data > 0) + [f"{MODEL_AXIS}:{self.model}"] * (self.model > 1)
        return " ".join(filter(None, [self.mode, ",".join(sizes), "fsdp" if self.fsdp else ""]))

    def check(self, batch_size: int, devices: int) -> None:
        """Checks that the mesh has all devices and that a batch can be cut into equal parts.

        Raises:
            ValueError: naming the argument and what was expected.
        """
        data = self.data or devices // self.model
        if data * self.model != devices:
            raise ValueError(
                f"mesh={AXIS}:{data},{MODEL_AXIS}:{self.model} needs {data * self.model} devices, "
                f"there are {devices}"
            )
        own = devices // jax.process_count()
        if own % self.model:
            raise ValueError(
                f"{MODEL_AXIS}:{self.model} must divide the {own} devices of a process: "
                "each feeds its devices with whole examples"
            )
        if batch_size % data:
            along = "devices" if self.model == 1 else f"devices along {AXIS}"
            below = batch_size // data * data
            nearest = f"{below} or {below + data}" if below else f"{data}"
            raise ValueError(
                f"batch_size={batch_size} must be a multiple of the number of {along}, {data}: {nearest}, say"
            )

    def mesh(self) -> Mesh:
        """The mesh of all devices (of all processes): the axis `data`, and `model` if it is split.

        Its axis types are Auto: the default of `jax.make_mesh`, Explicit, asks of every model that it states
        its shardings.
        """
        sizes = {AXIS: self.data or jax.device_count() // self.model}
        if self.model > 1:
            sizes[MODEL_AXIS] = self.model
        return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))

    def mesh_to_measure(self) -> Mesh:
        """Returns the mesh for measurements: this one, or if there are several processes its own devices."""
        return self.mesh() if jax.process_count() == 1 else processes.own_mesh()

    def state_shardings(self, mesh: Mesh | AbstractMesh, shapes: Any) -> Any:
        """Returns where each leaf of a tree of arrays, or of their shapes, lies: the same tree of shardings.

        Under `fsdp` a leaf of rank two or more is split along its longest axis that the devices along `data`
        divide (the first of equal ones); all else is copied.
        """

        def spec(leaf):
            return PartitionSpec(*split_longest(leaf.shape, AXIS, mesh.shape[AXIS] if self.fsdp else 0))

        return jax.tree.map(lambda leaf: NamedSharding(mesh, spec(leaf)), shapes)

    @contextlib.contextmanager
    def naming(self, mesh: Mesh) -> Generator[None]:
        """Gives the axes that models name their place on the mesh, for what is traced inside."""
        if self.model == 1:
            yield
            return
        with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
            yield


def split_longest(shape: tuple[int, ...], axis: str, parts: int) -> list[str | None]:
    """Splits an array of rank two or more along its longest axis that is a multiple of `parts` and not empty.

    Returns:
        `axis` at its place and None at the others (of equal ones the first is split); empty if none is.
    """
    fits = [place for place, size in enumerate(shape) if parts and size and size % parts == 0]
    if len(shape) < 2 or not fits:
        return []
    longest = max(fits, key=lambda place: shape[place])
    return [axis if place == longest else None for place in range(len(shape))]


def batch_specs(batch: Any) -> Any:
    """Returns how a batch lies on the mesh: arrays are split along their first axis, scalars copied."""
    return jax.tree.map(lambda leaf: PartitionSpec(AXIS) if leaf.ndim else PartitionSpec(), batch)


def check_batch(batch: Any, batch_size: int) -> None:
    """Checks that the first axis of every leaf of rank >= 1 is `batch_size`.

    Raises:
        ValueError: naming the leaf, its shape and the size expected.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        if leaf.ndim and leaf.shape[0] != batch_size:
            raise ValueError(
                f"batch{jax.tree_util.keystr(path)} has shape {tuple(leaf.shape)}: its first axis must be "
                f"batch_size={batch_size} (scalars are shared by the whole batch)"
            )
