"""The claims of this room: what was declared before the reported seeds ran, and what is measured."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import pytest

from experiments.folnet_finetune import claims, model
from experiments.runtime import FitResult
from experiments.runtime.claims import Run


@pytest.mark.parametrize("comparison", claims.CLAIMS, ids=lambda c: c.name)
def test_models_have_the_declared_parameters(comparison):
    for of in comparison.models:
        config: Any = comparison.with_data(of.config, Path("there"))
        assert config == dataclasses.replace(of.config, data_dir="there")
        params = jax.eval_shape(model.make_init(model.make(config)), jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == of.parameters, of.name
    assert comparison.seeds == (0, 1, 2)


def test_nothing_is_chosen_by_the_validation_split():
    for of in claims.CONCLUSIONS.models:
        assert of.search == ({},)


def result(results, step=3):
    return FitResult(
        state=None, params=None, summary={}, step=step, metrics={}, results=results, train_seconds=1.0
    )


def test_the_last_accuracy_is_measured_not_the_best(tmp_path):
    found = result({"last": {"accuracy": 0.5}, "best": {"accuracy": 0.75}})
    run = Run(found, claims.CONCLUSIONS.models[0].config, tmp_path)
    assert claims.measure_conclusions(run) == {"accuracy": 0.5}
