"""Runs IMPALA in the corridor on one of four devices, and on all of them in every mode of the engine.

Started by test_engine.py in a process of its own; prints JSON. The engine is that of BoxWorld with a learner
that is compiled sooner.
"""

import json

import jax
import numpy as np

from experiments.boxworld.config import Config
from experiments.boxworld.engine import Impala
from simplicial import impala
from simplicial.learner import Learner, program, shardings
from tests import compiling
from tests.experiments.boxworld.small import small
from tests.simplicial import corridor

SEEDS, GROUPS = 2, 8


def shown(state, report):
    """Returns what is compared; the report is of three iterations of every seed."""
    place = state.actors.environment.place
    return {
        "weights": np.asarray(state.params["weights"]).tolist(),
        "keys": np.asarray(jax.random.key_data(state.keys)).tolist(),
        "place": np.asarray(place).tolist(),
        "episodes": np.asarray(report.tally.episodes).tolist(),
        "loss": np.asarray(report.losses.total).tolist(),
        "grad_norm": np.asarray(report.grad_norm).tolist(),
        "devices_of_places": len(place.sharding.device_set),
        "devices_of_weights": len(state.params["weights"].sharding.device_set),
    }


def refusal(config: Config) -> str:
    """Returns the message of an invalid config."""
    try:
        config.validate()
    except ValueError as error:
        return str(error)
    return ""


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

    @jax.jit
    def initial():
        keys = jax.random.split(jax.random.key(0), SEEDS)
        return jax.vmap(lambda key: learner.init(params, key))(keys)

    found = {
        "devices": jax.device_count(),
        "refusal": refusal(small(groups=2)),
        "alone": shown(*program(learner, iterations=3, seeds=True)(initial())),
    }
    for mode in ("jit", "shard_map", "pmap"):
        engine = Impala(small(groups=GROUPS, seeds=SEEDS), mode)
        engine.learner = learner
        state = engine.place(jax.device_put(initial(), shardings(engine.mesh, seeds=True)))
        before = np.asarray(engine.params_of(state)["weights"])
        assert engine.prepare(state, 0, 3) == engine.compile_seconds > 0
        assert engine.prepare(state, 3, 3) == 0, "compiled once"
        state, report = engine.advance(state, 0, 3)
        of_placed = np.asarray(engine.params_of(state)["weights"])
        state = engine.unplace(state)
        np.testing.assert_array_equal(of_placed, state.params["weights"])
        found[mode] = shown(state, report) | {"start": before.tolist()}
    print(json.dumps(found))


if __name__ == "__main__":
    with compiling.quickly():
        main()
