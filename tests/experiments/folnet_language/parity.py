"""Trains the smallest models that write by SGD on the devices there are; prints JSON.

Arguments: `jit`, `shard_map`, `pmap`, or one of LAYOUTS.
"""

import json
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
import optax

from experiments import runtime
from experiments.folnet_language import train
from experiments.folnet_language.config import Config
from tests.experiments.folnet_language.small import small, write_pairs
from tests.experiments.folnet_pretrain.small import write_text

LAYOUTS = {"split": runtime.Layout("jit", data=4, model=2, fsdp=True)}

if __name__ == "__main__":
    jax.config.update("jax_numpy_rank_promotion", "raise")
    Config.make_optimizer = lambda self: optax.sgd(0.1)  # Adam would hide a constant factor
    found: dict = {"devices": jax.device_count()}
    with tempfile.TemporaryDirectory() as folder:
        sources = {"text": write_text(Path(folder)), "pairs": write_pairs(Path(folder))}
        for argument in sys.argv[1:]:
            found[argument] = {}
            for name, source in sources.items():
                config = small(source, samples=0)
                result = train.main(config, workdir=None, parallel=LAYOUTS.get(argument, argument))
                flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.params)])
                found[argument][name] = {
                    "params": flat.astype(float).tolist(),
                    "metrics": result.metrics,
                }
    print(json.dumps(found))
