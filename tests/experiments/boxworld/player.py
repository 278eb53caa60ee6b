"""A small untrained agent of bridge BoxWorld, for the tests of what looks at agents."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from experiments.boxworld import episodes
from experiments.boxworld.config import Config
from experiments.boxworld.load import Trained
from simplicial import Agent, boxworld
from tests.simplicial.small import perturbed, quickly


@functools.cache
def small_player(kind: str = "simplicial", world: str = "bridge") -> Trained:
    """The same parameters every time; attention far from uniform."""
    config = {"bridge": boxworld.BRIDGE, "standard": boxworld.STANDARD}[world]
    agent = Agent(
        num_virtual_entities=2 if kind == "simplicial" else 0,
        features=16,
        two_simplicial_features=8,
        head_features=(16,),
    )
    picture = jnp.zeros((config.rows, config.cols + 1, 3), jnp.uint8)
    params = quickly(agent.init)(jax.random.key(0), picture)["params"]
    params = perturbed(params)
    params["logits"] = jax.tree.map(lambda leaf: 0.1 * leaf, params["logits"])  # else it walks one way only
    return Trained(agent, params, config, step=10, frames=1000, name="small agent", run=Config())


def few_types(kind: str = "simplicial") -> Trained:
    """The same in an environment of two types of puzzles, so that little has to be played."""
    return dataclasses.replace(small_player(kind), config=boxworld.BRIDGE.replace(max_length=1))


@functools.cache
def small_episode(kind: str = "simplicial", world: str = "bridge", steps: int = 8) -> episodes.Episode:
    """An episode of it, not solved."""
    puzzle = (2, 1, 3) if world == "bridge" else (2, 0, 0)
    player = small_player(kind, world)
    return episodes.first_solved(player, jax.random.key(0), puzzle, attempts=1, cap=steps)[0]
