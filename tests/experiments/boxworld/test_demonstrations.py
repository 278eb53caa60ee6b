"""Learning from demonstrations: the lessons, the loss, runs that are interrupted, and IMPALA after it."""

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from experiments import runtime
from experiments.boxworld import demonstrations, train
from experiments.boxworld.config import BoardConfig, Config
from experiments.boxworld.engine import Impala
from experiments.boxworld.load import load
from simplicial import apply_with_entities, boxworld, rollout
from tests import keys
from tests.experiments.boxworld.small import small
from tests.simplicial.small import of_shapes, quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BOARD = BoardConfig(world="standard", rows=5, cols=6, max_length=1, max_distractors=1).make()
SOLVE = jax.jit(lambda states: boxworld.solutions(states, BOARD))


def taught(**fields):
    """The smallest run, learning from demonstrations."""
    rates = {"lr": 1e-2, "matrix_lr": 2e-2, "clip": 80.0, "marks_cost": 1.0, "expert_share": 0.5}
    return small(learn_from="demonstrations", practice_horizon=9, seeds=1, **rates, **fields)


def test_lessons_are_about_the_states():
    """Labels and pictures are those of the states that the next action is taken in."""
    environment = demonstrations.environment(BOARD.replace(horizon=9), discount=0.9)
    state = jax.jit(environment.init, static_argnums=1)(jax.random.key(0), 12)
    step = jax.jit(environment.step)

    @jax.jit
    def solve_and_see(states):
        see = jax.vmap(lambda one: boxworld.observe(one, BOARD))
        return boxworld.solutions(states, BOARD), see(states)

    colours, sides, ends, trapped = set(), set(), 0, False
    for time in range(24):
        lessons, episodes = jax.device_get((environment.observe(state), state.boards.episodes))
        found, pictures = jax.device_get(solve_and_see(episodes))
        np.testing.assert_array_equal(lessons.picture, pictures)
        np.testing.assert_array_equal(lessons.actions, found.actions)
        entities = np.zeros((12, 3, 5), bool)  # around the places (1, 1) to (5, 3)
        for i, traps in enumerate(episodes.traps):
            for x, y in traps[traps[:, 0] >= 0]:
                entities[i, y - 1, x - 1] = True
        np.testing.assert_array_equal(lessons.traps, entities.reshape(12, -1))
        y, x = np.divmod(lessons.target, 5)
        taken = episodes.grid[np.arange(12), y + 1, x + 1]
        assert ((taken >= 0) == (found.distance > 0)).all()
        assert not lessons.traps[np.arange(12), lessons.target].any()
        trapped |= lessons.traps.any()
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
    assert trapped


def test_the_solver_takes_a_share_of_the_steps(monkeypatch):
    """None in the first half, all in the last environment: without symmetries, each is a step closer.

    Episodes are tallied where it takes none.
    """
    monkeypatch.setattr(boxworld, "has_reflections", lambda config: False)
    size, closer, tallied = 40, {}, {}
    for share in (0.0, 1.0):
        environment = demonstrations.environment(
            BOARD.replace(horizon=200), 0.9, expert_share=share, exchange_places=False
        )
        state = jax.jit(environment.init, static_argnums=1)(jax.random.key(0), size)
        before = np.asarray(SOLVE(state.boards.episodes).distance)
        up = jnp.full(size, boxworld.UP, jnp.int32)  # from the uppermost row, where all players start
        state, outcome = jax.jit(environment.step)(jax.random.key(1), state, up)
        closer[share] = np.asarray(SOLVE(state.boards.episodes).distance) == before - 1
        tallied[share] = (np.asarray(outcome.kind) >= 0).tolist()
    half = size // 2
    assert not closer[0.0].any()
    assert not closer[1.0][:half].any()
    assert closer[1.0][-1]
    assert 5 < closer[1.0].sum() < 15
    assert tallied == {0.0: [True] * size, 1.0: [True] * half + [False] * half}


def test_nothing_is_taught_about_types_that_are_held_out():
    board = BoardConfig(min_length=2, max_length=2).make()
    held_out = [(2, 1, 3), (2, 2, 4)]
    init = demonstrations.environment(board, 0.9, held_out=held_out).init
    state = jax.jit(init, static_argnums=1)(jax.random.key(0), 60)
    is_held_out = [
        tuple(puzzle) in held_out for puzzle in np.asarray(state.boards.episodes.puzzle)[:, :3].tolist()
    ]
    assert 5 < sum(is_held_out) < 30
    np.testing.assert_array_equal(~np.asarray(state.lessons.actions).any(axis=1), is_held_out)
    with pytest.raises(ValueError, match=r"held_out: got '2-1-9', expected one of '1', '1-1-2', '2'"):
        small(board=BoardConfig(max_length=2), held_out=("2-1-9",)).validate()


