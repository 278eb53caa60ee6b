"""IMPALA under the runtime: on any number of devices, what it records, what stops it."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.boxworld import demonstrations
from experiments.boxworld.config import AgentConfig, BoardConfig, type_name, type_of
from experiments.boxworld.engine import Impala, make_policy, type_label
from experiments.runtime import mesh
from simplicial import AgentOutput, boxworld, impala, rollout
from simplicial.learner import Report
from tests import on_devices
from tests.experiments.boxworld.player import small_episode, small_player
from tests.experiments.boxworld.small import small
from tests.simplicial import plain_impala
from tests.simplicial.small import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_four_devices_compute_what_one_does_in_every_mode():
    """Groups are spread, parameters copied, sums are over all devices; in the corridor."""
    (found,) = on_devices.outcomes(Path(__file__).with_name("engine_on_devices.py"), (4, ()))
    assert found["refusal"] == "groups: got 2, expected a multiple of the 4 devices"
    alone = found["alone"]
    weights = np.asarray(alone["weights"])
    assert np.abs(weights[0] - weights[1]).max() > 0.01
    for mode in ("jit", "shard_map", "pmap"):
        spread = found[mode]
        assert (spread["devices_of_places"], spread["devices_of_weights"]) == (4, 4)
        assert np.abs(np.asarray(spread["start"]) - weights).max() > 0.01, "it learned"
        for name in ("keys", "place", "episodes"):
            np.testing.assert_array_equal(spread[name], alone[name], err_msg=f"{mode}: {name}")
        for name in ("weights", "loss", "grad_norm"):
            np.testing.assert_allclose(spread[name], alone[name], rtol=1e-4, atol=1e-4, err_msg=mode)


@pytest.mark.slow  # four programs to compile
def test_eight_devices_compute_what_one_does_in_every_mode():
    ways = ("relational,jit", "relational,shard_map", "relational,pmap", "simplicial,jit")
    one_device = ("relational,jit", "simplicial,jit")
    script = Path(__file__).with_name("parity.py")
    eight, one = on_devices.outcomes(script, (8, ways), (1, one_device))
    for way in ways:
        found, expected = eight[way], one[f"{way.split(',')[0]},jit"]
        assert found["devices_of_the_grid"] == 8
        assert found["grid"] == expected["grid"]  # the very same episodes
        assert found["keys"] == expected["keys"]
        # The 2-simplicial part of so small an agent amplifies rounding: gradients of a batch cut in eight
        # differ from the whole's by up to 9e-6 in float32 (relational 7e-7), by 6e-15 in float64.
        atol = 3e-5 if way.startswith("simplicial") else 1e-6
        np.testing.assert_allclose(found["params"], expected["params"], rtol=1e-5, atol=atol, err_msg=way)
        for name, value in expected["metrics"].items():
            if name != "train_seconds":
                assert found["metrics"][name] == pytest.approx(value, rel=1e-3, abs=1e-5), (way, name)


TWO_TYPES = BoardConfig(
    world="standard", rows=5, cols=6, max_length=2, max_distractors=0
)  # two types of puzzles


def report(seeds=2, steps=3, updates=2, kinds=2):
    """A report with small whole numbers in it."""
    parts: Any = np.arange(seeds * steps * updates, dtype=np.float32).reshape(seeds, steps, updates)
    losses = impala.Losses(
        total=parts,
        policy=parts + 1,
        value=parts + 2,
        entropy=parts + 3,
        ratio=parts + 4,
        steps=parts * 0 + 10,
    )
    ended: Any = np.arange(seeds * steps * kinds, dtype=np.int32).reshape(seeds, steps, kinds) + 2
    tally = rollout.Tally(
        episodes=ended, solved=ended // 2, truncated=ended // 3, steps=ended * 7, returns=ended * 1.5
    )
    finite: Any = np.ones((seeds, steps), bool)
    return Report(losses, grad_norm=parts + 5, tally=tally, finite=finite)


def test_the_record_is_of_all_seeds_and_steps():
    engine = Impala(small(seed=4, board=TWO_TYPES))
    found = engine.metrics(report(), step=7)
    ended = np.arange(12) + 2
    assert found["episodes"] == ended.sum()
    assert found["solved"] == pytest.approx((ended // 2).sum() / ended.sum())
    for name, of_type in (("1", ended[::2]), ("2", ended[1::2])):
        assert found[f"type/{name}/episodes"] == of_type.sum()
        assert found[f"type/{name}/solved"] == (of_type // 2).sum()
    assert found["truncated"] == pytest.approx((ended // 3).sum() / ended.sum())
    assert found["episode_length"] == pytest.approx(7)
    assert found["return"] == pytest.approx(1.5)
    for more, name in enumerate(("loss", "policy", "value", "entropy", "ratio")):
        assert found[name] == pytest.approx((np.arange(12) + more).sum() / 120)
    assert found["grad_norm"] == pytest.approx(5.5 + 5)
    assert found["frames"] == 7 * 16 * 2 * 5
    assert (found["seed/4/episodes"], found["seed/5/episodes"]) == (ended[:6].sum(), ended[6:].sum())
    assert found["seed/5/solved"] == (ended[6:] // 2).sum()
    assert "seed/0/solved" not in Impala(small(seeds=1, board=TWO_TYPES)).metrics(report(seeds=1), step=1)
    assert list(found)[:2] == ["loss", "solved"]  # what is shown first while it runs


@pytest.mark.parametrize(
    ("board", "practice"),
    [({"bridge_probability": 0.0}, 0.75), ({"bridge_probability": 1.0}, 0.75), ({}, 0.0), ({}, 1.0)],
)
def test_types_of_imitation_are_those_that_are_practised(board, practice):
    config = small(learn_from="demonstrations", practice_bridges=practice, board=BoardConfig(**board))
    engine = Impala(config)
    assert engine.puzzles == boxworld.puzzles(config.practice())
    assert len(engine.puzzles) == engine.learner.environment.kinds


def test_each_mean_has_its_own_count():
    """Traps are named right or wrong in the steps that have any, not in all."""
    parts = report().losses.total
    losses: Any = demonstrations.Losses(
        *(parts + more for more in range(4)), steps=parts * 0 + 10, traps=parts, trap_right=parts + 4,
        trapped=parts * 0 + 2,
    )  # fmt: skip
    engine = Impala(small(seed=4, board=TWO_TYPES))
    found = engine.metrics(dataclasses.replace(report(), losses=losses), step=7)
    assert found["traps"] == pytest.approx(np.arange(12).sum() / 120)
    assert found["trap_right"] == pytest.approx((np.arange(12) + 4).sum() / 24)
    none: Any = dataclasses.replace(losses, trapped=parts * 0)
    assert np.isnan(engine.metrics(dataclasses.replace(report(), losses=none), step=7)["trap_right"])


def test_an_interval_without_an_end_of_an_episode_has_no_fraction():
    nothing = report()
    nothing = dataclasses.replace(nothing, tally=jax.tree.map(lambda leaf: leaf * 0, nothing.tally))
    found = Impala(small(board=TWO_TYPES)).metrics(nothing, step=3)
    assert np.isnan(found["solved"])
    assert found["episodes"] == 0


def test_the_first_step_that_is_not_finite_is_named_with_its_seed():
    engine = Impala(small(seed=4))
    assert engine.first_bad(report()) is None
    bad = report()
    bad.finite[1, 1:] = False
    assert engine.first_bad(bad) == (1, "the loss is finite but parameters are not (seed 5)")
    bad.losses.total[1, 1, 0] = np.nan
    assert engine.first_bad(bad) == (1, "the loss is nan (seed 5)")
    alone = report(seeds=1)
    alone.finite[0, 2] = False
    alone.losses.total[0, 2, 1] = np.inf
    assert Impala(small(seeds=1)).first_bad(alone) == (2, "the loss is inf")


@pytest.mark.parametrize(("cores", "parts", "in_turn"), [(1, 2, True), (2, 2, False), (1, 1, False)])
def test_groups_act_in_turn_on_a_core_of_their_own(monkeypatch, cores, parts, in_turn):
    """If the arrays of a whole batch do not fit into the cache either."""
    monkeypatch.setattr(mesh, "usable_cores", lambda: cores)
    assert Impala(small(accumulate=parts)).learner.in_turn is in_turn


def test_the_settings_of_a_config_reach_the_learner():
    """The objective and the optimiser are those of NumPy with the config's numbers, all unlike defaults."""
    settings: dict[str, Any] = {"discount": 0.8, "entropy_cost": 0.3, "value_cost": 2.0}
    rates = {"lr": 0.02, "clip": 3.0, "decay": 0.7, "epsilon": 0.4}
    learner = Impala(small(**settings, **rates, updates=4, groups=2, unroll=7, accumulate=2)).learner
    summed: Any = learner.summed
    assert summed.keywords == {"parts": 2}
    assert (learner.environments, learner.updates, learner.steps, learner.groups) == (64, 4, 7, 2)

    rng = np.random.default_rng(0)
    shape = (3, 7)
    arrays: Any = {
        "logits": rng.normal(size=(*shape, 4)).astype(np.float32),
        "action": rng.integers(0, 4, shape),
        "reward": rng.normal(size=shape).astype(np.float32),
        "terminated": rng.random(shape) < 0.2,
        "truncated": np.zeros(shape, bool),
    }
    logits, value = rng.normal(size=(*shape, 4)), rng.normal(size=shape)
    trajectories = rollout.Trajectories(jnp.zeros(shape), **jax.tree.map(jnp.asarray, arrays))
    output = AgentOutput(jnp.asarray(logits), jnp.asarray(value))
    losses = learner.objective(output, trajectories)
    wanted, *_ = plain_impala.loss(logits, value, arrays, gamma=settings.pop("discount"), **settings)
    assert losses.total == pytest.approx(wanted["total"], rel=1e-4)

    gradient = rng.normal(size=5) * 4
    state = learner.optimizer.init(jnp.zeros(5))
    updates: Any = learner.optimizer.update(jnp.asarray(gradient), state, jnp.zeros(5))[0]
    wanted, _ = plain_impala.rmsprop(0, 1, gradient, learning_rate=0.02, max_norm=3.0, decay=0.7, epsilon=0.4)
    np.testing.assert_allclose(updates, wanted, rtol=1e-5)


