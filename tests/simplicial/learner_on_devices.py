"""Prints the state of two seeds of a learner after a few iterations on all available devices.

Started by test_learner.py in a separate process, because the number of devices is fixed when JAX starts.
"""

import json

import jax
import numpy as np
from jax.sharding import AxisType

from simplicial import impala
from simplicial.learner import Learner, program, shardings
from tests.simplicial import corridor

SEEDS, GROUPS = 2, 8


def main():
    """Runs the learner and prints one line of JSON."""
    jax.config.update("jax_numpy_rank_promotion", "raise")
    learner = Learner(
        corridor.policy,
        corridor.ENVIRONMENT,
        impala.optimizer(0.1, max_norm=1.0),
        environments=32,
        steps=6,
        updates=2,
        groups=GROUPS,
    )
    params = corridor.weights(np.random.default_rng(0))
    keys = jax.random.split(jax.random.key(0), SEEDS)
    state = jax.vmap(lambda key: learner.init(params, key))(keys)
    mesh = None
    if jax.device_count() > 1:
        mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
        state = jax.device_put(state, shardings(mesh, seeds=True))
    state, report = program(learner, iterations=3, seeds=True, mesh=mesh)(state)
    place = state.actors.environment.place
    print(
        json.dumps(
            {
                "devices": len(place.sharding.device_set),
                "groups_on_a_device": place.addressable_shards[0].data.shape[1],
                "weights": np.asarray(state.params["weights"]).tolist(),
                "place": np.asarray(place).tolist(),
                "episodes": np.asarray(report.tally.episodes).tolist(),
                "loss": np.asarray(report.losses.total).tolist(),
                "grad_norm": np.asarray(report.grad_norm).tolist(),
            }
        )
    )


if __name__ == "__main__":
    main()
