"""Linear logic RNNs (Hu and Murfet 2017), memories and an LSTM on sequence tasks."""

from experiments import runtime
from experiments.llrnn import (
    authors_claims,
    chomsky_claims,
    claims,
    load,
    showcase,
    state_claims,
    tour,
    train,
)
from experiments.llrnn.config import Config, get_config


def _kind(config: Config) -> str:
    if config.has_encoder:
        return f"the baseline {config.model_name}"
    return "a location-addressed NTM" if config.cell.name == "ntm" else f"a {config.cell.name} cell"


EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    showcase=showcase.showcase,
    card=runtime.Card(
        title=lambda config: f"{_kind(config)} on the task {config.task}",
        data="No external data: `llrnn.tasks` generates the sequences.",
        limits="Trained on a single task; not evaluated beyond the lengths in the table. A proof denotes "
        "how the cell combines state, commands and memory; softmax, activation and the sharpening of "
        "addresses are not part of it.",
    ),
    claims=claims.CLAIMS + state_claims.CLAIMS + chomsky_claims.CLAIMS + authors_claims.CLAIMS,
)
