"""One look for all figures: legible when small, told apart without colour vision, the same bytes every
time.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's palette, which people with any common colour vision can tell apart, most distinct first."""
_DASHES = ("-", "--", "-.", ":")

STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 150,
    "svg.hashsalt": "runtime",
}


def style() -> contextlib.AbstractContextManager:
    """Within it, figures are made in the house's style."""
    return matplotlib.rc_context(STYLE)


def without_grid() -> contextlib.AbstractContextManager:
    """Within it, and within `style`, figures have no grid."""
    return matplotlib.rc_context({"axes.grid": False})


def curve_figure(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    xlog: bool = False,
    ylog: bool = False,
    ylim: tuple[float, float] | None = None,
    marks: Mapping[str, float] | None = None,
    size: tuple[float, float] = (4.8, 3.2),
) -> Figure:
    """Draws lines in one frame, each with its colour and dash; `save` writes the figure.

    Args:
        curves: for each label x [n] and y [n], and optionally the lower and upper end [n] of a band.
        title: what the figure shows.
        xlabel: what is along x, with its unit.
        ylabel: what is along y, with its unit.
        xlog: logarithmic x.
        ylog: logarithmic y.
        ylim: range of y.
        marks: labelled vertical lines (the longest length trained on, say).
        size: width and height in inches.

    Raises:
        ValueError: naming the curve whose parts differ in length.
    """
    with matplotlib.rc_context(STYLE):
        # A Figure of its own, not pyplot's: nothing global keeps it alive or needs closing.
        figure = Figure(figsize=size)
        axes = figure.add_subplot()
        for index, (label, parts) in enumerate(curves.items()):
            arrays = [np.asarray(part, dtype=float) for part in parts]
            if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
                shapes = ", ".join(str(array.shape) for array in arrays)
                raise ValueError(f"curve {label!r} must have parts of one equal length, got shapes {shapes}")
            colour = COLOURS[index % len(COLOURS)]
            markers = "o" if len(arrays[0]) <= 12 else None
            axes.plot(arrays[0], arrays[1], _DASHES[index % 4], color=colour, marker=markers, label=label)
            if len(arrays) == 4:
                axes.fill_between(arrays[0], arrays[2], arrays[3], color=colour, alpha=0.15, linewidth=0)
        axes.set(title=title, xlabel=xlabel, ylabel=ylabel, xscale="log" if xlog else "linear")
        axes.set_yscale("log" if ylog else "linear")
        places = sorted({float(x) for parts in curves.values() for x in np.asarray(parts[0])})
        if xlog and len(places) <= 12:  # a few chosen values, 20 and 40, read better than 2 x 10^1
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.set_xticks([], minor=True)
        if ylim is not None:
            axes.set_ylim(*ylim)
        for label, x in (marks or {}).items():
            axes.axvline(x, color="#777777", linewidth=1, linestyle=(0, (2, 2)))
            place, anchor = _free_place(axes, x)
            axes.annotate(
                label, (x, place), xycoords=("data", "axes fraction"), xytext=(3, 3 * (1 - 2 * place)),
                textcoords="offset points", rotation=90, va=anchor, fontsize=7, color="#555555",
            )  # fmt: skip
        if len(curves) > 1:
            axes.legend()
    return figure


def _free_place(axes: Axes, x: float) -> tuple[float, str]:
    """Where a label beside a vertical line meets the fewest curves: a height from 0 to 1, and its anchor."""
    left, right = axes.get_xlim()
    axes.get_ylim()  # until then the limits are not those of what is drawn
    places = np.linspace(x, x + 0.05 * (right - left), 3)
    heights = []
    for line in axes.lines:
        xs, ys = (np.asarray(values, dtype=float) for values in line.get_data())
        if line.get_transform() == axes.transData:  # a curve, no other mark
            order = np.argsort(xs)
            points = np.stack([places, np.interp(places, xs[order], ys[order])], axis=1)
            heights.append(axes.transAxes.inverted().transform(axes.transData.transform(points))[:, 1])

    def met(span: tuple[float, float]) -> int:
        return sum(bool(np.any((span[0] <= h) & (h <= span[1]))) for h in heights)

    spans = {(0.7, 1.0): (1.0, "top"), (0.0, 0.3): (0.0, "bottom"), (0.35, 0.65): (0.5, "center")}
    return spans[min(spans, key=met)]


def heatmap_figure(
    panels: Mapping[str, ArrayLike],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    limits: tuple[float, float] | None = None,
    colour_label: str | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Draws matrices side by side on one colour scale, row 0 at the bottom; `save` writes the figure.

    Args:
        panels: for each title a matrix [rows, columns].
        title: what the figure shows.
        xlabel: what the columns are.
        ylabel: what the rows are.
        limits: values of the scale's ends; the extremes of all panels by default.
        colour_label: what the colour means.
        size: width and height in inches.

    Raises:
        ValueError: there is no panel, or one is not a matrix.
    """
    matrices = {label: np.asarray(values, dtype=float) for label, values in panels.items()}
    if not matrices:
        raise ValueError("panels must hold at least one matrix")
    for label, matrix in matrices.items():
        if matrix.ndim != 2 or not matrix.size:
            raise ValueError(f"panel {label!r} must be a matrix [rows, columns], got shape {matrix.shape}")
    everything = np.concatenate([matrix.ravel() for matrix in matrices.values()])
    low, high = limits or (np.nanmin(everything), np.nanmax(everything))
    scale = {"cmap": "viridis", "vmin": low, "vmax": high}
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=size or (3.0 * len(matrices) + 0.9, 3.0))
        frames = figure.subplots(1, len(matrices), squeeze=False)[0]
        for axes, (label, matrix) in zip(frames, matrices.items(), strict=True):
            image = axes.imshow(matrix, origin="lower", aspect="auto", interpolation="nearest", **scale)
            axes.set(title=label, xlabel=xlabel)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        frames[0].set_ylabel(ylabel)
        figure.colorbar(image, ax=list(frames), label=colour_label or "")
        figure.suptitle(title, fontsize=10)
    return figure


def save(figure: Figure, path: Path | str) -> Path:
    """Writes a figure as `.png` or `.svg`, the same bytes for the same content: no dates or versions inside.

    Raises:
        ValueError: for another kind of file.
    """
    path = Path(path)
    metadata = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}.get(path.suffix)
    if metadata is None:
        raise ValueError(f"path must end in .png or .svg, got {path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, metadata=metadata)
    return path
