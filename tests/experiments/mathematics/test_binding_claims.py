"""The claims about binding: what was declared, what is measured, and which questions are read."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from experiments.mathematics import binding_claims as claims
from experiments.mathematics import evaluation_set
from experiments.runtime import FitResult
from experiments.runtime.claims import Run
from tp_transformer import mathematics

ROOT = Path(__file__).resolve().parents[3]


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
        assert model.budgets == {"": claims.STEPS}
        assert {(s["model.initialization"], s["lr"]) for s in model.search} == {
            (name, lr) for name in ("xavier", "uniform") for lr in (3e-4, 1e-3, 3e-3)
        }
    assert (claims.MODULES.seeds, claims.MODULES.search_seeds) == ((0, 1, 2, 3, 4), (100,))


def test_means_are_tested_against_each_baseline_and_modules_reported():
    """Four to six modules and one of extrapolation; in exact match, and in bits, the fewer the better."""
    names = [module.split("__")[1] for module in (*claims.TRAINED, claims.LONGER)]
    one, other = (claims.SIZES[1][0], claims.SIZES[2][0])
    found = {claim.id: (claim.value, claim.against, claim.tests) for claim in claims.MODULES.claims}
    assert found == {
        f"mathematics.tp_against_transformer.{part}": (value, against, tests)
        for part, value, against, tests in (
            ("mean.transformer", "mean", (one,), ("paired",)),
            ("mean.gated_transformer", "mean", (other,), ("paired",)),
            ("bits.transformer", "mean_bits", (one,), ("paired",)),
            ("bits.gated_transformer", "mean_bits", (other,), ("paired",)),
            *((name, name, (), ()) for name in names),
            *((f"{name}.bits", f"{name}_bits", (), ()) for name in names),
        )
    }
    for comparison in claims.CLAIMS:
        for claim in comparison.claims:
            assert claim.higher_is_better != claim.value.endswith("_bits")
    assert 4 <= len(claims.TRAINED) <= 6
    mathematics.check_modules("train", claims.TRAINED)
    mathematics.check_modules("extrapolate", [claims.LONGER])
    claims.MODULES.check()
    claims.COMPOSED.check()


@pytest.mark.parametrize("comparison", claims.CLAIMS, ids=lambda comparison: comparison.name)
def test_settings_are_searched_by_training_questions(comparison):
    """Which are held back in all runs."""
    assert (comparison.search_by, comparison.search_higher_is_better) == ("validation_bits", False)
    for model in comparison.models:
        assert 0 < model.config.data.validation < model.config.data.train


def test_what_is_measured(tmp_path):
    """Each module's own share, of the run and of the commonest answer, and its bits."""

    def scores(right, average, module):
        counts = {"right": right, "total": 500, "bits": right / 10}
        return {"average": average, "modules": {module: counts}}

    longer = "comparison__kth_biggest_more"
    results = {
        "interpolate": scores(100, 0.2, "comparison__pair"),
        "extrapolate": scores(50, 0.1, longer),
        "validation": scores(150, 0.3, "comparison__pair"),
        "commonest_answer": {
            "interpolate": scores(25, 0.05, "comparison__pair"), "extrapolate": scores(5, 0.01, longer),
        },
    }  # fmt: skip
    result = FitResult(
        state=None, params=None, summary={}, step=1, metrics={}, results=results, train_seconds=1.0
    )
    assert claims.measure(Run(result, claims.MODULES.models[0].config, tmp_path)) == {
        "pair": 0.2,
        "pair_bits": 10,
        "kth_biggest_more": 0.1,
        "kth_biggest_more_bits": 5,
        "mean": 0.2,
        "mean_bits": 10,
        "validation": 0.3,
        "validation_bits": 15,
        "commonest/pair": 0.05,
        "commonest/kth_biggest_more": 0.01,
        "commonest/mean": 0.05,
    }


def test_compositions_are_compared_as_modules_are():
    """The same models, but for the questions; the search does not see held-out compositions."""
    for model, of_modules in zip(claims.COMPOSED.models, claims.MODULES.models, strict=True):
        assert (model.name, model.parameters) == (of_modules.name, of_modules.parameters)
        assert (model.search, model.steps) == (claims.SEARCH, claims.COMPOSED_STEPS)
        config: Any = model.config
        trained: Any = of_modules.config
        kept = dataclasses.replace(config, data=trained.data, steps=claims.STEPS, eval_questions=100)
        assert kept == trained
        assert config.data.questions == "composed"
    assert [(claim.value, claim.tests) for claim in claims.COMPOSED.claims] == [
        ("held_out", ("paired",)), ("held_out_bits", ("paired",)), ("trained", ()), ("guessed", ()),
    ]  # fmt: skip
    assert claims.COMPOSED.seeds == (0, 1, 2)


def test_what_is_measured_of_compositions(tmp_path):
    def counts(right, bits):
        return {"right": right, "total": 100, "bits": bits}

    results = {
        "interpolate": {"average": 0.5, "modules": {"sum_of_sum": counts(50, 2.0)}},
        "extrapolate": {"average": 0.25, "modules": {"sum_of_product": counts(25, 3.0)}},
        "validation": {"average": 0.75, "modules": {"a": counts(75, 1.0), "b": counts(75, 1.5)}},
    }
    result = FitResult(
        state=None, params=None, summary={}, step=1, metrics={}, results=results, train_seconds=1.0
    )
    found = claims.measure_composed(Run(result, claims.COMPOSED.models[0].config, tmp_path))
    assert found.pop("guessed") == pytest.approx(0.07, abs=0.02)
    assert found == {
        "validation_bits": 1.25, "trained_bits": 2.0, "held_out_bits": 3.0, "trained": 0.5, "held_out": 0.25,
        "sum_of_sum": 0.5, "sum_of_product": 0.25,
    }  # fmt: skip


def test_the_page_has_the_command_that_generates_the_questions():
    page = (ROOT / "docs" / "papers" / "tp_transformer.md").read_text(encoding="utf-8")
    command = claims.command(claims.base("tp_transformer", 448))
    assert command.replace("DIR", "data/binding") in page.splitlines()
    assert claims.MODULES.data_command == command


def test_questions_are_those_of_the_evaluation_set(tmp_path, monkeypatch):
    """A folder of the declared seed is accepted; one with another question, seed or size is not."""
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
    with pytest.raises(
        ValueError, match=r"generation.json: got train 6, expected .* --train=9 --test=4 --seed"
    ):
        claims.with_data(more, tmp_path)
    other = dataclasses.replace(config, data=dataclasses.replace(data, seed=1))
    with pytest.raises(
        ValueError, match=r"got seed 2019, expected a folder that .*data --out=DIR .*--seed=1"
    ):
        claims.with_data(other, tmp_path)
    with pytest.raises(
        ValueError, match=r"got train None, .*--modules=numbers__is_factor,numbers__place_val"
    ):
        claims.with_data(config, tmp_path / "none")
    path = tmp_path / "train-hard" / f"{module}.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(ValueError, match="got 5 questions of numbers__is_factor, expected 6"):
        claims.with_data(config, tmp_path)
    path = tmp_path / "extrapolate" / f"{longer}.txt"
    path.write_text(path.read_text().replace("0", "1"))
    with pytest.raises(ValueError, match="got other questions than the set's in extrapolate/numbers__place"):
        claims.with_data(config, tmp_path)
