"""The suite: what is learned and measured, and which models fit which tasks."""

import dataclasses
import re
import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from experiments.reasoning import suite, train
from experiments.reasoning.config import get_config
from experiments.reasoning.models import MODELS, Sizes
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
    batch = problem["sample"](jax.random.key(2), 0)
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
    monkeypatch.setattr(suite, "MOST_BATCHES", 2)

    class Answers:
        def apply(self, variables, problems):
            answers = jax.nn.one_hot(problems.targets, 5)
            return jnp.where(variables["params"], answers, jnp.arange(5.0)[None, None, None])

    monkeypatch.setattr(suite, "make_model", lambda config: Answers())
    config = dataclasses.replace(SMALL, task="paths")
    assert suite.make_evaluate(config)(jnp.bool_(False)) == {"right/graphs_of_12": pytest.approx(0.2)}
    found = suite.make_evaluate(config, suite.TEST, TASKS["paths"].tests)(jnp.bool_(True))
    assert found == {"right/graphs_of_8": 1, "right/graphs_of_12": 1}


def test_settings_curves_and_tests_have_problems_of_their_own(monkeypatch):
    """And so has every seed, and every split."""
    drawn: list[Any] = []
    draw = TASKS["paths"].draw

    def drawing(self, key, count, split="train"):
        jax.debug.callback(lambda data: drawn.append((split, data.tobytes())), jax.random.key_data(key))
        return draw(key, count, split)

    monkeypatch.setattr(suite, "MOST_BATCHES", 1)
    monkeypatch.setattr(type(TASKS["paths"]), "draw", drawing)

    class Answers:
        def apply(self, variables, problems):
            return jax.nn.one_hot(problems.targets, 5) + variables["params"]

    monkeypatch.setattr(suite, "make_model", lambda config: Answers())
    tests = TASKS["paths"].tests
    for seed, kind, splits in (
        (0, suite.CURVE, ()),
        (1, suite.CURVE, ()),
        (0, suite.VALIDATION, ()),
        (0, suite.TEST, tests),
    ):
        config = dataclasses.replace(SMALL, task="paths", seed=seed)
        suite.make_evaluate(config, kind, splits)(jnp.zeros(()))
    jax.effects_barrier()
    assert [split for split, _ in drawn] == 3 * ["graphs_of_12"] + ["graphs_of_8", "graphs_of_12"]
    assert len({key for _, key in drawn}) == 5
    drawn.clear()
    other = dataclasses.replace(config, features=24, lr=0.5)
    suite.make_evaluate(other, suite.CURVE)(jnp.zeros(()))
    suite.make_evaluate(config, suite.CURVE)(jnp.zeros(()))
    jax.effects_barrier()
    assert drawn[0] == drawn[1]


def test_larger_problems_are_fewer():
    """And those of the curve, which is measured often, than those at the end."""
    task = TASKS["modular_arithmetic"]
    found = {seed: [suite.num_batches(task, test, seed) for test in task.tests] for seed in suite.PAIRS}
    assert found == {suite.VALIDATION: [16, 8, 2], suite.TEST: [16, 8, 2], suite.CURVE: [8, 2, 1]}
    graph = TASKS["paths"]
    assert (suite.num_elements(graph, "graphs_of_12"), suite.num_tokens(graph, "graphs_of_12")) == (144, 12)


def count(config) -> int:
    params = jax.eval_shape(suite.problem(config)["init"], jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize(("model", "parameters"), [("transformer", 5000), ("simplicial_virtual", 20_000)])
def test_the_width_is_the_best_for_a_number_of_parameters(model, parameters):
    """Neither one more nor one less is closer."""
    config = suite.matched(dataclasses.replace(SMALL, task="match3", model=model), parameters)
    widths = [config.hidden - 1, config.hidden, config.hidden + 1]
    far = [abs(count(dataclasses.replace(config, hidden=hidden)) - parameters) for hidden in widths]
    assert far[1] == min(far)
    assert dataclasses.replace(config, hidden=SMALL.hidden) == dataclasses.replace(SMALL, model=model)


def test_a_number_of_parameters_that_no_width_has_is_refused(monkeypatch):
    with pytest.raises(ValueError, match=r"parameters: got 100, expected at least [\d,]+, those of hidden=1"):
        suite.matched(SMALL, 100)
    monkeypatch.setattr(suite, "make_model", lambda config: MODELS["transformer"].build(
        TASKS["match3"], Sizes(8, 1, 2, 8)
    ))  # fmt: skip
    with pytest.raises(ValueError, match="parameters: got 4,000, expected a model that hidden makes larger"):
        suite.matched(SMALL, 4000)


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
    monkeypatch.setattr(suite, "MOST_BATCHES", 1)
    result = train.main(SMALL, workdir=tmp_path)
    assert set(result.metrics) >= {"eval/right/triples", "loss", "accuracy"}
    assert [*result.results["tests"]] == ["right/sets", "right/triples", "right/sets_of_10"]
    assert 0 <= result.results["validated"] <= 1
    assert result.results["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(result.params))
    shapes = jax.tree.map(lambda leaf: leaf.shape, train.abstract_state(SMALL).params)
    assert shapes == jax.tree.map(lambda leaf: leaf.shape, result.params)


def test_the_model_of_the_page_can_be_added(tmp_path, monkeypatch):
    """Its file holds what the registry reads, and it gets as many parameters as the Transformer."""
    page = (Path(__file__).parents[3] / "docs/how_to/reasoning_suite.md").read_text(encoding="utf-8")
    first, second = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    exec(first, {})
    for name, model in runpy.run_path("deep_set.py")["MODELS"].items():
        monkeypatch.setitem(MODELS, name, model)
        config = suite.matched(dataclasses.replace(get_config("suite"), model=name), 60_000)
        assert count(config) == pytest.approx(60_000, rel=0.02)
        assert f'"{name}", "transformer"' in second
