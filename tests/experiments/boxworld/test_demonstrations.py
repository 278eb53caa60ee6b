"""Learning from demonstrations: the lessons, the loss, runs that are interrupted, and IMPALA after it."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.boxworld import demonstrations, train
from experiments.boxworld.config import BoardConfig
from experiments.boxworld.engine import Impala
from simplicial import boxworld, rollout
from tests import keys
from tests.experiments.boxworld.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BOARD = BoardConfig(world="standard", rows=5, cols=6, max_length=1, max_distractors=1).make()


def taught(**fields):
    """The smallest run, learning from demonstrations."""
    return small(learn_from="demonstrations", practice_horizon=9, seeds=1, lr=1e-2, clip=80.0, **fields)


def test_lessons_are_about_the_states():
    """Labels and pictures are those of the states that the next action is taken in."""
    environment = demonstrations.environment(BOARD.replace(horizon=9), discount=0.9)
    state = jax.jit(environment.init, static_argnums=1)(jax.random.key(0), 12)
    step = jax.jit(environment.step)

    @jax.jit
    def solve_and_see(states):
        see = jax.vmap(lambda one: boxworld.observe(one, BOARD))
        return boxworld.solutions(states, BOARD), see(states)

    colours, sides, ends = set(), set(), 0
    for time in range(24):
        lessons, episodes = jax.device_get((environment.observe(state), state.boards.episodes))
        found, pictures = jax.device_get(solve_and_see(episodes))
        np.testing.assert_array_equal(lessons.picture, pictures)
        np.testing.assert_array_equal(lessons.actions, found.actions)
        # The shortest path earns the Gem's 10 at its end, and at most two keys before it.
        gem = 10 * 0.9 ** (found.distance - 1)
        assert ((lessons.value >= gem - 1e-5) & (lessons.value <= gem + 2)).all()
        colours.add(episodes.palette[0, 1].tobytes())
        sides |= set(episodes.player[episodes.time == 0, 1].tolist())
        actions = np.random.default_rng(time).integers(0, 4, 12, np.int32)
        state, outcome = step(jax.random.key(100 + time), state, actions)
        ends += np.asarray(outcome.truncated).sum()
    assert len(colours) > 5
    assert sides == {0, 4}
    assert ends > 12


def test_no_key_is_used_twice():
    environment, key = demonstrations.environment(BOARD, discount=0.9), jax.random.key(0)
    state = jax.eval_shape(lambda key: environment.init(key, 2), key)
    keys.used_once(lambda key: environment.init(key, 2), key)
    keys.used_once(environment.step, key, state, jnp.zeros(2, jnp.int32))


def test_the_loss_of_a_batch():
    """Minus the log of what the optimal actions get together; states without any do not count."""
    draw = np.random.default_rng(0)
    logits, value, target = draw.normal(size=(2, 3, 4)), draw.normal(size=(2, 3)), draw.normal(size=(2, 3))
    actions = draw.random((2, 3, 4)) < 0.5
    actions[0, 0], actions[1, 2] = False, True
    picture = jnp.zeros((2, 3, 5, 7, 3), jnp.uint8)
    lesson = demonstrations.Lesson(picture, jnp.asarray(actions), jnp.asarray(target, jnp.float32))
    unused = [jnp.zeros((2, 3))] * 2, [jnp.zeros((2, 3), bool)] * 2
    batch = rollout.Trajectories(
        lesson, jnp.zeros((2, 3, 4)), jnp.zeros((2, 3), jnp.int32), unused[0][0], *unused[1]
    )

    def total(logits, value):
        losses = demonstrations.loss(logits, value, batch, value_cost=0.3)
        return losses.total, losses

    given = jnp.asarray(logits, jnp.float32), jnp.asarray(value, jnp.float32)
    gradients, losses = jax.device_get(jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))(*given))
    share = np.sum(np.exp(logits) * actions, -1) / np.sum(np.exp(logits), -1)
    counts = actions.any(-1)
    assert counts.sum() == losses.steps == 5
    np.testing.assert_allclose(losses.policy, -np.log(share[counts]).sum(), rtol=1e-5)
    np.testing.assert_allclose(losses.optimal, share[counts].sum(), rtol=1e-5)
    np.testing.assert_allclose(losses.value, 0.5 * ((value - target)[counts] ** 2).sum(), rtol=1e-5)
    np.testing.assert_allclose(losses.total, losses.policy + 0.3 * losses.value, rtol=1e-5)
    assert set(losses.means()) == {"policy", "value", "optimal"}
    probability = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = np.where(
        counts[..., None], probability * (1 - actions / np.maximum(share, 1e-9)[..., None]), 0
    )
    np.testing.assert_allclose(gradients[0], expected, atol=1e-5)
    np.testing.assert_allclose(gradients[1], 0.3 * (value - target) * counts, atol=1e-5)


def test_the_learner_of_a_run_learns_from_lessons():
    """Traced, not compiled: the learner of each method has its environment, and equal parameters."""
    run, plain = (Impala(small(learn_from=name, seeds=1)) for name in ("demonstrations", "rewards"))
    state = run.abstract_state()
    params = jax.eval_shape(plain.config.init_params, jax.random.key(0))
    assert jax.tree.map(lambda leaf: (1, *leaf.shape), params) == jax.tree.map(
        lambda leaf: leaf.shape, state.params
    )
    assert isinstance(state.actors.environment, demonstrations.Classroom)
    _, report = jax.eval_shape(lambda state: run.learner.iterate_many(state, 1, seeds=True), state)
    assert isinstance(report.losses, demonstrations.Losses)
    assert report.losses.optimal.shape == (1, 1, 2)  # seeds, iterations, updates


@pytest.mark.slow  # two programs to compile, and three evaluations
def test_an_interrupted_run_continues_and_impala_starts_from_it(tmp_path):
    config = {"steps": 40, "log_every": 10, "checkpoint_every": 20}
    whole = train.train(taught(**config), tmp_path / "whole")
    train.train(taught(**{**config, "steps": 20}), tmp_path / "parts")
    parts = train.train(taught(**config), tmp_path / "parts")
    assert whole.summary["params_sha256"] == parts.summary["params_sha256"]
    assert whole.metrics["loss"] == parts.metrics["loss"]
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["policy"] < lines[0]["policy"] - 0.05
    assert lines[-1]["optimal"] > lines[0]["optimal"]

    after = Impala(small(seeds=1)).initial().params
    config = small(seeds=1, steps=1, lr=0.0, init_from=str(tmp_path / "whole"))
    continued = train.train(config, tmp_path / "impala").params
    jax.tree.map(np.testing.assert_array_equal, continued, whole.params)
    assert not all(jax.tree.leaves(jax.tree.map(lambda a, b: np.array_equal(a, b), after, whole.params)))
