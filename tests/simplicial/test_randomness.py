"""Randomness: no two draws of a run share a key."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import struct

from simplicial import boxworld, rollout, win_rates
from simplicial.learner import Learner, program
from tests import keys
from tests.simplicial import corridor

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SEEDS, GROUPS, BATCH, STEPS, ITERATIONS = 2, 3, 4, 5, 3
ACTIONS = 1024  # four equal actions by chance: once in 10^12


@struct.dataclass
class Diary:
    """What B environments were given: the words of their keys and their actions; `time` counts steps."""

    words: jnp.ndarray
    actions: jnp.ndarray
    time: jnp.ndarray


def init(key, batch):
    words = jnp.zeros((batch, 1 + STEPS * ITERATIONS, 2), jnp.uint32)
    return Diary(
        words.at[:, 0].set(jax.random.key_data(key)),
        jnp.zeros((batch, STEPS * ITERATIONS), jnp.int32),
        jnp.zeros(batch, jnp.int32),
    )


def step(key, state, action):
    now, never = state.time[0], jnp.zeros(action.shape, bool)
    following = Diary(
        state.words.at[:, now + 1].set(jax.random.key_data(key)),
        state.actions.at[:, now].set(action),
        state.time + 1,
    )
    return following, rollout.Step(jnp.zeros(action.shape), never, never, never, state.time * 0)


def writing():
    """A learner whose environments write down what they are given."""
    return Learner(
        lambda params, seen: corridor.Output(
            jnp.zeros((*seen.shape, ACTIONS)) + params["bias"], jnp.zeros(seen.shape)
        ),
        rollout.Environment(init, lambda state: state.time, step),
        optax.sgd(0.0),
        environments=GROUPS * BATCH,
        steps=STEPS,
        updates=2,
        groups=GROUPS,
    )


@pytest.fixture(scope="module")
def states():
    """Returns the learner's states before and after the iterations, of all seeds."""
    learner = writing()
    keys = jax.random.split(jax.random.key(0), SEEDS)
    before = jax.jit(jax.vmap(lambda key: learner.init({"bias": jnp.zeros(())}, key)))(keys)
    run = program(learner, iterations=ITERATIONS, seeds=True)
    return before, run(jax.tree.map(jnp.copy, before))[0]


@pytest.fixture(scope="module")
def diary(states):
    """Diaries of three iterations of two seeds, as NumPy arrays [S, G, B, ...]."""
    return jax.device_get(states[1].actors.environment)


def test_no_key_is_given_twice(diary):
    """Not at another step or iteration, nor to another group or seed; the first starts the episodes."""
    words = diary.words[:, :, 0].reshape(-1, 2)
    assert len(words) == SEEDS * GROUPS * (1 + STEPS * ITERATIONS)
    assert len(np.unique(words, axis=0)) == len(words)


def test_the_key_that_a_group_keeps_is_not_the_one_it_acted_with(states, diary):
    """Acting from the start with the keys after the last iteration is another episode than all before."""
    learner, (before, after) = writing(), states

    def act(params, actors, key):
        return rollout.unroll(learner.policy, params, learner.environment, actors, key, STEPS)[0]

    run = jax.jit(jax.vmap(jax.vmap(act, in_axes=(None, 0, 0))))
    again = run(before.params, before.actors, after.keys).environment
    again = np.asarray(again.words)[:, :, 0, 1 : 1 + STEPS].reshape(-1, 2)
    words = np.concatenate([diary.words[:, :, 0].reshape(-1, 2), again])
    assert len(np.unique(words, axis=0)) == len(words)


def test_no_actions_are_drawn_twice(diary):
    """Not at another step or iteration, nor in another group or seed, nor with the key of the step."""
    actions = np.moveaxis(diary.actions, 2, -1).reshape(-1, BATCH)
    assert len(np.unique(actions, axis=0)) == len(actions) == SEEDS * GROUPS * STEPS * ITERATIONS
    assert (np.std(actions, axis=1) > 0).all(), "environments of a group draw different actions"
    keys = jax.random.wrap_key_data(jnp.asarray(diary.words[0, 0, 0, 1:]))
    draw = jax.jit(jax.vmap(lambda key: jax.random.categorical(key, jnp.zeros((BATCH, ACTIONS)))))
    again = draw(keys)
    assert (np.asarray(again) != diary.actions[0, 0].T).any(axis=1).all()


def test_boards_of_a_pool_are_others_than_those_being_played():
    """Every palette occurs once among the first episodes, the pool, and what a step renews."""
    config = boxworld.BoxWorldConfig(rows=5, cols=6, gem_locks=1, traps=0, horizon=1)
    environment = rollout.of_boxworld(config)
    key, batch = jax.random.key(0), 33
    state = jax.jit(environment.init, static_argnums=1)(key, batch)
    after, given = jax.jit(environment.step)(jax.random.key(1), state, jnp.zeros(batch, jnp.int32))
    assert given.truncated.all()
    fresh = after.boards.states.palette[:3]
    palettes = np.concatenate([state.episodes.palette, state.boards.states.palette, fresh])
    assert len(np.unique(palettes, axis=0)) == 2 * batch + 3
    assert after.boards.drawn == batch + 3, "a sixteenth is renewed, rounded up"


def test_no_key_is_used_twice():
    """Neither by boards and their pool nor by games; the diary has the learner's."""
    config = boxworld.BoxWorldConfig(rows=5, cols=6, gem_locks=1, traps=0)
    environment, key = rollout.of_boxworld(config), jax.random.key(0)

    def policy(params, observation):
        batch = observation.shape[:-3]
        return corridor.Output(jnp.zeros((*batch, 4)) + params, jnp.zeros(batch))

    boards = jax.eval_shape(lambda key: environment.init(key, 2), key)
    keys.used_once(lambda key: environment.init(key, 2), key)
    keys.used_once(environment.step, key, boards, jnp.zeros(2, jnp.int32))
    keys.used_once(lambda key: win_rates.evaluate(policy, 0.0, config, key, episodes=2, cap=3), key)
