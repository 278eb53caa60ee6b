"""Measures training steps of both architectures at the paper's size, in each length bucket, longest first.

Uses the model, loss, optimizer and batch size of the preset `paper` of `experiments.mathematics`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import steps
from experiments import mathematics
from experiments.mathematics import train
from experiments.mathematics.config import Architecture

MODELS: tuple[Architecture, ...] = ("tp_transformer", "transformer")
Case = tuple[mathematics.Config, int, int]


def cases() -> dict[str, tuple[str, Case]]:
    """Returns config, question length and answer length for each architecture and bucket."""
    base = mathematics.get_config("paper")
    configs = {
        name: dataclasses.replace(base, model=dataclasses.replace(base.model, name=name)) for name in MODELS
    }
    return {
        f"{name} {source}x{target}": (base.model.dtype, (config, source, target))
        for source, target in base.data.shapes()[::-1]
        for name, config in configs.items()
    }


def given(config: mathematics.Config, source: int, target: int) -> tuple[dict[str, jax.Array], jax.Array]:
    """Draws a batch of random symbols without padding, so that all work counts, and returns it with a key."""
    rng, size = np.random.default_rng(0), config.model.make().vocab_size
    batch = {
        name: jnp.asarray(rng.integers(3, size, (config.batch_size, length)), jnp.int32)
        for name, length in (("source", source), ("target", target))
    }
    return batch, jax.random.key(0)


def counted(config: mathematics.Config) -> Callable[..., jax.Array]:
    """Returns the loss for counting contractions, with attention as plain matrix products."""
    plain = dataclasses.replace(config.model, attention="")
    return steps.mean(train.make_loss(plain.make()))


def measure(case: Case, rate: float, seconds: float) -> dict[str, Any]:
    """Measures the training step of one architecture on one bucket, for `steps.rows`."""
    config, source, target = case
    model = config.model.make()
    row = {"model": config.model.name, "batch": config.batch_size, "source": source, "target": target}
    return row | steps.measure_training(
        steps.mean(train.make_loss(model)),
        config.make_optimizer(),
        jax.jit(train.make_init(model))(jax.random.key(0, impl="rbg")),
        given(*case),
        counted_loss=counted(config),
        seconds=seconds,
        count={"tokens": config.batch_size * (source + target)},
        rate=rate,
    )


ROOM = steps.Room("tp_transformer", cases, measure)
