"""Pretraining of FOLNet (Chen 2023) and of the Transformer baseline."""

from experiments import runtime
from experiments.folnet_pretrain import claims, load, tour, train
from experiments.folnet_pretrain.config import Config, get_config

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=load.open_model,
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
