"""TP-Transformer and Transformer on the Mathematics Dataset (Schlag et al. 2019)."""

from experiments import runtime
from experiments.mathematics import binding_claims, claims, figures, load, roles_claims, showcase, tour, train
from experiments.mathematics.config import DATASET, Config, get_config


def _title(config: Config) -> str:
    data = config.data
    asked = ", ".join(data.modules) or "the whole dataset" if data.questions == DATASET else data.questions
    return f"a {figures.shown(config.model.name)} on {asked}"


def _data(config: Config) -> str:
    if config.data.questions != DATASET:
        return f"No external data: `experiments.mathematics.{config.data.questions}` draws the questions."
    return (
        "Questions generated with the Mathematics Dataset (`mathematics-dataset` 1.0.1, Saxton et al. 2019, "
        "Apache-2.0), for the modules in config.json."
    )


EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    showcase=showcase.showcase,
    card=runtime.Card(
        title=_title,
        data=_data,
        limits="Much smaller than the paper's 49 M parameters; covers only the modules it was trained on.",
    ),
    claims=claims.CLAIMS + binding_claims.CLAIMS + roles_claims.CLAIMS,
)
