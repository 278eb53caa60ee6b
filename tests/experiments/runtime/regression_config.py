"""Configs of the tests' regression program."""

import dataclasses
from typing import ClassVar

from experiments import runtime


@dataclasses.dataclass
class DataConfig:
    """The data: inputs of so many numbers, targets of so many."""

    inputs: int = 4
    outputs: int = 3
    shape: tuple[int, ...] = ()


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """A linear map learned from masked examples.

    Attributes:
        lr: learning rate.
        optimizer: sgd or adam.
        pause: seconds every evaluation sleeps, so that there is time to kill the process.
        poison: from this step on the data hold a NaN; -1 for never.
        data: what is learned.
    """

    experiment: ClassVar[str] = "regression"

    lr: float = 0.05
    optimizer: str = "sgd"
    pause: float = 0.0
    poison: int = -1
    data: DataConfig = dataclasses.field(default_factory=DataConfig)

    def validate(self):
        """See the base class."""
        super().validate()
        runtime.one_of("optimizer", self.optimizer, ["sgd", "adam"])


def quick() -> Config:
    """A second."""
    return Config(steps=60, batch_size=16, log_every=10, checkpoint_every=20)


def killable() -> Config:
    """Slow evaluations between the log intervals, and parameters whose saving takes a while."""
    return Config(
        steps=300,
        batch_size=8,
        log_every=5,
        eval_every=5,
        checkpoint_every=10,
        optimizer="adam",
        lr=1e-3,
        pause=0.03,
        data=DataConfig(inputs=600, outputs=500),
    )


get_config = runtime.Presets(quick=quick, killable=killable)
