"""Trained agents: from a run's directory, or from a released folder such as those of `results/boxworld`.

    python -m experiments.boxworld_weights --pack=runs/boxworld --to=results/boxworld/NAME     # release a run
    python -m experiments.boxworld_weights --unpack=results/boxworld/NAME --to=runs/boxworld   # go on with it

From Python: `trained = load("results/boxworld/NAME")`, then `trained.policy(trained.params, observation)`.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax

from experiments.boxworld_engine import Impala, make_policy
from experiments.configs.boxworld import Config
from experiments.runtime import releasing
from experiments.runtime.checkpoints import Checkpoints
from simplicial import Agent, boxworld, rollout


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


def read_config(path: Path | str) -> Config:
    """The config of a run or of a released folder.

    Raises:
        ValueError: naming the path, if there is none or it is not one of `experiments.boxworld`.
    """
    return releasing.read_run_config(Config, path, "experiments.boxworld")


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
    config = read_config(path)
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


if __name__ == "__main__":
    releasing.run_program(lambda path: Impala(read_config(path)).abstract_state())
