"""Acting: runs a policy in a batch of environments without end, and sums up their episodes.

    environment = rollout.Environment(init, observe, step)           # three functions over a whole batch
    actors = rollout.start(environment, key, batch=512)
    actors, trajectories, tally = rollout.unroll(policy, params, environment, actors, key, steps=40)

An environment consists of three functions; `of_boxworld` makes those of BoxWorld. A policy is a function of
parameters and observations, with any leading axes, that returns an object with `logits` and `value`.

Axis letters: B parallel environments, T steps, A actions, K kinds of episodes. Data classes may have any
number of further leading axes (*batch).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from simplicial import boxworld, checks

PyTree = Any


@runtime_checkable
class PolicyOutput(Protocol):
    """Output of a policy for observations [..., observation]."""

    @property
    def logits(self) -> Float[Array, "... A"]:
        """Unnormalised log-probabilities of the actions."""

    @property
    def value(self) -> Float[Array, "..."]:
        """Estimated discounted return of each observation."""


Policy = Callable[[PyTree, PyTree], PolicyOutput]


@struct.dataclass
class Step:
    """Results of one step in each of B environments.

    Attributes:
        reward: reward of this step.
        terminated: whether the episode ended here and nothing can follow.
        truncated: whether the episode was cut off here, for example by a horizon; False where `terminated`.
        solved: whether the episode ended here with success.
        kind: index of the episode's kind, out of K; other values are not tallied.
    """

    reward: Float[Array, "*batch B"]
    terminated: Bool[Array, "*batch B"]
    truncated: Bool[Array, "*batch B"]
    solved: Bool[Array, "*batch B"]
    kind: Int[Array, "*batch B"]


@dataclasses.dataclass(frozen=True)
class Environment:
    """A batch of environments that restart by themselves, as functions.

    Attributes:
        init: maps a key and B to the state of B environments at the start of their episodes.
        observe: maps a state to observations [B, ...], an array or a pytree of arrays.
        step: maps a key, a state and actions [B] to the next state and its `Step`. Where an episode ends, the
            returned state is the first one of the next episode, and the `Step` describes the episode that
            ended.
        kinds: K.
    """

    init: Callable[[PRNGKeyArray, int], PyTree]
    observe: Callable[[PyTree], PyTree]
    step: Callable[[PRNGKeyArray, PyTree, Int[Array, "B"]], tuple[PyTree, Step]]
    kinds: int = 1


@struct.dataclass
class Actors:
    """State of the environments, and the return and number of steps of each current episode so far."""

    environment: PyTree
    returns: Float[Array, "*batch B"]
    lengths: Int[Array, "*batch B"]


@struct.dataclass
class Trajectories:
    """T consecutive steps in each of B environments, batch-major so that batches are cut along axis 0.

    Observations precede their actions. Logits are those of the behaviour policy, from which the action was
    sampled. The other fields are as in `Step`. After the end of an episode, the next observation belongs to
    another one.
    """

    observation: PyTree
    logits: Float[Array, "*batch B T A"]
    action: Int[Array, "*batch B T"]
    reward: Float[Array, "*batch B T"]
    terminated: Bool[Array, "*batch B T"]
    truncated: Bool[Array, "*batch B T"]


@struct.dataclass
class Tally:
    """Sums over the episodes that ended, for each kind; returns are undiscounted.

    Tallies of other times, devices or seeds are added leaf by leaf.
    """

    episodes: Int[Array, "*batch K"]
    solved: Int[Array, "*batch K"]
    truncated: Int[Array, "*batch K"]
    steps: Int[Array, "*batch K"]
    returns: Float[Array, "*batch K"]


def start(environment: Environment, key: PRNGKeyArray, batch: int) -> Actors:
    """Returns B = `batch` environments at the start of their first episodes.

    Raises:
        ValueError: `batch` is not a positive integer.
    """
    checks.whole_number("batch", batch)
    state = environment.init(key, batch)
    return Actors(state, jnp.zeros(batch, jnp.float32), jnp.zeros(batch, jnp.int32))


def unroll(
    policy: Policy, params: PyTree, environment: Environment, actors: Actors, key: PRNGKeyArray, steps: int
) -> tuple[Actors, Trajectories, Tally]:
    """Acts for T = `steps` steps; the next unroll continues where this one stopped.

    Returns:
        The new state of the environments, the T steps, and the sums over the episodes that ended during them
        (including their steps in earlier unrolls).

    Raises:
        ValueError: `steps` is not a positive integer, or the environment or the policy returns an array of
            the wrong shape.
    """
    checks.whole_number("steps", steps)
    batch = actors.lengths.shape[0]

    def act(actors: Actors, key):
        for_action, for_step = jax.random.split(key)
        observation = environment.observe(actors.environment)
        # Actions are sampled from the logits that are stored, so that the learner's ratios are exact.
        logits = at_least_float32(policy(params, observation).logits)
        if logits.ndim != 2 or logits.shape[0] != batch:
            shapes = jax.tree.map(jnp.shape, observation)
            raise ValueError(
                f"policy: got logits of shape {logits.shape} for observations {shapes}, expected "
                f"[B, A] with B = {batch}"
            )
        action = jax.random.categorical(for_action, logits)
        state, step = environment.step(for_step, actors.environment, action)
        for name, leaf in vars(step).items():
            if (shape := jnp.shape(leaf)) != (batch,):
                raise ValueError(f"environment.step: got {name} of shape {shape}, expected ({batch},)")
        reward = step.reward.astype(actors.returns.dtype)
        returns, lengths = actors.returns + reward, actors.lengths + 1
        ended = step.terminated | step.truncated
        following = Actors(state, jnp.where(ended, 0, returns), jnp.where(ended, 0, lengths))
        seen = observation, logits, action, reward, step.terminated, step.truncated
        return following, (seen, step, returns, lengths)

    actors, (seen, step, returns, lengths) = lax.scan(act, actors, jax.random.split(key, steps))
    trajectories = Trajectories(*jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), seen))
    return actors, trajectories, _tally(step, returns, lengths, environment.kinds)


def _tally(step: Step, returns, lengths, kinds: int) -> Tally:
    ended = step.terminated | step.truncated
    which = ended[..., None] & jax.nn.one_hot(step.kind, kinds, dtype=bool)

    def total(values):
        return jnp.sum(jnp.where(which, values[..., None], 0), axis=(0, 1))

    return Tally(
        episodes=jnp.sum(which, axis=(0, 1), dtype=jnp.int32),
        solved=total(step.solved.astype(jnp.int32)),
        truncated=total(step.truncated.astype(jnp.int32)),
        steps=total(lengths),
        returns=total(returns),
    )


def at_least_float32(values: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Converts to float32 unless the dtype is wider."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


@struct.dataclass
class BoxWorldState:
    """B episodes of BoxWorld and the pool of boards for the next ones."""

    episodes: boxworld.State
    boards: boxworld.Pool


def of_boxworld(config: boxworld.BoxWorldConfig) -> Environment:
    """Returns BoxWorld without end; kinds are the puzzle types (L, s, t) in the order of `boxworld.puzzles`.

    The pool has one board per environment, and every step renews one sixteenth of it, which is more than a
    good player of the paper's boards uses.

    Raises:
        ValueError: the config is invalid, or its lengths are traced, so that the types are unknown.
    """
    kinds = len(boxworld.puzzles(config))

    def init(key, batch):
        for_episodes, for_boards = jax.random.split(key)
        episodes = boxworld.reset_batch(for_episodes, batch, config)
        return BoxWorldState(episodes, boxworld.pool(for_boards, batch, config))

    def observe(state):
        return jax.vmap(lambda one: boxworld.observe(one, config))(state.episodes)

    def step(key, state, action):
        episodes, transition, boards = boxworld.step_or_restart(state.episodes, action, state.boards, config)
        boards = boxworld.renew(boards, key, math.ceil(action.shape[0] / 16), config)
        outcome = transition.outcome
        given = Step(
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            solved=outcome.terminated & (outcome.reward > 0),  # a trap also terminates, with reward -1
            kind=jax.vmap(lambda one: boxworld.puzzle_number(one, config))(transition.last),
        )
        return BoxWorldState(episodes, boards), given

    return Environment(init, observe, step, kinds)
