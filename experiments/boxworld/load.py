"""Trained agents: from a run's directory, or from a released folder such as those of `results/boxworld`.

trained = load("results/boxworld/NAME")
trained.policy(trained.params, observation)
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from experiments.boxworld.config import Config
from experiments.boxworld.engine import Impala, make_policy
from experiments.exporting.interface import BATCH, Exportable, Input, Output, describe_source
from experiments.runtime import releasing
from experiments.runtime.checkpoints import Checkpoints
from simplicial import Agent, boxworld, rollout

ACTIONS = ("left", "up", "right", "down")


@dataclasses.dataclass(frozen=True)
class Trained:
    """An agent with parameters, and where they come from.

    Attributes:
        agent: the module.
        params: its parameters, of one seed.
        config: the environment it was trained in.
        step: iterations made.
        frames: steps of the environments made.
        name: what to call it in a picture.
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
        return make_policy(self.run)


def steps(path: Path | str) -> list[int]:
    """Steps of the checkpoints there are, the first first."""
    path = Path(path)
    if releasing.is_released(path):
        return [load(path).step]
    return Checkpoints(path / "checkpoints", every=1, keep=2).steps()[::-1]


def load(path: Path | str, *, step: int | None = None, seed: int = 0) -> Trained:
    """A trained agent.

    Args:
        path: a run's directory or a released folder.
        step: of which checkpoint; the last by default.
        seed: which of the run's seeds, counted from 0.

    Raises:
        ValueError: the path holds no run, or has no such seed.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
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
    """Boards to logits of the actions and values; `seed` is which of the run's the parameters are of."""
    shape = (trained.config.rows, trained.config.cols + 1, 3)

    def outputs(params, observation) -> dict[str, jax.Array]:
        found = trained.policy(params, observation)
        return {"logits": found.logits, "value": found.value}

    def function(params, inputs):
        return outputs(params, inputs["observation"])

    def one_by_one(params, inputs):
        # In the first block all entities of a batch are queries to the same pairs. How a row of a length that
        # is not known is cut for the backward pass cannot be told: so each board is by itself here.
        return jax.vmap(outputs, in_axes=(None, 0))(params, inputs["observation"])

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
