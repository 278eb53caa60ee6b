"""Batches that restart: a finished episode is replaced by the next board of a pool drawn in advance.

Drawing a board costs about 12 times as much as a step (1.3 us to 110 ns on one core). Vmapped code runs both
branches of a conditional, so restarting with a fresh board would draw one for every environment at every step
and spend 92 % of the time on it. Here a step only selects from the pool (125 ns instead of 110), and boards
that were used are replaced by new ones a few at a time (`renew` every step or every few steps) or all at once
(`pool` before every rollout). Copying only the finished states instead of selecting saved half of the 15 ns
and lost it again to the loop it needs.

Axis letters: B environments, P boards. Any number of leading axes (*batch) is allowed.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Int, Int32, PRNGKeyArray

from simplicial.boxworld.config import BoxWorldConfig
from simplicial.boxworld.generation import reset
from simplicial.boxworld.rules import Outcome, State, step


@struct.dataclass
class Pool:
    """Fresh boards in a ring buffer: board number n, counted from the beginning, is at index n mod P.

    Attributes:
        states: P episodes at their start.
        used: number of boards used so far.
        drawn: number of boards drawn so far.
        repeated: number of boards that were used again because `used` had caught up with `drawn`. They are
            valid puzzles, but not independent of earlier ones; if this is above 0, the pool is too small.
    """

    states: State
    used: Int32[Array, "*batch"]
    drawn: Int32[Array, "*batch"]
    repeated: Int32[Array, "*batch"]


@struct.dataclass
class Transition:
    """Outcome of a batch's step, and the states it led to before finished episodes were restarted.

    `observe` of the `last` states gives the final observations of the episodes that ended.
    """

    outcome: Outcome
    last: State


def reset_batch(key: PRNGKeyArray, size: int, config: BoxWorldConfig) -> State:
    """Returns `size` independent episodes at their start, a state with a leading axis.

    Raises:
        ValueError: `size` is not positive, or the config is invalid (see `reset`).
    """
    if size < 1:
        raise ValueError(f"size: got {size}, expected at least 1")
    return jax.vmap(lambda one: reset(one, config))(jax.random.split(key, size))


def pool(key: PRNGKeyArray, size: int, config: BoxWorldConfig) -> Pool:
    """Draws `size` fresh boards. Raises ValueError as `reset_batch` does."""
    zero = jnp.int32(0)
    return Pool(states=reset_batch(key, size, config), used=zero, drawn=jnp.int32(size), repeated=zero)


def renew(boards: Pool, key: PRNGKeyArray, count: int, config: BoxWorldConfig) -> Pool:
    """Draws `count` boards and stores those for which there is room in place of used ones.

    The cost is that of `count` boards, whether or not there is room. When called every step, `count` should
    be at least the number of episodes that end per step: for B environments of bridge BoxWorld, B / 16 with a
    good player and B / 256 with a random one.

    Raises:
        ValueError: `count` is not between 1 and the pool's size, or as `reset`.
    """
    size = boards.states.time.shape[0]
    if not 1 <= count <= size:
        raise ValueError(f"count: got {count}, expected 1 to {size}, the pool's size")
    fresh = reset_batch(key, count, config)
    first = jnp.maximum(boards.drawn, boards.used)
    number = first + jnp.arange(count, dtype=jnp.int32)
    has_room = number < boards.used + size
    place = jnp.where(has_room, number % size, size)  # an index past the end is dropped
    states = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), boards.states, fresh)
    return dataclasses.replace(boards, states=states, drawn=first + jnp.sum(has_room, dtype=jnp.int32))


def select(which: Bool[Array, "B"], new: State, old: State) -> State:
    """Returns the new states where `which` is True and the old ones elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(which.reshape(-1, *(1,) * (b.ndim - 1)), a, b), new, old)


def restart(states: State, ended: Bool[Array, "B"], boards: Pool) -> tuple[State, Pool]:
    """Replaces the states that ended by the pool's next boards, in order."""
    size = boards.states.time.shape[0]
    number = (boards.used + jnp.cumsum(ended, dtype=jnp.int32) - 1) % size
    fresh = jax.tree.map(lambda leaf: leaf.at[number].get(mode="promise_in_bounds"), boards.states)
    count = jnp.sum(ended, dtype=jnp.int32)
    used = boards.used + count
    repeated = boards.repeated + jnp.clip(used - boards.drawn, 0, count)
    return select(ended, fresh, states), dataclasses.replace(boards, used=used, repeated=repeated)


def step_or_restart(
    states: State, actions: Int[Array, "B"], boards: Pool, config: BoxWorldConfig
) -> tuple[State, Transition, Pool]:
    """Makes one move in each of B environments and restarts the episodes that end with it.

    New episodes come from the pool in order; `config` must be that of the states and of the pool.

    Returns:
        The states for the next step, the outcome of this one, and the pool, with one board used per ended
        episode.

    Raises:
        ValueError: `actions` does not have one entry per state.
    """
    if jnp.shape(actions) != states.time.shape or states.time.ndim != 1:
        raise ValueError(
            f"actions: got shape {jnp.shape(actions)}, expected {states.time.shape}, one action per state"
        )
    last, outcome = jax.vmap(lambda state, action: step(state, action, config))(states, actions)
    states, boards = restart(last, outcome.terminated | outcome.truncated, boards)
    return states, Transition(outcome=outcome, last=last), boards
