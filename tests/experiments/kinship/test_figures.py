"""The figures show the measured values."""

import numpy as np
import pytest

from experiments import runtime
from experiments.kinship import figures

pytestmark = pytest.mark.usefixtures("looks")


def drawn(figure):
    """Returns the data of a figure's lines by label."""
    (axes,) = figure.axes
    found = {line.get_label(): line.get_xydata() for line in axes.get_lines()}
    return {label: data for label, data in found.items() if not label.startswith("_")}


def line(model, seed, shift=0.0):
    accuracies = {"2": 1.0, "3": 0.9 - shift, "4": 0.5 - shift, "held_out/4": 0.1}
    curve = [[2, 1.0 + seed, 0.2], [4, 2.0 + seed, 0.5 - shift]] + ([[6, 5.0, 0.6]] if seed else [])
    return {
        "model": model, "seed": seed, "accuracies": accuracies, "curve": curve, "train_lengths": [2, 3],
        "metric_lengths": [3, 4],
    }  # fmt: skip


def test_models_have_names():
    names = [figures.shown(model) for model in ("jmc.atp", "bert", "t5", "relation_aware")]
    assert names == ["FOLNet jmc.atp", "BERT", "T5's positions", "relation-aware"]
    assert figures.spelt((4, 5, 6)) == "k = 4 to 6"
    assert figures.spelt((4, 6)) == "k = 4, 6"


def test_one_run_is_drawn_as_it_is():
    found = figures.of_lines({"j.a": [line("j.a", 0)], "bert": [line("bert", 1)]})
    assert set(found) == {"by_length", "by_steps", "by_seconds"}
    by_length = drawn(found["by_length"])
    np.testing.assert_allclose(by_length["FOLNet j.a"], [[2, 1], [3, 0.9], [4, 0.5]])
    assert set(by_length) == {"FOLNet j.a", "BERT"}
    np.testing.assert_allclose(drawn(found["by_steps"])["BERT"], [[2, 0.2], [4, 0.5], [6, 0.6]])
    np.testing.assert_allclose(drawn(found["by_seconds"])["BERT"], [[2, 0.2], [3, 0.5], [5, 0.6]])
    (axes,) = found["by_length"].axes
    assert axes.get_title() == "Trained on chains of 2 and 3 facts"
    assert [text.get_text() for text in axes.texts] == ["longest trained"]


def test_seeds_become_a_mean_with_an_interval():
    seeds = [line("j.a", 0), line("j.a", 1, shift=0.2)]
    found = figures.of_lines({"j.a": seeds})
    np.testing.assert_allclose(drawn(found["by_length"])["FOLNet j.a"], [[2, 1], [3, 0.8], [4, 0.4]])
    (axes,) = found["by_length"].axes
    (band,) = axes.collections
    low, high = band.get_datalim(axes.transData).intervaly
    _, lowest, highest = runtime.intervals.mean_interval([0.5, 0.3])
    assert low == pytest.approx(max(lowest, 0))
    assert high == 1  # 1.0 twice, and what is above 1 is cut
    assert "mean of 2 seeds" in axes.get_title()
    assert highest > 1
    # Steps that both seeds have; seconds covered by both, interpolated linearly between evaluations.
    np.testing.assert_allclose(drawn(found["by_steps"])["FOLNet j.a"], [[2, 0.2], [4, 0.4]])
    seconds = drawn(found["by_seconds"])["FOLNet j.a"]
    np.testing.assert_allclose(seconds[[0, -1]], [[2.0, (0.5 + 0.2) / 2], [2.0, (0.5 + 0.2) / 2]])


def test_a_model_without_an_evaluation_has_no_curve_and_no_evaluation_at_all_is_refused():
    for lines in ({}, {"j.a": []}, {"j.a": [line("j.a", 0) | {"curve": []}]}):
        with pytest.raises(ValueError, match="lines: got no run with an evaluation"):
            figures.of_lines(lines)
    found = figures.of_lines({"j.a": [line("j.a", 0)], "bert": [line("bert", 0) | {"curve": []}]})
    for name, models in {"by_length": 2, "by_steps": 1, "by_seconds": 1}.items():
        assert list(drawn(found[name])) == ["FOLNet j.a", "BERT"][:models]
