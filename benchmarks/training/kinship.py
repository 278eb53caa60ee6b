"""Measures training steps on kinship problems for every model family.

Uses the preset `accelerator` of `experiments.kinship` (its models with matched parameter counts, its batch
size and optimizer), in float32 as in the preset, and in bfloat16. The batch is small for an accelerator, so
launch overhead matters as much as the matrix products. `benchmarks.kinship` measures the generation of
problems.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import steps
from experiments import kinship
from experiments.kinship import train


def cases() -> dict[str, tuple[str, kinship.Config]]:
    """Returns the preset's config for each model and dtype."""
    base, found = kinship.get_config("accelerator"), {}
    for dtype in ("float32", "bfloat16"):
        sizes = dataclasses.replace(base.sizes, dtype=dtype)
        for model in base.models:
            found[f"{model} {dtype}"] = dtype, dataclasses.replace(base.for_model(model), sizes=sizes)
    return found


def measure(config: kinship.Config, rate: float, seconds: float) -> dict[str, Any]:
    """Measures the training step of one model, for `steps.rows`."""
    model = config.make(config.model)
    source = config.data.train(config.seed)
    arrays = config.reader(config.model, source)(source, range(config.batch_size))
    return {"batch": config.batch_size} | steps.measure_training(
        steps.mean(train.make_loss(config, model)),
        config.make_optimizer(),
        jax.jit(train.make_init(model))(jax.random.key(0)),
        (jax.tree.map(jnp.asarray, arrays), jax.random.key(0)),
        seconds=seconds,
        count={"problems": config.batch_size},
        rate=rate,
    )


ROOM = steps.Room("kinship", cases, measure)
