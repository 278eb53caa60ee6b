"""BoxWorld under other interfaces: Gymnasium's checks, and the same episodes as without an adapter."""

import importlib
import sys

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import simplicial
from simplicial import adapters, boxworld, gymnasium_adapters

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SHORT = boxworld.BRIDGE.replace(max_length=1, horizon=25)
RESET = jax.jit(lambda key: boxworld.reset(key, boxworld.BRIDGE))
STEP = jax.jit(boxworld.step)
OBSERVE = jax.jit(lambda state: boxworld.observe(state, boxworld.BRIDGE))


def solution(state):
    """Returns the actions of a shortest solution of a solvable episode."""
    actions = boxworld.solve(jax.device_get(state))
    assert actions is not None
    return actions


@pytest.fixture(scope="module", autouse=True)
def _registered():
    gymnasium_adapters.register()
    yield
    for name in ("BoxWorld", "BridgeBoxWorld"):
        del gymnasium.registry[f"simplicial/{name}-v0"]


@pytest.mark.parametrize("render_mode", [None, "rgb_array", "ansi"])
def test_gymnasium_finds_nothing_wrong(render_mode):
    """Gymnasium's own checker passes with warnings as errors."""
    env = gymnasium.make("simplicial/BridgeBoxWorld-v0", render_mode=render_mode)
    check_env(env.unwrapped)
    env.close()


def test_an_env_is_the_environment():
    """A shortest solution gives the same pictures, rewards and end through the adapter."""
    env = adapters.gymnasium_env(boxworld.BRIDGE)
    for seed in range(2):
        observation, info = env.reset(seed=seed)
        state = RESET(jax.random.split(jax.random.key(seed))[1])
        assert list(info.values()) == np.asarray(state.puzzle).tolist()
        results = []
        for action in solution(state):
            np.testing.assert_array_equal(observation, OBSERVE(state))
            assert env.observation_space.contains(observation)
            observation, *results = env.step(action)
            state, outcome = STEP(state, action, boxworld.BRIDGE)
            assert results[:3] == [float(leaf) for leaf in jax.tree.leaves(outcome)]
        assert results == [10, True, False, {"solved": True}]
        assert env.step(0)[1:] == (0, True, False, {"solved": False}), "it is not solved again"


def test_an_env_is_a_function_of_its_seed():
    """Later episodes also depend on the seed; without a seed they differ."""
    first, second = (gymnasium_adapters.BoxWorldEnv(SHORT) for _ in range(2))
    pictures = [
        [env.reset(seed=seed)[0] for seed in (start, None, None)]
        for env, start in ((first, 7), (second, 2**64 + 7))  # of which the low 32 bits count
    ]
    np.testing.assert_array_equal(pictures[0], pictures[1])
    assert not np.array_equal(pictures[0][0], pictures[0][1])
    assert not np.array_equal(first.reset()[0], gymnasium_adapters.BoxWorldEnv(SHORT).reset()[0])


def test_later_boards_depend_on_the_seeds_of_a_vector_env():
    """A list of seeds too; seeds that are too few change nothing."""

    def later(*seeds):
        envs = gymnasium_adapters.BoxWorldVectorEnv(6, SHORT)
        envs.reset(seed=list(seeds))
        with pytest.raises(ValueError, match="seed: got 1 numbers"):
            envs.reset(seed=[1])
        return envs.reset()[0]

    np.testing.assert_array_equal(later(0, 1, 2, 3, 4, 5), later(2**32, 1, 2, 3, 4, 5))
    assert not np.array_equal(later(0, 1, 2, 3, 4, 5), later(0, 1, 2, 3, 4, 6))


def test_boards_of_a_vector_env_are_renewed():
    """In episodes of one step, the pool of boards would repeat after as many episodes."""
    envs = gymnasium_adapters.BoxWorldVectorEnv(6, SHORT.replace(horizon=1), autoreset_mode="SameStep")
    pictures = [envs.reset(seed=0)[0][0]] + [envs.step(np.ones(6, int))[0][0] for _ in range(10)]
    assert len({picture.tobytes() for picture in pictures}) == 11


