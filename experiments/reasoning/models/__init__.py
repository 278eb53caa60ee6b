"""The models of the suite. To add one, write a file with `MODELS` and list it here."""

import importlib

from experiments.reasoning.models.base import Model, Sizes

__all__ = ["FILES", "MODELS", "Model", "Sizes"]

FILES = ("simplicial", "tp_transformer", "folnet", "recurrent", "transformers", "edges")
"""The files of this folder, each with a dictionary `MODELS`: models by name."""

MODELS: dict[str, Model] = {
    name: model
    for file in FILES
    for name, model in importlib.import_module(f"{__name__}.{file}").MODELS.items()
}
