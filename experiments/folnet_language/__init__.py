"""Language models (FOLNet from left to right), and models that write a target given an input."""

from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.exporting.interface import Exportable
from experiments.folnet_language import train
from experiments.folnet_language.config import Config, get_config


def _open_model(path: Path, **options: Any) -> Exportable:
    """Opens a run for export; `load` is imported late, since it is also a program."""
    from experiments.folnet_language import load

    return load.open_model(path, **options)


EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    shorthands={"data": "data.source", "validation": "data.validation"},
    shorthands_preset="quick",
    abstract_state=train.abstract_state,
    open_model=_open_model,
    card=runtime.Card(
        title=lambda config: (
            "a small FOLNet that writes targets" if config.data.pairs else "a small FOLNet language model"
        ),
        data="`data.source` in config.json; by default the language reference included with Python 3 "
        "(`pydoc_data.topics`; Python Software Foundation licence). Some documents are held out.",
        limits="A toy model trained on little text; not one of the paper's models.",
    ),
)
