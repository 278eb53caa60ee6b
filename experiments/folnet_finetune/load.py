"""Loads the best model of a fine-tuning run, which is stored as a directory for `from_pretrained`."""

from pathlib import Path

from experiments.exporting.interface import Exportable
from experiments.exporting.pretrained import of_pretrained
from experiments.folnet_finetune.measures import BEST


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens the best model of a run for export; `step` and `seed` are ignored."""
    return of_pretrained(path / BEST)
