"""What is declared and measured of the suite."""

import dataclasses
import json
from typing import Any

import pytest

from experiments import runtime
from experiments.reasoning import suite, suite_claims
from experiments.reasoning.models import MODELS
from experiments.reasoning.suite_claims import (
    BASELINE,
    CELLS,
    CLAIMS,
    EVALUATIONS,
    EXPECTED,
    FAMILY,
    RATED,
    RATES,
    SECONDS,
    compared_steps,
    measure,
    steps_of,
)
from experiments.reasoning.tasks import TASKS
from experiments.runtime.claims import Run

BY_TASK: dict[str, Any] = {comparison.name.removeprefix("reasoning."): comparison for comparison in CLAIMS}
OURS = (
    *("simplicial", "simplicial_virtual", "tp_transformer", "folnet", "folnet_without_trans"),
    *("second_order", "delta_product", "lstm", "transformer", "looped_transformer", "edge_transformer"),
)
"""The models of the zoo; a user may have others."""


def cell_of(model: Any) -> str:
    """The name of a declared model in the table of cells: the Transformer has one for each learning rate."""
    return BASELINE if model.name in RATED else model.name


def test_the_transformer_has_every_rate_of_the_search_and_must_lose_with_each():
    for comparison in BY_TASK.values():
        rated = {model.name: model.search for model in comparison.models if model.name in RATED}
        assert rated == {name: (rate,) for name, rate in zip(RATED, RATES, strict=True)}
        assert all(claim.against == RATED and claim.tests == ("paired",) for claim in comparison.claims)
        assert all(model.search == RATES for model in comparison.models if model.name not in RATED)


def test_a_run_that_diverges_counts_as_a_constant_answer(tmp_path):
    """It has all that is measured of a run that did not, with the accuracy of chance."""
    comparison = BY_TASK["paths"]
    config = comparison.models[0].config
    steps = range(config.eval_every, config.steps + 1, config.eval_every)
    rows = [{"step": step, "eval/right/graphs_of_12": 0.2} for step in steps]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tests = {f"right/{test}": 0.2 for test in TASKS["paths"].tests}
    result = runtime.FitResult(None, None, config.steps, {}, {"tests": tests, "validated": 0.2}, 9.0, {})
    found = comparison.diverged(config)
    assert found == measure(Run(result, config, tmp_path))


def test_every_model_of_the_zoo_that_fits_a_task_is_declared():
    assert list(BY_TASK) == list(TASKS)
    assert set(OURS) <= set(MODELS)
    for task, comparison in BY_TASK.items():
        fitting = {name for name in OURS if MODELS[name].fits(TASKS[task])}
        declared = {cell_of(model) for model in comparison.models}
        assert declared >= fitting
        assert EXPECTED[task] <= declared - {BASELINE}


def test_models_of_a_task_train_for_equal_time_on_equal_batches():
    for task, comparison in BY_TASK.items():
        assert len({model.config.batch_size for model in comparison.models}) == 1
        for model in comparison.models:
            steps = model.budgets["equal_time"]
            assert steps == steps_of(task, cell_of(model)) == model.config.steps
            assert steps * model.step_seconds == pytest.approx(SECONDS, rel=0.02)
            assert model.config.eval_every * EVALUATIONS == steps


def test_runs_take_the_time_that_is_planned():
    """Evaluation takes less than twice as long as training, and the docstring says how long all takes."""
    for task, cells in CELLS.items():
        for model in cells:
            assert suite_claims.evaluation_seconds(task, model) < 2 * SECONDS
    training, evaluation = suite_claims.planned_hours()
    assert suite_claims.__doc__ is not None
    text = " ".join(suite_claims.__doc__.split())
    cells = sum(map(len, CELLS.values()))
    assert f"{cells} cells of a task and a model: {cells - 8} train 8 runs each" in text
    assert f"{training:.1f} hours of one core. Evaluation takes at most {evaluation:.1f} hours more" in text


@pytest.mark.parametrize("task", BY_TASK)
def test_models_have_the_declared_numbers_of_parameters(task):
    """Within 2 % those of the Transformer, but for those that are not read."""
    for model in BY_TASK[task].models:
        total, read = suite.parameters_of(model.config)
        assert total == model.parameters, model.name
        assert total - read == CELLS[task][cell_of(model)].unread, model.name
        assert read == pytest.approx(CELLS[task][BASELINE].parameters, rel=0.02), model.name
        assert bool(model.exception) == (read < total or model.name in RATED)


