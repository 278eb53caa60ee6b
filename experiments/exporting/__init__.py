"""Export of trained models to files that run without this code; the program is `experiments.export`.

Each experiment's `load.py` describes the inputs and outputs of its models as an `Exportable`;
`registry.open_model` finds the experiment of a run; `artifact` writes the file.
"""

from experiments.exporting.artifact import export_model
from experiments.exporting.interface import Exportable, Input, Output
from experiments.exporting.options import Options

__all__ = ["Exportable", "Input", "Options", "Output", "export_model"]
