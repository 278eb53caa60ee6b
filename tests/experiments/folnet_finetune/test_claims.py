"""The claims of this room: what was declared before the reported seeds ran, and what is measured."""

import dataclasses
import json
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


def test_nothing_is_chosen_by_the_published_tests():
    assert (claims.STORIES.search_by, claims.STORIES.search_seeds) == ("trained", (100,))
    for of in claims.STORIES.models:
        assert [change["lr"] for change in of.search] == [1e-3, 2e-3]
    for of in claims.CONCLUSIONS.models:
        assert of.search == ({},)


def result(results, step=3):
    return FitResult(
        state=None, params=None, summary={}, step=step, metrics={}, results=results, train_seconds=1.0
    )


def test_what_is_measured(tmp_path):
    rows = [{"step": 1, "accuracy": 0.25}, {"step": 2, "accuracy": 0.75}, {"step": 3}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shares = {f"accuracy/k={k}": k / 100 for k in range(2, 11)}
    run = Run(result({"test": {"accuracy": 0.5, **shares}}), claims.STORIES.models[0].config, tmp_path)
    found = claims.measure_stories(run)
    assert found.pop("mean") == pytest.approx(0.075)
    assert found == {"trained": 0.75, **{f"k{k}": k / 100 for k in range(2, 11)}}
    run = Run(result({"last": {"accuracy": 0.5}, "best": {"accuracy": 0.75}}), run.config, tmp_path)
    assert claims.measure_conclusions(run) == {"accuracy": 0.5}
