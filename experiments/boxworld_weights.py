"""Trained agents: from a run's directory, or from a released folder such as those of `results/boxworld`.

    python -m experiments.boxworld_weights --pack=runs/boxworld --to=results/boxworld/NAME     # release a run
    python -m experiments.boxworld_weights --unpack=results/boxworld/NAME --to=runs/boxworld   # go on with it

From Python: `trained = load("results/boxworld/NAME")`, then `trained.policy(trained.params, observation)`.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging

from experiments import runtime
from experiments.boxworld_engine import Impala, make_policy
from experiments.configs.boxworld import Config
from experiments.runtime import packing
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
    path = Path(path)
    try:
        config = runtime.read_config(Config, path / "config.json")
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a run of experiments.boxworld: {error}") from error
    config.validate()
    return config


def is_released(path: Path) -> bool:
    """Whether it is a released folder, not a run's directory."""
    return (path / packing.STATE).exists()


def steps(path: Path | str) -> list[int]:
    """Steps of the checkpoints there are, the first first."""
    path = Path(path)
    if is_released(path):
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
    abstract = Impala(config).abstract_state()
    if is_released(path):
        restored = packing.read_state(path, abstract)
        if step not in (None, restored.step):
            raise runtime.CheckpointError(f"{path} holds step {restored.step} only, not {step}")
    else:
        checkpoints = Checkpoints(path / "checkpoints", every=1, keep=2)
        there = checkpoints.steps()
        if not there:
            raise runtime.CheckpointError(f"there is no checkpoint in {checkpoints.directory}")
        restored = checkpoints.read(there[0] if step is None else step, abstract)
    return Trained(
        agent=config.agent.make(),
        params=jax.tree.map(lambda leaf: leaf[seed], restored.state.params),
        config=config.board.make(),
        step=restored.step,
        frames=restored.step * config.frames_per_step,
        name=f"{config.agent.kind} agent",
        run=config,
    )


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    source, target = flags.FLAGS.pack or flags.FLAGS.unpack, Path(flags.FLAGS.to)
    try:
        abstract = Impala(read_config(source)).abstract_state()
        if flags.FLAGS.pack:
            file = packing.pack(Path(source), abstract, target)
            print(f"{file}: {file.stat().st_size / 1e6:.1f} MB")
        else:
            restored = packing.unpack(Path(source), abstract, target)
            print(f"{target}: step {restored.step}; the run's own command goes on from there")
    except (ValueError, runtime.CheckpointError) as error:
        raise app.UsageError(str(error)) from error


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("pack", None, "directory of a run to release")
    flags.DEFINE_string("unpack", None, "released folder to go on with")
    flags.DEFINE_string("to", None, "where it goes", required=True)
    flags.mark_flags_as_mutual_exclusive(["pack", "unpack"], required=True)
    app.run(main)
