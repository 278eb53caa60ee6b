"""What claims measure of a finished run, and what they draw, with numbers of released and made-up runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import claims as program
from experiments.runtime import FitResult, claims, releasing

ROOT = Path(__file__).resolve().parents[2]
DECLARED = program.comparisons()


def finished(comparison, experiment, folder, **results):
    """A finished run with the files of a folder, or with other results."""
    summary = results or json.loads((folder / "summary.json").read_text())
    fields = {name: summary[name] for name in ("step", "metrics", "results", "train_seconds")}
    config = None if results else releasing.read_run_config(experiment.config, folder)
    return claims.Run(FitResult(state=None, params=None, summary=summary, **fields), config, folder)


RELEASED = {
    "boxworld.quick": ("boxworld/quick_simplicial", {"solved": 0.988, "chance": 0.093}),
    "kinship.operators": ("kinship/jmc.atp", {"mean": 4.8 / 7, "k2": 1.0, "k4": 0.968, "k10": 0.472}),
    "mathematics.quick": (
        "mathematics/quick",
        {
            "place_value": 0.992,
            "comparison_pair": 0.526,
            "commonest/place_value": 0.098,
            "commonest/comparison_pair": 0.254,
            "mean": 0.759,
        },
    ),
    "llrnn.copy": ("llrnn/copy", {"train/error_40": 0.0, "train/accuracy_40": 1.0}),
    "llrnn.given_coupling": ("llrnn/quick", {"held_out_once/accuracy_8": 1.0, "train/error_8": 0.0}),
    "llrnn.word_problem": ("llrnn/word_problem", {"train/accuracy_256": 1.0, "train/error_16": 0.0}),
}
"""The released run of each comparison, and numbers of its README."""


def measured(name):
    folder = ROOT / "results" / RELEASED[name][0]
    return DECLARED[name][0].measure(finished(*DECLARED[name], folder))


@pytest.mark.parametrize("name", RELEASED)
def test_a_released_run_is_measured(name):
    """Every value that a claim or the search reads is there."""
    found, comparison = measured(name), DECLARED[name][0]
    for value, expected in RELEASED[name][1].items():
        assert found[value] == pytest.approx(expected), value
    for value in (comparison.search_by, *(claim.value for claim in comparison.claims)):
        assert 0 <= found[value] <= 1
    json.dumps(found, allow_nan=False)


def test_curves_of_released_runs():
    """They are the lines of the record that hold an evaluation, or a window of episodes."""
    curve = measured("boxworld.quick")["curve"]
    assert (curve["frames"][0], curve["frames"][-1], len(curve["frames"])) == (25_600, 1_228_800, 48)
    assert (curve["solved"][0], curve["solved"][-1]) == (0.1511, 0.9990)
    of_kinship = measured("kinship.operators")["line"]["curve"]
    assert (of_kinship[0], of_kinship[-1]) == ([200, 6.324, 0.59971], [5600, 151.048, 0.68571])
    (end,) = [point for point in measured("llrnn.copy")["curve"] if point["step"] == 2500]
    assert end["train_seconds"] == 18.002
    assert all("eval/train/error_40" in point for point in measured("llrnn.copy")["curve"])


def write_metrics(folder, *rows):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_errors_and_accuracies_add_up_to_one(tmp_path):
    """For a run that is not right everywhere."""
    write_metrics(tmp_path, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "eval/train/error_20": 0.75})
    results = {"train/error_20": {"error": 0.25, "symbols": 8}, "train/error_40": {"error": 0.9}, "note": "x"}
    own = {"step": 2, "metrics": {}, "results": results, "train_seconds": 1.0}
    found = DECLARED["llrnn.copy"][0].measure(finished(*DECLARED["llrnn.copy"], tmp_path, **own))
    assert found == {
        "train/error_20": 0.25,
        "train/accuracy_20": 0.75,
        "train/error_40": 0.9,
        "train/accuracy_40": pytest.approx(0.1),
        "curve": [{"step": 2, "eval/train/error_20": 0.75}],
    }


def test_pretraining_is_measured(tmp_path):
    """At its end, and at each evaluation."""
    write_metrics(
        tmp_path, {"step": 1, "eval/mlm_loss": 5.0}, {"step": 2, "eval/mlm_loss": None}, {"step": 3}
    )
    own: dict[str, Any] = {"step": 3, "results": {"unigram_entropy": 6.5}, "train_seconds": 1.0}
    own["metrics"] = {"eval/mlm_loss": 4.5, "eval/mlm_accuracy": 0.2, "loss": 9.0}
    name = "folnet.pretraining"
    found = DECLARED[name][0].measure(finished(*DECLARED[name], tmp_path, **own))
    assert found == {"loss": 4.5, "accuracy": 0.2, "unigram_entropy": 6.5, "curve": [[1, 5.0]]}


def drawn(name, first, second):
    """The curves, by label, that a comparison's only figure shows of two seeds with these measurements."""
    lines = [{"measurements": measurements} for measurements in (first, second)]
    draw: Any = DECLARED[name][0].figures
    ((_, figure),) = draw({"ours": lines}).items()
    axes = figure.axes[0]
    shown = {line.get_label(): tuple(map(list, line.get_data())) for line in axes.lines}
    return axes, {label: curve for label, curve in shown.items() if not label.startswith("_")}


