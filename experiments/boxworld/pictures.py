"""Figures drawn by `experiments/boxworld/analysis.py`: attention over the board, and win rates.

They reproduce Clift et al. 2020, Figures 7 and 11 to 15, and add numbers on the tiles, so that colours need
not be distinguished, and intervals for win rates.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

import logic_zoo
from experiments import runtime
from experiments.boxworld import episodes
from experiments.boxworld.config import ACTIONS
from experiments.boxworld.engine import type_label
from experiments.runtime import plots
from simplicial import analysis

with logic_zoo.extra("experiments"):
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import EngFormatter, MaxNLocator

_BARE = {**plots.STYLE, "axes.grid": False, "axes.spines.left": False, "axes.spines.bottom": False}
WRITTEN = 0.1
"""Weights of at least this value are printed on their tile."""


def board_figure(
    episode: episodes.Episode, views: episodes.Views, times: Sequence[int], *, title: str, note: str
) -> Figure:
    """Draws the board and attention maps over it, one row per time step and one column per view.

    Args:
        episode: the recorded episode.
        views: the attention maps, by title.
        times: the time steps to show.
        title: title of the figure.
        note: explanation of the maps, printed small below them.

    Raises:
        ValueError: `views` or `times` is empty.
    """
    if not views or not times:
        raise ValueError(
            f"views, times: got {len(views)} and {len(times)} entries, expected at least 1 of each"
        )
    columns = 1 + len(views)
    shape = episode.pictures.shape[1:3]
    width = 1.75
    height = width * shape[0] / shape[1]
    with matplotlib.rc_context(_BARE):
        figure = Figure(figsize=(0.2 + columns * (width + 0.08), 0.85 + len(times) * (height + 0.26)))
        frames = figure.subplots(len(times), columns, squeeze=False)
        for row, time in zip(frames, times, strict=True):
            _board(row[0], episode, time)
            for axes, maps in zip(row[1:], views.values(), strict=True):
                weights = maps[time]
                axes.imshow(episodes.spotlight(episode.pictures[time], weights), interpolation="nearest")
                _bare(axes)
                _write_weights(axes, weights)
                total, peak = float(weights.sum()), float(weights.max())
                found = f"sum {total:.2f}, peak {peak:.2f}" if total else "not on the board"
                axes.set_xlabel(found, fontsize=7, labelpad=2)
        for axes, name in zip(frames[0], ("board", *views), strict=True):
            axes.set_title(name, fontsize=9)
        return _titled(figure, title, note)


def pair_figure(
    episode: episodes.Episode, times: Sequence[int], *, title: str, block: int = 1, head: int = 0
) -> Figure:
    """Draws the 2-simplicial attention of every entity to the pairs of virtual entities, M^2 x N per row.

    Args:
        episode: a recorded episode of an agent with virtual entities.
        times: the time steps to show, one row each.
        title: title of the figure.
        block: index of the block, from 0.
        head: index of the 2-simplicial head, from 0.

    Raises:
        ValueError: the agent has no virtual entities.
    """
    maps = np.asarray(analysis.pair_maps(episode.attention[block]))[:, head]
    pairs, entities = maps.shape[1:]
    labels = analysis.pair_labels(round(pairs**0.5))
    shape = episode.pictures.shape[1:3]
    with matplotlib.rc_context(_BARE):
        height = max(1.3, 0.24 * pairs + 0.75)
        figure = Figure(figsize=(9.6, 0.75 + len(times) * height))
        frames = figure.subplots(
            len(times), 2, squeeze=False, width_ratios=[height * 0.8 * shape[1] / shape[0], 7.2]
        )
        for (left, axes), time in zip(frames, times, strict=True):
            _board(left, episode, time)
            image = _matrix(axes, maps[time], 1, episode, time)
            axes.set_aspect("auto")
            axes.set_yticks(range(pairs), labels, fontsize=7)
            axes.set_xticks(range(0, entities, 4))
        frames[-1, 1].set_xlabel("entity i (the query)")
        figure.colorbar(image, ax=list(frames[:, 1]), label="attention to the pair (j, k)", pad=0.01)
        return _titled(figure, title, _legend(episode, times))


def standard_figure(episode: episodes.Episode, time: int, *, title: str) -> Figure:
    """Draws the attention between standard entities in block 1, one N x N panel per head."""
    weights = np.asarray(episode.attention[0].standard)[time]
    entities = weights.shape[-1]
    columns = analysis.entity_grid(episode.config)[1]
    with matplotlib.rc_context(_BARE):
        figure = Figure(figsize=(3.9 * len(weights) + 0.8, 4.7))
        frames = figure.subplots(1, len(weights), squeeze=False)[0]
        for head, (axes, matrix) in enumerate(zip(frames, weights, strict=True)):
            image = _matrix(axes, matrix, weights.max(), episode, time)
            for line in range(columns, entities, columns):  # where the board's next row begins
                axes.axvline(line - 0.5, color="white", linewidth=0.4, alpha=0.5)
                axes.axhline(line - 0.5, color="white", linewidth=0.4, alpha=0.5)
            ticks = range(0, entities, columns)
            axes.set_xticks(ticks)
            axes.set_yticks(ticks)
            axes.set_xlabel("entity j attended to")
            axes.set_title(f"head {head + 1}", fontsize=9, pad=16)
        frames[0].set_ylabel("entity i (the query)")
        figure.colorbar(image, ax=list(frames), label="attention", pad=0.01, shrink=0.8)
        return _titled(figure, title, _legend(episode, [time]))


def deviation_figure(statistics: Mapping[str, Sequence[float]], *, title: str) -> Figure:
    """Draws the results of `episodes.pair_statistics` as means with 95% intervals over boards.

    Raises:
        ValueError: no landmark was seen on at least two boards.
    """
    seen = {name: values for name, values in statistics.items() if len(values) > 1}
    if not seen:
        raise ValueError("statistics: got fewer than 2 values for every name, expected at least 2 for one")
    rows = {name: runtime.intervals.mean_interval(values) for name, values in seen.items()}
    order = sorted(rows, key=lambda name: -rows[name][0])
    with matplotlib.rc_context({**plots.STYLE, "axes.grid.axis": "x"}):
        figure = Figure(figsize=(6.4, 1.2 + 0.28 * len(rows)))
        axes = figure.add_subplot()
        for place, name in enumerate(order):
            mean, low, high = rows[name]
            colour = "#777777" if name == "other entities" else plots.COLOURS[0]
            ends = [[mean - low], [high - mean]]
            axes.errorbar(mean, place, xerr=ends, fmt="o", color=colour, capsize=3, elinewidth=1.4)
        axes.set_yticks(range(len(order)), [f"{name} ({len(statistics[name])} boards)" for name in order])
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.set_xlim(left=min(0, *(low for _, low, _ in rows.values())))
        axes.set_xlabel("total variation distance from the median attention to pairs")
        return _titled(figure, title)


def phases_figure(phases: Mapping[str, Sequence[Sequence[float]]], *, title: str) -> Figure:
    """Draws the results of `episodes.pair_phases` as means with 95% intervals over two boards or more.

    Raises:
        ValueError: no phase has two boards.
    """
    phases = {phase: rows for phase, rows in phases.items() if len(rows) > 1}
    if not phases:
        raise ValueError("phases: got fewer than 2 boards for each, expected at least 2 for one")
    labels = analysis.pair_labels(round(len(next(iter(phases.values()))[0]) ** 0.5))
    places, width = np.arange(len(labels)), 0.8 / len(phases)
    with plots.style():
        figure = Figure(figsize=(6.4, 3.2))
        axes = figure.add_subplot()
        for number, (phase, rows) in enumerate(phases.items()):
            mean, low, high = np.asarray(runtime.intervals.mean_band(rows))
            axes.bar(
                places + width * (number - (len(phases) - 1) / 2), mean, 0.95 * width,
                yerr=[mean - low, high - mean], color=plots.COLOURS[number],
                error_kw={"linewidth": 1, "ecolor": "#333333"}, label=f"{phase} ({len(rows)} boards)",
            )  # fmt: skip
        axes.set(ylim=(0, 1), ylabel="weight, mean over entities", xlabel="pair of virtual entities")
        axes.set_xticks(places, labels)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.02))
        return _titled(figure, title)


def win_rate_figure(counts: analysis.Evaluation, *, title: str) -> Figure:
    """Draws the share of boards solved (with 95% intervals), trapped and given up, by puzzle type."""
    types = np.asarray(counts.puzzles).tolist()
    played, solved = np.asarray(counts.episodes), np.asarray(counts.solved)
    with matplotlib.rc_context({**plots.STYLE, "axes.grid.axis": "x"}):
        figure = Figure(figsize=(6.4, 1.35 + 0.24 * len(types)))
        axes = figure.add_subplot()
        places, before = np.arange(len(types)), np.zeros(len(types))
        for label, part, colour, hatch in (
            ("solved", solved, plots.COLOURS[0], None),
            ("trap opened", counts.died, plots.COLOURS[1], "////"),
            ("given up", counts.capped, "#bbbbbb", "...."),
        ):
            share = np.asarray(part) / played
            axes.barh(
                places, share, left=before, color=colour, label=label, hatch=hatch, edgecolor="white",
                linewidth=0.5, height=0.78,
            )  # fmt: skip
            before += share
        share = solved / played
        ends = np.abs(_wilson(solved, played) - share)
        axes.errorbar(share, places, xerr=ends, fmt="none", ecolor="black", elinewidth=1.2, capsize=2.5)
        for place, value in zip(places, share, strict=True):
            axes.annotate(
                f"{value:.3f}", (1.0, place), xytext=(4, 0), textcoords="offset points", va="center",
                fontsize=8, annotation_clip=False,
            )  # fmt: skip
        can_bridge = any(lock for _, lock, _ in types)
        axes.set_yticks(places, [type_label(puzzle, can_bridge=can_bridge) for puzzle in types])
        axes.annotate(
            "solved", (1, 1), xycoords="axes fraction", xytext=(4, 0), textcoords="offset points", fontsize=8,
        )  # fmt: skip
        axes.set_ylim(len(types) - 0.4, -0.6)
        axes.set(title=title, xlim=(0, 1), xlabel=f"share of {played[0]} boards per type")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def win_rates_over_training(rates: Mapping[int, analysis.Evaluation], *, title: str) -> Figure:
    """Draws win rates per puzzle type against training steps; see `over_training`.

    Raises:
        ValueError: there are fewer than two checkpoints, or their puzzle types differ.
    """
    steps = sorted(rates)
    if len(steps) < 2:
        raise ValueError(f"rates: got {len(steps)} checkpoints, expected at least 2")
    types = np.asarray(rates[steps[0]].puzzles).tolist()
    if any(np.asarray(rates[step].puzzles).tolist() != types for step in steps):
        raise ValueError("rates: got different puzzle types, expected the same ones at every checkpoint")
    won, played = (
        np.stack([getattr(rates[step], name) for step in steps], axis=1) for name in ("solved", "episodes")
    )
    curves = {
        (length, lock, key): (steps, won[number] / played[number], *_wilson(won[number], played[number]))
        for number, (length, lock, key) in enumerate(types)
    }
    return over_training(curves, title=title)


def over_training(curves: Mapping[tuple[int, int, int], Sequence[Any]], *, title: str) -> Figure:
    """Draws curves per puzzle type over training, one row per length and one column per bridge lock.

    Args:
        curves: for each type (L, s, t), the steps, the fraction solved and the interval's ends, each [n].
        title: title of the figure.
    """
    lengths = sorted({length for length, _, _ in curves})
    locks = sorted({lock for _, lock, _ in curves if lock}) or [0]
    with matplotlib.rc_context(plots.STYLE):
        figure = Figure(figsize=(1.2 + 2.5 * len(locks), 0.9 + 1.75 * len(lengths)))
        frames = figure.subplots(len(lengths), len(locks), squeeze=False, sharex=True, sharey=True)
        for row, length in enumerate(lengths):
            for column, lock in enumerate(locks):
                axes = frames[row, column]
                if lock > length:
                    axes.set_axis_off()
                    continue
                for puzzle, curve in curves.items():
                    if puzzle[0] == length and puzzle[1] in (0, lock):
                        _rate_line(axes, puzzle, *curve)
                bridge = f", bridge opened by key {lock}" if lock else ""
                axes.set_title(f"L = {length}{bridge}", fontsize=8)
                if axes.lines:
                    axes.legend(fontsize=7, loc="best")
                axes.set_ylim(-0.03, 1.05)
                axes.xaxis.set_major_locator(MaxNLocator(4))
                axes.xaxis.set_major_formatter(EngFormatter())
                if row == len(lengths) - 1:
                    axes.set_xlabel("environment steps")
                    axes.tick_params(labelbottom=True)
            frames[row, 0].set_ylabel("fraction solved")
        return _titled(figure, title)


def _rate_line(axes: Axes, puzzle: Sequence[int], steps, share, low, high) -> None:
    length, lock, key = puzzle
    colour, dash, label = "#777777", ":", "no bridge"
    if lock:
        place = key - length - 1
        colour = plots.COLOURS[place % len(plots.COLOURS)]
        dash, label = ("-", "--", "-.")[place % 3], type_label(puzzle)
    axes.plot(steps, share, dash, color=colour, label=label, marker="o" if len(steps) <= 12 else None)
    axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)


def _wilson(won: np.ndarray, played: np.ndarray) -> Float[np.ndarray, "2 P"]:
    pairs = zip(won.tolist(), played.tolist(), strict=True)
    return np.asarray([runtime.intervals.wilson_interval(*pair) for pair in pairs]).T


def _titled(figure: Figure, title: str, note: str = "") -> Figure:
    figure.suptitle(title, fontsize=10)
    if note:
        figure.supxlabel(note, fontsize=7, color="#555555")
    return figure


def _board(axes: Axes, episode: episodes.Episode, time: int) -> None:
    """Draws the board with tile labels, and the step, action and reward below it."""
    picture, reward = episode.pictures[time], episode.rewards[time]
    axes.imshow(picture, interpolation="nearest")
    _bare(axes)
    for (x, y), name in episodes.tile_names(episode.state(time)).items():
        colour = "black" if episodes.is_bright(picture[y, x]) else "white"
        axes.text(x, y, name, ha="center", va="center_baseline", fontsize=6, color=colour)
    happening = f"step {time}: {ACTIONS[episode.actions[time]]}" + (
        f", reward {reward:+.0f}" if reward else ""
    )
    axes.set_xlabel(happening, fontsize=7, labelpad=2)


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])


def _write_weights(axes: Axes, weights: Float[np.ndarray, "R-2 C-1"]) -> None:
    for y, x in np.argwhere(weights >= WRITTEN):
        value = weights[y, x]
        text = "1" if value > 0.995 else f"{value:.2f}"[1:]
        axes.add_patch(Rectangle((x + 0.5, y + 0.5), 1, 1, fill=False, edgecolor="white", linewidth=0.9))
        axes.text(
            x + 1, y + 1, text, ha="center", va="center_baseline", fontsize=5, color="white",
            bbox={"boxstyle": "square,pad=.08", "facecolor": "black", "alpha": 0.65, "linewidth": 0},
        )  # fmt: skip


def _matrix(
    axes: Axes, weights: np.ndarray, largest: float, episode: episodes.Episode, time: int
) -> AxesImage:
    """Draws an attention matrix with landmark abbreviations above the columns of their entities."""
    axes.tick_params(labelsize=7, length=2)
    for entity, codes in episode.codes(time).items():
        axes.annotate(
            "\n".join(codes), (entity, 1), xycoords=("data", "axes fraction"), xytext=(0, 1.5),
            textcoords="offset points", ha="center", va="bottom", fontsize=6.5, linespacing=0.9,
        )  # fmt: skip
    return axes.imshow(weights, interpolation="nearest", cmap="viridis", vmin=0, vmax=largest)


def _legend(episode: episodes.Episode, times: Sequence[int]) -> str:
    names = {name: None for time in times for name in episode.landmarks(time)}
    return "   ".join(f"{episodes.CODES[name]}: {name}" for name in names)


def puzzle_title(episode: episodes.Episode) -> str:
    """Describes the type of an episode's puzzle, for titles."""
    *puzzle, distractors = np.asarray(episode.states.puzzle)[0].tolist()
    label = type_label(puzzle, can_bridge=episode.config.gem_locks == 2)
    extra = f", {distractors} distractor{'s' * (distractors > 1)}" if distractors else ""
    return f"puzzle {label}{extra}"
