"""Trains the smallest kinship run with SGD on the available devices and prints the results as JSON."""

import json
import sys

import jax
import numpy as np
import optax

from experiments import runtime
from experiments.kinship import train
from experiments.kinship.config import Config
from tests.experiments.kinship.small import small

LAYOUTS = {"split": runtime.Layout("jit", data=4, model=2, fsdp=True)}

if __name__ == "__main__":
    jax.config.update("jax_numpy_rank_promotion", "raise")
    Config.make_optimizer = lambda self: optax.sgd(0.1)  # Adam would hide a constant factor
    found: dict = {"devices": jax.device_count()}
    config = small(batch_size=16)
    for way in sys.argv[1:]:
        result = train.train(config, None, LAYOUTS.get(way, way))
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.params)])
        found[way] = {"params": flat.astype(float).tolist(), "metrics": result.metrics}
    print(json.dumps(found))
