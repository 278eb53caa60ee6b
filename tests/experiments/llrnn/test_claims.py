"""What the comparisons of recurrent cells measure and draw, and how they count updates."""

import json

import jax
import numpy as np
import pytest

from experiments import baselines, runtime
from experiments.llrnn import claims, state_claims
from experiments.llrnn.claims import COMPOSED_COUPLING, LEARNED_COUPLING
from experiments.llrnn.config import Config
from experiments.runtime.claims import Run

OURS = LEARNED_COUPLING.models[0]
COUPLINGS = pytest.mark.parametrize(
    ("comparison", "updates"),
    [(LEARNED_COUPLING, 8000 + 40 * 2400), (COMPOSED_COUPLING, 6000 + 24 * 6000)],
    ids=["alone", "composed"],
)


@COUPLINGS
def test_every_model_makes_as_many_updates_and_none_keeps_a_setting_of_ours(comparison, updates):
    """The starts of ours count."""
    assert {model.updates("") for model in comparison.models} == {updates}
    ours, *baselines = comparison.models
    assert all(model.config.further_steps == 0 for model in baselines)
    for model in comparison.models:
        assert isinstance(model.config, Config)
        assert (model.config.table_lr > 0) == (model.config.operator_length > 0) == (model is ours)


def test_larger_baselines_of_the_composed_programs_are_reported_with_two_seeds():
    larger = [model for model in COMPOSED_COUPLING.models if model.name.endswith("larger")]
    assert [(model.compared, len(COMPOSED_COUPLING.seeds_of(model))) for model in larger] == [(False, 2)] * 3
    others = [model for model in COMPOSED_COUPLING.models if model not in larger]
    assert all(model.compared and COMPOSED_COUPLING.seeds_of(model) == (0, 1, 2, 3, 4) for model in others)


@pytest.mark.parametrize(
    "comparison", [LEARNED_COUPLING, COMPOSED_COUPLING, *state_claims.CLAIMS], ids=lambda each: each.name
)
def test_models_have_the_declared_numbers_of_parameters(comparison):
    for model in comparison.models:
        assert isinstance(model.config, Config)
        task = model.config.make_task()
        inputs = jax.ShapeDtypeStruct((1, 2, sum(task.fields)), "float32")
        assert baselines.count(model.config.make_model(task), inputs) == model.parameters, model.name


@pytest.mark.parametrize("learned", [False, True])
def test_a_learned_program_and_its_starts_are_measured(learned, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 50, "loss": 1.0}\n{"step": 100, "train_seconds": 2.5, "eval/train/error_8": 0.25}\n'
    )
    results = {"held_out_once/error_8": {"error": 0.25}}
    if learned:
        starts = [{"seed": 3, "loss": 2.0, "accuracy": 0.5}, {"seed": 4, "loss": 0.1, "accuracy": 1.0}]
        results |= {"starts": starts, "success_rate": 0.5, "program": {"numerals": [0, 1]}}
    result = runtime.FitResult(None, None, 100, {}, results, 9.0, {})
    found = claims.measure_coupling(Run(result, OURS.config, tmp_path))
    assert found["held_out_once/accuracy_8"] == 0.75
    assert found["curve"] == [{"step": 100, "train_seconds": 2.5, "eval/train/error_8": 0.25}]
    more = {name: found[name] for name in ("starts", "success_rate", "program") if name in found}
    expected = {"starts": [0.5, 1.0], "success_rate": 0.5, "program": {"numerals": [0, 1]}}
    assert more == (expected if learned else {})
    json.dumps(found, allow_nan=False)


@COUPLINGS
def test_the_figure_has_the_accuracy_of_every_model_against_updates(comparison, updates):
    name = comparison.claims[0].value.replace("accuracy", "error")

    def lines(*errors, **more):
        curve = [{"step": 10 * (k + 1), f"eval/{name}": e} for k, e in enumerate(errors)]
        return [{"measurements": {"curve": curve, **more}}] * 3

    figures = comparison.figures({"ours": lines(0.5, 0.0, starts=[1.0]), "other": lines(0.75, 0.5, 0.25)})
    (axes,) = figures[comparison.name.replace(".", "/")].axes
    curves = {line.get_label(): np.asarray(line.get_data()) for line in axes.lines}
    np.testing.assert_allclose(curves["ours (after its starts)"], [[10, 20], [0.5, 1.0]])
    np.testing.assert_allclose(curves["other"], [[10, 20, 30], [0.25, 0.5, 0.75]])
