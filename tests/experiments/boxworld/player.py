"""A small untrained agent of bridge BoxWorld, for the tests of what looks at agents."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from experiments.boxworld import episodes
from simplicial import Agent, boxworld
from tests.simplicial.small import perturbed, quickly


@dataclasses.dataclass(frozen=True)
class SmallPlayer:
    """What `boxworld_weights.load` gives, as far as it is looked at."""

    agent: Agent
    params: Any
    config: boxworld.BoxWorldConfig
    step: int = 10
    frames: int = 1000
    name: str = "small agent"


@functools.cache
def small_player(kind: str = "simplicial", world: str = "bridge") -> SmallPlayer:
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
    return SmallPlayer(agent, params, config)


@functools.cache
def small_episode(kind: str = "simplicial", world: str = "bridge", steps: int = 8) -> episodes.Episode:
    """An episode of it, not solved."""
    puzzle = (2, 1, 3) if world == "bridge" else (2, 0, 0)
    return episodes.first_solved(small_player(kind, world), jax.random.key(0), puzzle, attempts=1, cap=steps)[
        0
    ]
