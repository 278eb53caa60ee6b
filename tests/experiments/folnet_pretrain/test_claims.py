"""The claims of this room: what was declared before the reported seeds ran, and what is measured."""

import dataclasses

import pytest

from experiments.folnet_pretrain import claims
from experiments.folnet_pretrain.config import get_config
from experiments.runtime.claims import Run


def test_it_compares_the_quick_preset_with_its_matched_baseline():
    first, second = (model.config for model in claims.QUICK.models)
    quick = dataclasses.replace(get_config("quick").resolved(), schedule_steps=500)
    assert first == dataclasses.replace(quick, baseline="none")
    assert second == quick.for_baseline()
    assert [model.parameters for model in claims.QUICK.models] == [393_666, 393_772]


def test_budgets_and_seeds_are_as_declared():
    """500 steps, and as many seconds; the best of three rates by two seeds that are not reported."""
    comparison = claims.QUICK
    assert (comparison.seeds, comparison.search_seeds) == ((0, 1, 2, 3, 4), (100, 101))
    assert (comparison.search_by, comparison.search_higher_is_better) == ("loss", False)
    assert [model.budgets["equal_steps"] for model in comparison.models] == [500, 500]
    assert comparison.models[0].budgets["equal_time"] == 500
    seconds = [model.budgets["equal_time"] * (model.step_seconds or 0) for model in comparison.models]
    assert seconds[1] == pytest.approx(seconds[0], rel=0.02)
    for model in comparison.models:
        assert [change["lr"] for change in model.search] == [5e-3, 1e-2, 2e-2]
    better = {claim.value: claim.higher_is_better for claim in comparison.claims}
    assert better == {"loss": False, "accuracy": True}


def test_what_is_measured_is_the_runs_record(folnet_run):
    config, workdir, results = folnet_run
    result = results["folnet"]
    found = claims.measure(Run(result, config, workdir))
    assert (found["loss"], found["accuracy"]) == (
        result.metrics["eval/mlm_loss"],
        result.metrics["eval/mlm_accuracy"],
    )
    assert found["unigram_entropy"] == result.results["unigram_entropy"]
    assert [step for step, _ in found["curve"]] == [2, 4]
    assert found["curve"][-1][1] == found["loss"]
