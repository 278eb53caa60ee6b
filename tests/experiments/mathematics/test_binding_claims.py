"""The claims about binding: what was declared, what is measured, and which questions are read."""

import dataclasses
from typing import Any

import pytest

from experiments.mathematics import binding_claims as claims
from experiments.mathematics import evaluation_set
from experiments.runtime import FitResult
from experiments.runtime.claims import Run
from tp_transformer import mathematics


def test_the_models_differ_in_what_multiplies_the_retrieved_values():
    """And in the width that makes up for the Transformer's missing matrices."""
    ours, *others = claims.MODULES.models
    config: Any = ours.config
    assert [model.config.model.name for model in claims.MODULES.models] == [  # pyrefly: ignore
        "tp_transformer", "transformer", "gated_transformer",
    ]  # fmt: skip
    assert 0.8e6 <= ours.parameters <= 2e6
    assert config.model.parameters() == ours.parameters
    for model in others:
        named = dataclasses.replace(config.model, name=model.config.model.name)  # pyrefly: ignore
        matched = named.matched(ours.parameters)
        assert model.config == dataclasses.replace(config, model=matched)
        assert matched.parameters() == model.parameters
    for model in claims.MODULES.models:
        assert model.budgets["equal_steps"] == claims.STEPS
        assert {(s["model.initialization"], s["lr"]) for s in model.search} == {
            (name, lr) for name in ("xavier", "uniform") for lr in (3e-4, 1e-3, 3e-3)
        }
    assert (claims.MODULES.seeds, claims.MODULES.search_seeds) == ((0, 1, 2, 3, 4), (100,))


def test_every_claim_is_paired_and_read_from_its_module():
    """Five modules from four areas, one of extrapolation, and the mean."""
    values = [claim.value for claim in claims.MODULES.claims if claim.budget == "equal_steps"]
    assert values == [
        "mean", "linear_1d", "add_sub_multiple", "differentiate", "kth_biggest", "pair",
        "add_sub_multiple_longer",
    ]  # fmt: skip
    assert {module.split("__")[0] for module in claims.TRAINED} == {
        "algebra", "arithmetic", "calculus", "comparison",
    }  # fmt: skip
    assert {claim.tests for claim in claims.MODULES.claims} == {("paired",)}


def test_equal_time_is_a_number_of_steps(monkeypatch):
    """A model whose steps take half as long gets twice as many, to the next hundred."""
    seconds = {"tp_transformer": 0.2, "transformer": 0.1, "gated_transformer": 0.21}
    monkeypatch.setattr(claims, "SECONDS", seconds)
    found = [model.budgets["equal_time"] for model in claims.models(claims.SEARCH)]
    assert found == [claims.STEPS, 2 * claims.STEPS, round(claims.STEPS / 1.05, -2)]
    assert [model.step_seconds for model in claims.models(claims.SEARCH)] == list(seconds.values())


def test_what_is_measured(tmp_path):
    """Each module's own share, of the run and of the commonest answer."""

    def scores(right, average, module):
        counts = {"right": right, "total": 500}
        return {"average": average, "modules": {module: counts}}

    longer = "arithmetic__add_sub_multiple_longer"
    results = {
        "interpolate": scores(100, 0.2, "comparison__pair"),
        "extrapolate": scores(50, 0.1, longer),
        "commonest_answer": {
            "interpolate": scores(25, 0.05, "comparison__pair"), "extrapolate": scores(5, 0.01, longer),
        },
    }  # fmt: skip
    result = FitResult(
        state=None, params=None, summary={}, step=1, metrics={}, results=results, train_seconds=1.0
    )
    assert claims.measure(Run(result, claims.MODULES.models[0].config, tmp_path)) == {
        "pair": 0.2,
        "add_sub_multiple_longer": 0.1,
        "mean": 0.2,
        "commonest/pair": 0.05,
        "commonest/add_sub_multiple_longer": 0.01,
        "commonest/mean": 0.05,
    }


def test_compositions_are_compared_as_modules_are():
    """The same models, but for the questions; the search does not see held-out compositions."""
    for model, of_modules in zip(claims.COMPOSED.models, claims.MODULES.models, strict=True):
        assert (model.name, model.parameters) == (of_modules.name, of_modules.parameters)
        assert (model.search, model.budgets) == (claims.SEARCH, {"equal_steps": 3000})
        config: Any = model.config
        trained: Any = of_modules.config
        kept = dataclasses.replace(config, data=trained.data, steps=claims.STEPS, eval_questions=100)
        assert kept == trained
        assert config.data.questions == "composed"
    tested, reported = claims.COMPOSED.claims
    assert (tested.tests, tested.value, reported.tests) == (("paired",), "held_out", ())
    assert (claims.COMPOSED.seeds, claims.COMPOSED.search_by) == ((0, 1, 2), "trained")


def test_what_is_measured_of_compositions(tmp_path):
    results = {
        "interpolate": {"average": 0.5, "modules": {"sum_of_sum": {"right": 50, "total": 100}}},
        "extrapolate": {"average": 0.25, "modules": {"sum_of_product": {"right": 25, "total": 100}}},
    }
    result = FitResult(
        state=None, params=None, summary={}, step=1, metrics={}, results=results, train_seconds=1.0
    )
    assert claims.measure_composed(Run(result, claims.COMPOSED.models[0].config, tmp_path)) == {
        "trained": 0.5, "held_out": 0.25, "sum_of_sum": 0.5, "sum_of_product": 0.25,
    }  # fmt: skip


def test_questions_are_those_of_the_evaluation_set(tmp_path, monkeypatch):
    """A folder of the declared seed is accepted; one with another question or another size is not."""
    monkeypatch.setattr(evaluation_set, "QUESTIONS", 4)
    module, longer = "numbers__is_factor", "numbers__place_value_big"
    drawn = mathematics.Generator(6, 4, (module,), (longer,), evaluation_set.SEED)
    for split, name in (("interpolate", module), ("extrapolate", longer)):
        digest = evaluation_set.digest(drawn.questions(split, name))
        monkeypatch.setitem(evaluation_set.DIGESTS[split], name, digest[:32])
    base = claims.base("tp_transformer", 448)
    data = dataclasses.replace(base.data, modules=(module,), extrapolation=(longer,), train=6, test=4)
    config = dataclasses.replace(base, data=data)
    mathematics.generate(tmp_path, drawn, processes=1, show=False)
    read = claims.with_data(config, tmp_path)
    assert read == dataclasses.replace(config, data=dataclasses.replace(data, directory=str(tmp_path)))
    more = dataclasses.replace(config, data=dataclasses.replace(data, train=9))
    with pytest.raises(ValueError, match="got 6 questions of numbers__is_factor, expected 9"):
        claims.with_data(more, tmp_path)
    path = tmp_path / "extrapolate" / f"{longer}.txt"
    path.write_text(path.read_text().replace("0", "1"))
    with pytest.raises(ValueError, match="got other questions than the set's in extrapolate/numbers__place"):
        claims.with_data(config, tmp_path)
