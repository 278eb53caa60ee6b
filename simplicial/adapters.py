"""BoxWorld with the interfaces of other JAX libraries, by duck typing: none of them is imported.

    env = adapters.GymnaxBoxWorld(boxworld.BRIDGE)       # gymnax 1.0: steps return six values and restart
    env = adapters.TimeStepBoxWorld(boxworld.BRIDGE)     # stoa: (state, TimeStep), one episode
    env = adapters.TimeStepBoxWorld(boxworld.BRIDGE, tell_truncation=False)  # dm_env's and jumanji's steps
    env = adapters.gymnasium_env(boxworld.BRIDGE)        # Gymnasium: see gymnasium_adapters.py

The objects hold only a config, are hashable, and have pure methods, so they can be static arguments of
`jax.jit`.

Axis letters: R rows, W = C + 1 columns of the picture.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray, Shaped, UInt8

from simplicial import boxworld
from simplicial.boxworld import BoxWorldConfig, State

if TYPE_CHECKING:
    from simplicial.gymnasium_adapters import BoxWorldEnv, BoxWorldVectorEnv
else:  # gymnasium is optional and imported only when used
    BoxWorldEnv = BoxWorldVectorEnv = Any

Action, Flag = Int[ArrayLike, ""], Bool[Array, ""]
Observation = UInt8[Array, "R W 3"]


@dataclasses.dataclass(frozen=True)
class Discrete:
    """Space of the integers from 0 to n - 1."""

    n: int
    shape: tuple[int, ...] = ()
    dtype: Any = jnp.int32

    def sample(self, key: PRNGKeyArray) -> Int[Array, "..."]:
        """Draws a uniformly random element."""
        return jax.random.randint(key, self.shape, 0, self.n, self.dtype)

    def contains(self, value: ArrayLike) -> Flag:
        """Returns whether all entries of `value` are integers in range, whatever their dtype."""
        value = jnp.asarray(value)
        return jnp.all((value >= 0) & (value < self.n) & (value == jnp.floor(value)))


@dataclasses.dataclass(frozen=True)
class Box:
    """Space of arrays of one shape with bounded entries; both bounds are included."""

    low: int
    high: int
    shape: tuple[int, ...]
    dtype: Any = jnp.uint8

    def sample(self, key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """Draws a uniformly random element."""
        return jax.random.randint(key, self.shape, self.low, self.high + 1).astype(self.dtype)

    def contains(self, value: ArrayLike) -> Flag:
        """Returns whether `value` has the space's shape and its entries are within bounds."""
        value = jnp.asarray(value)
        return jnp.all((value >= self.low) & (value <= self.high)) & (value.shape == self.shape)


@dataclasses.dataclass(frozen=True)
class _Described:
    """Properties that every interface provides."""

    config: BoxWorldConfig = boxworld.BRIDGE

    @property
    def name(self) -> str:
        """Name of the environment, for plots."""
        return "BridgeBoxWorld" if self.config.gem_locks == 2 else "BoxWorld"

    @property
    def num_actions(self) -> int:
        """4: left, up, right and down."""
        return boxworld.NUM_ACTIONS

    def action_space(self, params: BoxWorldConfig | None = None) -> Discrete:
        """Returns the space of the four actions, whatever the parameters."""
        del params
        return Discrete(boxworld.NUM_ACTIONS)

    def observation_space(self, params: BoxWorldConfig | None = None) -> Box:
        """Returns the space of pictures of board and inventory, uint8 [R, W, 3]."""
        config = self._settings(params)
        return Box(0, 255, (config.rows, config.cols + 1, 3))

    def _settings(self, params: BoxWorldConfig | None) -> BoxWorldConfig:
        return self.config if params is None else params


