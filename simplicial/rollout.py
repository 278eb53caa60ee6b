"""Acting: a policy in a batch of environments that never stop, and what their episodes were worth.

    environment = rollout.Environment(init, observe, step)           # three functions over a whole batch
    actors = rollout.start(environment, key, batch=512)
    actors, trajectories, tally = rollout.unroll(policy, params, environment, actors, key, steps=40)

An environment is three functions, for BoxWorld those of `of_boxworld`. A policy is a function of parameters
and observations, any leading axes, that gives an object with `logits` and `value`.

Axes: B environments side by side, T steps, A actions, K kinds of episodes.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from simplicial import boxworld, checks

PyTree = Any


class PolicyOutput(Protocol):
    """What a policy gives for observations [..., observation]."""

    @property
    def logits(self) -> Float[Array, "... A"]:
        """Unnormalised log-probabilities of the actions."""

    @property
    def value(self) -> Float[Array, "..."]:
        """Estimated return."""


Policy = Callable[[PyTree, Shaped[Array, "..."]], PolicyOutput]


@struct.dataclass
class Step:
    """What one step gave in each of B environments.

    Attributes:
        reward: of this step.
        terminated: the episode ended here, and nothing was to come after.
        truncated: the episode was broken off here, by a horizon for example; not where `terminated`.
        solved: the episode ended here with success.
        kind: which of the environment's K kinds of episodes this one was; others are not tallied.
    """

    reward: Float[Array, "B"]
    terminated: Bool[Array, "B"]
    truncated: Bool[Array, "B"]
    solved: Bool[Array, "B"]
    kind: Int[Array, "B"]


@dataclasses.dataclass(frozen=True)
class Environment:
    """A batch of environments that begin a new episode by themselves, as functions.

    Attributes:
        init: from a key and B to a state of B environments at the start of their episodes.
        observe: from a state to the observations [B, ...].
        step: from a key, a state and actions [B] to the next state and its `Step`. Where an episode ends, the
            state returned is the first of the next episode; the `Step` is about the one that ended.
        kinds: K.
    """

    init: Callable[[PRNGKeyArray, int], PyTree]
    observe: Callable[[PyTree], Shaped[Array, "B ..."]]
    step: Callable[[PRNGKeyArray, PyTree, Int[Array, "B"]], tuple[PyTree, Step]]
    kinds: int = 1


@struct.dataclass
class Actors:
    """The environments' state, and the sum of rewards and number of steps since each episode began."""

    environment: PyTree
    returns: Float[Array, "B"]
    lengths: Int[Array, "B"]


@struct.dataclass
class Trajectories:
    """T consecutive steps in each of B environments; B first, so that batches are cut along the first axis.

    The observation is the one before the action, the logits are the behaviour policy's, from which the action
    was drawn; the rest is as in `Step`. After an end the next observation belongs to another episode.
    """

    observation: Shaped[Array, "B T ..."]
    logits: Float[Array, "B T A"]
    action: Int[Array, "B T"]
    reward: Float[Array, "B T"]
    terminated: Bool[Array, "B T"]
    truncated: Bool[Array, "B T"]


@struct.dataclass
class Tally:
    """Sums over the episodes that ended, for each kind; returns are undiscounted.

    Tallies of other times, devices or seeds are added leaf by leaf.
    """

    episodes: Int[Array, "K"]
    solved: Int[Array, "K"]
    truncated: Int[Array, "K"]
    steps: Int[Array, "K"]
    returns: Float[Array, "K"]


def start(environment: Environment, key: PRNGKeyArray, batch: int) -> Actors:
    """B environments at the start of their first episodes.

    Raises:
        ValueError: `batch` is not a positive whole number.
    """
    checks.whole_number("batch", batch)
    state = environment.init(key, batch)
    return Actors(state, jnp.zeros(batch, jnp.float32), jnp.zeros(batch, jnp.int32))


def unroll(
    policy: Policy, params: PyTree, environment: Environment, actors: Actors, key: PRNGKeyArray, steps: int
) -> tuple[Actors, Trajectories, Tally]:
    """Acts for T = `steps` steps; the next unroll begins where this one stopped.

    Returns:
        Where the environments are then, the T steps, and the sums over the episodes that ended in them (over
        all their steps, also those of earlier unrolls).

    Raises:
        ValueError: `steps` is not a positive whole number, or the environment or the policy gives something
            of another shape than asked for.
    """
    checks.whole_number("steps", steps)
    batch = actors.lengths.shape[0]

    def act(actors: Actors, key):
        for_action, for_step = jax.random.split(key)
        observation = environment.observe(actors.environment)
        # Sampled from the very numbers that are kept, so that the learner's ratios are about what was done.
        logits = at_least_float32(policy(params, observation).logits)
        if logits.ndim != 2 or logits.shape[0] != batch:
            raise ValueError(
                f"policy must give logits [B, A] with B = {batch}, got shape {logits.shape} for observations "
                f"{observation.shape}"
            )
        action = jax.random.categorical(for_action, logits)
        state, step = environment.step(for_step, actors.environment, action)
        for name, leaf in vars(step).items():
            if (shape := jnp.shape(leaf)) != (batch,):
                raise ValueError(f"environment.step must give {name} of shape ({batch},), got {shape}")
        reward = step.reward.astype(actors.returns.dtype)
        returns, lengths = actors.returns + reward, actors.lengths + 1
        ended = step.terminated | step.truncated
        following = Actors(state, jnp.where(ended, 0, returns), jnp.where(ended, 0, lengths))
        seen = Trajectories(observation, logits, action, reward, step.terminated, step.truncated)
        return following, (seen, step, returns, lengths)

    actors, (trajectories, step, returns, lengths) = lax.scan(act, actors, jax.random.split(key, steps))
    tally = _tally(step, returns, lengths, environment.kinds)
    return actors, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), trajectories), tally


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


def at_least_float32(values: Array) -> Array:
    """The values in float32, or in their own type where that is wider."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


@struct.dataclass
class BoxWorldState:
    """B episodes of BoxWorld, and the boards of the next ones."""

    episodes: boxworld.State
    boards: boxworld.Pool


def of_boxworld(config: boxworld.BoxWorldConfig) -> Environment:
    """BoxWorld without end: kinds are the puzzle types (L, s, t) in the order of `boxworld.puzzles`.

    There is a spare board for every environment, and at every step one in sixteen is renewed: more than a
    good player of the paper's boards uses up.

    Raises:
        ValueError: the config cannot be met, or its lengths are traced, so that the types are not known.
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
            solved=outcome.terminated & (outcome.reward > 0),  # the other end, a trap, costs a point
            kind=jax.vmap(lambda one: boxworld.puzzle_number(one, config))(transition.last),
        )
        return BoxWorldState(episodes, boards), given

    return Environment(init, observe, step, kinds)
