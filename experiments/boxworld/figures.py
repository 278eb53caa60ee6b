"""Draws learning curves: fraction solved against steps and against time, with the published curves.

    python -m experiments.boxworld.figures --runs=runs/boxworld-relational,runs/boxworld-simplicial --out=DIR

compares several runs in one figure. Each run also draws its own figures when it ends.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from experiments import runtime
from experiments.boxworld.config import Config, type_of

PUBLISHED_FRAMES = (0.5e9, 0.75e9, 1e9, 1.5e9, 2e9, 2.5e9, 3e9, 4e9, 5e9, 5.45e9)
PUBLISHED = {
    "simplicial": (0.749, 0.805, 0.832, 0.845, 0.877, 0.904, 0.943, 0.976, 0.987, 0.988),
    "relational": (0.750, 0.802, 0.835, 0.840, 0.846, 0.861, 0.874, 0.898, 0.919, 0.923),
}
"""Fraction of bridge BoxWorld solved after these steps, mean of 4 runs, read off Clift et al. 2020."""
LEAST_EPISODES = 400
"""Minimum number of episodes per point of a curve, which keeps its interval within .05."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """Fraction of training episodes solved, in consecutive windows of the metrics.

    Attributes:
        frames: environment steps per seed at the end of each window.
        seconds: training time at the end of each window.
        solved: fraction of the window's episodes that were solved.
        low: lower end of its 95% interval.
        high: upper end of its 95% interval.
    """

    frames: np.ndarray
    seconds: np.ndarray
    solved: np.ndarray
    low: np.ndarray
    high: np.ndarray


def curve(
    records: Sequence[Mapping[str, Any]], puzzle: str | None = None, *, points: int = 60
) -> Curve | None:
    """Computes the curve of a run, overall or for one puzzle type; None if too few episodes ended.

    Windows have about `len(records) / points` lines, and more where needed to reach `LEAST_EPISODES`.
    """
    size = max(1, len(records) // points)
    rows, episodes, solved, lines = [], 0, 0.0, 0
    for record in records:
        if puzzle is None:
            ended = int(record["episodes"])
            solved += record["solved"] * ended if ended else 0  # null where none ended
        else:
            ended = record[f"type/{puzzle}/episodes"]
            solved += record[f"type/{puzzle}/solved"]
        episodes, lines = episodes + ended, lines + 1
        if lines >= size and episodes >= LEAST_EPISODES:
            low, high = runtime.intervals.wilson_interval(min(round(solved), episodes), episodes)
            rows.append((record["frames"], record["train_seconds"], solved / episodes, low, high))
            episodes, solved, lines = 0, 0.0, 0
    return Curve(*np.asarray(rows).T) if rows else None


def draw_run(workdir: Path, config: Config, results: Mapping[str, Any]) -> dict[str, Path]:
    """Draws a run's learning curves and its fraction solved by puzzle type.

    Returns:
        The paths written, by figure name; curves with too few episodes are omitted.
    """
    records = runtime.metrics.read(workdir / "metrics.jsonl")
    figures = compare({config.agent.kind: (config, records)})
    figures["types"] = by_type(
        {"trained": results["agent"]["types"], "random policy": results["chance"]["types"]}
    )
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in figures.items()}


def compare(runs: Mapping[str, tuple[Config, Sequence[Mapping[str, Any]]]]) -> dict[str, Any]:
    """Draws one or several runs: "solved" against steps, "time" against time, and "types_over_time".

    Curves have 95% Wilson intervals.

    Args:
        runs: config and metrics of each run, by label.
    """
    curves = {label: curve(records) for label, (_, records) in runs.items()}
    known = {label: found for label, found in curves.items() if found is not None}
    if not known:
        return {}
    configs = {label: runs[label][0] for label in known}
    unit = _unit(max(found.frames[-1] for found in known.values()))
    bands = {label: (found.solved, found.low, found.high) for label, found in known.items()}
    against_steps: dict[str, Any] = {
        label: (found.frames / unit[0], *bands[label]) for label, found in known.items()
    }
    if all(map(_is_the_papers, configs.values())):
        for kind in dict.fromkeys(config.agent.kind for config in configs.values()):
            against_steps[f"{kind}, as published"] = (np.asarray(PUBLISHED_FRAMES) / unit[0], PUBLISHED[kind])
    from experiments.boxworld import pictures  # imported here: training does not need Matplotlib

    draw = functools.partial(runtime.plots.curve_figure, ylabel="solved", ylim=(0, 1))
    title = "Fraction of training episodes solved"
    longest = max(found.seconds[-1] for found in known.values())
    divisor, name = next(
        (unit for unit in ((3600, "hours"), (60, "minutes")) if longest > 2 * unit[0]), (1, "seconds")
    )
    against_time = {label: (found.seconds / divisor, *bands[label]) for label, found in known.items()}
    figures = {
        "solved": draw(against_steps, title=title, xlabel=f"steps{unit[1]}"),
        "time": draw(against_time, title=f"{title} against time", xlabel=f"{name} of training"),
    }
    for label, (_, records) in runs.items():
        names = [name.split("/")[1] for name in records[-1] if name.startswith("type/") and "solved" in name]
        parts = {name: curve(records, name, points=20) for name in names}
        drawn = {
            type_of(name): (part.frames, part.solved, part.low, part.high)
            for name, part in parts.items()
            if part is not None
        }
        if len(drawn) > 1:
            name = "types_over_time" + (f"_{label}" if len(runs) > 1 else "")
            title = f"Fraction solved by puzzle type, {label}"
            figures[name] = pictures.over_training(drawn, title=title)
    return figures


def _is_the_papers(config: Config) -> bool:
    """Returns whether the published curve is about such runs: from random weights, by rewards alone."""
    from_weights = config.first or config.init_from
    return config.board.is_the_papers and config.learn_from == "rewards" and not from_weights


def by_type(policies: Mapping[str, Mapping[str, Mapping[str, Any]]], title: str = "Boards solved"):
    """Draws the fraction solved of each puzzle type.

    Args:
        policies: by label and type, "solved" and its "interval"; the first policy has all types.
        title: title of the figure.
    """
    types = list(next(iter(policies.values())))
    places, width = np.arange(len(types)), 0.8 / len(policies)
    with runtime.plots.style():
        figure = runtime.plots.Figure(figsize=(max(5.2, 1.6 + 0.36 * len(types)), 3.2))
        axes = figure.add_subplot()
        for index, (label, by_name) in enumerate(policies.items()):
            found = [by_name[puzzle] for puzzle in types]
            solved = np.asarray([part["solved"] for part in found])
            low, high = np.asarray([part["interval"] for part in found]).T
            middles = places + width * (index - (len(policies) - 1) / 2)
            axes.bar(
                middles, solved, 0.95 * width, color=runtime.plots.COLOURS[index], label=label,
                yerr=np.abs(np.stack([solved - low, high - solved])),
                error_kw={"linewidth": 1, "ecolor": "#333333"},
            )  # fmt: skip
        axes.set(title=title, ylabel="fraction", ylim=(0, 1))
        bridges = "-bridge lock-bridge key" if any("-" in name for name in types) else ""
        axes.set_xlabel(f"puzzle type: solution length{bridges}")
        axes.set_xticks(places, types, rotation=60 if len(types) > 6 else 0)
        axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.08))
    return figure


def _unit(frames: float) -> tuple[float, str]:
    """Returns a power of ten to divide the steps by, and its suffix for the axis label."""
    if frames >= 1e8:
        return 1e9, " / 10⁹"
    return (1e6, " / 10⁶") if frames >= 1e5 else (1e3, " / 10³")


def main() -> None:
    """Runs the program with the values of its flags."""
    runs = {}
    for path in map(Path, flags.FLAGS.runs):
        try:
            config = runtime.read_config(Config, path / "config.json")
        except (OSError, ValueError) as error:
            raise ValueError(
                f"--runs: got {path}, expected a run of experiments.boxworld: {error}"
            ) from error
        records = runtime.metrics.read(path / "metrics.jsonl")
        label = config.agent.kind if config.agent.kind not in runs else f"{config.agent.kind}, {path.name}"
        runs[label] = (config, records)
    figures = compare(runs)
    if not figures:
        raise ValueError(f"--runs: got fewer than {LEAST_EPISODES} episodes in every run, too few to plot")
    for name, figure in figures.items():
        print(runtime.plots.save(figure, Path(flags.FLAGS.out) / f"{name}.png"))


if __name__ == "__main__":
    flags.DEFINE_list("runs", None, "run directories or released folders", required=True)
    flags.DEFINE_string("out", None, "output directory", required=True)
    runtime.run_program(main, reports=(ValueError,))
