"""IMPALA under the runtime: on any number of devices, what it records, what stops it."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments.boxworld.config import AgentConfig
from experiments.boxworld.engine import Impala, make_policy, type_label, type_name, type_of
from simplicial import impala, rollout
from simplicial.learner import Report
from tests import on_devices
from tests.experiments.boxworld.player import small_episode, small_player
from tests.experiments.boxworld.small import small
from tests.simplicial.small import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")


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


def report(seeds=2, steps=3, updates=2, kinds=1):
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
    engine = Impala(small(seed=4))
    found = engine.metrics(report(), step=7)
    ended = np.arange(6) + 2
    assert found["episodes"] == ended.sum() == found["type/1/episodes"]
    assert found["solved"] == pytest.approx((ended // 2).sum() / ended.sum())
    assert found["type/1/solved"] == (ended // 2).sum()
    assert found["truncated"] == pytest.approx((ended // 3).sum() / ended.sum())
    assert found["episode_length"] == pytest.approx(7)
    assert found["return"] == pytest.approx(1.5)
    assert found["loss"] == pytest.approx(np.arange(12).sum() / 120)
    assert found["ratio"] == pytest.approx((np.arange(12) + 4).sum() / 120)
    assert found["grad_norm"] == pytest.approx(5.5 + 5)
    assert found["frames"] == 7 * 16 * 2 * 5
    assert (found["seed/4/episodes"], found["seed/5/episodes"]) == (ended[:3].sum(), ended[3:].sum())
    assert list(found)[:2] == ["loss", "solved"]  # what is shown first while it runs


def test_an_interval_without_an_end_of_an_episode_has_no_fraction():
    nothing = report()
    nothing = dataclasses.replace(nothing, tally=jax.tree.map(lambda leaf: leaf * 0, nothing.tally))
    found = Impala(small()).metrics(nothing, step=3)
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
