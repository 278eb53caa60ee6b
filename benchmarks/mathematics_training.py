"""Training steps of both architectures at the paper's size: tokens a second, and model FLOP utilisation.

    python -m benchmarks.mathematics_training --out=results/tp_transformer/training_speed.json

The steps are those of the preset `paper` of `experiments.mathematics` (its model, loss, optimizer and batch
size), a row for each of its length buckets; for an accelerator, since a step takes minutes on two cores.
Utilisation is what the contractions of the step, forward and backward, would take at the measured rate of
large matrix products of the same type, over what the step takes. Rows are written as they are found.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags

from benchmarks import contractions, timing
from benchmarks.folnet_pretraining import matrix_rate
from experiments import mathematics as experiment
from experiments.configs import mathematics as presets
from experiments.configs.mathematics import Config

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


def measure(config: Config, source: int, target: int, rate: float, seconds: float) -> dict[str, Any]:
    """A row: the step of one architecture on one bucket; of one that does not run here, why."""
    row: dict[str, Any] = {
        "model": config.model.name,
        "dtype": config.model.dtype,
        "batch": config.batch_size,
        "source": source,
        "target": target,
    }
    start = time.perf_counter()
    try:
        row |= _run(config, source, target, rate, seconds)
    except Exception as error:  # out of memory, unsupported: a finding, and the others go on
        row["failed"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
    row["wall_seconds"] = round(time.perf_counter() - start, 1)
    return row


def _run(config: Config, source: int, target: int, rate: float, seconds: float) -> dict[str, Any]:
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
    held: list[Any] = [params, jax.jit(optimizer.init)(params)]
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*held, batch).compile()

    def call() -> Any:
        held[:] = compiled(*held, batch)
        return held[0]

    plain = dataclasses.replace(config, model=dataclasses.replace(config.model, attention=""))
    counted = functools.partial(_counted, plain, source, target)
    times = timing.alternate({"step": call}, blocks=5, block_seconds=seconds)["step"]
    symbols, median = config.batch_size * (source + target), float(np.median(times))
    return {
        "seconds": {"median": median, "least": min(times), "greatest": max(times)},
        "tokens_per_second": symbols / median,
        "gflop_a_token": counted() / symbols / 1e9,
        "utilisation": counted() / median / rate,
    }


def _counted(config: Config, source: int, target: int) -> int:
    """Multiplications and additions of a step's contractions, forward and backward."""
    model = config.model.make()
    loss = experiment.make_loss(model)
    params = jax.eval_shape(experiment.make_init(model), jax.random.key(0))
    batch = jax.eval_shape(lambda: examples(config, source, target))
    gradient = jax.grad(lambda params, batch: loss(params, batch, jax.random.key(0)).numerator)
    return contractions.operations(contractions.of(gradient, params, batch))


def rows(base: Config, *, matrix: int, seconds: float, budget: float) -> Iterator[dict[str, Any]]:
    """Rows as they are found, the first of them the rate; what is left when the budget is spent is named.

    Args:
        base: the preset.
        matrix: size of the matrices whose product is the rate.
        seconds: a block of timing.
        budget: seconds after which no row is begun; 0: none.
    """
    start = time.monotonic()
    rate = matrix_rate(matrix, seconds, base.model.dtype)
    yield {"model": f"{matrix} x {matrix} {base.model.dtype} product", "operations_per_second": rate}
    for source, target in base.data.shapes()[::-1]:
        for name in MODELS:
            if 0 < budget < time.monotonic() - start:
                yield {"model": name, "source": source, "target": target, "failed": "the budget is spent"}
            else:
                yield measure(config_of(base, name), source, target, rate, seconds)


def told(row: dict[str, Any]) -> str:
    """A row in one line."""
    if "operations_per_second" in row:
        return f"{row['model']}: {row['operations_per_second'] / 1e12:.2f} TFLOP/s"
    head = f"{row['model']:15} {row['source']:4} x {row['target']:3}"
    if "failed" in row:
        return f"{head} {row['failed']}"
    return (
        f"{head} {row['tokens_per_second']:12,.0f} tokens/s, "
        f"{100 * row['utilisation']:.1f} % of the rate of matrix products"
    )


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values, found = flags.FLAGS, []
    out = Path(values.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    for row in rows(presets.paper(), matrix=values.matrix, seconds=values.seconds, budget=values.budget):
        found.append(row)
        print(told(row), flush=True)
        record = {**timing.where_and_when(), "command": "python -m benchmarks.mathematics_training"}
        out.write_text(json.dumps(record | {"rows": found}, indent=1, default=float) + "\n", encoding="utf-8")


if __name__ == "__main__":
    flags.DEFINE_string("out", OUT, "where the record goes")
    flags.DEFINE_integer("matrix", 8192, "size of the matrices whose product is the rate", lower_bound=1)
    flags.DEFINE_float("seconds", 0.5, "of a block of timing", lower_bound=0)
    flags.DEFINE_float("budget", 0.0, "seconds after which no row is begun; 0: all are")
    app.run(main)
