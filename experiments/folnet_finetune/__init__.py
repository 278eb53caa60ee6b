"""Fine-tuning of FOLNet (Chen 2023) on GLUE, SQuAD 2.0, FOLIO and CLUTRR, and zero-shot GLUE."""

from experiments import runtime
from experiments.folnet_finetune import claims, load, train
from experiments.folnet_finetune.config import Config, get_config

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    default="rte",
    shorthands={
        "data": "own.train",
        "validation": "own.validation",
        "test": "own.test",
        "first": "own.first",
        "second": "own.second",
        "label": "own.label",
    },
    shorthands_preset="own",
    open_model=load.open_model,
    claims=claims.CLAIMS,
)
