"""What is declared and measured of the suite."""

import json

import jax
import pytest

from experiments import runtime
from experiments.reasoning import suite
from experiments.reasoning.models import MODELS
from experiments.reasoning.suite_claims import BASELINE, CLAIMS, EXPECTED, SECONDS, measure, steps_of
from experiments.reasoning.tasks import TASKS
from experiments.runtime.claims import Run

BY_TASK = {comparison.models[0].config.task: comparison for comparison in CLAIMS}  # pyrefly: ignore


def test_every_model_that_fits_a_task_is_declared():
    assert list(BY_TASK) == list(TASKS)
    for task, comparison in BY_TASK.items():
        fitting = {name for name, model in MODELS.items() if model.fits(TASKS[task])}
        left_out = {"simplicial"} if task == "paths" else set()
        assert {model.name for model in comparison.models} == fitting - left_out
        assert EXPECTED[task] <= fitting - {BASELINE}
        assert comparison.models[0].name == BASELINE


def test_models_of_a_task_train_for_equal_time_on_equal_batches():
    for task, comparison in BY_TASK.items():
        assert len({model.config.batch_size for model in comparison.models}) == 1  # pyrefly: ignore
        for model in comparison.models:
            steps = model.budgets["equal_time"]
            assert steps == steps_of(task, model.name) == model.config.steps
            assert model.step_seconds is not None
            assert steps * model.step_seconds == pytest.approx(SECONDS, rel=0.02)
            assert 30 <= steps / model.config.eval_every <= 50  # pyrefly: ignore


@pytest.mark.parametrize("task", BY_TASK)
def test_models_have_the_declared_numbers_of_parameters(task):
    for model in BY_TASK[task].models:
        init = suite.problem(model.config)["init"]  # pyrefly: ignore
        params = jax.eval_shape(init, jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters, model.name


@pytest.mark.parametrize("name", [BASELINE, "lstm", "second_order"])
def test_accuracy_after_equal_steps_is_a_point_on_the_curve(name, tmp_path):
    """Of the smaller number of steps; the Transformer has one for every other model."""
    comparison = BY_TASK["s5"]
    config = next(model.config for model in comparison.models if model.name == name)
    last, test = config.steps, TASKS["s5"].measure
    rows = [{"step": step, f"eval/right/{test}": step / last} for step in (0, last // 2, last)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    results = {"tests": {f"right/{each}": 0.25 for each in TASKS["s5"].tests}}
    result = runtime.FitResult(None, None, last, {f"eval/right/{test}": 1.0}, results, 9.0, {})
    found = measure(Run(result, config, tmp_path))
    assert (found["right"], found["validated"]) == (0.25, 1.0)
    assert found["curve"] == [[row["step"], row["step"] / last] for row in rows]
    after = {key.removeprefix("after_steps_of_"): value for key, value in found.items() if "after" in key}
    others = [model.name for model in comparison.models[1:]] if name == BASELINE else [name]
    baseline = steps_of("s5", BASELINE)
    assert after == {each: pytest.approx(min(steps_of("s5", each), baseline) / last) for each in others}
    claims = {claim.value for claim in comparison.claims if name in (claim.ours, BASELINE)}
    assert claims <= set(found)
