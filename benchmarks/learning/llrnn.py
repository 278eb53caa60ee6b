"""Cells and their baselines, which read the same tasks for as many seconds of training as the cell took."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import machine, records
from benchmarks.records import Line
from experiments import llrnn, runtime
from experiments.llrnn import figures
from experiments.llrnn.train import BASELINE

SHOWN = {
    "quick": ("held_out_once/error_8", "held_out/error_8", "train/error_8"),
    "copy": ("train/error_10", "train/error_20", "train/error_40"),
    "word_problem": ("train/error_16", "train/error_64", "train/error_256"),
}
"""What the table shows of each preset."""


def lines(run: records.Run) -> Iterator[tuple[runtime.FitResult, dict[str, Any]]]:
    """A line for the cell and one for its baseline."""
    for name, result in run.results.items():
        below = run.workdir / name if name == BASELINE else run.workdir
        curve = [
            {key: row[key] for key in row if key in ("step", "train_seconds") or key.startswith("eval/")}
            for row in runtime.metrics.read(below / "metrics.jsonl")
            if any(key.startswith("eval/") for key in row)
        ]
        yield (
            result,
            {
                "model": (run.config.baseline if name == BASELINE else run.config.cell).name,
                "baseline": name == BASELINE,
                "parameters": sum(leaf.size for leaf in jax.tree.leaves(result.params)),
                "results": result.results,
                "curve": curve,
            },
        )


def of_preset(lines: Sequence[Line], preset: str) -> dict[str, list[Line]]:
    """The lines of a preset by model, the cell before its baseline."""
    chosen = [line for line in lines if line["preset"] == preset]
    return records.grouped(sorted(chosen, key=lambda line: line["baseline"]), "model")


def held_out_figure(models: Mapping[str, Sequence[Line]]) -> Any:
    """Accuracy on held-out and trained pairs against seconds of training, over the seeds of `quick`."""
    curves = {}
    for model, runs in models.items():
        last = min(run["curve"][-1]["train_seconds"] for run in runs)
        first = max(run["curve"][0]["train_seconds"] for run in runs)
        seconds = np.linspace(first, last, 60)
        for split, shown in (("held_out_once", "held-out pairs"), ("train", "trained pairs")):
            rows = [
                np.interp(
                    seconds,
                    [point["train_seconds"] for point in run["curve"]],
                    [1 - point[f"eval/{split}/error_8"] for point in run["curve"]],
                )
                for run in runs
            ]
            curves[f"{figures.shown(model)}, {shown}"] = (seconds, *records.band(rows))
    count = len(next(iter(models.values())))
    return runtime.plots.curve_figure(
        curves,
        title=f"g^k in S5, 8 of 32 pairs (k, g) held out; mean of {count} seeds, 95 %",
        xlabel="seconds of training on two CPU cores",
        ylabel="accuracy",
        ylim=(-0.03, 1.05),
        size=(6.0, 3.6),
    )


def lengths_figure(models: Mapping[str, Sequence[Line]], preset: str) -> Any:
    """Error against length, over the seeds of a preset."""
    curves = {}
    for model, runs in models.items():
        points = [dict(figures.by_split(run["results"]))["train"] for run in runs]
        rows = [[error for _, error in row] for row in points]
        curves[figures.shown(model)] = ([length for length, _ in points[0]], *records.band(rows))
    count = len(next(iter(models.values())))
    longest = llrnn.get_config(preset).make_task().train_lengths[1]
    return runtime.plots.curve_figure(
        curves,
        title=f"{preset.replace('_', ' ')}, trained to length {longest}; mean of {count} seeds, 95 %",
        xlabel="length of the sequence",
        ylabel="error per symbol",
        xlog=True,
        ylim=(-0.03, 1.0),
        marks={"longest trained": longest},
    )


def drawn(lines: Sequence[Line]) -> Mapping[str, Any]:
    """Held-out pairs of `quick`, lengths of the others."""
    found = {}
    if models := of_preset(lines, "quick"):
        found["held_out"] = held_out_figure(models)
    for preset in ("copy", "word_problem"):
        if models := of_preset(lines, preset):
            found[preset] = lengths_figure(models, preset)
    return found


TEXT = """\
# What was learned

Errors per symbol on fresh sequences, a number a seed, with their mean and its 95 % interval (Student's t over
seeds). The baseline reads the same tasks for as many seconds of training as the cell took. Made by
`make results`; the lines are in `learning.jsonl`.
"""
HEAD = ("model", "parameters", "measured", "a number a seed", "mean (95 %)", "seconds", "steps")


def table(lines: Sequence[Line]) -> str:
    """For each preset and model every measurement with all its seeds."""
    parts = [TEXT]
    for preset, shown in SHOWN.items():
        models, rows = of_preset(lines, preset), []
        if not models:
            continue
        one = next(iter(models.values()))[0]
        where = f"{one['devices']['cpus']} CPU cores, jax {one['versions']['jax']}, {one['date']}"
        parts.append(f"## `{preset}`\n\n{where}: `{one['command']}` and its other seeds.\n")
        for model, runs in models.items():
            seconds = ", ".join(f"{run['train_seconds']:.0f}" for run in runs)
            steps = ", ".join(str(run["steps"]) for run in runs)
            for name in shown:
                errors = [run["results"][name]["error"] for run in runs]
                each = ", ".join(f"{error:.4f}" for error in errors)
                spread = records.spread(errors, 4, shares=True)
                head = figures.shown(model), runs[0]["parameters"], name
                rows.append((*head, each, spread, seconds, steps))
        parts.append(machine.markdown(HEAD, rows))
    return "\n".join(parts)


ROOM = records.Room(
    experiment=llrnn.EXPERIMENT,
    folder="llrnn",
    presets={"quick": 3, "copy": 4, "word_problem": 3},
    lines=lines,
    table=table,
    figures=drawn,
)
