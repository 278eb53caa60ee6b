"""Models that attend to pairs, compared with models that do not: language modelling."""

from experiments import runtime
from experiments.reasoning import claims, train
from experiments.reasoning.config import Config, get_config

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    card=runtime.Card(
        title=lambda config: (
            "a byte-level language model "
            + (
                f"whose every {config.every}th layer attends to pairs"
                if config.every
                else "of dot-product attention"
            )
        ),
        data="The language reference included with Python 3 (`pydoc_data.topics`; Python Software "
        "Foundation License).",
        limits="Half a million characters of one kind of text; it writes nothing useful.",
    ),
    claims=claims.CLAIMS,
)
