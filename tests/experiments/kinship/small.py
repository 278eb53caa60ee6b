"""A kinship run that takes seconds: chains of 2 to 4 facts, models of a few hundred parameters."""

import dataclasses
from typing import Any

from experiments.kinship.config import Config
from experiments.kinship.parts import DataConfig, PairConfig, SizeConfig

SIZES = SizeConfig(
    hidden_size=8,
    relation_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    head_size=4,
    intermediate_size=12,
    relation_intermediate_size=8,
)
DATA = DataConfig(train_lengths=(2, 3), test_lengths=(2, 3, 4), test_problems=7)


def small(**fields: Any) -> Config:
    """Returns a config for a model with two operators and a few steps."""
    chosen: dict[str, Any] = {"model": "j.a", "match": "jm.ap", "metric_lengths": (3, 4)}
    chosen |= {"data": dataclasses.replace(DATA), "sizes": dataclasses.replace(SIZES)}
    chosen |= {"batch_size": 4, "steps": 4, "log_every": 2, "checkpoint_every": 2, "eval_every": 2}
    chosen |= {"eval_batch_size": 8, "warmup_steps": 2}
    return Config(**(chosen | fields))


def with_data(**fields: Any) -> Config:
    """Returns `small` with these fields of `data` replaced."""
    return small(data=dataclasses.replace(DATA, **fields))


LOOPED = PairConfig(read=True, supervised=True, loops=2, test_loops=3, injection=0.5)


def looped(**fields: Any) -> Config:
    """Returns `small` with a looped FOLNet whose training problems have distractors."""
    config = small(model="j.at", match="", pairs=dataclasses.replace(LOOPED))
    data = dataclasses.replace(config.data, irrelevant=2, varied=True)
    return dataclasses.replace(config, data=data, **fields)
