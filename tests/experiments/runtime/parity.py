"""Runs the regression in the three modes on the available devices, and prints the results as JSON.

The loss of all but `fed` and `carried` has dropout, which draws from its key for every row.
"""

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import regression  # pyrefly: ignore[missing-import]
from flax import linen as nn
from jax.sharding import PartitionSpec
from regression_config import quick  # pyrefly: ignore[missing-import]

from experiments import runtime
from experiments.runtime import metrics


def outcome(result):
    """Returns the numbers to compare."""
    return {
        "kernel": np.asarray(result.params["kernel"], np.float64).tolist(),
        "bias": np.asarray(result.params["bias"], np.float64).tolist(),
        **{name: result.metrics[name] for name in ("loss", "grad_norm", "within")},
    }


SHORT = dataclasses.replace(quick(), steps=12, log_every=3, checkpoint_every=6)


def run(parallel, **others):
    return regression.main(SHORT, parallel=parallel, quiet=True, **others)


def kept(x, key):
    """Returns the numbers drawn for the rows that the loss is given, and the inputs after dropout."""
    drawn = jax.random.uniform(key, x.shape)
    return drawn, x * (drawn < 0.5) * 2


def dropped(params, batch, key):
    """Returns the sums of the squared errors with dropout of the inputs, over an uneven mask."""
    drawn, x = kept(batch["x"], key)
    error = x @ params["kernel"] + params["bias"][None] - batch["y"]
    count = jnp.sum(batch["mask"])
    return runtime.Sums(
        jnp.sum(error**2 * batch["mask"]), count, {"within": (jnp.sum(drawn < 0.5), drawn.size)}
    )


def drawn(parallel):
    """Runs with batches drawn on the devices, uneven masks, dropout, and plain SGD (Adam would hide a
    constant factor).
    """
    return run(parallel, loss=dropped)


def fed(parallel):
    """Runs with batches made on the host, with a scalar among their leaves."""

    def batches(step):
        random = np.random.default_rng(step)
        x, y = random.normal(size=(16, 4)).astype(np.float32), random.normal(size=(16, 3)).astype(np.float32)
        mask = random.uniform(size=(16, 3)) < np.linspace(1, 0.1, 16)[:, None]
        return {"x": x, "y": y, "mask": mask, "offset": np.float32(0.25)}

    return run(parallel, sample=None, batches=batches)


def carried(parallel):
    """Runs with a sampler whose own state changes with the parameters."""

    def sample(key, step, params, extra):
        x = jax.random.normal(key, (16, 4)) + extra["drift"]
        moved = {"drift": 0.9 * extra["drift"] + 0.1 * jnp.mean(params["bias"]), "count": extra["count"] + 1}
        mask = jnp.ones((16, 3), bool)
        return {"x": x, "y": x[:, :3], "mask": mask, "offset": jnp.float32(0)}, moved

    def init_extra(key):
        return {"drift": jax.random.normal(key), "count": jnp.int32(0)}

    result = run(parallel, sample=sample, init_extra=init_extra)
    if int(result.state.extra["count"]) != SHORT.steps:
        raise SystemExit(f"{SHORT.steps} samples were drawn, {result.state.extra['count']} counted")
    return result


def parts(parallel):
    """Runs as `drawn` does with batches in two parts (on eight devices of one row each).

    Returns the result, and the mean number that the loss drew for each row, as [intervals, rows].
    """
    rows = jnp.arange(16)

    def loss(params, batch, key):
        sums, number = dropped(params, batch, key), kept(batch["x"], key)[0][:, 0]
        mine = jnp.sum(number[:, None] * (batch["row"][:, None] == rows[None]), axis=0)
        # The denominator of a metric is summed over devices and parts as well.
        sums.metrics.update({f"row{row}": (mine[row], jnp.int32(1)) for row in range(16)})
        return sums

    with tempfile.TemporaryDirectory() as workdir:
        config = dataclasses.replace(SHORT, accumulate=2)
        result = regression.main(config, parallel=parallel, quiet=True, loss=loss, workdir=workdir)
        records = metrics.read(Path(workdir) / "metrics.jsonl")
    calls = 2 * (1 if parallel == "jit" else jax.device_count())
    return result, [[record[f"row{row}"] * calls for row in range(16)] for record in records]


def split():
    """Splits moments and kernel along data and rows along model, saves, and continues with replicas."""
    layout = runtime.Layout("jit", data=4, model=2, fsdp=True)
    config = SHORT

    def init(key):
        return {"kernel": jax.random.normal(key, (4, 3)), "bias": jnp.zeros(3)}

    def loss(params, batch, key):
        if layout.model > 1 and "('data', 'model')" not in str(jax.make_jaxpr(rows)(batch["x"])):
            raise SystemExit("the rows are not split")
        return dropped(params, {**batch, "x": rows(batch["x"])}, key)

    def rows(x):
        return nn.with_logical_constraint(x, ("batch", "rows"))

    with tempfile.TemporaryDirectory() as workdir:
        half = dataclasses.replace(config, steps=config.steps // 2)
        result = regression.main(half, parallel=layout, quiet=True, workdir=workdir, init=init, loss=loss)
        where = {name: leaf.sharding.spec for name, leaf in result.params.items()}
        if where != {"kernel": PartitionSpec("data", None), "bias": PartitionSpec()}:
            raise SystemExit(f"unexpected shardings of the parameters: {where}")
        if result.summary["parallel"] != "jit data:4,model:2 fsdp":
            raise SystemExit(result.summary["parallel"])
        layout = runtime.Layout()
        return regression.main(config, parallel=layout, quiet=True, workdir=workdir, init=init, loss=loss)


def outcomes(modes):
    """Runs every kind in all modes, and returns their numbers."""
    kinds = {"drawn": drawn, "fed": fed, "carried": carried}
    results: dict[str, Any] = {
        kind: {mode: outcome(function(mode)) for mode in modes} for kind, function in kinds.items()
    }
    in_parts = {mode: parts(mode) for mode in modes}
    results["parts"] = {mode: outcome(result) for mode, (result, _) in in_parts.items()}
    results["rows"] = {mode: numbers for mode, (_, numbers) in in_parts.items()}
    return results


if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)  # compiling is most of it
    found = outcomes(sys.argv[1:])
    print(json.dumps({"devices": jax.device_count(), **found, "split": outcome(split())}))
