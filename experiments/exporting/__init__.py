"""Trained models as files that run where none of this code is: `experiments.export` is the program.

A room's `load.py` says what goes into its models and what comes out, as an `Exportable`;
`registry.open_model` finds the room of a run; `artifact` makes the file.
"""

from experiments.exporting.artifact import export_model
from experiments.exporting.interface import Exportable, Input, Output
from experiments.exporting.options import Options

__all__ = ["Exportable", "Input", "Options", "Output", "export_model"]
