"""Training steps of both architectures at the paper's size: tokens a second, and model FLOP utilisation.

    python -m benchmarks.mathematics_training --out=results/tp_transformer/training_speed.json

The steps are those of the preset `paper` of `experiments.mathematics` (its model, loss, optimizer and batch
size), a row for each of its length buckets; for an accelerator, since a step takes minutes on two cores.
Utilisation is what the contractions of the step, forward and backward, would take at the measured rate of
large matrix products of the same type, over what the step takes; the peak of memory is the compiler's. Rows
are written as they are found.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags, logging

from benchmarks import steps
from experiments.mathematics import config as presets
from experiments.mathematics import train as experiment
from experiments.mathematics.config import Config

MODELS = ("tp_transformer", "transformer")
OUT = "results/tp_transformer/training_speed.json"


def config_of(base: Config, name: str) -> Config:
    """The preset with one of the models."""
    return dataclasses.replace(base, model=dataclasses.replace(base.model, name=name))


def examples(config: Config, source: int, target: int) -> dict[str, jax.Array]:
    """A batch of random symbols, with no padding: all of a step's work counts."""
    rng = np.random.default_rng(0)
    vocabulary = config.model.make().vocab_size
    lengths = {"source": source, "target": target}
    return {
        name: jnp.asarray(rng.integers(3, vocabulary, (config.batch_size, length)), jnp.int32)
        for name, length in lengths.items()
    }


def measure(case: tuple[Config, int, int], rate: float, seconds: float) -> dict[str, Any]:
    """What is measured of the step of one architecture on one bucket, for `steps.rows`."""
    config, source, target = case
    model, optimizer = config.model.make(), config.make_optimizer()
    loss = experiment.make_loss(model)
    batch, key = examples(config, source, target), jax.random.key(0)

    def mean(params, batch):
        sums = loss(params, batch, key)
        return sums.numerator / sums.denominator

    def step(params, state, batch):
        updates, state = optimizer.update(jax.grad(mean)(params, batch), state, params)
        return optax.apply_updates(params, updates), state

    params = jax.jit(experiment.make_init(model))(jax.random.key(0, impl="rbg"))
    plain = dataclasses.replace(config, model=dataclasses.replace(config.model, attention=""))
    carried = params, jax.jit(optimizer.init)(params)
    row = {"model": config.model.name, "batch": config.batch_size, "source": source, "target": target}
    return row | steps.measure(
        steps.compiling(step, carried, (batch,)),
        carried,
        (batch,),
        seconds=seconds,
        count={"tokens": config.batch_size * (source + target)},
        operations=_counted(plain, source, target),
        rate=rate,
    )


def _counted(config: Config, source: int, target: int) -> int | None:
    """Multiplications and additions of a step's contractions, forward and backward."""
    model = config.model.make()
    loss = experiment.make_loss(model)
    params = jax.eval_shape(experiment.make_init(model), jax.random.key(0))
    batch = jax.eval_shape(lambda: examples(config, source, target))
    gradient = jax.grad(lambda params, batch: loss(params, batch, jax.random.key(0)).numerator)
    return steps.counted(gradient, params, batch)


def rows(base: Config, *, matrix: int, seconds: float, budget: float) -> Iterator[dict[str, Any]]:
    """Rows as they are found, the longest bucket first; see `steps.rows`."""
    cases = {
        f"{name} {source}x{target}": (base.model.dtype, (config_of(base, name), source, target))
        for source, target in base.data.shapes()[::-1]
        for name in MODELS
    }
    return steps.rows(cases, measure, matrix=matrix, seconds=seconds, budget=budget)


def told(row: dict[str, Any]) -> str:
    """A row in one line."""
    return f"{row['name']:32} {steps.told(row, 'tokens')}"


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    found = rows(presets.paper(), **steps.sizes())
    steps.record(found, told, flags.FLAGS.out, "python -m benchmarks.mathematics_training")


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    steps.define_flags(OUT)
    app.run(main)
