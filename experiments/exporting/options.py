"""How a model is exported: platforms, kernels, where weights go, devices, sizes."""

import dataclasses
from collections.abc import Mapping

from jax.sharding import AbstractMesh, AxisType

from experiments.runtime import mesh as mesh_lib

PLATFORMS = ("cpu", "cuda", "tpu")
PORTABLE = "portable"
INSIDE, BESIDE, CONSTANTS = WHERE = ("inside", "beside", "constants")


@dataclasses.dataclass(frozen=True)
class Chip:
    """A chip with hand-written kernels: its names in `jax.export`, in JAX's devices, and in `kernels`."""

    platform: str
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
    """How a model is exported.

    Attributes:
        platforms: of one artifact.
        kernels: "portable", or the chips whose hand-written kernels are wanted.
        weights: "inside" the file and "beside" it they are arguments of the program; as "constants" they are
            part of it, once for each length.
        derivative: whether the artifact can be differentiated, once, in reverse.
        sharding: devices along `data` and `model`; empty for one device.
        lengths: of texts or sequences; () for the model's own, None for any.
        batch: None for any.
    """

    platforms: tuple[str, ...] = PLATFORMS
    kernels: tuple[str, ...] = (PORTABLE,)
    weights: str = INSIDE
    derivative: bool = False
    sharding: Mapping[str, int] = dataclasses.field(default_factory=dict)
    lengths: tuple[int, ...] | None = ()
    batch: int | None = None

    def __post_init__(self):
        """Raises ValueError: a field that does not fit, by name."""
        if not self.platforms or not set(self.platforms) <= set(PLATFORMS):
            raise ValueError(f"platforms={','.join(self.platforms)} must be of {','.join(PLATFORMS)}")
        if self.weights not in WHERE:
            raise ValueError(f"weights={self.weights} must be one of {', '.join(WHERE)}")
        if self.kernels != (PORTABLE,):
            if not self.kernels or not set(self.kernels) <= set(CHIPS):
                raise ValueError(
                    f"kernels={','.join(self.kernels)} must be {PORTABLE}, or of {','.join(CHIPS)}"
                )
            if missing := sorted({chip.platform for chip in self.chips} ^ set(self.platforms)):
                raise ValueError(
                    f"platforms={','.join(self.platforms)} must be those of "
                    f"kernels={','.join(self.kernels)}; {missing[0]} is on one side only"
                )
        if not set(self.sharding) <= {mesh_lib.AXIS, mesh_lib.MODEL_AXIS}:
            raise ValueError(f"sharding={dict(self.sharding)} must be of the axes data and model")
        batch = 1 if self.batch is None else self.batch
        if any(size < 1 for size in (*self.sharding.values(), *(self.lengths or ()), batch)):
            raise ValueError("sharding, lengths and batch must be numbers of at least 1")
        if self.batch is not None and self.batch % self.rows:
            raise ValueError(f"batch={self.batch} must be a multiple of the {self.rows} devices along data")

    @property
    def chips(self) -> tuple[Chip, ...]:
        """Whose kernels are wanted; none if the program is portable."""
        return () if self.kernels == (PORTABLE,) else tuple(CHIPS[name] for name in self.kernels)

    @property
    def rows(self) -> int:
        """In how many parts a batch is cut."""
        return self.sharding.get(mesh_lib.AXIS, 1)

    @property
    def mesh(self) -> AbstractMesh | None:
        """The devices, none of which need be here."""
        if not self.sharding:
            return None
        sizes = tuple(self.sharding.values())
        return AbstractMesh(sizes, tuple(self.sharding), axis_types=(AxisType.Auto,) * len(sizes))