def test_an_env_plays_a_board_made_by_hand(monkeypatch):
    """Boards are passed through reset's options; other options are rejected."""
    plain = boxworld.from_board  # of known values, but as one program instead of sixty
    monkeypatch.setattr(boxworld, "from_board", lambda *given: jax.jit(lambda: plain(*given))())
    env = gymnasium_adapters.BoxWorldEnv(boxworld.BRIDGE)
    state = jax.device_get(RESET(jax.random.key(4)))
    picture, _ = env.reset(options={"board": (state.grid, state.palette, state.traps)})
    np.testing.assert_array_equal(picture, OBSERVE(state))
    with pytest.raises(ValueError, match="no Gem"):
        env.reset(options={"board": (np.full((7, 9), -1), state.palette, state.traps)})
    with pytest.raises(ValueError, match=r"options: got \['puzzle'\]"):
        env.reset(options={"puzzle": 1})


@pytest.mark.parametrize("action", [-1, 4, 1.0, None, "up", np.asarray([1])])
def test_actions_that_are_none_are_errors_in_gymnasium(action):
    """Unlike in `boxworld.step`, where they do nothing."""
    env = gymnasium_adapters.BoxWorldEnv(SHORT)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action: got .*, expected 0, 1, 2 or 3"):
        env.step(action)


def test_misuse_of_the_envs_raises():
    """Calls before reset, and invalid modes, seeds, shapes and settings."""
    env, envs = gymnasium_adapters.BoxWorldEnv(SHORT), adapters.gymnasium_vector_env(6, SHORT)
    for call in (lambda: env.step(0), lambda: envs.step(np.zeros(6, int))):
        with pytest.raises(gymnasium.error.ResetNeeded):
            call()
    for make in (
        gymnasium_adapters.BoxWorldEnv,
        lambda *a, **k: gymnasium_adapters.BoxWorldVectorEnv(3, *a, **k),
    ):
        with pytest.raises(ValueError, match="render_mode: got 'human'"):
            make(SHORT, render_mode="human")  # pyrefly: ignore
        with pytest.raises(ValueError, match="max_length"):
            make(SHORT.replace(max_length=9))
        with pytest.raises(ValueError, match="got a batch for horizon"):
            make(SHORT.replace(horizon=np.arange(3)))
        with pytest.raises(gymnasium.error.ResetNeeded):
            make(SHORT, render_mode="ansi").render()
    with pytest.raises(ValueError, match=r"num_envs: got .*, expected at least 1"):
        gymnasium_adapters.BoxWorldVectorEnv(0, SHORT)
    assert gymnasium_adapters.BoxWorldVectorEnv(1, SHORT).num_envs == 1
    with pytest.raises(ValueError, match="got DISABLED"):
        gymnasium_adapters.BoxWorldVectorEnv(3, SHORT, autoreset_mode="Disabled")
    with pytest.raises(ValueError, match="expected 6, one per environment"):
        envs.reset(seed=[1, 2])
    with pytest.raises(ValueError, match=r"options: got .*, expected none"):
        envs.reset(options={"board": 1})
    envs.reset(seed=0)
    for actions in ([0, 1], [0] * 5 + [4], [-1] + [0] * 5, [0.0] * 6):
        with pytest.raises(ValueError, match="actions: got"):
            envs.step(np.asarray(actions))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_env_is_many_envs(mode):
    """Compared with Gymnasium's loop over single environments up to each first end, infos included.

    One episode is solved, so that it ends before the others.
    """
    config, count = SHORT, 6
    ours = gymnasium_adapters.BoxWorldVectorEnv(count, config, autoreset_mode=mode)
    theirs = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium_adapters.BoxWorldEnv(config)] * count, autoreset_mode=mode
    )
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(ours, name) == getattr(theirs, name)
    (a, infos), (b, others) = ours.reset(seed=5), theirs.reset(seed=5)
    np.testing.assert_array_equal(a, b)
    assert infos.keys() == others.keys()
    ours.action_space.seed(0)
    first_env = gymnasium_adapters.BoxWorldEnv(config)
    first_env.reset(seed=5)
    best = solution(first_env._state)
    going, before, ends = np.ones(count, bool), np.zeros(count, bool), 0
    for t in range(60):
        actions = ours.action_space.sample()
        actions[0] = best[t] if t < len(best) else actions[0]
        a, rewards, terminated, truncated, infos = ours.step(actions)
        b, *results, others = theirs.step(actions)
        ended = terminated | truncated
        starts = ended if mode == AutoresetMode.SAME_STEP else before
        before = ended
        assert ("solution_length" in infos) == starts.any()
        if starts.any():
            np.testing.assert_array_equal(infos["_solution_length"], starts)
            np.testing.assert_array_equal(infos["solution_length"], starts, "all are of length 1")
        for mine, its in zip((rewards, terminated, truncated), results, strict=True):
            assert (mine.dtype, mine.shape) == (its.dtype, its.shape)
            np.testing.assert_array_equal(mine[going], its[going])
        shown = going & ~ended if mode == AutoresetMode.SAME_STEP else going
        np.testing.assert_array_equal(a[shown], b[shown])
        assert a.dtype == b.dtype
        for name in ("solved", "_solved") if shown.any() else ():
            np.testing.assert_array_equal(infos[name][shown], others[name][shown])
        first = going & ended
        if mode == AutoresetMode.SAME_STEP and first.any():
            assert {"final_obs", "final_info"} <= infos.keys()
            for i in np.nonzero(first)[0]:
                np.testing.assert_array_equal(infos["final_obs"][i], others["final_obs"][i])
                assert infos["final_info"]["solved"][i] == others["final_info"]["solved"][i]
        ends += first.sum()
        going &= ~ended
    assert ends == count
    assert len(best) < 25, "the horizon"


