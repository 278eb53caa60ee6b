"""Device layouts: the mesh, which arrays are split along its axes, and which are replicated."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Generator
from typing import Any, Literal, cast, get_args

import jax
from flax import linen as nn
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from experiments.runtime import processes

AXIS = "data"
MODEL_AXIS = "model"
Mode = Literal["jit", "shard_map", "pmap"]
"""How to run a step on several devices; all modes compute the same numbers up to the order of sums."""
PARALLEL: tuple[str, ...] = get_args(Mode)
AUTO = "auto"
"""The default of `--parallel`: `shard_map` over a device per core if `split_cores` made them, else `jit`."""
HOST_DEVICES = "xla_force_host_platform_device_count"
RULES = (("batch", AXIS), ("rows", MODEL_AXIS))
"""Mesh axes of the logical axes that models name with `flax.linen.with_logical_constraint`: batches are split
along `data`, and one axis of large arrays of a single example (the rows of a tensor over pairs of tokens)
along `model`.
"""


def usable_cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_cores(count: int) -> bool:
    """Makes `count` JAX devices of the CPU cores of this process; call it before JAX's first computation.

    Cores that work on the same operation pass it from cache to cache, and wait for the slower one. A device
    per core has its own part of the batch instead. The host of a virtual machine may put its cores where they
    share no cache, minutes long: an iteration of BoxWorld's agents in one device then takes 1.5 times as
    long, and in a device per core as long as before.

    Returns:
        Whether CPUs have `count` devices now: not if it is 1, if the environment sets another number, if JAX
        has computed before, or for one of several processes.

    Raises:
        ValueError: `count` is less than 1.
    """
    if count < 1:
        raise ValueError(f"count: got {count} devices for the cores, expected at least 1")
    already = jax.config.jax_num_cpu_devices
    set_by_flag = HOST_DEVICES in os.environ.get("XLA_FLAGS", "")
    if count == 1 or already not in (-1, count) or set_by_flag or jax.distributed.is_initialized():
        return False
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # there are devices already
        return False
    return True


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of a run on its devices; `--parallel`, `--mesh` and `--fsdp` on the command line.

    Attributes:
        mode: `jit` (the compiler partitions the step), `shard_map` or `pmap` (a step is written per device).
        data: number of devices along the axis `data`, each with its part of a batch; 0 uses all devices.
        model: number of devices along the axis `model`, which share large arrays of a single example; only
            under `jit`, and useful only for models that name their rows (`RULES`).
        fsdp: whether matrices of the state (parameters and the optimizer's moments) are split along `data`
            instead of replicated; only under `jit`. The compiler gathers each matrix where it is used.
    """

    mode: Mode = "jit"
    data: int = 0
    model: int = 1
    fsdp: bool = False

    def __post_init__(self):
        """Raises ValueError for an unknown mode and for fields that do not fit together."""
        if self.mode not in PARALLEL:
            raise ValueError(f"parallel: got {self.mode!r}, expected one of {', '.join(map(repr, PARALLEL))}")
        if self.data < 0 or self.model < 1:
            raise ValueError(
                f"mesh: got {self.data} x {self.model} devices, expected at least one along each axis"
            )
        if self.mode != "jit" and (self.model > 1 or self.fsdp):
            what = f"{MODEL_AXIS}:{self.model}" if self.model > 1 else "fsdp"
            raise ValueError(
                f"parallel: got {self.mode!r}, expected 'jit' with {what}, since only the compiler splits so"
            )

    @classmethod
    def of(cls, parallel: "str | Layout") -> "Layout":
        """Converts the name of a mode to a layout over all devices; returns a layout unchanged."""
        return parallel if isinstance(parallel, Layout) else cls(cast(Mode, parallel))

    @classmethod
    def parse(cls, mode: str, mesh: str = "", fsdp: bool = False) -> "Layout":
        """Builds a layout from the values of the flags `--parallel`, `--mesh` and `--fsdp`.

        `mesh` is `data:4,model:2`, one of the two, or empty for all devices along `data`.

        Raises:
            ValueError: with the flag's value and what was expected.
        """
        sizes = {AXIS: 0, MODEL_AXIS: 1}
        for part in filter(None, mesh.split(",")):
            match = re.fullmatch(rf"\s*({AXIS}|{MODEL_AXIS}):([1-9]\d*)\s*", part)
            if not match:
                raise ValueError(
                    f"mesh: got {part!r} in {mesh!r}, expected sizes such as {AXIS}:4,{MODEL_AXIS}:2"
                )
            sizes[match[1]] = int(match[2])
        return cls(cast(Mode, mode), sizes[AXIS], sizes[MODEL_AXIS], fsdp)

    def __str__(self):
        """Returns the mode and the settings that differ from the default, for the summary of a run."""
        sizes = [f"{AXIS}:{self.data}"] * (self.data > 0) + [f"{MODEL_AXIS}:{self.model}"] * (self.model > 1)
        return " ".join(filter(None, [self.mode, ",".join(sizes), "fsdp" if self.fsdp else ""]))

    def check(self, batch_size: int, devices: int) -> None:
        """Checks that the mesh has all devices and that a batch can be split into equal parts.

        Raises:
            ValueError: with the argument and what was expected.
        """
        data = self.data or devices // self.model
        if data * self.model != devices:
            raise ValueError(
                f"mesh: got {AXIS}:{data},{MODEL_AXIS}:{self.model} for {data * self.model} devices, "
                f"expected sizes for {devices}"
            )
        own = devices // jax.process_count()
        if own % self.model:
            raise ValueError(
                f"mesh: got {MODEL_AXIS}:{self.model}, expected a divisor of {own}, the devices per process, "
                "since each process feeds whole examples"
            )
        if batch_size % data:
            along = "devices" if self.model == 1 else f"devices along {AXIS}"
            below = batch_size // data * data
            nearest = f"{below} or {below + data}" if below else f"{data}"
            raise ValueError(
                f"batch_size: got {batch_size}, expected a multiple of {data}, the number of {along} "
                f"(for example {nearest})"
            )

    def mesh(self) -> Mesh:
        """Returns the mesh of all devices of all processes: the axis `data`, and `model` if it is split.

        The axis types are Auto, because Explicit, the default of `jax.make_mesh`, requires every model to
        state its shardings.
        """
        sizes = {AXIS: self.data or jax.device_count() // self.model}
        if self.model > 1:
            sizes[MODEL_AXIS] = self.model
        return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))

    def mesh_to_measure(self) -> Mesh:
        """Returns the mesh for measurements: this one, or, with several processes, the process's devices."""
        return self.mesh() if jax.process_count() == 1 else processes.own_mesh()

    def state_shardings(self, mesh: Mesh | AbstractMesh, shapes: Any) -> Any:
        """Returns the shardings of a tree of arrays or of their shapes, with the same tree structure.

        With `fsdp`, a leaf of rank two or more is split along its longest axis that is divisible by the
        number of devices along `data` (the first of equal axes); all other leaves are replicated.
        """

        def spec(leaf):
            return PartitionSpec(*split_longest(leaf.shape, AXIS, mesh.shape[AXIS] if self.fsdp else 0))

        return jax.tree.map(lambda leaf: NamedSharding(mesh, spec(leaf)), shapes)

    @contextlib.contextmanager
    def naming(self, mesh: Mesh) -> Generator[None]:
        """Maps the logical axes that models name to the mesh (`RULES`), for code traced inside."""
        if self.model == 1:
            yield
            return
        with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
            yield


