"""Loads trained agents from a run's directory, a released folder, or by the name of a released model.

trained = load("boxworld/quick_simplicial")
trained.policy(trained.params, observation)
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.boxworld.config import ACTIONS, Config
from experiments.boxworld.demonstrations import MARKS
from experiments.boxworld.engine import Impala, Policy
from experiments.exporting.interface import BATCH, Exportable, Input, Output, describe_source
from experiments.runtime import releasing
from experiments.runtime.checkpoints import Checkpoints
from simplicial import Agent, boxworld, rollout


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained agent with its parameters and their origin.

    Attributes:
        agent: the module.
        params: its parameters, for one seed, without those that only training has.
        config: the environment it was trained in.
        step: number of training iterations.
        frames: number of environment steps.
        name: the agent's name in figures.
        run: the config of the run.
    """

    agent: Agent
    params: Any
    config: boxworld.BoxWorldConfig
    step: int
    frames: int
    name: str
    run: Config

    @property
    def policy(self) -> rollout.Policy:
        """The function from parameters and observations to the agent's output."""
        return Policy(self.agent)


def steps(path: Path | str) -> list[int]:
    """Returns the steps of the available checkpoints in ascending order."""
    path = releasing.find(path)
    if releasing.is_released(path):
        return [load(path).step]
    return Checkpoints(path / "checkpoints", every=1, keep=2).steps()[::-1]


def load(path: Path | str, *, step: int | None = None, seed: int = 0) -> Trained:
    """Loads a trained agent.

    Args:
        path: a run's directory, a released folder, or the name of a released model (`releasing.find`).
        step: step of the checkpoint; the last one by default.
        seed: index of one of the run's seeds, from 0.

    Raises:
        ValueError: `path` is not a run of this experiment, or the run has no such seed.
        runtime.CheckpointError: the checkpoint does not exist or is damaged.
    """
    path = releasing.find(path)
    config = releasing.read_run_config(Config, path)
    if not 0 <= seed < config.seeds:
        raise ValueError(f"seed: got {seed}, expected the index of one of the run's {config.seeds} seeds")
    restored = releasing.restore(path, Impala(config).abstract_state(), step)
    params = {name: part for name, part in restored.state.params.items() if name != MARKS}
    return Trained(
        agent=config.agent.make(),
        # By NumPy: JAX would compile a program for every shape.
        params=jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf)[seed], params)),
        config=config.board.make(),
        step=restored.step,
        frames=restored.step * config.frames_per_step,
        name=f"{config.agent.kind} agent",
        run=config,
    )


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens a trained agent for export; see `load`."""
    return of_agent(load(path, step=step, seed=seed), seed)


def of_agent(trained: Trained, seed: int = 0) -> Exportable:
    """Wraps an agent as a function from boards to action logits and values.

    `seed` is the index of the parameters' seed in the run.
    """
    shape = (trained.config.rows, trained.config.cols + 1, 3)

    def function(params, inputs):
        found = trained.policy(params, inputs["observation"])
        return {"logits": found.logits, "value": found.value}

    def one_by_one(params, inputs):
        # The first block flattens the batch's entities into one row of queries. Its length is unknown here,
        # so the backward pass cannot choose how to split it into blocks. Hence one board at a time.
        return jax.vmap(function, in_axes=(None, 0))(params, inputs)

    return Exportable(
        kind="agent",
        function=function,
        params=trained.params,
        inputs={"observation": Input((BATCH, *shape), "uint8", "image of the board, with the inventory")},
        outputs={
            "logits": Output((BATCH, 4), "action logits", ACTIONS),
            "value": Output((BATCH,), "expected discounted return"),
        },
        source=describe_source(trained.params, trained.step, seed=trained.run.seed + seed),
        derivable=one_by_one,
    )
