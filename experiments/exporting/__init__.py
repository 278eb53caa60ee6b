"""Export of trained models to files that run without this code; the program is `experiments.export`.

Each experiment's `load.py` describes the inputs and outputs of its models as an `Exportable`;
`registry.open_model` finds the experiment of a run; `artifact` writes the file.
"""

import importlib
from typing import TYPE_CHECKING, Any

from experiments.exporting.interface import Exportable, Input, Output
from experiments.exporting.options import Options

if TYPE_CHECKING:
    from experiments.exporting.artifact import export_model

__all__ = ["Exportable", "Input", "Options", "Output", "export_model"]


def __getattr__(name: str) -> Any:
    # `artifact` imports `run_exported`, which Python would then have loaded before it runs it as a program.
    if name == "export_model":
        return importlib.import_module(f"{__name__}.artifact").export_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