def test_the_modes_differ_by_the_step_between_episodes():
    """NEXT_STEP shows the end, then a start with reward 0 whatever the action; SAME_STEP only the start."""
    for mode, ends in ((AutoresetMode.NEXT_STEP, [25, 51]), (AutoresetMode.SAME_STEP, [25, 50])):
        envs = gymnasium_adapters.BoxWorldVectorEnv(6, SHORT, autoreset_mode=mode)
        envs.reset(seed=0)
        cuts, starts = [], []
        for t in range(1, 55):
            observation, rewards, _, truncated, infos = envs.step(np.ones(6, int))  # up: against the wall
            assert not rewards.any()
            assert truncated.all() == truncated.any()
            cuts += [t] * bool(truncated.all())
            starts += [t] * bool("solution_length" in infos)
            np.testing.assert_array_equal(observation[:, 0, 0], 127)
        assert cuts == ends
        assert starts == [t + (mode == AutoresetMode.NEXT_STEP) for t in ends]


def test_make_vec_and_render():
    """Environments are made by name and render a picture each."""
    assert gymnasium.spec("simplicial/BoxWorld-v0").kwargs == {"config": boxworld.STANDARD}
    envs = gymnasium.make_vec(
        "simplicial/BridgeBoxWorld-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        render_mode="rgb_array",
    )
    assert isinstance(envs, gymnasium_adapters.BoxWorldVectorEnv)
    assert envs.metadata["render_fps"] == 30, "as the authors' clips"
    observations, _ = envs.reset(seed=[3, 2**32 + 4])
    frames = envs.render() or ()
    assert len(frames) == 2
    np.testing.assert_array_equal(np.asarray(frames[1])[::10, ::10], observations[1])
    single = gymnasium_adapters.BoxWorldEnv(boxworld.BRIDGE, render_mode="ansi")
    np.testing.assert_array_equal(single.reset(seed=4)[0], observations[1])
    text = single.render()
    assert isinstance(text, str)
    assert text.count("\n") == 7
    envs.close()


def test_gymnax_style():
    """Steps return six values; a restart keeps the last picture; parameters are passed per call."""
    env = adapters.GymnaxBoxWorld(boxworld.BRIDGE)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    observation, state = reset(jax.random.key(0), env.default_params)
    assert env.observation_space().contains(observation)
    assert env.observation_space(boxworld.STANDARD).shape == (9, 10, 3)
    plain = RESET(jax.random.key(0))
    chex.assert_trees_all_equal(state, plain)
    actions, info, key = solution(plain), {}, jax.random.key(0)
    for t, action in enumerate(actions):
        key = jax.random.key(t)
        observation, state, *results, info = step(key, state, action, env.default_params)
        plain, outcome = STEP(plain, action, boxworld.BRIDGE)
        assert results == [outcome.reward, outcome.terminated, outcome.truncated]
        assert results[1] == (t == len(actions) - 1)
        np.testing.assert_array_equal(info["final_observation"], OBSERVE(plain))
        if not results[1]:
            chex.assert_trees_all_equal(state, plain)
    assert info["solved"]
    fresh = RESET(jax.random.split(key)[1])
    chex.assert_trees_all_equal(state, fresh)
    np.testing.assert_array_equal(observation, OBSERVE(fresh))
    truncated = step(jax.random.key(0), state, 1, boxworld.BRIDGE.replace(horizon=1))[4]
    assert truncated
    assert adapters.GymnaxBoxWorld(boxworld.STANDARD).name == "BoxWorld"
    assert (env.name, env.num_actions, hash(env) == hash(adapters.GymnaxBoxWorld(boxworld.BRIDGE))) == (
        "BridgeBoxWorld",
        4,
        True,
    )


