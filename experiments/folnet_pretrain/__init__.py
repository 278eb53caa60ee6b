"""Pretraining of FOLNet (Chen 2023) and of the Transformer baseline."""

from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.exporting.interface import Exportable
from experiments.folnet_pretrain import claims, tour, train
from experiments.folnet_pretrain.config import Config, get_config


def _open_model(path: Path, **options: Any) -> Exportable:
    """Opens a run for export; `load` is imported late, since it is also a program."""
    from experiments.folnet_pretrain import load

    return load.open_model(path, **options)


EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=_open_model,
    tour_stop=tour.tour_stop,
    card=runtime.Card(
        title=lambda config: f"a small pretrained {config.model.name}",
        data="The language reference included with Python 3 (`pydoc_data.topics`; Python Software "
        "Foundation licence), unless `data.source` in config.json names another text; some documents are "
        "held out.",
        limits="A toy model trained on little text; not one of the paper's models.",
    ),
    claims=claims.CLAIMS,
)
