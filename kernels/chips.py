"""The chips that hand-written kernels are written for, and the limits that the plan of a call must respect.

A chip is known by what JAX calls its kind (`jax.Device.device_kind`). A kernel is planned for one chip
(`kernels/plans.py`), also where the chip is not: a program may be compiled ahead of time or exported.
"""

import dataclasses
import functools
from typing import Literal

import jax

Backend = Literal["gpu", "tpu"]
"""A set of hand-written kernels."""


@dataclasses.dataclass(frozen=True)
class Chip:
    """A kind of chip.

    Attributes:
        kind: its name in JAX.
        platform: "cuda", "tpu" or another platform of JAX.
        architecture: what compilers call it: "sm90", "v5e".
        backend: the kernels that run on it, None for a chip without kernels.
        memory: bytes of on-chip memory that a program may use: shared memory of a block, or VMEM of a core.
        resource: the name of that memory.
        grid: the largest sizes of a grid's axes, x first; None where they have no limit.
        cores: multiprocessors or tensor cores.
    """

    kind: str
    platform: str
    architecture: str
    backend: Backend | None = None
    memory: int = 0
    resource: str = "on-chip memory"
    grid: tuple[int, int, int] | None = None
    cores: int = 1


MIB = 1 << 20
HOPPER = Chip(
    kind="NVIDIA H100 80GB HBM3",
    platform="cuda",
    architecture="sm90",
    backend="gpu",
    memory=227 * 1024,
    resource="shared memory",
    grid=(2**31 - 1, 65535, 65535),
    cores=132,
)
TPUS = {
    kind: Chip(kind, "tpu", architecture, "tpu", memory * MIB, "VMEM")
    for architecture, memory, kinds in (
        ("v5e", 128, ("TPU v5 lite", "TPU v5e")),
        ("v5p", 64, ("TPU v5", "TPU v5p")),
        ("v6e", 128, ("TPU v6 lite", "TPU v6e")),
    )
    for kind in kinds
}
HOPPERS = ("NVIDIA H100", "NVIDIA H200", "NVIDIA H800", "NVIDIA H20", "NVIDIA GH200")
DEFAULT: dict[str, Chip] = {"gpu": HOPPER, "tpu": TPUS["TPU v5"]}
"""What a call is planned for when the chip is not known: the least of those that the kernels run on."""


def architectures(backend: str) -> tuple[str, ...]:
    """Returns the architectures that a set of kernels is written for."""
    known = (HOPPER, *TPUS.values())
    return tuple(dict.fromkeys(chip.architecture for chip in known if chip.backend == backend))


def named(kind: str, platform: str, capability: str | None = None, cores: int | None = None) -> Chip:
    """Returns the chip of a kind; one that no kernel runs on if its limits are not known here.

    Args:
        kind: JAX's name of it.
        platform: JAX's name of its platform.
        capability: CUDA's compute capability, such as "9.0"; None to go by the name.
        cores: multiprocessors, None for those of the largest chip of the kind.
    """
    if platform == "tpu":
        return TPUS.get(kind, Chip(kind, platform, kind.removeprefix("TPU ")))
    if platform not in ("cuda", "gpu"):
        return Chip(kind, platform, kind)
    if capability is None:
        hopper = kind.startswith(HOPPERS)
        architecture = "sm90" if hopper else "an architecture that its name does not tell"
    else:
        architecture = f"sm{capability.replace('.', '')}"
        hopper = architecture == "sm90"
    if not hopper:
        return Chip(kind, "cuda", architecture)
    return dataclasses.replace(HOPPER, kind=kind, cores=cores or HOPPER.cores)


def here(platform: str) -> Chip | None:
    """Returns the chip of a platform that programs lowered now will run on, None if there is none.

    That is the device of the abstract mesh when one is set, as it is when a program is compiled for a chip
    that is absent, or else this process's own.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    if device is not None:
        own = "tpu" if device.device_kind.startswith("TPU") else "cuda" if device.platform == "gpu" else None
        return named(device.device_kind, own or platform, cores=device.num_cores) if own == platform else None
    return _local(platform)


def at_hand() -> Chip:
    """Returns the chip of this process's first device."""
    platform = jax.devices()[0].platform
    chip = _local(platform)
    assert chip is not None
    return chip


@functools.cache
def _local(platform: str) -> Chip | None:
    try:
        device = jax.devices(platform)[0]
    except RuntimeError:
        return None
    capability, cores = getattr(device, "compute_capability", None), getattr(device, "core_count", None)
    return named(device.device_kind, platform, capability, cores)