def test_levels_do_not_depend_on_how_many_models_there_are():
    """They are corrected for more tests than the suite has."""
    tests = [claim for comparison in CLAIMS for claim in comparison.claims if claim.tests]
    assert len(tests) <= FAMILY
    for comparison in CLAIMS:
        assert comparison.corrected_level == pytest.approx(1 - 0.05 / FAMILY)


def test_expectations_are_about_equal_steps():
    for task, comparison in BY_TASK.items():
        expected = {claim.id: claim.expected for claim in comparison.claims}
        others = [model.name for model in comparison.models if model.name not in RATED]
        assert expected == {
            **{f"reasoning.{task}.{model}.equal_time": None for model in others},
            **{f"reasoning.{task}.{model}.equal_steps": model in EXPECTED[task] for model in others},
        }
        assert all(claim.paper is None for claim in comparison.claims)


def test_the_compared_number_of_steps_is_made_by_both():
    """It is at most a fifth smaller than the smaller of the two, and the claim names it."""
    for task, comparison in BY_TASK.items():
        for claim in comparison.claims:
            least = min(steps_of(task, BASELINE), steps_of(task, claim.ours))
            steps = compared_steps(task, claim.ours)
            assert 0.8 * least < steps <= least
            first = steps_of(task, BASELINE) // EVALUATIONS
            assert first <= steps  # or the Transformer would be compared before it was evaluated
            if claim.id.endswith(".equal_steps"):
                assert claim.value == f"after_{steps}"
                assert f"({steps:,} each)" in claim.claim


@pytest.mark.parametrize("name", [BASELINE, "lstm", "simplicial"])
def test_accuracy_after_equal_steps_is_a_point_on_the_curve(name, tmp_path):
    """Which begins with a constant answer; the Transformer has the numbers of steps of every other model."""
    comparison = BY_TASK["s5"]
    config = next(model.config for model in comparison.models if cell_of(model) == name)
    last, test, chance = config.steps, TASKS["s5"].measure, 1 / 120
    evaluated = [[step, step / last] for step in (last // 2, last)]
    rows = [{"step": step, f"eval/right/{test}": value} for step, value in evaluated]
    rows.insert(1, {"step": last // 2 + 1, "loss": 1.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tests = {f"right/{each}": 0.25 for each in TASKS["s5"].tests}
    results = {"tests": tests, "validated": 0.75}
    result = runtime.FitResult(None, None, last, {f"eval/right/{test}": 1.0}, results, 9.0, {})
    found = measure(Run(result, config, tmp_path))
    assert (found["right"], found["validated"]) == (0.25, 0.75)
    assert found["tests"] == dict.fromkeys(TASKS["s5"].tests, 0.25)
    assert found["curve"] == [[0, chance], *evaluated]
    after = {int(key.removeprefix("after_")): value for key, value in found.items() if "after_" in key}
    assert max(after) <= last
    for steps, value in after.items():
        early = max(0.0, 1 - steps / (last // 2)) * chance
        assert value == pytest.approx(steps / last + early)
    claims = {claim.value for claim in comparison.claims if name in (claim.ours, BASELINE)}
    assert claims <= set(found)


def test_figures_show_time_and_the_sizes_of_problems():
    """Of two tests of one size, the one that is drawn as training is."""
    comparison = BY_TASK["match3"]
    tests = {"sets": 0.75, "triples": 0.5, "sets_of_10": 0.625}
    curve = [[0, 0.5], [5360, 1.0]]
    line = {"config": {"task": "match3"}, "measurements": {"tests": tests, "curve": curve}}
    drawn = comparison.figures({"simplicial": [line, line]})
    assert list(drawn) == ["reasoning/match3", "reasoning/match3_by_size"]
    in_time, by_size = (figure.axes[0].lines[0] for figure in drawn.values())
    assert in_time.get_xdata().tolist() == pytest.approx(
        [0, 5360 * CELLS["match3"]["simplicial"].step_seconds]
    )
    assert in_time.get_ydata().tolist() == [0.5, 1.0]
    assert (by_size.get_xdata().tolist(), by_size.get_ydata().tolist()) == ([7, 10], [0.75, 0.625])


def test_a_model_may_be_added_after_the_first_reported_seed(monkeypatch):
    """The claims about the others stay as they are."""
    before = BY_TASK["match3"].declaration()
    cells = {**CELLS["match3"], "mine": CELLS["match3"]["folnet"]}
    monkeypatch.setitem(MODELS, "mine", MODELS["folnet"])
    monkeypatch.setattr(suite_claims, "CELLS", {"match3": cells})
    grown = suite_claims.comparison("match3")
    grown.check()
    assert grown.differences(before) == []
    assert grown.grows(before)
    assert dataclasses.replace(grown, family=0).differences(before) != []