def split_longest(shape: tuple[int, ...], axis: str, parts: int) -> list[str | None]:
    """Chooses the axis along which to split an array of rank two or more into `parts`.

    The axis is the longest one whose size is positive and divisible by `parts` (the first of equal axes).

    Returns:
        A partition spec: `axis` at the chosen position and None elsewhere; empty if no axis fits.
    """
    fits = [place for place, size in enumerate(shape) if parts and size and size % parts == 0]
    if len(shape) < 2 or not fits:
        return []
    longest = max(fits, key=lambda place: shape[place])
    return [axis if place == longest else None for place in range(len(shape))]


def batch_specs(batch: Any) -> Any:
    """Returns the partition specs of a batch: arrays are split along their first axis, scalars replicated."""
    return jax.tree.map(lambda leaf: PartitionSpec(AXIS) if leaf.ndim else PartitionSpec(), batch)


def check_batch(batch: Any, batch_size: int) -> None:
    """Checks that the first axis of every leaf of rank >= 1 is `batch_size`.

    Raises:
        ValueError: with the leaf, its shape and the expected size.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
        if leaf.ndim and leaf.shape[0] != batch_size:
            raise ValueError(
                f"batch{jax.tree_util.keystr(path)}: got shape {tuple(leaf.shape)}, expected a scalar or a "
                f"first axis of batch_size={batch_size}"
            )
