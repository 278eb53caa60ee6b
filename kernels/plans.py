"""What a hand-written kernel will need of a chip, computed before anything is compiled.

A backend's `plan(direction, config, *arrays, chip, blocks)` decides on everything: block sizes, copies,
on-chip memory and grid. The kernels run what it decided, and a call is refused by asking for its plan, so
that what is promised and what is run cannot differ.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from kernels.chips import Chip


class Refused(NotImplementedError):
    """A kernel does not support a call. The message gives the resource, the amount needed and the limit."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """One kernel of a plan.

    Attributes:
        name: the kernel's.
        grid: sizes of its grid; on a GPU x is first. On a TPU a batch may be a symbol of `jax.export`.
        memory: bytes of on-chip memory that a program of it takes.
    """

    name: str
    grid: tuple[Any, ...]
    memory: int


@dataclasses.dataclass(frozen=True)
class Planned:
    """The plan of a call in one direction.

    Attributes:
        kernels: in the order of their use; each has a `launch`.
    """

    kernels: tuple[Any, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernels as a chip sees them."""
        return tuple(kernel.launch for kernel in self.kernels)


def fits(chip: Chip, launch: Launch) -> str | None:
    """Returns why a kernel cannot be launched on a chip, None if it can."""
    if launch.memory > chip.memory:
        return (
            f"{chip.resource}: {launch.name} needs {launch.memory:,} bytes, {chip.kind} has {chip.memory:,}"
        )
    for name, size, limit in zip("xyz", launch.grid, chip.grid or (), strict=False):
        if size > limit:
            return f"grid: {launch.name} needs {size:,} programs along {name}, {chip.kind} has {limit:,}"
    return None


def check(chip: Chip, launches: Sequence[Launch]) -> None:
    """Raises `Refused` for the first kernel that does not fit."""
    for launch in launches:
        if reason := fits(chip, launch):
            raise Refused(reason)
