"""FOLNet and Transformers on kinship problems: short chains of facts in training, long ones in tests."""

from experiments import runtime
from experiments.kinship import claims, load, tour, train
from experiments.kinship.config import Config, get_config

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    card=runtime.Card(
        title=lambda config: f"FOLNet {config.model} on kinship problems",
        data="None from outside: problems are drawn by `folnet.kinship`.",
        limits="Symbolic families of our own, told as chains; it knows no other relations.",
    ),
    claims=claims.CLAIMS,
)
