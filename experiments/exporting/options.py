"""Export options: platforms, kernels, location of the weights, devices, and sizes."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, get_args

from jax.sharding import AbstractMesh, AxisType

from experiments.runtime import mesh as mesh_lib

Platform = Literal["cpu", "cuda", "tpu"]
PLATFORMS: tuple[Platform, ...] = get_args(Platform)
PORTABLE = "portable"
Where = Literal["inside", "beside", "constants"]
WHERE: tuple[Where, ...] = get_args(Where)
INSIDE, BESIDE, CONSTANTS = WHERE


@dataclasses.dataclass(frozen=True)
class Chip:
    """A chip with hand-written kernels.

    Attributes:
        platform: its platform in `jax.export`.
        kind: its `device_kind` in JAX.
        implementation: the name of its kernels in `kernels`.
    """

    platform: Platform
    kind: str
    implementation: str


CHIPS = {
    "h200": Chip("cuda", "NVIDIA H200", "gpu"),
    "v5e": Chip("tpu", "TPU v5 lite", "tpu"),
    "v5p": Chip("tpu", "TPU v5", "tpu"),
    "v6e": Chip("tpu", "TPU v6 lite", "tpu"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of an export.

    Attributes:
        platforms: platforms that the artifact supports.
        kernels: "portable", or the chips whose hand-written kernels to use.
        weights: "inside" the file or "beside" it, the weights are arguments of the programs; as "constants",
            each program (one per length) contains them.
        derivative: whether the artifact has a first-order reverse-mode derivative.
        sharding: number of devices along `data` and `model`; empty for one device.
        lengths: lengths of texts or sequences; () for the model's own, None for any.
        batch: batch size; None for any.
    """

    platforms: tuple[Platform, ...] = PLATFORMS
    kernels: tuple[str, ...] = (PORTABLE,)
    weights: Where = INSIDE
    derivative: bool = False
    sharding: Mapping[str, int] = dataclasses.field(default_factory=dict)
    lengths: tuple[int, ...] | None = ()
    batch: int | None = None

    def __post_init__(self):
        """Raises ValueError for an invalid option, or options that do not fit together."""
        if not self.platforms or not set(self.platforms) <= set(PLATFORMS):
            raise ValueError(
                f"platforms: got {','.join(self.platforms) or 'none'}, expected some of {','.join(PLATFORMS)}"
            )
        if self.weights not in WHERE:
            raise ValueError(f"weights: got {self.weights!r}, expected one of {', '.join(map(repr, WHERE))}")
        if self.kernels != (PORTABLE,):
            if not self.kernels or not set(self.kernels) <= set(CHIPS):
                raise ValueError(
                    f"kernels: got {','.join(self.kernels) or 'none'}, expected {PORTABLE}, or some of "
                    f"{','.join(CHIPS)}"
                )
            needed = {chip.platform for chip in self.chips}
            if needed != set(self.platforms):
                raise ValueError(
                    f"platforms: got {','.join(self.platforms)}, expected {','.join(sorted(needed))} for "
                    f"kernels={','.join(self.kernels)}"
                )
        if not set(self.sharding) <= {mesh_lib.AXIS, mesh_lib.MODEL_AXIS}:
            raise ValueError(f"sharding: got axes {', '.join(self.sharding)}, expected some of data, model")
        batch = 1 if self.batch is None else self.batch
        if any(size < 1 for size in (*self.sharding.values(), *(self.lengths or ()), batch)):
            raise ValueError(
                f"sharding, lengths, batch: got {dict(self.sharding)}, {self.lengths}, {self.batch}, "
                "expected sizes of at least 1"
            )
        if self.batch is not None and self.batch % self.rows:
            raise ValueError(
                f"batch: got {self.batch}, expected a multiple of {self.rows}, the devices along data"
            )

    @property
    def chips(self) -> tuple[Chip, ...]:
        """The chips whose kernels to use; empty for a portable program."""
        return () if self.kernels == (PORTABLE,) else tuple(CHIPS[name] for name in self.kernels)

    @property
    def rows(self) -> int:
        """The number of parts into which a batch is split."""
        return self.sharding.get(mesh_lib.AXIS, 1)

    @property
    def mesh(self) -> AbstractMesh | None:
        """The abstract mesh of the target devices, which need not exist here; None for one device."""
        if not self.sharding:
            return None
        sizes = tuple(self.sharding.values())
        return AbstractMesh(sizes, tuple(self.sharding), axis_types=(AxisType.Auto,) * len(sizes))
