"""Symmetries of BoxWorld: changes of a state after which the same play, with actions mapped, does the same.

Reflections that exchange left and right are no symmetries, because a lock is to the right of its box's
content. Exchanging up and down keeps the rules; with a single Gem lock it also keeps the places of boxes.
With two, the Gem would move to a place where no board has it, and the two paths would change roles.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from simplicial.boxworld.config import BoxWorldConfig
from simplicial.boxworld.rules import DOWN, UP, State


def recolour(state: State, key: PRNGKeyArray) -> State:
    """Assigns the colours of the palette anew, in random order; the Gem stays white.

    `reset` draws the order in the same way, independently of everything else in the state. Every state of an
    episode is thus as likely in any other colours, and has the same optimal actions.
    """
    colours = jax.random.permutation(key, state.palette[1:])
    return dataclasses.replace(state, palette=jnp.concatenate([state.palette[:1], colours]))


def has_reflections(config: BoxWorldConfig) -> bool:
    """Returns whether `reflect` maps boards to boards with boxes in the same places."""
    return config.gem_locks == 1 and config.rows % 2 == 1


def reflect(state: State, config: BoxWorldConfig) -> State:
    """Exchanges up and down on the board; the inventory stays. See `reflect_action`.

    Raises:
        ValueError: the config has no such symmetry (`has_reflections`).
    """
    if not has_reflections(config):
        raise ValueError(
            f"config: got gem_locks={config.gem_locks} and rows={config.rows}, expected one Gem lock and an "
            "odd number of rows"
        )
    mirrored = jnp.asarray([0, config.rows - 1], jnp.int8), jnp.asarray([1, -1], jnp.int8)

    def place(xy):
        return mirrored[0] + mirrored[1] * xy

    is_used = state.traps[:, :1] >= 0
    traps = jnp.where(is_used, mirrored[0][None] + mirrored[1][None] * state.traps, state.traps)
    return dataclasses.replace(
        state, grid=state.grid[::-1], player=place(state.player), gem=place(state.gem), traps=traps
    )


def reflect_action(action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
    """Returns the actions that do in a reflected state what the given ones do in the original."""
    return jnp.where((action == UP) | (action == DOWN), UP + DOWN - action, action)
