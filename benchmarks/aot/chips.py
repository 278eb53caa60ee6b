"""Compilation of a function for an H200 or a TPU on a machine that has neither.

XLA's compilers for both run on a CPU and need only a description of the chip. This shows that a kernel
compiles, fits into memory and does not spill registers, not that it is correct or fast.

It needs libtpu and the CUDA plugin, which `make aot` installs, and JAX_PLATFORMS set to `cpu`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
from jax.experimental import topologies

# XLA's description of a GPU in its undocumented text format, with the values of an H200 SXM.
H200 = Path(__file__).with_name("h200.txtpb")
TPUS = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
NAMES = ("h200", *TPUS)


def backend_of(chip: str) -> Literal["gpu", "tpu"]:
    """Returns the implementation of the kernels that a chip runs, `gpu` or `tpu`."""
    return "tpu" if chip in TPUS else "gpu"


@functools.cache
def device(chip: str) -> Any:
    """Returns a device of the given kind, which serves only for compilation.

    Raises:
        ValueError: the name is unknown.
    """
    if chip in TPUS:
        return topologies.get_topology_desc(TPUS[chip], "tpu").devices[0]
    if chip != "h200":
        raise ValueError(f"chip: got {chip!r}, expected one of {', '.join(map(repr, NAMES))}")
    description = H200.read_text(encoding="utf-8")
    return topologies.get_topology_desc(
        platform="cuda", topology_name="", topology="1x1x1", target_config=description
    ).devices[0]


@contextlib.contextmanager
def _as_if_there(chip: str) -> Iterator[None]:
    """Sets an abstract mesh with the chip, from which Mosaic GPU takes its target."""
    if chip in TPUS:
        yield
        return
    there = jax.sharding.AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=there)):
        yield


def compile_for(chip: str, function: Callable, *avals: Any) -> jax.stages.Compiled:
    """Compiles a function for one chip; `avals` may contain None."""
    sharding = jax.sharding.SingleDeviceSharding(device(chip))
    placed = [None if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for x in avals]
    with _as_if_there(chip):
        return jax.jit(function).lower(*placed).compile()