@pytest.mark.slow
def test_seeds_side_by_side_are_the_runs_alone():
    """Seed 1 of two is seed 0 of a run that begins with it."""
    both, alone = Impala(small(seed=3)), Impala(small(seed=4, seeds=1))
    states = [engine.place(engine.initial()) for engine in (both, alone)]
    for engine, state in zip((both, alone), states, strict=True):
        engine.prepare(state, 0, 2)
    (first, _), (second, _) = (
        engine.advance(state, 0, 2) for engine, state in zip((both, alone), states, strict=True)
    )
    for one, other in zip(
        jax.tree.leaves(first.actors.environment), jax.tree.leaves(second.actors.environment), strict=True
    ):
        np.testing.assert_array_equal(one[1], other[0])
    for one, other in zip(jax.tree.leaves(first.params), jax.tree.leaves(second.params), strict=True):
        np.testing.assert_allclose(one[1], other[0], rtol=1e-4, atol=1e-6)


def test_policies_are_equal_for_equal_agents():
    """So that what is compiled for one is not compiled again for the other."""
    one, other = make_policy(small()), make_policy(small(steps=9))
    assert one == other
    assert hash(one) == hash(other)
    assert one != make_policy(small(agent=AgentConfig(kind="relational")))


def test_a_policy_computes_what_was_recorded():
    episode, trained = small_episode(), small_player()
    value = quickly(trained.policy)(trained.params, episode.pictures[:2]).value
    np.testing.assert_allclose(value, episode.values[:2], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("puzzle", "name"), [((2, 0, 0), "2"), ((3, 1, 6), "3-1-6")])
def test_types_have_short_names(puzzle, name):
    assert type_name(puzzle) == name
    assert type_of(name) == puzzle


def test_types_have_labels():
    assert type_label((2, 1, 3)) == "(2,1,3)"
    assert type_label((2, 0, 0)) == "L = 2, no bridge"
    assert type_label((2, 0, 0), can_bridge=False) == "L = 2"


def test_groups_must_fit_the_devices():
    with pytest.raises(ValueError, match="parallel: got 'threads', expected one of 'jit', 'shard_map'"):
        Impala(small(), "threads")
    for layout in (mesh.Layout(model=2), mesh.Layout(fsdp=True)):
        with pytest.raises(ValueError, match="expected no model axis and no fsdp: agents are too small"):
            small().check_layout(layout)
        with pytest.raises(ValueError, match="expected no model axis and no fsdp: agents are too small"):
            Impala(small(), layout)
    with pytest.raises(ValueError, match="accumulate: got 3, expected a divisor of 16"):
        Impala(small(accumulate=3))