def test_curves_over_steps_are_means_over_seeds():
    """Interpolated to the frames that both runs have; the random policy is a line of its own."""
    first = {"curve": {"frames": [0, 2e6], "solved": [0.0, 0.8]}, "chance": 0.25}
    second = {"curve": {"frames": [0, 1e6], "solved": [0.2, 0.8]}, "chance": 0.35}
    axes, shown = drawn("boxworld.quick", first, second)
    frames, solved = shown["ours"]
    assert (frames[0], frames[-1], len(frames)) == (pytest.approx(0.05), pytest.approx(1), 40)
    assert (solved[0], solved[-1]) == (pytest.approx(0.125), pytest.approx(0.6))
    assert shown["random policy"] == ([0, 1], pytest.approx([0.3, 0.3]))
    assert axes.get_ylim() == (0, 1)


def test_errors_are_drawn_in_the_order_of_lengths():
    """100 after 20; the longest trained length is marked."""
    first = {"train/error_100": 0.5, "train/error_20": 0.2, "train/accuracy_20": 0.8, "curve": []}
    axes, shown = drawn("llrnn.copy", first, {**first, "train/error_100": 0.7})
    assert shown == {"ours": ([20, 100], pytest.approx([0.2, 0.6]))}
    assert [line.get_xdata()[0] for line in axes.lines if line.get_label().startswith("_")] == [10]


def test_accuracies_on_held_out_and_trained_pairs_are_drawn():
    """Each is one minus its own error."""
    seeds = [
        {
            "curve": [
                {"step": step, "eval/held_out_once/error_8": held + seed, "eval/train/error_8": error}
                for step, held, error in ((500, 0.8, 0.5), (1000, 0.4, 0.1))
            ]
        }
        for seed in (0.0, 0.2)
    ]
    _, shown = drawn("llrnn.given_coupling", *seeds)
    assert shown == {
        "ours, held-out pairs": ([500, 1000], pytest.approx([0.1, 0.5])),
        "ours, trained pairs": ([500, 1000], pytest.approx([0.5, 0.9])),
    }


def test_figures_of_kinship_are_those_of_its_records():
    """A line per model."""
    line = measured("kinship.operators")["line"]
    draw: Any = DECLARED["kinship.operators"][0].figures
    runs = {name: [{"measurements": {"line": {**line, "model": name}}}] for name in ("jmc.atp", "j.at")}
    found = draw({f"FOLNet {name}": lines for name, lines in runs.items()})
    assert sorted(found) == ["kinship/operators_by_length", "kinship/operators_by_steps"]
    lines = found["kinship/operators_by_length"].axes[0].lines
    assert [line.get_label() for line in lines[:2]] == ["FOLNet jmc.atp", "FOLNet j.at"]
    assert list(lines[0].get_ydata()) == pytest.approx([1, 1, 0.968, 0.896, 0.728, 0.672, 0.57, 0.494, 0.472])
    once = {**line, "curve": line["curve"][-1:]}
    assert list(draw({"FOLNet": [{"measurements": {"line": once}}]})) == ["kinship/operators_by_length"]
