"""Training steps on kinship problems, of every family of models: problems a second, utilisation, memory.

    python -m benchmarks.kinship_training --out=results/kinship/training_speed.json

The steps are those of the preset `accelerator` of `experiments.kinship` (its models, matched in parameters,
batch and optimizer), in float32 as the preset has it and in bfloat16; a small batch for an accelerator, so
that what is told is as much the time to start programs as that of products. How fast problems are drawn is in
`benchmarks.kinship`.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from absl import app, flags, logging

from benchmarks import steps
from experiments.kinship import config as presets
from experiments.kinship import train as experiment
from experiments.kinship.config import Config

OUT = "results/kinship/training_speed.json"
DTYPES = ("float32", "bfloat16")


def config_of(base: Config, model: str, dtype: str) -> Config:
    """The preset's config of one model's run, in a type."""
    return dataclasses.replace(base.for_model(model), sizes=dataclasses.replace(base.sizes, dtype=dtype))


def measure(config: Config, rate: float, seconds: float) -> dict[str, Any]:
    """What is measured of the step of one model, for `steps.rows`."""
    model = config.make(config.model)
    loss, optimizer = experiment.make_loss(config, model), config.make_optimizer()
    source = config.data.train(config.seed)
    read = config.reader(config.model, source)
    batch = {name: jnp.asarray(array) for name, array in read(source, range(config.batch_size)).items()}
    key = jax.random.key(0)

    def mean(params, batch):
        sums = loss(params, batch, key)
        return sums.numerator / sums.denominator

    def step(params, state, batch):
        updates, state = optimizer.update(jax.grad(mean)(params, batch), state, params)
        return optax.apply_updates(params, updates), state

    params = jax.jit(experiment.make_init(model))(key)
    row = {"parameters": sum(leaf.size for leaf in jax.tree.leaves(params)), "batch": config.batch_size}
    carried = params, jax.jit(optimizer.init)(params)
    return row | steps.measure(
        steps.compiling(step, carried, (batch,)),
        carried,
        (batch,),
        seconds=seconds,
        count={"problems": config.batch_size},
        operations=steps.counted(jax.grad(mean), params, batch),
        rate=rate,
    )


def rows(base: Config, dtypes: Sequence[str], **sizes: Any) -> Iterator[dict[str, Any]]:
    """Rows as they are found; see `steps.rows`."""
    cases = {
        f"{model} {dtype}": (dtype, config_of(base, model, dtype))
        for dtype in dtypes
        for model in base.models
    }
    return steps.rows(cases, measure, **sizes)


def told(row: dict[str, Any]) -> str:
    """A row in one line."""
    return f"{row['name']:32} {steps.told(row, 'problems')}"


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    found = rows(presets.get_config("accelerator"), dtypes=DTYPES, **steps.sizes())
    steps.record(found, told, flags.FLAGS.out, "python -m benchmarks.kinship_training")


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    steps.define_flags(OUT)
    app.run(main)