@dataclasses.dataclass(frozen=True)
class GymnaxBoxWorld(_Described):
    """BoxWorld with the interface of gymnax 1.0; parameters are a `BoxWorldConfig`.

    Like gymnax, `step` draws a new board every time. Under `vmap` this takes nine tenths of its time; use
    `boxworld.step_or_restart` for training.
    """

    @property
    def default_params(self) -> BoxWorldConfig:
        """Config with which the environment was constructed."""
        return self.config

    def reset(self, key: PRNGKeyArray, params: BoxWorldConfig | None = None) -> tuple[Observation, State]:
        """Starts a new episode. Returns (observation, state)."""
        return self.reset_env(key, self._settings(params))

    def reset_env(self, key: PRNGKeyArray, params: BoxWorldConfig) -> tuple[Observation, State]:
        """Starts a new episode with required parameters. Returns (observation, state)."""
        state = boxworld.reset(key, params)
        return boxworld.observe(state, params), state

    def step(
        self, key: PRNGKeyArray, state: State, action: Action, params: BoxWorldConfig | None = None
    ) -> tuple[Observation, State, Float[Array, ""], Flag, Flag, dict[str, Any]]:
        """Makes one move and starts a new episode if that ended one.

        Returns:
            Observation and state for the next step; reward, terminated and truncated of the move; and info,
            whose `final_observation` is the picture after the move, before a restart.
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
        """Makes one move without restarting. Returns observation, state, reward, terminated and info."""
        del key  # the rules are deterministic
        state, outcome = boxworld.step(state, action, params)
        info = {"solved": outcome.terminated & (outcome.reward > 0)}
        return boxworld.observe(state, params), state, outcome.reward, outcome.terminated, info

    def is_truncated(self, state: State, params: BoxWorldConfig | None = None) -> Flag:
        """Returns whether the horizon has ended the episode."""
        del params
        return state.truncated


FIRST, MID, TERMINATED, TRUNCATED = range(4)
"""Types of a `TimeStep`; dm_env and jumanji have a single type for both ends, LAST = 2."""


@struct.dataclass
class TimeStep:
    """Time step in the sense of dm_env, jumanji and stoa.

    Attributes:
        step_type: `FIRST`, `MID`, `TERMINATED` or `TRUNCATED` (with dm_env's types, 2 for both ends).
        reward: reward of the move that led here; 0 at the start.
        discount: 0 where the episode terminated, 1 elsewhere, including where it was truncated.
        observation: the picture.
        extras: `solved` and the puzzle's type.
    """

    step_type: Int8[Array, "*batch"]
    reward: Float[Array, "*batch"]
    discount: Float[Array, "*batch"]
    observation: UInt8[Array, "*batch R W 3"]
    extras: dict[str, Any]

    def first(self) -> Bool[Array, "*batch"]:
        """Returns whether the episode begins here."""
        return self.step_type == FIRST

    def mid(self) -> Bool[Array, "*batch"]:
        """Returns whether the episode neither begins nor ends here."""
        return self.step_type == MID

    def last(self) -> Bool[Array, "*batch"]:
        """Returns whether the episode ends here, terminated or truncated."""
        return self.step_type >= TERMINATED

    done = last

    def terminated(self) -> Bool[Array, "*batch"]:
        """Returns whether the episode ends here with the Gem or in a trap."""
        return self.last() & (self.discount == 0)

    def truncated(self) -> Bool[Array, "*batch"]:
        """Returns whether the horizon ends the episode here."""
        return self.last() & (self.discount > 0)


@dataclasses.dataclass(frozen=True)
class TimeStepBoxWorld(_Described):
    """BoxWorld with the interface of stoa, where truncation has its own step type; never restarts.

    With `tell_truncation=False` both ends have the same type, as in jumanji and dm_env.
    """

    tell_truncation: bool = True

    def reset(
        self, rng_key: PRNGKeyArray, env_params: BoxWorldConfig | None = None
    ) -> tuple[State, TimeStep]:
        """Starts a new episode. Returns the state and its first time step."""
        config = self._settings(env_params)
        state = boxworld.reset(rng_key, config)
        return state, self._time_step(state, jnp.int8(FIRST), jnp.float32(0), config)

    def step(
        self, state: State, action: Action, env_params: BoxWorldConfig | None = None
    ) -> tuple[State, TimeStep]:
        """Makes one move; a finished episode stays as it is."""
        config = self._settings(env_params)
        state, outcome = boxworld.step(state, action, config)
        cut = jnp.int8(TRUNCATED if self.tell_truncation else TERMINATED)
        kind = jnp.where(outcome.truncated, cut, MID)
        kind = jnp.where(outcome.terminated, TERMINATED, kind)
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


def gymnasium_env(config: BoxWorldConfig = boxworld.BRIDGE, **options: Any) -> BoxWorldEnv:
    """Returns a `gymnasium.Env`; options are those of `gymnasium_adapters.BoxWorldEnv`.

    Raises:
        ImportError: gymnasium is not installed.
    """
    from simplicial import gymnasium_adapters

    return gymnasium_adapters.BoxWorldEnv(config, **options)


def gymnasium_vector_env(
    num_envs: int, config: BoxWorldConfig = boxworld.BRIDGE, **options: Any
) -> BoxWorldVectorEnv:
    """Returns a `gymnasium.vector.VectorEnv`; options are those of `gymnasium_adapters.BoxWorldVectorEnv`.

    Raises:
        ImportError: gymnasium is not installed.
    """
    from simplicial import gymnasium_adapters

    return gymnasium_adapters.BoxWorldVectorEnv(num_envs, config, **options)