FIRST_STEP = jax.jit(adapters.TimeStepBoxWorld(boxworld.BRIDGE).reset)


@pytest.mark.parametrize("tell_truncation", [True, False])
def test_time_steps(tell_truncation):
    """First, mid and both ends; the discount is 0 only for a terminated episode."""
    env = adapters.TimeStepBoxWorld(boxworld.BRIDGE, tell_truncation=tell_truncation)
    step = jax.jit(env.step)
    state, begin = FIRST_STEP(jax.random.key(1))
    best = solution(state)
    assert begin.first()
    assert (begin.reward.dtype, begin.step_type.dtype) == (jnp.float32, jnp.int8)
    assert (env == adapters.TimeStepBoxWorld()) == tell_truncation
    assert (begin.step_type, begin.reward, begin.discount) == (0, 0, 1)
    assert begin.extras["solution_length"] == state.puzzle[0]
    for horizon, steps, kind in ((0, len(best), 2), (5, 5, 3 if tell_truncation else 2)):
        now, time_step, config = state, begin, boxworld.BRIDGE.replace(horizon=horizon)
        for t, action in enumerate(best[:steps]):
            assert time_step.first() == (t == 0)
            assert time_step.mid() == (t > 0)
            assert not time_step.last()
            assert time_step.discount == 1
            now, time_step = step(now, action, config)
        assert now.time == steps
        assert time_step.step_type == kind
        assert time_step.last()
        assert time_step.done()
        assert time_step.terminated() == (horizon == 0)
        assert time_step.truncated() == (horizon == 5)
        assert time_step.discount == (0 if horizon == 0 else 1)
        assert time_step.extras["solved"] == (horizon == 0)
        assert time_step.step_type.dtype == jnp.int8
        np.testing.assert_array_equal(time_step.observation, OBSERVE(now))
        _, again = step(now, 0, config)
        assert (again.step_type, again.reward, again.discount) == (kind, 0, time_step.discount)
        assert not again.extras["solved"], "the Gem is reached once"


def test_spaces_sample_what_they_contain():
    """Spaces contain the four actions and pictures of bytes, and nothing else."""
    env = adapters.TimeStepBoxWorld(boxworld.STANDARD)
    actions, pictures = env.action_space(), env.observation_space()
    is_action, is_picture = jax.jit(actions.contains), jax.jit(pictures.contains)
    drawn = jax.jit(jax.vmap(actions.sample))(jax.random.split(jax.random.key(0), 100))
    assert set(np.asarray(drawn).tolist()) == {0, 1, 2, 3}
    assert is_action(drawn)
    for wrong in (-1.0, 4.0, 0.5):
        assert not is_action(wrong)
    assert not is_action(np.where(np.arange(100) == 50, 4, drawn)), "one is enough"
    picture = jax.jit(pictures.sample)(jax.random.key(0))
    chex.assert_shape(picture, (9, 10, 3))
    assert picture.dtype == jnp.uint8
    assert np.max(picture) > 250
    assert is_picture(picture)
    assert not is_picture(np.asarray(picture)[1:])
    for wrong in (-1, 256):
        spoilt = np.asarray(picture, int)
        spoilt[2, 3, 1] = wrong
        assert not is_picture(spoilt)
    bits = adapters.Box(0, 1, (100,))
    assert set(np.asarray(jax.jit(bits.sample)(jax.random.key(0))).tolist()) == {0, 1}
    assert jax.jit(bits.contains)(np.asarray([0, 1] * 50))


def test_gymnasium_is_imported_only_when_used(monkeypatch):
    """Everything else works without it, and the adapter explains what is missing."""
    monkeypatch.setitem(sys.modules, "gymnasium", None)  # as if it were not installed
    for name in ("adapters", "gymnasium_adapters"):
        monkeypatch.delitem(sys.modules, f"simplicial.{name}")
        monkeypatch.delattr(simplicial, name)
    again = importlib.import_module("simplicial.adapters")
    again.GymnaxBoxWorld(boxworld.BRIDGE)
    with pytest.raises(ImportError, match="pip install"):
        again.gymnasium_env()
