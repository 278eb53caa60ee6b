"""Trained agents, from a run's directory or a released folder such as those of `results/boxworld`.

trained = load("results/boxworld/NAME")
trained.policy(trained.params, observation)
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from experiments.boxworld.config import ACTIONS, Config
from experiments.boxworld.engine import Impala, Policy
from experiments.exporting.interface import BATCH, Exportable, Input, Output, describe_source
from experiments.runtime import releasing
from experiments.runtime.checkpoints import Checkpoints
from simplicial import Agent, boxworld, rollout


@dataclasses.dataclass(frozen=True)
class Trained:
    """An agent with its parameters, and where they come from.

    Attributes:
        agent: the module.
        params: its parameters, of one seed.
        config: the environment it was trained in.
        step: iterations made.
        frames: steps of the environments made.
        name: of the agent, for pictures.
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
        """The agent's output as a function of parameters and observations."""
        return Policy(self.agent)


def steps(path: Path | str) -> list[int]:
    """Steps of the available checkpoints, in ascending order."""
    path = Path(path)
    if releasing.is_released(path):
        return [load(path).step]
    return Checkpoints(path / "checkpoints", every=1, keep=2).steps()[::-1]


def load(path: Path | str, *, step: int | None = None, seed: int = 0) -> Trained:
    """A trained agent.

    Args:
        path: a run's directory or a released folder.
        step: of the checkpoint; the last by default.
        seed: number of one of the run's seeds, counted from 0.

    Raises:
        ValueError: the path holds no run, or the run has no such seed.
        runtime.CheckpointError: the checkpoint does not exist or is damaged.
    """
    path = Path(path)
    config = releasing.read_run_config(Config, path)
    if not 0 <= seed < config.seeds:
        raise ValueError(f"seed={seed} must be one of the run's {config.seeds}, counted from 0")
    restored = releasing.restore(path, Impala(config).abstract_state(), step)
    return Trained(
        agent=config.agent.make(),
        params=jax.tree.map(lambda leaf: leaf[seed], restored.state.params),
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
    """Boards to logits of the actions and values; `seed` is the number of the parameters' seed in the run."""
    shape = (trained.config.rows, trained.config.cols + 1, 3)

    def function(params, inputs):
        found = trained.policy(params, inputs["observation"])
        return {"logits": found.logits, "value": found.value}

    def one_by_one(params, inputs):
        # In the first block all entities of a batch are queries to the same pairs, in a row whose length is
        # unknown here; so is how to cut it for the backward pass. Hence each board by itself.
        return jax.vmap(function, in_axes=(None, 0))(params, inputs)

    return Exportable(
        kind="agent",
        function=function,
        params=trained.params,
        inputs={
            "observation": Input((BATCH, *shape), "uint8", "the picture of the board, with the inventory")
        },
        outputs={
            "logits": Output((BATCH, 4), "of the actions", ACTIONS),
            "value": Output((BATCH,), "expected discounted return"),
        },
        source=describe_source(trained.params, trained.step, seed=trained.run.seed + seed),
        derivable=one_by_one,
    )
