"""Configs of the regression program of the tests."""

import dataclasses
from typing import ClassVar

from experiments import runtime


@dataclasses.dataclass
class DataConfig:
    """Sizes of the data: inputs and targets per example."""

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
        cores: number of devices into which CPU cores are split.
        data: what is learned.
    """

    experiment: ClassVar[str] = "regression"

    lr: float = 0.05
    optimizer: str = "sgd"
    pause: float = 0.0
    poison: int = -1
    cores: int = runtime.resumable(1)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)

    def cpu_devices(self, cores, parts):
        """See `RunConfig.cpu_devices`."""
        assert cores > 0, cores
        return max(1, self.cores // parts)

    def validate(self):
        """Checks the fields; see `RunConfig.validate`."""
        super().validate()
        runtime.one_of("optimizer", self.optimizer, ["sgd", "adam"])


def quick() -> Config:
    """A run of about one second."""
    return Config(steps=60, batch_size=16, log_every=10, checkpoint_every=20)


def killable() -> Config:
    """A run with slow evaluations between log intervals, and parameters that take a while to save."""
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
