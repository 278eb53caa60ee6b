"""The best model of a run that fine-tuned: a directory for `from_pretrained`, kept in the run's directory."""

from pathlib import Path

from experiments.exporting.interface import Exportable
from experiments.exporting.pretrained import of_pretrained
from experiments.folnet_finetune.measures import BEST


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens the best model of a run for export, whatever the step."""
    return of_pretrained(path / BEST)
