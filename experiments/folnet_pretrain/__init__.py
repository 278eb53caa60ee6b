"""Pretraining of FOLNet (Chen 2023), and of the Transformer it is compared with."""

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
        title=lambda config: f"a pretrained {config.model.name} of toy size",
        data="The language reference that comes with Python 3 (`pydoc_data.topics`; Python Software "
        "Foundation licence), unless `data.source` in config.json names another text; some documents are "
        "held out.",
        limits="A model of toy size on little text, to begin with; no paper's model.",
    ),
    claims=claims.CLAIMS,
)