def test_no_key_is_used_twice():
    environment, key = demonstrations.environment(BOARD, 0.9, expert_share=0.5), jax.random.key(0)
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
    marked = draw.integers(0, 5, (2, 3))
    traps = draw.random((2, 3, 5)) < 0.3
    traps[0, 1], traps[1, 0] = False, True
    lesson = demonstrations.Lesson(
        picture,
        jnp.asarray(actions),
        jnp.asarray(target, jnp.float32),
        jnp.asarray(marked),
        jnp.asarray(traps),
    )
    unused = [jnp.zeros((2, 3))] * 2, [jnp.zeros((2, 3), bool)] * 2
    batch = rollout.Trajectories(
        lesson, jnp.zeros((2, 3, 4)), jnp.zeros((2, 3), jnp.int32), unused[0][0], *unused[1]
    )

    def total(logits, value):
        output = demonstrations.PupilOutput(logits, value)
        losses = demonstrations.loss(output, batch, value_cost=0.3)
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

    marks = draw.normal(size=(2, 2, 3, 5)).astype(np.float32)
    output = demonstrations.PupilOutput(*given, *jnp.asarray(marks))
    more = jax.device_get(demonstrations.loss(output, batch, value_cost=0.3, marks_cost=0.7))
    chosen = np.take_along_axis(log_softmax(marks[0], axis=-1), marked[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(more.target, -chosen[counts].sum(), rtol=1e-5)
    assert more.target_right == (marks[0].argmax(-1) == marked)[counts].sum()
    with_none = log_softmax(np.concatenate([marks[1], np.zeros((2, 3, 1))], axis=-1), axis=-1)
    wanted = np.concatenate([traps, ~traps.any(-1, keepdims=True)], axis=-1)
    each = np.where(wanted, with_none, 0).sum(-1) / wanted.sum(-1)
    np.testing.assert_allclose(more.traps, -each[counts].sum(), rtol=1e-5)
    assert more.trapped == (traps.any(-1) & counts).sum() > 0
    right = np.take_along_axis(traps, marks[1].argmax(-1)[..., None], axis=-1)[..., 0]
    assert more.trap_right == right[counts].sum()
    np.testing.assert_allclose(more.total, losses.total + 0.7 * (more.target + more.traps), rtol=1e-5)
    assert set(more.means()) - set(losses.means()) == {"target", "target_right", "traps", "trap_right"}
    assert more.means()["trap_right"] == (more.trap_right, more.trapped)


def test_marks_are_apart_from_the_agent():
    """They read the last entities of the agent, whose output does not depend on them."""
    config = small(learn_from="demonstrations", marks_cost=1.0)
    params = of_shapes(jax.eval_shape(config.init_params, jax.random.key(0)))
    policy, agent = Impala(config).learner.policy, config.agent.make()
    assert policy == demonstrations.Pupil(agent, marks=True)
    picture = jnp.asarray(np.random.default_rng(0).integers(0, 256, (4, 5, 7, 3), np.uint8))
    unused = jnp.zeros((4, 4), bool), jnp.zeros(4), jnp.zeros(4, jnp.int32), jnp.zeros((4, 15), bool)
    lesson = demonstrations.Lesson(picture, *unused)

    @quickly
    def outputs(params, lesson):
        return policy(params, lesson), apply_with_entities(agent, {"params": params}, lesson.picture)

    found, (alone, entities) = jax.device_get(outputs(params, lesson))
    np.testing.assert_array_equal(found.logits, alone.logits)
    np.testing.assert_array_equal(found.value, alone.value)
    first, second = (params[demonstrations.MARKS][name] for name in ("hidden", "logits"))
    hidden = np.maximum(entities @ first["kernel"] + first["bias"], 0)
    marks = hidden @ second["kernel"] + second["bias"]
    np.testing.assert_allclose(found.target, marks[..., 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.traps, marks[..., 1], rtol=1e-4, atol=1e-5)


def test_matrices_have_a_rate_of_their_own():
    """Muon's steps have equal singular values; all others are Adam's, B among them. Both rise and fall."""
    tx = demonstrations.optimizer(0.01, 1e9, matrix_lr=0.1, decay_updates=1000)
    rng = np.random.default_rng(0)
    params = {"kernel": np.zeros((2, 2, 3, 8)), "bias": np.zeros(8), "bilinear": np.zeros((1, 4, 4, 4))}
    gradient = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), params)
    state = tx.init(params)
    update = jax.jit(tx.update)
    sizes = []
    falling = 0.01 + 0.99 * (1 + np.cos(np.pi * 0.2)) / 2  # after a fifth of the updates
    for _ in range(1001):
        updates, state = update(gradient, state, params)
        sizes.append([float(jnp.abs(leaf).mean()) for leaf in jax.tree.leaves(updates)])
        if len(sizes) == 201:
            values = np.linalg.svd(np.asarray(updates["kernel"]).reshape(12, 8), compute_uv=False)
            assert 0.6 * 0.1 * falling < values.min() < values.max() < 1.5 * 0.1 * falling
            for name in ("bias", "bilinear"):
                np.testing.assert_allclose(
                    updates[name], -0.01 * falling * np.sign(gradient[name]), rtol=1e-3
                )
    sizes = np.asarray(sizes)
    assert not sizes[0].any()
    np.testing.assert_allclose(sizes[1000] / sizes[200], 0.01 / falling, rtol=0.02)
    state = demonstrations.optimizer(0.01, 1e9).init(params)
    constant = jax.jit(demonstrations.optimizer(0.01, 1e9).update)
    for _ in range(202):
        updates, state = constant(gradient, state, params)
    np.testing.assert_allclose(updates["kernel"], -0.01 * np.sign(gradient["kernel"]), rtol=1e-3)


def test_a_decay_that_ends_with_the_run_does_so_in_longer_ones():
    assert [small(steps=40, decay_steps=of).decay_iterations for of in (-1, 0, 30)] == [40, 0, 30]


def test_practice_has_more_bridges():
    config = small(learn_from="demonstrations", practice_horizon=7, board=BoardConfig())
    assert config.practice() == boxworld.BRIDGE.replace(horizon=7)
    config = dataclasses.replace(config, practice_bridges=0.75)
    assert config.practice() == boxworld.BRIDGE.replace(horizon=7, bridge_probability=0.75)
    with pytest.raises(ValueError, match=r"practice_bridges: got 1\.5, expected a"):
        dataclasses.replace(config, practice_bridges=1.5).validate()
    standard = dataclasses.replace(config, board=BoardConfig(world="standard"))
    assert standard.practice() == boxworld.STANDARD.replace(horizon=7)


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


def test_the_best_of_several_starts_continues(tmp_path, monkeypatch):
    """Starts are not measured, and end with their training accuracy, the probability of optimal actions."""
    seen: list[Any] = []

    def loop(config, engine, *, evaluate, conclude, workdir, name):
        seen.append((config, workdir, evaluate))
        loss = {0: 2.0, 1_000_000: 1.0}[config.seed] if conclude is None else 0.5
        results = {} if conclude is None else conclude(None)
        return runtime.FitResult(None, None, config.steps, {"loss": loss, "optimal": 0.5}, results, 1.0, {})

    monkeypatch.setattr(runtime, "loop", loop)
    monkeypatch.setattr(train.measures, "conclude", lambda *_: {"agent": {}})
    config = taught(steps=40, log_every=10, checkpoint_every=20, restarts=2, restart_steps=10, decay_steps=-1)
    results = train.train(config, tmp_path).results
    assert [start["accuracy"] for start in results["starts"]] == [0.5, 0.5]
    assert (results["agent"], results["best_start"], results["success_rate"]) == ({}, 1, 0)
    (first, _, none), _, (last, where, evaluate) = seen
    assert (first.steps, first.decay_steps, none, where) == (10, 40, None, tmp_path)
    assert (last.steps, last.decay_steps, last.init_from) == (40, 40, ".starts/1")
    assert last.init_optimizer
    assert evaluate is not None


@pytest.mark.slow  # two programs to compile, and three evaluations
def test_an_interrupted_run_continues_and_impala_starts_from_it(tmp_path, monkeypatch):
    config = {"steps": 40, "log_every": 10, "checkpoint_every": 20}
    whole = train.train(taught(**config), tmp_path / "whole")
    train.train(taught(**{**config, "steps": 20}), tmp_path / "parts")
    parts = train.train(taught(**config), tmp_path / "parts")
    assert whole.summary["params_sha256"] == parts.summary["params_sha256"]
    assert whole.metrics["loss"] == parts.metrics["loss"]
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["policy"] < lines[0]["policy"] - 0.05
    assert lines[-1]["optimal"] > lines[0]["optimal"]
    assert lines[-1]["traps"] < lines[0]["traps"]
    assert demonstrations.MARKS not in load(tmp_path / "whole").params

    after = Impala(small(seeds=1)).initial().params
    config = small(seeds=1, steps=1, lr=0.0, init_from=str(tmp_path / "whole"))
    continued = train.train(config, tmp_path / "impala").params
    agents = {name: part for name, part in whole.params.items() if name != demonstrations.MARKS}
    jax.tree.map(np.testing.assert_array_equal, continued, agents)
    assert not all(jax.tree.leaves(jax.tree.map(lambda a, b: np.array_equal(a, b), after, agents)))

    # In one run, interrupted in the second part; the first is not made again.
    first = {"steps": 20, "log_every": 10, "checkpoint_every": 20}
    monkeypatch.setattr(Config, "first_config", lambda self: taught(**first))
    both = {"seeds": 1, "first": "demonstrations"}
    whole = train.main(small(**both), workdir=tmp_path / "both")
    train.main(small(**both, steps=2), workdir=tmp_path / "in two")
    began = (tmp_path / "in two" / train.FIRST / "summary.json").stat().st_mtime_ns
    parts = train.main(small(**both), workdir=tmp_path / "in two")
    assert whole.summary["params_sha256"] == parts.summary["params_sha256"]
    assert (tmp_path / "in two" / train.FIRST / "summary.json").stat().st_mtime_ns == began
    summary = json.loads((tmp_path / "both" / train.FIRST / "summary.json").read_text())
    assert (summary["step"], whole.step) == (20, 4)
    assert (tmp_path / "both" / "types.png").exists()
