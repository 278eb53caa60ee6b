"""BoxWorld under the interfaces of other JAX libraries, by duck typing: nothing of theirs is imported.

    env = adapters.GymnaxBoxWorld(boxworld.BRIDGE)       # gymnax 1.0: six values, starts anew by itself
    env = adapters.TimeStepBoxWorld(boxworld.BRIDGE)     # stoa: (state, TimeStep), one episode
    env = adapters.TimeStepBoxWorld(boxworld.BRIDGE, tell_truncation=False)  # as dm_env and jumanji count
    env = adapters.gymnasium_env(boxworld.BRIDGE)        # Gymnasium: see gymnasium_adapters.py

The objects only hold a config, are hashable, and all their methods are pure: static arguments of `jax.jit`.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray, UInt8

from simplicial import boxworld
from simplicial.boxworld import BoxWorldConfig, State

if TYPE_CHECKING:
    from simplicial.gymnasium_adapters import BoxWorldEnv, BoxWorldVectorEnv

Action, Flag = Int[Array, ""], Bool[Array, ""]
Observation = UInt8[Array, "R C+1 3"]


@dataclasses.dataclass(frozen=True)
class Discrete:
    """Whole numbers from 0 to n - 1."""

    n: int
    shape: tuple[int, ...] = ()
    dtype: Any = jnp.int32

    def sample(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """A uniform one."""
        return jax.random.randint(key, self.shape, 0, self.n, self.dtype)

    def contains(self, value) -> Flag:
        """Whether it is one of them."""
        value = jnp.asarray(value)
        return jnp.all((value >= 0) & (value < self.n) & (value == jnp.floor(value)))


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of one shape with bounded entries, both bounds included."""

    low: int
    high: int
    shape: tuple[int, ...]
    dtype: Any = jnp.uint8

    def sample(self, key: PRNGKeyArray) -> Array:
        """A uniform one."""
        return jax.random.randint(key, self.shape, self.low, self.high + 1).astype(self.dtype)

    def contains(self, value) -> Flag:
        """Whether it is one of them."""
        return jnp.all((value >= self.low) & (value <= self.high)) & (jnp.shape(value) == self.shape)


@dataclasses.dataclass(frozen=True)
class _Described:
    """What every interface asks about an environment."""

    config: BoxWorldConfig = boxworld.BRIDGE

    @property
    def name(self) -> str:
        """What plots call it."""
        return "BridgeBoxWorld" if self.config.gem_locks == 2 else "BoxWorld"

    @property
    def num_actions(self) -> int:
        """Left, up, right, down."""
        return boxworld.NUM_ACTIONS

    def action_space(self, params: BoxWorldConfig | None = None) -> Discrete:
        """The four actions, whatever the parameters."""
        del params
        return Discrete(boxworld.NUM_ACTIONS)

    def observation_space(self, params: BoxWorldConfig | None = None) -> Box:
        """Pictures of the board and the inventory."""
        config = self._settings(params)
        return Box(0, 255, (config.rows, config.cols + 1, 3))

    def _settings(self, params: BoxWorldConfig | None) -> BoxWorldConfig:
        return self.config if params is None else params


@dataclasses.dataclass(frozen=True)
class GymnaxBoxWorld(_Described):
    """The interface of gymnax 1.0; parameters are a `BoxWorldConfig`.

    `step` draws a new board every time, as gymnax does, which under `vmap` is nine tenths of its time: for
    training use `boxworld.step_or_restart`.
    """

    @property
    def default_params(self) -> BoxWorldConfig:
        """The config the environment was made with."""
        return self.config

    def reset(self, key: PRNGKeyArray, params: BoxWorldConfig | None = None) -> tuple[Observation, State]:
        """A new episode: (observation, state)."""
        return self.reset_env(key, self._settings(params))

    def reset_env(self, key: PRNGKeyArray, params: BoxWorldConfig) -> tuple[Observation, State]:
        """A new episode: (observation, state)."""
        state = boxworld.reset(key, params)
        return boxworld.observe(state, params), state

    def step(
        self, key: PRNGKeyArray, state: State, action: Action, params: BoxWorldConfig | None = None
    ) -> tuple[Observation, State, Float[Array, ""], Flag, Flag, dict[str, Any]]:
        """One move, and a new episode where that ended one.

        Returns:
            Observation and state to act on next; reward, terminated and truncated of the move; and, under
            `final_observation`, what the move led to.
        """
        settings = self._settings(params)
        for_step, for_reset = jax.random.split(key)
        last, state, reward, terminated, info = self.step_env(for_step, state, action, settings)
        truncated = self.is_truncated(state, settings)
        observation, fresh = self.reset_env(for_reset, settings)
        ended = terminated | truncated
        state = jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, state)
        info = {**info, "terminated": terminated, "truncated": truncated, "final_observation": last}
        return jnp.where(ended, observation, last), state, reward, terminated, truncated, info

    def step_env(
        self, key: PRNGKeyArray, state: State, action: Action, params: BoxWorldConfig
    ) -> tuple[Observation, State, Float[Array, ""], Flag, dict[str, Any]]:
        """One move and no more: observation, state, reward, terminated, info."""
        del key  # the rules are deterministic
        state, outcome = boxworld.step(state, action, params)
        info = {"solved": outcome.terminated & (outcome.reward > 0)}
        return boxworld.observe(state, params), state, outcome.reward, outcome.terminated, info

    def is_truncated(self, state: State, params: BoxWorldConfig | None = None) -> Flag:
        """Whether the horizon has ended the episode."""
        del params
        return state.truncated


