"""FOLNet and Transformers on kinship problems: trained on short chains of facts, tested on long ones."""

from experiments import runtime
from experiments.kinship import claims, clutrr_claims, load, showcase, tour, train
from experiments.kinship.config import Config, get_config

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    showcase=showcase.showcase,
    card=runtime.Card(
        title=lambda config: f"FOLNet {config.model} on kinship problems",
        data="No external data: `folnet.kinship` generates the problems.",
        limits="Only chains of facts about synthetic families; it knows no other relations.",
    ),
    claims=claims.CLAIMS + clutrr_claims.CLAIMS,
)
