"""A run of the mathematics experiment that takes seconds."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.mathematics.config import Config, DataConfig, ModelConfig
from experiments.mathematics.load import Trained
from tests.tp_transformer.small import draw
from tp_transformer import mathematics

MODEL = ModelConfig(features=16, filter_features=24, num_heads=2, num_layers=1)
DATA = DataConfig(
    modules=("numbers__place_value", "numbers__is_factor"), train=150, test=12, buckets=("54x8",)
)


def small(**fields: Any) -> Config:
    """Two modules, a model of some thousand parameters, a few steps."""
    chosen: dict[str, Any] = {"data": DATA, "model": MODEL, "lr": 1e-2, "batch_size": 8}
    chosen |= {"steps": 4, "log_every": 2, "checkpoint_every": 2, "eval_every": 2}
    chosen |= {"eval_batch_size": 4, "eval_questions": 4, "role_questions": 8, "role_clusters": 3}
    return Config(**(chosen | fields))


def with_data(**fields: Any) -> Config:
    """`small` with other fields of its data."""
    return small(data=dataclasses.replace(DATA, **fields))


def with_model(**fields: Any) -> Config:
    """`small` with other fields of its model."""
    return small(model=dataclasses.replace(MODEL, **fields))


def talkative(
    vocabulary: mathematics.Vocabulary, seed: int = 0, boost: float = 1.5, **fields: Any
) -> Trained:
    """A model with random parameters, which ends some of its answers itself, after several symbols.

    A larger boost of the end symbol's row ends more of them.
    """
    model = dataclasses.replace(MODEL, **fields).make(vocabulary)
    params = draw(model, seed=seed)
    table = np.array(params["embedding"]["tokens"])
    table[vocabulary.end] *= np.float32(boost)
    params["embedding"]["tokens"] = jnp.asarray(table)
    return Trained(model, params, vocabulary)
