"""Figures of kinship runs, for one run of each model or for several seeds with intervals."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import runtime
from experiments.kinship import parts
from experiments.kinship.config import Config
from experiments.kinship.measures import Point, line, points

type Figure = runtime.plots.Figure  # evaluated lazily, since matplotlib is imported only to draw


def draw(config: Config, workdir: Path, results: Mapping[str, runtime.FitResult]) -> dict[str, Path]:
    """Draws the figures of `of_lines` for one run of each model and returns their paths by name."""
    lines = {
        name: [line(config, result, workdir if name == config.model else workdir / name)]
        for name, result in results.items()
    }
    drawn = of_lines(lines)
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in drawn.items()}


def shown(model: str) -> str:
    """Returns the display name of a model."""
    names = {
        parts.BERT: "BERT",
        parts.BERT_PRE: "BERT, pre-LN",
        parts.T5: "T5's positions",
        parts.RELATION_AWARE: "relation-aware",
        parts.RGCN: "R-GCN",
        parts.EDGE_TRANSFORMER: "Edge Transformer",
    }
    return names.get(model, f"FOLNet {model}")


def spelt(lengths: Sequence[int]) -> str:
    """Returns lengths as text, such as "k = 4 to 10" or "k = 2, 4"."""
    if list(lengths) == list(range(lengths[0], lengths[-1] + 1)) and len(lengths) > 2:
        return f"k = {lengths[0]} to {lengths[-1]}"
    return f"k = {', '.join(map(str, lengths))}"


def of_lines(lines: Mapping[str, Sequence[Mapping[str, Any]]]) -> "dict[str, Figure]":
    """Returns all figures of some runs, with a line per model: Figure 5, and the metric during training.

    Seeds are averaged at the lengths and steps that they share. Over seconds they are averaged at equal times
    up to the end of a model's shortest run, with linear interpolation between evaluations.

    Args:
        lines: for each model by name, the records of its seeds (`measures.line`), all of one preset.

    Returns:
        "by_length": accuracy by the length of the chain; "by_steps" and "by_seconds": the metric.

    Raises:
        ValueError: no run has an evaluation.
    """
    runs = [run for seeds in lines.values() for run in seeds]
    if not any(run["curve"] for run in runs):
        raise ValueError("lines: got no run with an evaluation, expected at least one")
    *most, last = map(str, runs[0]["train_lengths"])
    title = f"Trained on chains of {', '.join(most)}{' and ' if most else ''}{last} facts"
    if (count := max(map(len, lines.values()))) > 1:
        fewest = min(map(len, lines.values()))
        title += f"; mean of {count if fewest == count else f'{fewest} to {count}'} seeds, 95 %"
    lengths, steps, seconds = {}, {}, {}
    for name, seeds in ((shown(model), seeds) for model, seeds in lines.items()):
        lengths[name] = _common(
            [{int(k): share for k, share in run["accuracies"].items() if k.isdigit()} for run in seeds]
        )
        if curves := [points(run) for run in seeds if run["curve"]]:
            steps[name] = _common([{point.step: point.value for point in curve} for curve in curves])
            seconds[name] = _by_seconds(curves)
    frame: dict[str, Any] = {
        "title": title,
        "ylim": (-0.03, 1.03),
        "size": (5.4, 3.4),
        "beside": len(lines) > 6,
    }
    marks = {"longest trained": max(runs[0]["train_lengths"])}
    by_length = runtime.plots.curve_figure(
        lengths, xlabel="facts in the chain, k", ylabel="accuracy", marks=marks, **frame
    )
    by_length.axes[0].set_xticks(sorted({k for of_model in lengths.values() for k in of_model[0]}))
    metric = f"mean accuracy, {spelt(runs[0]['metric_lengths'])}"
    return {
        "by_length": by_length,
        "by_steps": runtime.plots.curve_figure(steps, xlabel="steps", ylabel=metric, **frame),
        "by_seconds": runtime.plots.curve_figure(
            seconds, xlabel="seconds of training", ylabel=metric, **frame
        ),
    }


def _common(seeds: Sequence[Mapping[int, float]]) -> tuple:
    """Returns the positions that all seeds share, and the band of their values there."""
    places = sorted(set.intersection(*map(set, seeds)))
    return places, *_band([[values[place] for place in places] for values in seeds])


def _by_seconds(seeds: Sequence[Sequence[Point]]) -> tuple:
    times = [[point.seconds for point in points] for points in seeds]
    values = [[point.value for point in points] for points in seeds]
    if len(seeds) == 1:
        return times[0], values[0]
    first, last = max(of_seed[0] for of_seed in times), min(of_seed[-1] for of_seed in times)
    grid = np.linspace(first, max(first, last), 50)
    return grid, *_band([np.interp(grid, *of_seed).tolist() for of_seed in zip(times, values, strict=True)])


def _band(rows: Sequence[Sequence[float]]) -> tuple:
    """Returns the values of one seed [n]; for several, the mean and its 95 % interval, clipped to [0, 1]."""
    return (list(rows[0]),) if len(rows) == 1 else runtime.intervals.mean_band(rows)