FIRST, MID, TERMINATED, TRUNCATED = range(4)
"""Types of a `TimeStep`; dm_env and jumanji know one end only, LAST = 2."""


@struct.dataclass
class TimeStep:
    """What dm_env, jumanji and stoa call a time step.

    Attributes:
        step_type: `FIRST`, `MID`, `TERMINATED` or `TRUNCATED` (2 for both ends in dm_env's way of counting).
        reward: of the move that led here; 0 at the start.
        discount: 0 where nothing can follow, 1 elsewhere, a truncated end included.
        observation: the picture.
        extras: `solved` and the puzzle's type.
    """

    step_type: Int8[Array, ""]
    reward: Float[Array, ""]
    discount: Float[Array, ""]
    observation: Observation
    extras: dict[str, Any]

    def first(self) -> Flag:
        """Whether the episode begins here."""
        return self.step_type == FIRST

    def mid(self) -> Flag:
        """Whether it neither begins nor ends here."""
        return self.step_type == MID

    def last(self) -> Flag:
        """Whether it ends here."""
        return self.step_type >= TERMINATED

    done = last

    def terminated(self) -> Flag:
        """Whether it ends here for good."""
        return self.last() & (self.discount == 0)

    def truncated(self) -> Flag:
        """Whether the horizon ends it here."""
        return self.last() & (self.discount > 0)


@dataclasses.dataclass(frozen=True)
class TimeStepBoxWorld(_Described):
    """The interface of stoa, in which a truncated end has a type of its own; starts nothing anew.

    With `tell_truncation=False` it has none, as in jumanji and dm_env.
    """

    tell_truncation: bool = True

    def reset(
        self, rng_key: PRNGKeyArray, env_params: BoxWorldConfig | None = None
    ) -> tuple[State, TimeStep]:
        """A new episode."""
        config = self._settings(env_params)
        state = boxworld.reset(rng_key, config)
        return state, self._time_step(state, jnp.int8(FIRST), jnp.float32(0), config)

    def step(
        self, state: State, action: Action, env_params: BoxWorldConfig | None = None
    ) -> tuple[State, TimeStep]:
        """One move; a finished episode stays where it is."""
        config = self._settings(env_params)
        state, outcome = boxworld.step(state, action, config)
        cut = jnp.int8(TRUNCATED if self.tell_truncation else TERMINATED)
        kind = jnp.where(outcome.truncated, cut, jnp.int8(MID))
        kind = jnp.where(outcome.terminated, jnp.int8(TERMINATED), kind)
        return state, self._time_step(state, kind, outcome.reward, config)

    def _time_step(self, state, kind, reward, config) -> TimeStep:
        puzzle = dataclasses.asdict(boxworld.puzzle_type(state))
        return TimeStep(
            step_type=kind,
            reward=reward,
            discount=1.0 - state.terminated.astype(jnp.float32),
            observation=boxworld.observe(state, config),
            extras={"solved": state.terminated & (reward > 0), **puzzle},
        )


def gymnasium_env(config: BoxWorldConfig = boxworld.BRIDGE, **options: Any) -> "BoxWorldEnv":
    """A `gymnasium.Env`; options as `gymnasium_adapters.BoxWorldEnv`.

    Raises:
        ImportError: gymnasium is not installed.
    """
    from simplicial import gymnasium_adapters  # here: everything else works without gymnasium

    return gymnasium_adapters.BoxWorldEnv(config, **options)


def gymnasium_vector_env(
    num_envs: int, config: BoxWorldConfig = boxworld.BRIDGE, **options: Any
) -> "BoxWorldVectorEnv":
    """A `gymnasium.vector.VectorEnv`; options as `gymnasium_adapters.BoxWorldVectorEnv`.

    Raises:
        ImportError: gymnasium is not installed.
    """
    from simplicial import gymnasium_adapters

    return gymnasium_adapters.BoxWorldVectorEnv(num_envs, config, **options)
