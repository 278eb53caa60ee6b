"""A small experiment on the runtime, which the tests start as users start theirs."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import optax
from regression_config import Config, get_config  # pyrefly: ignore[missing-import]

from experiments import runtime


def main(config, *, workdir=None, parallel="jit", **others):
    """Learns a fixed linear map from noisy examples whose outputs are partly masked at random."""
    inputs, outputs = config.data.inputs, config.data.outputs

    def init(key):
        return {"kernel": jax.random.normal(key, (inputs, outputs)), "bias": jnp.zeros((outputs,))}

    def sample(key, step):
        drawn = jax.random.normal(key, (config.batch_size, inputs + 2 * outputs))  # once, to compile sooner
        x, noise, hidden = jnp.split(drawn, (inputs, inputs + outputs), axis=1)
        x = jnp.where((config.poison >= 0) & (step >= config.poison), jnp.nan, x)
        y = x @ jnp.sin(jnp.arange(inputs * outputs, dtype=x.dtype).reshape(inputs, outputs))
        # The later an example in the batch the fewer outputs it shows: shards differ in their counts.
        mask = hidden < jnp.linspace(1.6, -1.6, config.batch_size)[:, None]
        return {
            "x": x,
            "y": y + 0.1 * noise,
            "mask": mask,
            "offset": jnp.float32(0.5),
            "row": jnp.arange(config.batch_size),
        }

    def loss(params, batch, key):
        error = batch["x"] @ params["kernel"] + params["bias"][None] - batch["y"] - batch["offset"]
        count = jnp.sum(batch["mask"])
        total = jnp.sum(error**2 * batch["mask"])
        within = jnp.sum((jnp.abs(error) < 1) & batch["mask"])
        return runtime.Sums(total, count, {"within": (within, count)})

    def evaluate(params):
        time.sleep(config.pause)
        return {"norm": jnp.linalg.norm(params["kernel"])}

    optimizer = {"sgd": optax.sgd, "adam": optax.adam}[config.optimizer](config.lr)
    arguments: dict[str, Any] = {
        "init": init,
        "loss": loss,
        "sample": sample,
        "optimizer": optimizer,
        "evaluate": evaluate,
    }
    arguments |= {"workdir": workdir, "parallel": parallel, **others}
    return runtime.fit(config, **arguments)


EXPERIMENT = runtime.Experiment(Config, get_config, main)

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
