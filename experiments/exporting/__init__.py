"""Trained models as files that run where none of this code is: `experiments.export` is the program.

`models` says of each of the four papers' models what goes in and what comes out, `artifact` makes the file.
"""

from experiments.exporting.artifact import export_model
from experiments.exporting.interface import Exportable, Input, Output
from experiments.exporting.models import open_model
from experiments.exporting.options import Options

__all__ = ["Exportable", "Input", "Options", "Output", "export_model", "open_model"]
