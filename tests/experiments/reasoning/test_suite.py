"""The suite: what is learned and measured, and which models fit which tasks."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from experiments.reasoning import suite, train
from experiments.reasoning.config import get_config
from experiments.reasoning.models import MODELS
from experiments.reasoning.tasks import TASKS
from tests.simplicial.small import of_shapes, quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = dataclasses.replace(
    get_config("suite"), features=8, num_heads=2, hidden=8, num_layers=1, batch_size=3, steps=4, log_every=2,
    checkpoint_every=4, eval_every=4, warmup_steps=1, schedule_steps=4,
)  # fmt: skip


@pytest.mark.parametrize("task", ["match3", "paths"])
def test_the_loss_is_the_mean_over_what_is_asked(task):
    config = dataclasses.replace(SMALL, task=task)
    problem, model = suite.problem(config), suite.make_model(config)
    params = of_shapes(jax.eval_shape(problem["init"], jax.random.key(0)))
    batch = problem["sample"](jax.random.key(1), 0)
    sums = quickly(problem["loss"])(params, batch, None)
    logs = log_softmax(np.asarray(quickly(model.apply)({"params": params}, batch)), axis=-1)
    targets = np.asarray(batch.targets)
    places = [tuple(place) for place in np.argwhere(targets >= 0)]
    assert 0 < len(places) < targets.size
    assert sums.denominator == len(places)
    assert sums.numerator == pytest.approx(-sum(logs[place][targets[place]] for place in places), rel=1e-5)
    right = sum(logs[place].argmax() == targets[place] for place in places)
    assert [float(part) for part in sums.metrics["accuracy"]] == [right, len(places)]


def test_the_measure_weighs_all_answers_alike(monkeypatch):
    """A constant answer is right in one of C, one that sees the answer always; problems are fixed."""
    monkeypatch.setattr(suite, "TEST_BATCHES", 2)

    class Answers:
        def apply(self, variables, problems):
            answers = jax.nn.one_hot(problems.targets, 5)
            return jnp.where(variables["params"], answers, jnp.arange(5.0)[None, None, None])

    monkeypatch.setattr(suite, "make_model", lambda config: Answers())
    config = dataclasses.replace(SMALL, task="paths")
    assert suite.make_evaluate(config)(jnp.bool_(False)) == {"right/graphs_of_12": pytest.approx(0.2)}
    found = suite.make_evaluate(config, TASKS["paths"].tests)(jnp.bool_(True))
    assert found == {"right/graphs_of_8": 1, "right/graphs_of_12": 1}


def test_settings_are_chosen_on_other_problems_than_those_of_the_test(monkeypatch):
    """Which are the same for every seed, and different for every split."""
    drawn: list[Any] = []
    draw = TASKS["paths"].draw

    def drawing(self, key, count, split="train"):
        jax.debug.callback(lambda data: drawn.append((split, data.tobytes())), jax.random.key_data(key))
        return draw(key, count, split)

    monkeypatch.setattr(suite, "TEST_BATCHES", 1)
    monkeypatch.setattr(type(TASKS["paths"]), "draw", drawing)

    class Answers:
        def apply(self, variables, problems):
            return jax.nn.one_hot(problems.targets, 5) + variables["params"]

    monkeypatch.setattr(suite, "make_model", lambda config: Answers())
    for seed, tests in ((0, None), (1, None), (0, TASKS["paths"].tests)):
        config = dataclasses.replace(SMALL, task="paths", seed=seed)
        suite.make_evaluate(config, tests)(jnp.zeros(()))
    jax.effects_barrier()
    assert [split for split, _ in drawn] == 2 * ["graphs_of_12"] + ["graphs_of_8", "graphs_of_12"]
    assert drawn[0] == drawn[1]
    assert len({key for _, key in drawn}) == 3


def test_a_task_outside_of_the_suite_has_its_own_model():
    with pytest.raises(ValueError, match="model: got 'lstm', expected '' with task='language'"):
        dataclasses.replace(get_config("quick"), model="lstm").validate()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": ""}, "model: got '', expected one of 'simplicial', 'simplicial_virtual', "),
        ({"model": "lstm"}, "model: got 'lstm', expected one of "),
        ({"task": "s5", "model": "edge_transformer"}, "model: got 'edge_transformer', expected one of "),
        ({"task": "paths", "model": "simplicial"}, "model: got 'simplicial', expected one of "),  # too large
        ({"features": 9}, "num_heads: got 2, expected a divisor of features=9"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(fields: dict[str, Any], message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **fields).validate()


def test_names_are_those_of_the_registries():
    """Eight models at least, and for every task the pre-LN Transformer that others are compared with."""
    assert [task.name for task in TASKS.values()] == list(TASKS)
    assert len(MODELS) >= 8
    for task in TASKS.values():
        assert MODELS["transformer"].fits(task)
        assert task.measure in task.tests
        problems = jax.eval_shape(lambda key, task=task: task.draw(key, 1), jax.random.key(0))
        assert problems.targets.size == task.size
        assert dataclasses.replace(SMALL, task=task.name).validate() is None


@pytest.mark.slow  # its loss, its measure and the model have cheaper tests
def test_a_run_trains_and_measures(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "TEST_BATCHES", 1)
    result = train.main(SMALL, workdir=tmp_path)
    assert set(result.metrics) >= {"eval/right/triples", "loss", "accuracy"}
    assert [*result.results["tests"]] == ["right/sets", "right/triples", "right/sets_of_10"]
    assert result.results["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(result.params))
    shapes = jax.tree.map(lambda leaf: leaf.shape, train.abstract_state(SMALL).params)
    assert shapes == jax.tree.map(lambda leaf: leaf.shape, result.params)
