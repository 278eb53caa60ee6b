"""Episodes without end in batches: a finished one goes on with the next board of a pool drawn beforehand.

Drawing a board costs about 16 times a step (1.8 us to 110 ns on one core), and an accelerator that runs all
branches would draw one for every environment at every step, used or not: 94 % of the time. Here boards are
drawn once per rollout, as many as may be needed, and a step only selects: 125 ns instead of 110. Copying just
the few finished states saved half of that and lost it again to its loop, so the plain selection it is
(`python -m benchmarks.boxworld` measures both ends).

Axes: B environments, P boards.
"""

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from flax import struct

from simplicial.boxworld_config import BoxWorldConfig
from simplicial.boxworld_generation import reset
from simplicial.boxworld_rules import Outcome, State, step

if TYPE_CHECKING:
    from jaxtyping import Array, Int, Int32, PRNGKeyArray


@struct.dataclass
class Pool:
    """Fresh boards.

    Attributes:
        states: P episodes at their start.
        used: how many have been given out. Past P the pool begins again at its first board, which is sound
            but no longer independent; see whether `used > P` to learn that a pool is too small.
    """

    states: State
    used: "Int32[Array, '']"


@struct.dataclass
class Transition:
    """What a step of a batch gave, and where it led before finished episodes were started anew.

    Attributes:
        outcome: rewards and ends, of the episodes that were stepped.
        last: the states right after the step: `observe` of them is the final observation of those that ended.
    """

    outcome: Outcome
    last: State


def reset_batch(key: "PRNGKeyArray", size: int, config: BoxWorldConfig) -> State:
    """`size` independent episodes at their start, a state with a leading axis.

    Raises:
        ValueError: `size` is not a positive number, or the config cannot be met (see `reset`).
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    return jax.vmap(lambda one: reset(one, config))(jax.random.split(key, size))


def pool(key: "PRNGKeyArray", size: int, config: BoxWorldConfig) -> Pool:
    """`size` fresh boards: what a rollout may use up, B x steps / (shortest likely episode), drawn anew for
    each.

    Raises:
        ValueError: as `reset_batch`.
    """
    return Pool(states=reset_batch(key, size, config), used=jnp.int32(0))


def step_or_restart(
    states: State, actions: "Int[Array, 'B']", boards: Pool, config: BoxWorldConfig
) -> tuple[State, Transition, Pool]:
    """One move in each of B environments; those that end by it are at the start of a new episode afterwards.

    Args:
        states: B episodes.
        actions: one for each.
        boards: where new episodes come from, in their order.
        config: the settings of the states and of the pool.

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
    ended = outcome.terminated | outcome.truncated
    size = boards.states.time.shape[0]
    number = (boards.used + jnp.cumsum(ended, dtype=jnp.int32) - 1) % size

    def select(fresh, old):
        chosen = fresh.at[number].get(mode="promise_in_bounds")
        return jnp.where(ended.reshape(-1, *(1,) * (old.ndim - 1)), chosen, old)

    states = jax.tree.map(select, boards.states, last)
    used = boards.used + jnp.sum(ended, dtype=jnp.int32)
    return states, Transition(outcome=outcome, last=last), dataclasses.replace(boards, used=used)
