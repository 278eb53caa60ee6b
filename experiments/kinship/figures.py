"""The pictures: of one run of each model, or of several seeds with intervals."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import runtime
from experiments.kinship.measures import Point, points
from experiments.kinship.parts import BERT, RELATION_AWARE, T5

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # otherwise imported where something is drawn

Lines = dict[str, tuple]


def shown(model: str) -> str:
    """What a model is called where people read it."""
    names = {BERT: "BERT", T5: "T5's positions", RELATION_AWARE: "relation-aware"}
    return names.get(model, f"FOLNet {model}")


def spelt(lengths: Sequence[int]) -> str:
    """Lengths in few words."""
    if list(lengths) == list(range(lengths[0], lengths[-1] + 1)) and len(lengths) > 2:
        return f"k = {lengths[0]} to {lengths[-1]}"
    return f"k = {', '.join(map(str, lengths))}"


def of_lines(lines: Mapping[str, Sequence[Mapping[str, Any]]]) -> "dict[str, Figure]":
    """All figures of some runs.

    Args:
        lines: of each model, for each seed its line (`kinship_measures.line`), all of one preset.
    """
    one = next(iter(lines.values()))[0]
    trained = " and ".join(map(str, one["train_lengths"]))
    count = max(map(len, lines.values()))
    title = f"Trained on chains of {trained} facts"
    if count > 1:
        title += f"; mean of {count} seeds, 95 %"
    accuracies = {
        model: [{int(k): share for k, share in run["accuracies"].items() if k.isdigit()} for run in runs]
        for model, runs in lines.items()
    }
    curves = {model: [points(run) for run in runs] for model, runs in lines.items()}
    ylabel = f"mean accuracy, {spelt(one['metric_lengths'])}"
    return {
        "by_length": by_length(accuracies, longest_trained=max(one["train_lengths"]), title=title),
        "by_steps": learning(curves, seconds=False, title=title, ylabel=ylabel),
        "by_seconds": learning(curves, seconds=True, title=title, ylabel=ylabel),
    }


def by_length(
    accuracies: Mapping[str, Sequence[Mapping[int, float]]], *, longest_trained: int, title: str
) -> "Figure":
    """Figure 5: accuracy against the length of the chain, a line a model.

    Args:
        accuracies: of each model, by its name, for each seed the accuracy of each length.
        longest_trained: the longest chain in training.
        title: what the figure shows.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not any(accuracies.values()):
        raise ValueError("accuracies must have at least one run, got none")
    lines: Lines = {}
    for model, seeds in accuracies.items():
        lengths = sorted(set.intersection(*(set(of_seed) for of_seed in seeds)))
        lines[shown(model)] = lengths, *_band([[of_seed[k] for k in lengths] for of_seed in seeds])
    figure = runtime.plots.curve_figure(
        lines,
        title=title,
        xlabel="facts of the chain, k",
        ylabel="accuracy",
        ylim=(-0.03, 1.03),
        marks={"longest trained": longest_trained},
        size=(5.4, 3.4),
    )
    (axes,) = figure.axes
    axes.set_xticks(sorted({int(k) for parts in lines.values() for k in parts[0]}))
    return figure


def learning(
    curves: Mapping[str, Sequence[Sequence[Point]]],
    *,
    seconds: bool,
    title: str,
    ylabel: str,
) -> "Figure":
    """The metric during training, a line a model.

    Seeds are brought together at the steps that all of them were measured at; at equal seconds between their
    measurements in a line.

    Args:
        curves: of each model, by its name, for each seed what was measured.
        seconds: against seconds of training, as far as all models came; else against steps.
        title: what the figure shows.
        ylabel: what was measured.

    Raises:
        ValueError: there is nothing to draw.
    """
    lines: Lines = {}
    for model, seeds in curves.items():
        seeds = [points for points in seeds if points]
        if seeds:
            lines[shown(model)] = _by_seconds(seeds) if seconds else _by_steps(seeds)
    if not lines:
        raise ValueError("curves must have at least one measurement, got none")
    return runtime.plots.curve_figure(
        lines,
        title=title,
        xlabel="seconds of training" if seconds else "steps",
        ylabel=ylabel,
        ylim=(-0.03, 1.03),
        size=(5.4, 3.4),
    )


def _by_steps(seeds: Sequence[Sequence[Point]]) -> tuple:
    steps = sorted(set.intersection(*({point.step for point in points} for points in seeds)))
    found = [{point.step: point.value for point in points} for points in seeds]
    return steps, *_band([[values[step] for step in steps] for values in found])


def _by_seconds(seeds: Sequence[Sequence[Point]]) -> tuple:
    if len(seeds) == 1:
        return [point.seconds for point in seeds[0]], [point.value for point in seeds[0]]
    first = max(points[0].seconds for points in seeds)
    last = min(points[-1].seconds for points in seeds)
    grid = np.linspace(first, max(first, last), 50)
    rows = [
        np.interp(grid, [point.seconds for point in points], [point.value for point in points]).tolist()
        for points in seeds
    ]
    return grid, *_band(rows)


def _band(rows: Sequence[Sequence[float]]) -> tuple:
    """Values [n] of one seed; of several their mean, and the ends of its 95 % interval within [0, 1]."""
    if len(rows) == 1:
        return (list(rows[0]),)
    found = [runtime.intervals.mean_interval(values) for values in zip(*rows, strict=True)]
    mean, low, high = np.array(found).reshape(-1, 3).T
    return mean, np.clip(low, 0, 1), np.clip(high, 0, 1)
