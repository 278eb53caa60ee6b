"""The hyperparameters searched for fine-tuning (Table 9)."""

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from folnet import tasks

NO_SWEEP: Final = "none"
SWEEP_16GB: Final = "16gb"
SWEEP_160GB: Final = "160gb"
Sweep = Literal["none", "16gb", "160gb"]


class Setting(NamedTuple):
    """One combination of the hyperparameters that Table 9 varies."""

    lr: float
    batch_size: int
    epochs: int
    warmup: float

    def __str__(self):
        """Returns the name of the setting's folder."""
        return f"lr{self.lr:g}-batch{self.batch_size}-epochs{self.epochs}-warmup{self.warmup:g}"


class Searched(NamedTuple):
    """A column of Table 9, with learning rates for models pretrained on 16 GB and on 160 GB."""

    epochs: tuple[int, ...]
    lr_16gb: tuple[float, ...]
    lr_160gb: tuple[float, ...]
    batch_size: tuple[int, ...]
    warmup: tuple[float, ...]


_GLUE_16GB, _160GB = (6e-5, 8e-5, 1e-4, 2e-4), (1e-5, 2e-5, 3e-5, 4e-5)

TABLE_9: Mapping[str, Searched] = {
    "glue_small": Searched((5, 10, 20), _GLUE_16GB, _160GB, (16, 32), (0.06, 0.25)),
    "glue_big": Searched((2, 3, 5), _GLUE_16GB, _160GB, (32,), (0.06,)),
    "squad2": Searched((2, 3), (8e-5, 9e-5, 1e-4), _160GB, (16, 32), (0.06,)),
    "folio": Searched((60, 80), (6e-5, 7e-5, 8e-5), (1e-5, 2e-5, 3e-5), (16, 32), (0.06, 0.25)),
    # Not in Table 9: Appendix C gives one setting for one model size.
    "clutrr": Searched((100,), (5e-5,), (5e-5,), (16,), (0.06,)),
}


def column(task: str) -> str:
    """Returns the key in `TABLE_9` of a task's column."""
    if task in ("squad2", "folio"):
        return task
    if task.startswith("clutrr"):
        return "clutrr"
    return "glue_small" if task in tasks.SMALL else "glue_big"


@dataclasses.dataclass
class GridConfig:
    """Values of `Config`'s fields to try in a sweep; `()` uses those of Table 9."""

    lr: tuple[float, ...] = ()
    batch_size: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()
    warmup: tuple[float, ...] = ()
