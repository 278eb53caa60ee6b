"""Runs the regression in the three modes on the available devices, and prints the results as JSON.

The loss has dropout, which draws from its key for every row, and masks that differ between devices.
"""

import dataclasses
import functools
import json
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import regression  # pyrefly: ignore[missing-import]
from flax import linen as nn
from jax.sharding import PartitionSpec
from regression_config import quick  # pyrefly: ignore[missing-import]

from experiments import runtime


def outcome(result):
    """Returns the numbers to compare."""
    return {
        "kernel": np.asarray(result.params["kernel"], np.float64).tolist(),
        "bias": np.asarray(result.params["bias"], np.float64).tolist(),
        **{name: result.metrics[name] for name in ("loss", "grad_norm", "within")},
    }


SHORT = dataclasses.replace(quick(), steps=12, log_every=3, checkpoint_every=6)
"""With plain SGD: Adam would hide a constant factor."""


def dropped(params, batch, key):
    """Returns the sums of the squared errors with dropout of the inputs, over an uneven mask."""
    drawn = jax.random.uniform(key, batch["x"].shape)
    x = batch["x"] * (drawn < 0.5) * 2
    error = x @ params["kernel"] + params["bias"][None] - batch["y"] - batch["offset"]
    count = jnp.sum(batch["mask"])
    return runtime.Sums(
        jnp.sum(error**2 * batch["mask"]), count, {"within": (jnp.sum(drawn < 0.5), drawn.size)}
    )


def run(parallel, config=SHORT, **others):
    return regression.main(config, parallel=parallel, quiet=True, loss=dropped, **others)


def fed(parallel, parts):
    """Runs with batches made on the host, with a scalar among their leaves, in so many parts."""

    def batches(step):
        random = np.random.default_rng(step)
        x, y = random.normal(size=(16, 4)).astype(np.float32), random.normal(size=(16, 3)).astype(np.float32)
        mask = random.uniform(size=(16, 3)) < np.linspace(1, 0.1, 16)[:, None]
        return {"x": x, "y": y, "mask": mask, "offset": np.float32(0.25)}

    return run(parallel, dataclasses.replace(SHORT, accumulate=parts), sample=None, batches=batches)


def carried(parallel):
    """Runs with a sampler on the devices whose own state changes with the parameters."""

    def sample(key, step, params, extra):
        x = jax.random.uniform(key, (16, 4), minval=-2, maxval=2) + extra["drift"]
        moved = {"drift": 0.9 * extra["drift"] + 0.1 * jnp.mean(params["bias"]), "count": extra["count"] + 1}
        mask = jnp.arange(16)[:, None] > 5 * jnp.arange(3)[None]
        return {"x": x, "y": x[:, :3], "mask": mask, "offset": jnp.float32(0)}, moved

    def init_extra(key):
        return {"drift": jax.random.normal(key), "count": jnp.int32(0)}

    result = run(parallel, sample=sample, init_extra=init_extra)
    if int(result.state.extra["count"]) != SHORT.steps:
        raise SystemExit(f"{SHORT.steps} samples were drawn, {result.state.extra['count']} counted")
    return result


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


RUNS = ("fed", "jit"), ("fed", "pmap"), ("carried", "shard_map"), ("carried", "pmap")
"""Both kinds in the modes that have code of their own for them."""


def outcomes():
    """Makes all runs, those fed in parts (on eight devices of one row each), and returns their numbers."""
    made = {"fed": functools.partial(fed, parts=2), "carried": carried}
    return {f"{kind} {mode}": outcome(made[kind](mode)) for kind, mode in RUNS} | {"split": outcome(split())}


if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)  # compiling is most of it
    print(json.dumps({"devices": jax.device_count(), **outcomes()}))
