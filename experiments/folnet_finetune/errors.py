"""What a classifier confuses with what, and its worst errors."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from experiments import runtime

type Figure = runtime.plots.Figure  # evaluated lazily, since matplotlib is imported only to draw

MOST = 100
"""Number of errors that are written."""


def confusion(labels: ArrayLike, predictions: ArrayLike, classes: int) -> Int[np.ndarray, "C C"]:
    """Counts examples: rows are labels, columns are predictions."""
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (np.asarray(labels, int), np.asarray(predictions, int)), 1)
    return counts


def worst(wrong: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns JSON lines of what is classified wrongly, the surest first; see `kinds.Kind.wrong`."""
    found = sorted(wrong, key=lambda line: -line["probability"])
    return [json.dumps(line, ensure_ascii=False) + "\n" for line in found[:MOST]]


def figure_of(classes: Sequence[str], counts: Int[np.ndarray, "C C"], title: str) -> Figure:
    """Draws the counts, coloured by the share of their row."""
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    with runtime.plots.style(), runtime.plots.without_grid():
        side = 2.2 + 0.45 * len(classes)
        figure = runtime.plots.Figure(figsize=(side + 0.6, side))
        axes = figure.subplots()
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set(title=title, xlabel="prediction", ylabel="label")
        axes.set_xticks(range(len(classes)), classes, rotation=40, ha="right")
        axes.set_yticks(range(len(classes)), classes)
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", fontsize=8, color=colour)
        figure.colorbar(image, label="share of the label")
    return figure
