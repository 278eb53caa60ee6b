"""The common style of all figures: legible when small, colour-blind-safe, byte-for-byte reproducible."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

import logic_zoo

with logic_zoo.extra("experiments"):
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's colour-blind-safe palette, most distinct colours first."""
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
    """Returns a context manager within which figures have the common style."""
    return matplotlib.rc_context(STYLE)


def without_grid() -> contextlib.AbstractContextManager:
    """Returns a context manager, for use within `style`, within which figures have no grid."""
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
    beside: bool = False,
) -> Figure:
    """Draws curves in one plot, each with its own colour and dash pattern; `save` writes the figure.

    Args:
        curves: by label, x [n] and y [n], and optionally the lower and upper ends [n] of a band.
        title: title of the figure.
        xlabel: label of the x axis, with the unit.
        ylabel: label of the y axis, with the unit.
        xlog: whether x is logarithmic.
        ylog: whether y is logarithmic.
        ylim: range of y.
        marks: positions of vertical lines by label (the longest training length, for example).
        size: width and height in inches, without a legend beside the plot.
        beside: whether the legend stands beside the plot, as that of many curves should.

    Raises:
        ValueError: with the label of a curve whose arrays differ in length.
    """
    with matplotlib.rc_context(STYLE):
        # Not a pyplot figure, which would stay alive globally until closed.
        figure = Figure(figsize=(size[0] + 1.8 * beside, size[1]))
        axes = figure.add_subplot()
        for index, (label, parts) in enumerate(curves.items()):
            arrays = [np.asarray(part, dtype=float) for part in parts]
            if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
                shapes = ", ".join(str(array.shape) for array in arrays)
                raise ValueError(f"curve {label!r}: got shapes {shapes}, expected vectors of equal length")
            colour = COLOURS[index % len(COLOURS)]
            markers = "o" if len(arrays[0]) <= 12 else None
            dash = _DASHES[(index + index // len(COLOURS)) % 4]  # no two of 32 curves look alike
            axes.plot(arrays[0], arrays[1], dash, color=colour, marker=markers, label=label)
            if len(arrays) == 4:
                axes.fill_between(arrays[0], arrays[2], arrays[3], color=colour, alpha=0.15, linewidth=0)
        axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log" if xlog else "linear")
        if beside:
            figure.suptitle(title, fontsize=STYLE["axes.titlesize"])  # wider than the plot
        else:
            axes.set_title(title)
        axes.set_yscale("log" if ylog else "linear")
        places = sorted({float(x) for parts in curves.values() for x in np.asarray(parts[0])})
        if xlog and len(places) <= 12:  # plain values such as 20 and 40 read better than 2 x 10^1
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.set_xticks([], minor=True)
        if ylim is not None:
            axes.set_ylim(*ylim)
        for label, x in (marks or {}).items():
            axes.axvline(x, color="#777777", linewidth=1, linestyle=(0, (2, 2)))
            axes.annotate(
                label, (x, _free_height(axes, x)), xycoords=("data", "axes fraction"), xytext=(3, 0),
                textcoords="offset points", rotation=90, va="center", fontsize=7, color="#555555",
            )  # fmt: skip
        if beside:
            figure.legend(loc="outside right center")  # below the title
        elif len(curves) > 1:
            axes.legend()
    return figure


def _free_height(axes: Axes, x: float) -> float:
    """Returns the middle of the widest gap between curves next to a vertical line, in axes fractions."""
    left, right = axes.get_xlim()
    axes.get_ylim()  # makes Matplotlib compute the limits, which it does lazily
    places = np.linspace(x, x + 0.05 * (right - left), 3)
    curves = []
    for line in axes.lines:
        xs, ys = (np.asarray(values, dtype=float) for values in line.get_data())
        if line.get_transform() == axes.transData:  # a curve, not a mark
            order = np.argsort(xs)
            points = np.stack([places, np.interp(places, xs[order], ys[order])], axis=1)
            heights = axes.transAxes.inverted().transform(axes.transData.transform(points))[:, 1]
            if np.isfinite(heights).all():
                curves.append(np.clip([heights.min(), heights.max()], 0, 1).tolist())
    reached, gaps = 0.0, []
    for low, high in sorted([*curves, [1.0, 1.0]]):
        gaps.append((low - reached, (reached + low) / 2))
        reached = max(reached, high)
    return max(gaps)[1]


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
    """Draws matrices side by side with one colour scale, row 0 at the bottom; `save` writes the figure.

    Args:
        panels: matrices [rows, columns] by title.
        title: title of the figure.
        xlabel: label of the columns.
        ylabel: label of the rows.
        limits: ends of the colour scale; the minimum and maximum over all panels by default.
        colour_label: label of the colour scale.
        size: width and height in inches.

    Raises:
        ValueError: if there is no panel, or one is not a non-empty matrix.
    """
    matrices = {label: np.asarray(values, dtype=float) for label, values in panels.items()}
    if not matrices:
        raise ValueError("panels: got none, expected at least one matrix")
    for label, matrix in matrices.items():
        if matrix.ndim != 2 or not matrix.size:
            raise ValueError(f"panel {label!r}: got shape {matrix.shape}, expected [rows, columns]")
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
    """Writes a figure as `.png` or `.svg`, without dates or versions, so that equal figures are equal files.

    Raises:
        ValueError: for any other suffix.
    """
    path = Path(path)
    metadata = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}.get(path.suffix)
    if metadata is None:
        raise ValueError(f"path: got {path.name!r}, expected a name that ends in .png or .svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, metadata=metadata)
    return path
