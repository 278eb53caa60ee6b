"""Trains the smallest BoxWorld run on the devices there are; prints where it has come to, as JSON.

Arguments: AGENT,MODE such as relational,jit.
"""

import json
import sys
from typing import cast

import jax
import numpy as np

from experiments import runtime
from experiments.boxworld.config import Kind
from experiments.boxworld.engine import Impala
from tests.experiments.boxworld.small import small

if __name__ == "__main__":
    jax.config.update("jax_numpy_rank_promotion", "raise")
    found: dict = {"devices": jax.device_count()}
    for way in sys.argv[1:]:
        kind, parallel = way.split(",")
        config = small()
        config.agent.kind = cast(Kind, kind)
        config.agent.blocks = 2  # with one, rounding decides on which side of a kink of the logit a run goes
        result = runtime.loop(config, Impala(config, parallel), quiet=True)
        flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.params)])
        grid = result.state.actors.environment.episodes.grid
        found[way] = {
            "params": flat.astype(float).tolist(),
            "grid": np.asarray(grid).ravel().tolist(),
            "keys": np.asarray(jax.random.key_data(result.state.keys)).tolist(),
            "devices_of_the_grid": len(grid.sharding.device_set),
            "metrics": result.metrics,
        }
    print(json.dumps(found))
