"""BoxWorld as a Gymnasium environment, single or in batches. Importing this module requires gymnasium.

    env = gymnasium_adapters.BoxWorldEnv(boxworld.BRIDGE, render_mode="rgb_array")
    envs = gymnasium_adapters.BoxWorldVectorEnv(4096, boxworld.BRIDGE)         # one compiled program for all

`register()` registers both with `gymnasium.make` and `gymnasium.make_vec` as "simplicial/BoxWorld-v0" and
"simplicial/BridgeBoxWorld-v0". A seed gives the same first board to a single environment and
to the first one of a batch.

Axis letters: B environments, R rows, W = C + 1 columns of the picture.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float64, Integer, UInt8

import logic_zoo
from simplicial import boxworld, rendering
from simplicial.boxworld.config import known_leaves

with logic_zoo.extra("gymnasium"):
    import gymnasium
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import batch_space

# Gymnasium annotates `Env.spec` with a name that it imports for type checkers only; `typing.get_type_hints`
# of our classes looks it up in these modules.
for _module in (gymnasium.core, gymnasium.vector.vector_env):
    if not hasattr(_module, "EnvSpec"):
        setattr(_module, "EnvSpec", gymnasium.envs.registration.EnvSpec)  # noqa: B010 -- not a known attribute

Infos = dict[str, Any]
Flags = Bool[np.ndarray, "B"]

RenderMode = Literal["rgb_array", "ansi"]
METADATA = {"render_modes": list(get_args(RenderMode)), "render_fps": rendering.FRAMES_PER_SECOND}


def _observation_space(config: boxworld.BoxWorldConfig) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(0, 255, (config.rows, config.cols + 1, 3), np.uint8)


def _check_render_mode(render_mode: str | None) -> None:
    if render_mode is not None and render_mode not in get_args(RenderMode):
        raise ValueError(f"render_mode: got {render_mode!r}, expected None or one of {get_args(RenderMode)}")


def _picture(
    pixels: UInt8[np.ndarray, "R W 3"], render_mode: str, scale: int
) -> str | UInt8[np.ndarray, "Y X 3"]:
    if render_mode == "ansi":
        return rendering.to_text(pixels)
    return np.asarray(rendering.enlarge(pixels, scale))


class BoxWorldEnv(gymnasium.Env[np.ndarray, int]):
    """One environment. Each step is a call of a compiled function, so batches cost far less per step."""

    metadata = METADATA

    def __init__(
        self,
        config: boxworld.BoxWorldConfig = boxworld.BRIDGE,
        render_mode: RenderMode | None = None,
        scale: int = rendering.SCALE,
    ):
        """Creates an environment; call `reset` to start an episode.

        `render_mode` is None, "rgb_array" for pictures with `scale` pixels per tile, or "ansi" for text.

        Raises:
            ValueError: the config is invalid, or the render mode is unknown.
        """
        _check_render_mode(render_mode)
        self.config, self.render_mode, self.scale = config, render_mode, scale
        self.action_space: gymnasium.spaces.Space = gymnasium.spaces.Discrete(boxworld.NUM_ACTIONS)
        self.observation_space = _observation_space(config)
        self._state: boxworld.State | None = None
        self._key: jax.Array | None = None
        self._observe, self._reset, self._step = _single(_settings(config))
        jax.eval_shape(self._reset, jax.random.key(0))  # raises now if the config is invalid

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8[np.ndarray, "R W 3"], Infos]:
        """Starts a new episode. Returns its picture, and the puzzle's type under the names of `PuzzleType`.

        The seed determines this episode and the following ones. `options` is None, or {"board": (grid,
        palette, distractor_locks)} for a given puzzle, see `boxworld.from_board`.

        Raises:
            ValueError: `options` has other keys, or the board is invalid.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._key = jax.random.key(seed % 2**32)
        elif self._key is None:
            self._key = jax.random.key(int(self.np_random.integers(2**32)))
        unknown = set(options or ()) - {"board"}
        if unknown:
            raise ValueError(f"options: got {sorted(unknown)}, expected 'board' only")
        if options:
            grid, palette, distractor_locks = options["board"]
            self._state = boxworld.from_board(grid, palette, distractor_locks, self.config)
        else:
            self._key, now = jax.random.split(self._key)
            self._state = self._reset(now)
        puzzle = vars(boxworld.puzzle_type(self._state))
        return np.asarray(self._observe(self._state)), {name: int(value) for name, value in puzzle.items()}

    def step(self, action: int | np.integer) -> tuple[UInt8[np.ndarray, "R W 3"], float, bool, bool, Infos]:
        """Makes one move.

        Returns:
            Picture, reward, terminated, truncated, and {"solved": whether the move reached the Gem}.

        Raises:
            ValueError: `action` is not one of the four.
            gymnasium.error.ResetNeeded: `reset` was never called.
        """
        if self._state is None:
            raise gymnasium.error.ResetNeeded("step was called before reset")
        if not self.action_space.contains(action):
            raise ValueError(f"action: got {action!r}, expected 0, 1, 2 or 3 (left, up, right, down)")
        self._state, outcome, observation = self._step(self._state, np.int32(action))
        reward, terminated = float(outcome.reward), bool(outcome.terminated)
        info = {"solved": terminated and reward > 0}
        return np.asarray(observation), reward, terminated, bool(outcome.truncated), info

    def render(self) -> str | UInt8[np.ndarray, "Y X 3"] | None:
        """Renders the state according to `render_mode`; returns None without a mode.

        Raises:
            gymnasium.error.ResetNeeded: `reset` was never called.
        """
        if self.render_mode is None:
            return None
        if self._state is None:
            raise gymnasium.error.ResetNeeded("render was called before reset")
        return _picture(np.asarray(self._observe(self._state)), self.render_mode, self.scale)


