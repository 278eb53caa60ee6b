"""The claims of this room: what was declared before the reported seeds ran, and what is measured."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import pytest

from experiments.kinship import claims, measures, train
from experiments.kinship.config import get_config
from experiments.runtime import claiming
from experiments.runtime.claims import Run

RESULTS = Path(__file__).resolve().parents[3] / "results"


def test_the_declaration_is_that_of_the_reported_seeds():
    """Models, steps, search grid, seeds and measure are as recorded before the first of them ran."""
    claims.OPERATORS.check()
    record = claiming.Record(RESULTS, claims.OPERATORS.name)
    if record.declared is not None and record.reported_seeds():
        assert claims.OPERATORS.differences(record.declared["declaration"]) == []


def test_it_compares_the_preset_of_the_published_weights_without_a_limit_of_time():
    first, second = (model.config for model in claims.OPERATORS.models)
    preset = dataclasses.replace(get_config("ablation"), max_seconds=0.0)
    assert (first, second) == (preset.for_model("jmc.atp"), preset.for_model("j.at"))
    for model in claims.OPERATORS.models:
        of: Any = model.config
        module = of.make(of.model)
        params = jax.eval_shape(train.make_init(module), jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters


def test_budgets_and_seeds_are_as_declared():
    """5,000 steps, and as many seconds; the best of three rates by a seed that is not reported."""
    comparison = claims.OPERATORS
    assert (comparison.seeds, comparison.search_seeds) == ((0, 1, 2, 3, 4), (100,))
    assert [model.budgets["equal_steps"] for model in comparison.models] == [5000, 5000]
    assert comparison.models[0].budgets["equal_time"] == 5000
    seconds = [model.budgets["equal_time"] * (model.step_seconds or 0) for model in comparison.models]
    assert seconds[1] == pytest.approx(seconds[0], rel=0.02)
    for model in comparison.models:
        assert [change["lr"] for change in model.search] == [1e-3, 2e-3, 4e-3]


def test_what_is_measured_is_the_runs_record(finished):
    config, workdir, results = finished
    found = claims.measure(Run(results["j.a"], config, workdir))
    tests = results["j.a"].results["tests"]
    assert {name: found[f"k{name}"] for name in tests} == {k: test["accuracy"] for k, test in tests.items()}
    assert found["mean"] == (found["k3"] + found["k4"]) / 2
    assert found["line"] == measures.line(config, results["j.a"], workdir)
