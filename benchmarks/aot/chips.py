"""Compiling a function for an H200 or a TPU on a machine that has neither.

XLA's compilers for both run on a CPU; what they need of the chip is a description. It proves that a kernel
compiles, fits into its memories and does not spill; not that it is right or fast.

The environment (`make aot` makes it) has libtpu and the CUDA plugin; JAX_PLATFORMS must be `cpu`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
from jax.experimental import topologies

# The undocumented text form of XLA's description of a GPU; values are those of an H200 SXM.
H200 = Path(__file__).with_name("h200.txtpb")
TPUS = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
NAMES = ("h200", *TPUS)


def backend_of(chip: str) -> Literal["gpu", "tpu"]:
    """The kernels that a chip runs: `gpu` or `tpu`."""
    return "tpu" if chip in TPUS else "gpu"


@functools.cache
def device(chip: str) -> Any:
    """A device of the kind, which can be compiled for and nothing else.

    Raises:
        ValueError: an unknown name.
    """
    if chip in TPUS:
        return topologies.get_topology_desc(TPUS[chip], "tpu").devices[0]
    if chip != "h200":
        raise ValueError(f"chip {chip!r}: there are {', '.join(NAMES)}")
    description = H200.read_text(encoding="utf-8")
    return topologies.get_topology_desc(
        platform="cuda", topology_name="", topology="1x1x1", target_config=description
    ).devices[0]


@contextlib.contextmanager
def _as_if_there(chip: str) -> Iterator[None]:
    """Mosaic GPU asks the current mesh what it compiles for."""
    if chip in TPUS:
        yield
        return
    there = jax.sharding.AbstractDevice(device_kind="NVIDIA H200", num_cores=132, platform="gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=there)):
        yield


def compile_for(chip: str, function: Callable, *avals: Any) -> jax.stages.Compiled:
    """The function compiled for one chip; `avals` may contain None."""
    sharding = jax.sharding.SingleDeviceSharding(device(chip))
    placed = [None if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding) for x in avals]
    with _as_if_there(chip):
        return jax.jit(function).lower(*placed).compile()