def _settings(config: boxworld.BoxWorldConfig) -> tuple[tuple[str, Any], ...]:
    """Returns the config as plain numbers: environments with equal configs then share compiled functions."""
    settings = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    for name, value in known_leaves(config).items():
        if value is None:
            raise ValueError(f"config: got a batch for {name}, {settings[name]}, expected a single config")
        settings[name] = int(value) if value == int(value) else value
    return tuple(settings.items())


@functools.lru_cache(maxsize=16)
def _single(settings: tuple[tuple[str, Any], ...]):
    config = boxworld.BoxWorldConfig(**dict(settings))

    def step(state, action):
        state, outcome = boxworld.step(state, action, config)
        return state, outcome, boxworld.observe(state, config)

    observe = jax.jit(lambda state: boxworld.observe(state, config))
    return observe, jax.jit(lambda key: boxworld.reset(key, config)), jax.jit(step)


class BoxWorldVectorEnv(gymnasium.vector.VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """B environments as one compiled program; new boards come from a pool (`boxworld.step_or_restart`)."""

    metadata = METADATA | {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int,
        config: boxworld.BoxWorldConfig = boxworld.BRIDGE,
        render_mode: RenderMode | None = None,
        scale: int = rendering.SCALE,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ):
        """Creates B environments; call `reset` to start episodes. Other arguments are as in `BoxWorldEnv`.

        With `autoreset_mode` NEXT_STEP, a new episode begins in the step after the end (whose action is
        ignored); with SAME_STEP, in the step of the end, and `infos["final_obs"]` has the last picture.

        Raises:
            ValueError: `num_envs` is not positive, the config is invalid, or a mode is unknown.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs: got {num_envs}, expected at least 1")
        _check_render_mode(render_mode)
        mode = AutoresetMode(autoreset_mode)
        if mode == AutoresetMode.DISABLED:
            raise ValueError("autoreset_mode: got DISABLED, expected NEXT_STEP or SAME_STEP")
        self.num_envs, self.config, self.render_mode, self.scale = num_envs, config, render_mode, scale
        self.metadata = {**type(self).metadata, "autoreset_mode": mode}
        self.single_action_space = gymnasium.spaces.Discrete(boxworld.NUM_ACTIONS)
        self.single_observation_space = _observation_space(config)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._carry: tuple[Any, ...] | None = None
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._observe, self._reset, self._step = _batched(_settings(config), num_envs, self._same_step)
        jax.eval_shape(self._reset, np.zeros(num_envs, np.uint32))

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[UInt8[np.ndarray, "B R W 3"], Infos]:
        """Starts new episodes in all environments. Returns pictures, and the puzzles' types.

        `seed` is one number per environment, or a single number: environment i is then seeded with `seed +
        i`.

        Raises:
            ValueError: `options` is not empty, or `seed` does not have one number per environment.
        """
        if options:
            raise ValueError(f"options: got {sorted(options)}, expected none")
        one_each = isinstance(seed, Sequence)
        if not one_each:
            super().reset(seed=seed)
            first = int(self.np_random.integers(2**32)) if seed is None else seed
            seed = range(first, first + self.num_envs)
        if len(seed) != self.num_envs:
            raise ValueError(f"seed: got {len(seed)} numbers, expected {self.num_envs}, one per environment")
        words = [s % 2**32 for s in seed]
        if one_each:
            self.np_random = np.random.default_rng(words)  # of a later reset without a seed
        self._carry, observations, puzzles = self._reset(np.asarray(words, np.uint32))
        return np.array(observations), self._puzzle_infos(puzzles, np.ones(self.num_envs, bool))

    def step(
        self, actions: Integer[ArrayLike, "B"]
    ) -> tuple[UInt8[np.ndarray, "B R W 3"], Float64[np.ndarray, "B"], Flags, Flags, Infos]:
        """Makes one move in each environment.

        Returns:
            Pictures, rewards, terminated, truncated, and infos: which episodes the moves solved, the types of
            the puzzles of new episodes, and in mode SAME_STEP the last pictures of the old ones.

        Raises:
            ValueError: `actions` does not have one of the four actions for each environment.
            gymnasium.error.ResetNeeded: `reset` was never called.
        """
        if self._carry is None:
            raise gymnasium.error.ResetNeeded("step was called before reset")
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,):
            raise ValueError(f"actions: got shape {actions.shape}, expected ({self.num_envs},)")
        if not np.issubdtype(actions.dtype, np.integer) or ((actions < 0) | (actions > 3)).any():
            raise ValueError(f"actions: got {actions}, expected 0, 1, 2 or 3 (left, up, right, down)")
        self._carry, results = self._step(self._carry, actions.astype(np.int32))
        observations, rewards, terminated, truncated, started, puzzles, last = jax.device_get(results)
        ended = terminated | truncated
        infos = {"solved": terminated & (rewards > 0), "_solved": np.ones(self.num_envs, bool)}
        if started.any():
            infos |= self._puzzle_infos(puzzles, started)
        if self._same_step and ended.any():
            final = np.full(self.num_envs, None)
            for i in np.nonzero(ended)[0]:
                final[i] = last[i]
            old = {"solved": infos["solved"] & ended, "_solved": ended}
            infos |= {"final_obs": final, "_final_obs": ended, "final_info": old, "_final_info": ended}
            infos |= {"solved": np.zeros(self.num_envs, bool), "_solved": ~ended}
        return np.array(observations), rewards.astype(np.float64), terminated.copy(), truncated.copy(), infos

    def render(self) -> tuple[Any, ...] | None:
        """Renders each environment's state according to `render_mode`; returns None without a mode.

        Raises:
            gymnasium.error.ResetNeeded: `reset` was never called.
        """
        if self.render_mode is None:
            return None
        if self._carry is None:
            raise gymnasium.error.ResetNeeded("render was called before reset")
        pictures = np.asarray(self._observe(self._carry[0]))
        return tuple(_picture(pixels, self.render_mode, self.scale) for pixels in pictures)

    @staticmethod
    def _puzzle_infos(puzzles: boxworld.PuzzleType, which: Flags) -> Infos:
        infos = {}
        for name, values in vars(puzzles).items():
            infos |= {name: np.where(which, values, 0), f"_{name}": which.copy()}
        return infos


@functools.lru_cache(maxsize=16)
def _batched(settings: tuple[tuple[str, Any], ...], num_envs: int, same_step: bool):
    config = boxworld.BoxWorldConfig(**dict(settings))
    renewed = math.ceil(num_envs / 16)  # more than the average number of episodes that end in a step
    observe = jax.vmap(lambda state: boxworld.observe(state, config))

    def reset(seeds):
        """Starts episodes; environment i gets the board that `BoxWorldEnv.reset(seed=seeds[i])` draws."""
        keys, now = jnp.moveaxis(jax.vmap(lambda seed: jax.random.split(jax.random.key(seed)))(seeds), 1, 0)
        states = jax.vmap(lambda key: boxworld.reset(key, config))(now)
        for_pool, key = jax.random.split(keys[0])
        carry = states, jnp.zeros(num_envs, bool), boxworld.pool(for_pool, num_envs, config), key
        return carry, observe(states), boxworld.puzzle_type(states)

    def step(carry, actions):
        states, ended_before, boards, key = carry
        key, for_pool = jax.random.split(key)
        last, outcome = jax.vmap(lambda state, action: boxworld.step(state, action, config))(states, actions)
        terminated, truncated = outcome.terminated, outcome.truncated
        if not same_step:  # episodes that had already finished still have their flags set
            terminated, truncated = terminated & ~ended_before, truncated & ~ended_before
        ended = terminated | truncated
        started = ended if same_step else ended_before
        states, boards = boxworld.restart(last, started, boards)
        boards = boxworld.renew(boards, for_pool, renewed, config)
        ends = outcome.reward, terminated, truncated, started
        final = observe(last) if same_step else None
        return (states, ended, boards, key), (observe(states), *ends, boxworld.puzzle_type(states), final)

    return jax.jit(observe), jax.jit(reset), jax.jit(step)


def register() -> None:
    """Registers "simplicial/BoxWorld-v0" and "simplicial/BridgeBoxWorld-v0" with `gymnasium.make`."""
    for name, config in (("BoxWorld", boxworld.STANDARD), ("BridgeBoxWorld", boxworld.BRIDGE)):
        gymnasium.register(
            id=f"simplicial/{name}-v0",
            entry_point=f"{__name__}:BoxWorldEnv",
            vector_entry_point=f"{__name__}:BoxWorldVectorEnv",
            kwargs={"config": config},
        )
