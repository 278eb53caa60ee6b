"""Symmetries of BoxWorld: changes of a state that give other states of equally likely boards.

After a change of colours or a reflection, the same play, with actions mapped, does the same. Exchanging the
contents of slots keeps the puzzle, but not the paths between its boxes.

Reflections that exchange left and right are no symmetries, because a lock is to the right of its box's
content. Exchanging up and down keeps the rules; with a single Gem lock it also keeps the places of boxes.
With two, the Gem would move to a place where no board has it, and the two paths would change roles.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from simplicial.boxworld.config import BoxWorldConfig
from simplicial.boxworld.generation import board_of
from simplicial.boxworld.rules import DOWN, UP, State


def recolour(state: State, key: PRNGKeyArray) -> State:
    """Assigns the colours of the palette anew, in random order; the Gem stays white.

    `reset` draws the order in the same way, independently of everything else in the state. Every state of an
    episode is thus as likely in any other colours, and has the same optimal actions.
    """
    colours = jax.random.permutation(key, state.palette[1:])
    return dataclasses.replace(state, palette=jnp.concatenate([state.palette[:1], colours]))


def rearrange(state: State, key: PRNGKeyArray, config: BoxWorldConfig) -> State:
    """Exchanges the contents of the slots, in random order: boxes, loose keys and nothing at all.

    A Gem with two locks stays where it is, and the slot below it empty. A player in a slot moves with it.
    `reset` fills the slots in random order, so that every board is as likely as any other arrangement of it;
    what has been taken, and what can still be solved, stay the same. For boards made by `reset`.
    """
    places = np.meshgrid(config.slot_ys, config.slot_xs, indexing="ij")
    ys, xs = (jnp.asarray(place.ravel()) for place in places)
    stays = jnp.zeros(config.num_slots, bool)
    if config.gem_locks == 2:
        stays = (xs == state.gem[:1]) & ((ys == state.gem[1:]) | (ys == state.gem[1:] + config.slot_ys.step))
    draw = jnp.where(stays, 1, jax.random.uniform(key, stays.shape))
    # The n-th smallest draw goes to the n-th slot that does not stay.
    is_earlier = np.tri(config.num_slots, k=-1, dtype=bool)  # of equal draws: none may lose its place
    is_before = (draw[None] < draw[:, None]) | ((draw[None] == draw[:, None]) & is_earlier)
    order = jnp.sum(is_before, axis=1), jnp.cumsum(~stays) - 1
    goes = jnp.where(stays[:, None] | stays[None], jnp.diag(stays), order[0][:, None] == order[1][None])
    source, target = jnp.argmax(goes, axis=0), jnp.argmax(goes, axis=1)

    left, right = (state.grid[places[0], places[1] + side].reshape(-1)[source] for side in (0, 1))
    is_slot = np.zeros(state.grid.shape, bool)
    is_slot[places[0], places[1]] = is_slot[places[0], places[1] + 1] = True

    def move(xy):
        is_in = (xy[1:] == ys) & ((xy[:1] == xs) | (xy[:1] == xs + 1))
        slot = jnp.argmax(is_in)
        there = jnp.stack([xs[target[slot]] - xs[slot] + xy[0], ys[target[slot]]])
        return jnp.where(is_in.any(), there, xy).astype(xy.dtype)

    return dataclasses.replace(
        state,
        grid=jnp.where(is_slot, board_of(left, right, config), state.grid),
        player=move(state.player),
        gem=move(state.gem),
        traps=jax.vmap(move)(state.traps),
    )


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
