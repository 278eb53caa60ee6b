"""What is declared of the authors' experiments."""

import dataclasses
from typing import Any

import jax
import pytest

from experiments import baselines
from experiments.llrnn.authors_claims import CELLS, CLAIMS, SECONDS
from experiments.llrnn.config import AUTHORS_TASKS, get_config


def test_all_experiments_but_copy_are_declared():
    """At the authors' sizes; whichever cell, ten minutes' worth of steps or the authors' number."""
    assert [comparison.name for comparison in CLAIMS] == [
        f"llrnn.authors.{name}" for name in AUTHORS_TASKS[1:]
    ]
    for comparison in CLAIMS:
        comparison.check()
        assert comparison.seeds == (0,)
        for model in comparison.models:
            preset = get_config(f"authors_{comparison.name.removeprefix('llrnn.authors.')}")
            config: Any = model.config
            assert config.task_options.truncate == (True if "variable" in comparison.name else None)
            assert config.cell.name == CELLS[model.name]
            same = dataclasses.replace(config, cell=config.cell.as_variant("ntm"))
            assert same == dataclasses.replace(preset, baseline=same.baseline)
            assert isinstance(model.steps, int)
            assert model.step_seconds is not None
            most = min(preset.steps, SECONDS / model.step_seconds)
            assert abs(model.steps - most) <= preset.log_every / 2


def test_what_the_authors_report_is_the_bar():
    """The median of their runs of our first model; where they report none, our errors are only reported."""
    bars = {comparison.name.removeprefix("llrnn.authors."): comparison.claims[0] for comparison in CLAIMS}
    targets = {name: claim.target for name, claim in bars.items() if claim.tests}
    assert targets == {
        "pattern_4": 0.076,
        "multiple_pattern_3": 0.099,
        "variable_pattern_2": 0.216,
        "variable_pattern_3": 0.257,
    }
    assert bars["variable_pattern_2"].paper == (
        "Pattern NTM: 0.036 / 0.216; Neural Turing Machine: 0.137 / 0.267 (best / median of their runs)"
    )
    assert bars["variable_pattern_2"].value == "train/error_98"
    assert bars["pattern_1"].paper is None
    assert bars["multiple_pattern_1"].paper is None  # theirs is of another measure
    assert not any(claim.higher_is_better for claim in bars.values())


@pytest.mark.parametrize("name", CELLS)
def test_cells_have_the_declared_numbers_of_parameters(name):
    model = next(model for comparison in CLAIMS for model in comparison.models if model.name == name)
    config: Any = model.config
    task = config.make_task()
    inputs = jax.ShapeDtypeStruct((1, 2, sum(task.fields)), "float32")
    assert baselines.count(config.make_model(task), inputs) == model.parameters
    assert getattr(config.cell, "direct", None) is (None if name == "Neural Turing Machine" else True)
