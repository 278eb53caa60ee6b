"""The claims of this room: what is declared, and what is measured."""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest

from experiments.reasoning import claims, train
from experiments.runtime import FitResult
from experiments.runtime.claims import Run


def test_the_models_differ_in_attention_alone():
    """And in the hidden size that makes up for the missing parameters."""
    configs: list[Any] = [model.config for model in claims.LANGUAGE.models]
    assert dataclasses.replace(configs[1], every=4, hidden=384) == configs[0]
    for model, config in zip(claims.LANGUAGE.models, configs, strict=True):
        params = jax.eval_shape(train.problem(config)["init"], jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
        assert config.schedule_steps == model.steps == 1000
        assert [change["lr"] for change in model.search] == [1e-3, 2e-3, 4e-3]
    assert (claims.LANGUAGE.seeds, claims.LANGUAGE.search_seeds) == ((0, 1, 2), (100,))
    assert not claims.LANGUAGE.claims[0].higher_is_better
    assert not claims.LANGUAGE.search_higher_is_better


def test_what_was_declared_about_distances():
    """All operators against those without trans."""
    compared = {model.config.operators: model.compared for model in claims.GRAPH_DISTANCES.models}  # pyrefly: ignore
    assert compared == {
        "jmc.atp": True, "jmc.ap": True, "jm.ap": True, "j.a": True, "jm.atp": False, "j.at": False,
    }  # fmt: skip
    for model in claims.GRAPH_DISTANCES.models:
        params = jax.eval_shape(train.problem(model.config)["init"], jax.random.key(0))  # pyrefly: ignore
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
    assert (claims.GRAPH_DISTANCES.seeds, claims.GRAPH_DISTANCES.search_seeds) == ((0, 1, 2, 3, 4), (100,))


def test_what_is_measured_of_distances(tmp_path):
    rows = [{"step": 1, "eval/right/48": 0.25}, {"step": 2}, {"step": 3, "eval/right/48": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = {"eval/right/12": 1.0, "eval/right/24": 0.75, "eval/right/48": 0.5}
    result = FitResult(
        state=None, params=None, summary={}, step=3, metrics=metrics, results={}, train_seconds=1.0
    )
    found = claims.measure_distances(Run(result, claims.GRAPH_DISTANCES.models[0].config, tmp_path))
    assert found == {"right12": 1.0, "right24": 0.75, "right48": 0.5, "curve": [[1, 0.25], [3, 0.5]]}


def test_what_is_measured(tmp_path):
    rows = [{"step": 1, "eval/bits_per_byte": 3.0}, {"step": 2}, {"step": 3, "eval/bits_per_byte": 2.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = {"eval/bits_per_byte": 2.5, "loss": 1.0}
    result = FitResult(
        state=None, params=None, summary={}, step=3, metrics=metrics, results={}, train_seconds=1.0
    )
    found = claims.measure(Run(result, claims.LANGUAGE.models[0].config, tmp_path))
    assert found == {"bits_per_byte": 2.5, "curve": [[1, 3.0], [3, 2.5]]}


def test_what_was_declared_about_bridges():
    """Trunks as in the paper, and one of another width; the exception to equal parameters is stated."""
    models: list[Any] = list(claims.WHICH_BOX.models)
    claims.WHICH_BOX.check()
    for model in models:
        params = jax.eval_shape(train.problem(model.config)["init"], jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
        assert [change["lr"] for change in model.search] == [1e-3, 2e-3, 4e-3]
    fields = ("virtual_entities", "features", "pair_logit", "bilinear", "input_centre", "input_scale")
    assert [tuple(getattr(model.config, name) for name in fields) for model in models] == [
        (2, 64, "unsigned", True, 199, 64), (0, 64, "unsigned", True, 199, 64),
        (0, 166, "unsigned", True, 199, 64), (2, 64, "trilinear", True, 199, 64),
        (2, 64, "unsigned", False, 199, 64), (2, 64, "unsigned", True, 0, 255),
    ]  # fmt: skip
    assert [model.compared for model in models] == [True] * 3 + [False] * 3
    assert [bool(model.exception) for model in models] == [False, True, False, False, False, False]
    assert (claims.WHICH_BOX.seeds, claims.WHICH_BOX.search_seeds) == ((0, 1, 2, 3, 4), (100,))


def test_what_is_measured_of_bridges(tmp_path):
    parts = {"eval/right": 0.5, "eval/right/1": 0.75, "eval/right/2": 0.25, "eval/right/3": 0.125}
    rows = [{"step": 1}, {"step": 2, **parts}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = FitResult(
        state=None, params=None, summary={}, step=2, metrics=parts, results={}, train_seconds=1.0
    )
    found = claims.measure_bridges(Run(result, claims.WHICH_BOX.models[0].config, tmp_path))
    values = {"right": 0.5, "right1": 0.75, "right2": 0.25, "right3": 0.125}
    assert found == {
        **values, "curve": {"boards": [512], **{name: [value] for name, value in values.items()}},
    }  # fmt: skip


def test_what_was_declared_and_is_measured_of_the_published_setting(tmp_path):
    """One model, as published; the claim is about the distance, on either side."""
    comparison = claims.PUBLISHED_COMPOSITION
    comparison.check()
    (model,) = comparison.models
    params = jax.eval_shape(train.problem(model.config)["init"], jax.random.key(0))  # pyrefly: ignore
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == model.parameters
    assert (model.search, comparison.seeds) == (({},), (5, 6, 7, 8, 9))
    distance, accuracy = comparison.claims
    assert (distance.target, distance.share, distance.higher_is_better) == (0.05, 0.5, False)
    assert accuracy.tests == ()
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2, "eval/right": 0.9}\n')
    result = FitResult(
        state=None,
        params=None,
        summary={},
        step=2,
        metrics={"eval/right": 0.9},
        results={},
        train_seconds=1.0,
    )
    found = claims.measure_published(Run(result, model.config, tmp_path))
    assert found == {"right": 0.9, "error": pytest.approx(0.02), "curve": [[2, 0.9]]}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("every", -1, "every: got -1, expected at least 0"),
        ("lr", 0.0, "lr: got 0.0, expected more than 0"),
        ("schedule_steps", 100, "schedule_steps: got 100, expected at least 101"),
        ("logit", "unsigned", "logit: got 'unsigned', expected one of 'trilinear', 'signed'"),
        ("length", 0, "length: got 0, expected at least 1"),
    ],
)
def test_configs_are_checked(field, value, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(claims.LANGUAGE.models[0].config, **{field: value}).validate()


def test_curves_of_which_box():
    """Against boards, on all and by length; against the minutes that a quiet machine needs for them."""
    curve = {"boards": [256_000, 512_000], **{name: [0.2, 0.4] for name in ("right", "right1", "right2")}}
    line: Any = {"measurements": {"curve": {**curve, "right3": [0.1, 0.3]}}}
    draw = claims.WHICH_BOX.figures
    assert draw is not None
    drawn = {
        name: figure.axes[0].get_lines()[0].get_data()
        for name, figure in draw({"relational": [line]}).items()
    }
    assert [*drawn] == [
        f"reasoning/which_box_{name}" for name in ("right", "right1", "right2", "right3", "time")
    ]
    np.testing.assert_allclose(drawn["reasoning/which_box_right3"], [[0.256, 0.512], [0.1, 0.3]])
    minutes = [1000 * claims._STEP_SECONDS["relational"] / 60 * step for step in (1, 2)]
    np.testing.assert_allclose(drawn["reasoning/which_box_time"], [minutes, [0.2, 0.4]])
