"""Figures of runs of the LLRNN experiment: the curves and panels that are drawn, and the stop of the tour."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.llrnn import figures, tour
from experiments.llrnn.parts import CellConfig, TaskOptions
from tests.experiments.llrnn import solved
from tests.experiments.llrnn.small import short

pytestmark = pytest.mark.usefixtures("looks")


def result(results, params=None, seconds=3.4):
    return runtime.FitResult(None, params, 40, {}, results, seconds, {})


def curves(figure):
    """Returns x and y of each labelled line."""
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    return {
        label: [part.tolist() for part in map(np.asarray, line.get_data())]
        for label, line in lines.items()
        if not label.startswith("_")
    }


BASELINE = dataclasses.replace(solved.CONFIG, cell=CellConfig.of("lstm", features=2))
CONFIGS = {"higher_order": solved.CONFIG, "baseline": BASELINE}


def write_metrics(workdir):
    """Writes the metrics of a run and of its baseline; the first line of each has no evaluation."""
    held_out, trained = "eval/held_out_once/error_3", "eval/train/error_3"
    for folder, late in ((workdir, 0.0), (workdir / "baseline", 0.5)):
        folder.mkdir(exist_ok=True)
        lines = [
            {"step": 1, "train_seconds": 1.0, "loss": 2.0},
            {"step": 2, "train_seconds": 2.0, held_out: 0.5, trained: 0.25},
            {"step": 3, "train_seconds": 4.0, held_out: late, trained: 0.125, "eval/train/error_5": 0.75},
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_accuracy_on_held_out_and_training_pairs_against_seconds(tmp_path):
    write_metrics(tmp_path)
    assert curves(figures.held_out(tmp_path, CONFIGS)) == {
        "higher order, held-out pairs": [[2.0, 4.0], [0.5, 1.0]],
        "higher order, training pairs": [[2.0, 4.0], [0.75, 0.875]],
        "LSTM, held-out pairs": [[2.0, 4.0], [0.5, 0.5]],
        "LSTM, training pairs": [[2.0, 4.0], [0.75, 0.875]],
    }


def test_steps_of_nested_powers_are_no_pairs(tmp_path):
    write_metrics(tmp_path)
    options = dataclasses.replace(solved.CONFIG.task_options, operators=2)
    config = short(task="nested_powers", task_options=options, cell=BASELINE.cell)
    figure = figures.held_out(tmp_path, {"lstm": config})
    assert figure.get_suptitle() == "nested powers: steps never seen in training"
    assert [*curves(figure)] == ["LSTM, held-out steps", "LSTM, training steps"]


@pytest.mark.parametrize(("longest", "scale"), [(24, "linear"), (25, "log")])
def test_error_by_length(longest, scale):
    """A logarithmic axis from eight times the longest training length, 3, on."""
    options = dataclasses.replace(solved.CONFIG.task_options, test_lengths=(2, longest))
    config = dataclasses.replace(solved.CONFIG, task_options=options)
    errors = {"train/error_12": 0.5, "train/error_2": 0.25, "held_out_once/error_2": 0.75}
    found = result({name: {"error": error} for name, error in errors.items()} | {"score": 0.9})
    figure = figures.error_by_length({"higher_order": config}, {"higher_order": found})
    assert curves(figure) == {
        "higher order": [[2, 12], [0.25, 0.5]],
        "higher order, held out once": [[2], [0.75]],
    }
    (axes,) = figure.axes
    assert axes.get_xscale() == scale
    marks = [np.asarray(line.get_xdata())[0] for line in axes.lines if str(line.get_label()).startswith("_")]
    assert marks == [3]


@pytest.mark.parametrize(("splits", "beside"), [(3, False), (4, True)])
def test_the_legend_of_many_curves_covers_none(splits, beside):
    found = result({f"{split}/error_{n}": {"error": 0.5} for split in "abcd"[:splits] for n in (2, 12)})
    figure = figures.error_by_length({"higher_order": solved.CONFIG}, {"higher_order": found})
    assert bool(figure.legends) is beside


def test_addresses_over_time():
    """A memory that always moves by one reads at 1, 2, .. and writes at -1, -2, .. around the ring."""
    cell = CellConfig.of("ntm", features=2, memory_size=6, memory_width=1, powers=(0, 1))
    config = short(
        task="copy", cell=cell, task_options=TaskOptions(train_lengths=(1, 3), test_lengths=(2, 8))
    )
    shapes = jax.eval_shape(
        config.make_model(config.make_task()).init, jax.random.key(0), np.ones((1, 2, 10))
    )
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes["params"])
    params["cell"]["heads"]["bias"][[1, 3]] = 50  # of the powers 0 and 1, to read and to write
    figure = figures.addresses_over_time(config, params)
    assert figure is not None
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in panels] == ["write address", "read address"]
    steps = 6 + 2 + 6  # the length is 6, twice the longest in training
    for axes, direction in zip(panels, (-1, 1), strict=True):
        shown = np.asarray(axes.images[0].get_array())
        assert shown.shape == (6, steps)
        np.testing.assert_array_equal(shown.argmax(axis=0), direction * np.arange(1, steps + 1) % 6)
        np.testing.assert_allclose(shown.max(axis=0), 1, rtol=1e-5)
        assert axes.images[0].get_clim() == (0, 1)


def test_a_run_with_held_out_pairs_and_without_addresses_has_two_figures(tmp_path):
    write_metrics(tmp_path)
    results = {name: result({"train/error_2": {"error": 0.5}}, solved.params()) for name in CONFIGS}
    drawn = figures.draw(tmp_path, CONFIGS, results)
    assert drawn == {name: tmp_path / f"{name}.png" for name in ("error_by_length", "held_out")}
    assert all(path.stat().st_size > 5000 for path in drawn.values())


def test_addresses_are_drawn_of_the_cell_that_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "addresses_over_time", lambda config, params: (config, params))
    monkeypatch.setattr(runtime.plots, "save", lambda figure, path: (figure, path))
    write_metrics(tmp_path)
    results = {name: result({"train/error_2": {"error": 0.5}}, number) for number, name in enumerate(CONFIGS)}
    drawn = figures.draw(tmp_path, CONFIGS, results)
    assert drawn["addresses"] == ((solved.CONFIG, 0), tmp_path / "addresses.png")


@pytest.mark.parametrize(
    ("cell", "name"), [("higher_order", "higher order"), ("pattern_ntm", "pattern NTM"), ("lstm", "LSTM")]
)
def test_names_of_cells(cell, name):
    assert figures.shown(cell) == name


def test_final_errors_by_split():
    errors = {"train/error_16": 0.2, "train/error_8": 0.1, "held_out/error_8": 0.4}
    results = {name: {"error": error} for name, error in errors.items()} | {"score": 0.9}
    assert figures.by_split(results) == {"train": [(8, 0.1), (16, 0.2)], "held_out": [(8, 0.4)]}


def test_the_stop_of_the_tour_has_a_row_per_model(tmp_path, monkeypatch):
    """Accuracies at the longest training length, which is 3."""
    config = dataclasses.replace(solved.CONFIG, baseline=BASELINE.cell)

    def main(given, *, workdir):
        assert (given, workdir) == (config, tmp_path)
        parts = {"held_out_once/error_3": 0.25, "train/error_3": 0.125, "train/error_5": 0.5}
        results = {name: {"error": error} for name, error in parts.items()}
        worse = results | {"held_out_once/error_3": {"error": 1.0}}
        return {"higher_order": result(results), "baseline": result(worse, seconds=5.6)}

    monkeypatch.setattr(tour, "main", main)
    stop = tour.tour_stop(tmp_path, config)
    shared = {"training pairs": "0.875", "steps": "40"}
    assert stop.rows == [
        {"model": "higher order", "held-out pairs": "0.750", "seconds": "3"} | shared,
        {"model": "LSTM", "held-out pairs": "0.000", "seconds": "6"} | shared,
    ]
    assert [path.name for path in stop.figures] == ["held_out.png", "error_by_length.png"]
