"""The config of a line through points."""

import dataclasses
from typing import ClassVar

from experiments import runtime


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """Its slope is learned.

    Attributes:
        slope: of the points.
    """

    experiment: ClassVar[str] = "line"

    slope: float = 3.0


def quick() -> Config:
    """A second."""
    return Config(steps=60, batch_size=8, log_every=20, checkpoint_every=20)


get_config = runtime.Presets(quick=quick)
