"""Episodes without end in batches: a finished one is replaced by the next board of a pool drawn beforehand.

Drawing a board costs about 12 times a step (1.3 us to 110 ns on one core), and vmapped code, which runs both
branches, would draw one for every environment at every step, used or not: 92 % of the time. Here a step only
selects from the pool (125 ns instead of 110), and the boards given out are replaced by new ones a few at a
time (`renew` after every step or every few), or all together (`pool` before every rollout). Copying just the
few finished states instead of selecting saved half of the 15 ns and lost it again to its loop.

Axes: B environments, P boards.
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
    """Fresh boards, a ring: board number n, counted from the beginning, is at n mod P.

    Attributes:
        states: P episodes at their start.
        used: how many boards have been given out.
        drawn: how many have been drawn.
        repeated: how many were given out though they had been before, because `used` had caught up with
            `drawn`: sound puzzles, but not independent of the earlier ones. Above 0, the pool is too small.
    """

    states: State
    used: Int32[Array, ""]
    drawn: Int32[Array, ""]
    repeated: Int32[Array, ""]


@struct.dataclass
class Transition:
    """What a step of a batch gave, and where it led before finished episodes were started anew.

    `observe` of the `last` states is the final observation of those that ended.
    """

    outcome: Outcome
    last: State


def reset_batch(key: PRNGKeyArray, size: int, config: BoxWorldConfig) -> State:
    """`size` independent episodes at their start, a state with a leading axis.

    Raises:
        ValueError: `size` is not a positive number, or the config cannot be met (see `reset`).
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    return jax.vmap(lambda one: reset(one, config))(jax.random.split(key, size))


def pool(key: PRNGKeyArray, size: int, config: BoxWorldConfig) -> Pool:
    """`size` fresh boards. Raises ValueError as `reset_batch`."""
    zero = jnp.int32(0)
    return Pool(states=reset_batch(key, size, config), used=zero, drawn=jnp.int32(size), repeated=zero)


def renew(boards: Pool, key: PRNGKeyArray, count: int, config: BoxWorldConfig) -> Pool:
    """Draws `count` boards and puts them where boards have been given out, as many as there is room for.

    The cost of the call is that of `count` boards, room or not. Called after every step, `count` should be at
    least the episodes that end in a step: for B environments and a good player of bridge BoxWorld B / 16, for
    a random one B / 256.

    Raises:
        ValueError: `count` is not between 1 and the pool's size, or as `reset`.
    """
    size = boards.states.time.shape[0]
    if not 1 <= count <= size:
        raise ValueError(f"count must be between 1 and the pool's size {size}, not {count}")
    fresh = reset_batch(key, count, config)
    first = jnp.maximum(boards.drawn, boards.used)
    number = first + jnp.arange(count, dtype=jnp.int32)
    has_room = number < boards.used + size
    place = jnp.where(has_room, number % size, size)  # past the end: dropped
    states = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), boards.states, fresh)
    return dataclasses.replace(boards, states=states, drawn=first + jnp.sum(has_room, dtype=jnp.int32))


def select(which: Bool[Array, "B"], new: State, old: State) -> State:
    """The new states where `which` is True, the old ones elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(which.reshape(-1, *(1,) * (b.ndim - 1)), a, b), new, old)


def restart(states: State, ended: Bool[Array, "B"], boards: Pool) -> tuple[State, Pool]:
    """The states, with those that ended replaced by the pool's next boards in their order."""
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
    """One move in each of B environments; those that end by it are at the start of a new episode afterwards.

    New episodes come from the pool in its order; `config` is that of the states and of the pool.

    Returns:
        The states to act in next, what the step gave, and the pool with as many more used as episodes ended.

    Raises:
        ValueError: `actions` is not one per state.
    """
    if jnp.shape(actions) != states.time.shape or states.time.ndim != 1:
        raise ValueError(
            f"actions must have shape {states.time.shape} (one per state), not {jnp.shape(actions)}"
        )
    last, outcome = jax.vmap(lambda state, action: step(state, action, config))(states, actions)
    states, boards = restart(last, outcome.terminated | outcome.truncated, boards)
    return states, Transition(outcome=outcome, last=last), boards
