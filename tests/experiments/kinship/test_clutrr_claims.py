"""What was declared about CLUTRR's published graphs and stories."""

import dataclasses
import json
from typing import Any

import pytest

from experiments.kinship.clutrr_claims import CLUTRR_K23, CLUTRR_K234, CLUTRR_TEXT, measure_stories
from experiments.runtime.claims import Run


@pytest.mark.parametrize("comparison", [CLUTRR_K23, CLUTRR_K234], ids=lambda c: c.name)
def test_what_was_declared_about_published_graphs(comparison, tmp_path):
    """The published tests choose nothing."""
    assert (comparison.search_by, comparison.seeds) == ("generated", (10, 11, 12, 13, 14))
    for model in comparison.models:
        assert (model.config.data.clutrr, len(model.search)) == ("clutrr", 4)
        found = comparison.with_data(model.config, tmp_path)
        assert found.data == dataclasses.replace(model.config.data, clutrr=str(tmp_path))
    targets = {claim.id: (claim.tests, claim.target) for claim in comparison.claims}
    short = "clutrr.graph.k23", (), None
    name, tests, target = short if comparison is CLUTRR_K23 else ("clutrr.graph.k234", ("mean",), 0.95)
    assert targets == {name: (tests, target), f"{name}.baselines": (("unpaired",), None)}


def test_what_was_declared_about_stories(tmp_path):
    """The same rates for all, and as much time as the slowest, which is ours; `test_claims` has sizes."""
    assert (CLUTRR_TEXT.search_by, CLUTRR_TEXT.search_seeds, CLUTRR_TEXT.seeds) == (
        "trained",
        (101,),
        (10, 11, 12),
    )
    assert CLUTRR_TEXT.with_data is not None
    for model in CLUTRR_TEXT.models:
        own: Any = model.config
        config = CLUTRR_TEXT.with_data(own, tmp_path)
        assert config.data == dataclasses.replace(own.data, clutrr=str(tmp_path))
        assert [settings["lr"] for settings in model.search] == [1e-3, 2e-3, 4e-3, 8e-3]
        assert model.budgets["equal_steps"] == 9000
        assert model.step_seconds is not None
        assert abs(model.budgets["equal_time"] * model.step_seconds - 9000 * 0.1215) < 4
    assert [model.compared for model in CLUTRR_TEXT.models] == [True] * 3


def test_stories_are_measured_by_the_last_training_batches(tmp_path, monkeypatch):
    rows = [{"step": step, "accuracy": step / 10, "facts": step / 20} for step in range(8)]
    rows.append({"step": 8, "eval/metric": 0.5})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("experiments.kinship.clutrr_claims.measure", lambda run: {"mean": 0.25})
    nothing: Any = None
    found = measure_stories(Run(nothing, nothing, tmp_path))
    assert found == pytest.approx({"mean": 0.25, "trained": 0.5, "facts": 0.25})
