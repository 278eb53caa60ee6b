"""The claims about learning in results/llrnn: every preset with its seeds and its baseline, in one command.

    python -m benchmarks.llrnn_learning --presets=quick,copy,word_problem --workdir=runs/claims

Writes to `results/llrnn/`: `learning.jsonl` (a line for each preset, seed and model: the final measurements
with their counts, the curve during training, times, versions, commit), the figures drawn from it, and
`learning.md`, the table. What is interrupted goes on where it was; `--draw_only` draws again from the lines
that are there.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags, logging

from benchmarks import timing
from experiments import runtime
from experiments.llrnn import config as presets
from experiments.llrnn import figures as llrnn_figures
from experiments.llrnn import train as llrnn

SEEDS = {"quick": 3, "copy": 4, "word_problem": 3}
SHOWN = {
    "quick": ("held_out_once/error_8", "held_out/error_8", "train/error_8"),
    "copy": ("train/error_10", "train/error_20", "train/error_40"),
    "word_problem": ("train/error_16", "train/error_64", "train/error_256"),
}
"""What the table shows of each preset."""


def run(preset: str, seed: int, workdir: Path) -> list[dict[str, Any]]:
    """Trains a preset with one seed; a line for the cell and one for its baseline."""
    config = dataclasses.replace(presets.get_config(preset), seed=seed)
    results = llrnn.main(config, workdir=workdir)
    lines = []
    for name, result in results.items():
        cell = config.cell if name != llrnn.BASELINE else config.baseline
        below = workdir if name != llrnn.BASELINE else workdir / llrnn.BASELINE
        curve = [
            {key: row[key] for key in row if key in ("step", "train_seconds") or key.startswith("eval/")}
            for row in runtime.metrics.read(below / "metrics.jsonl")
            if any(key.startswith("eval/") for key in row)
        ]
        lines.append(
            {
                "preset": preset,
                "seed": seed,
                "model": cell.name,
                "baseline": name == llrnn.BASELINE,
                "parameters": sum(leaf.size for leaf in jax.tree.leaves(result.params)),
                "steps": result.step,
                "train_seconds": round(result.train_seconds, 2),
                "compile_seconds": result.summary["compile_seconds"],
                "wall_seconds": result.summary["wall_seconds"],
                "results": result.results,
                "curve": curve,
                "command": f"python -m experiments.llrnn --config={preset} --config.seed={seed}",
                "params_sha256": result.summary["params_sha256"],
                **timing.where_and_when(),
            }
        )
    return lines


def of(lines: Sequence[Mapping[str, Any]], preset: str) -> dict[str, list[Mapping[str, Any]]]:
    """The lines of a preset by model, the cell before its baseline."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for line in sorted(lines, key=lambda line: (line["baseline"], line["seed"])):
        if line["preset"] == preset:
            found.setdefault(line["model"], []).append(line)
    return found


def band(rows: Sequence[Sequence[float]]) -> tuple[list[float], list[float], list[float]]:
    """Mean and 95 % interval over seeds at each point, within [0, 1]."""
    mean, low, high = zip(
        *(runtime.intervals.mean_interval(values) for values in zip(*rows, strict=True)), strict=True
    )
    return list(mean), list(np.clip(low, 0, 1)), list(np.clip(high, 0, 1))


def held_out_figure(lines: Sequence[Mapping[str, Any]]):
    """Accuracy on held-out and trained pairs against seconds of training, over the seeds of `quick`."""
    curves = {}
    for model, runs in of(lines, "quick").items():
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
            curves[f"{llrnn_figures.shown(model)}, {shown}"] = (seconds, *band(rows))
    count = len(next(iter(of(lines, "quick").values())))
    return runtime.plots.curve_figure(
        curves,
        title=f"g^k in S5, 8 of 32 pairs (k, g) held out; mean of {count} seeds, 95 %",
        xlabel="seconds of training on two CPU cores",
        ylabel="accuracy",
        ylim=(-0.03, 1.05),
        size=(6.0, 3.6),
    )


def lengths_figure(lines: Sequence[Mapping[str, Any]], preset: str):
    """Error against length, over the seeds of a preset."""
    curves = {}
    config = presets.get_config(preset)
    for model, runs in of(lines, preset).items():
        points = [dict(llrnn_figures.by_split(run["results"]))["train"] for run in runs]
        lengths = [length for length, _ in points[0]]
        rows = [[error for _, error in row] for row in points]
        curves[llrnn_figures.shown(model)] = (lengths, *band(rows))
    count = len(next(iter(of(lines, preset).values())))
    longest = config.make_task().train_lengths[1]
    return runtime.plots.curve_figure(
        curves,
        title=f"{preset.replace('_', ' ')}, trained to length {longest}; mean of {count} seeds, 95 %",
        xlabel="length of the sequence",
        ylabel="error per symbol",
        xlog=True,
        ylim=(-0.03, 1.0),
        marks={"longest trained": longest},
    )


INTRODUCTION = """\
# What was learned

Errors per symbol on fresh sequences, a number a seed, with their mean and its 95 % interval (Student's t over
seeds). The baseline reads the same tasks for as many seconds of training as the cell took. Made by
`make results`; the lines are in `learning.jsonl`.
"""


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """The claims as Markdown: for each preset and model every measurement with all its seeds."""
    parts = [INTRODUCTION]
    for preset in SEEDS:
        models = of(lines, preset)
        if not models:
            continue
        one = next(iter(models.values()))[0]
        where = f"{one['devices']['cpus']} CPU cores, jax {one['versions']['jax']}, {one['date']}"
        parts.append(f"## `{preset}`\n\n{where}: `{one['command']}` and its other seeds.\n")
        head = ["model", "parameters", "measured", "a number a seed", "mean (95 %)", "seconds", "steps"]
        rows = [head, ["---"] * len(head)]
        for model, runs in models.items():
            seconds = ", ".join(f"{run['train_seconds']:.0f}" for run in runs)
            steps = ", ".join(str(run["steps"]) for run in runs)
            for shown in SHOWN[preset]:
                errors = [run["results"][shown]["error"] for run in runs]
                each = ", ".join(f"{error:.4f}" for error in errors)
                mean, low, high = np.clip(runtime.intervals.mean_interval(errors), 0, 1)
                spread = f"{mean:.4f} ({low:.4f} to {high:.4f})"
                rows.append(
                    [
                        llrnn_figures.shown(model),
                        str(runs[0]["parameters"]),
                        shown,
                        each,
                        spread,
                        seconds,
                        steps,
                    ]
                )
        parts.append("".join(f"| {' | '.join(row)} |\n" for row in rows))
    return "\n".join(parts)


def draw(lines: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Writes figures and table."""
    if of(lines, "quick"):
        runtime.plots.save(held_out_figure(lines), out / "held_out.png")
    for preset in ("copy", "word_problem"):
        if of(lines, preset):
            runtime.plots.save(lengths_figure(lines, preset), out / f"{preset}.png")
    (out / "learning.md").write_text(table(lines), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    claim(() if values.draw_only else values.presets, Path(values.workdir), Path(values.out))


def claim(names: Sequence[str], workdir: Path, out: Path) -> None:
    """Runs presets with all their seeds, records them, draws everything there is.

    Raises:
        app.UsageError: a preset has no claims.
    """
    if unknown := sorted(set(names) - set(SEEDS)):
        raise app.UsageError(f"--presets: {unknown[0]!r} is not among {', '.join(SEEDS)}")
    out.mkdir(parents=True, exist_ok=True)
    file = out / "learning.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for preset in names:
        for seed in range(SEEDS[preset]):
            print(f"{preset}, seed {seed}", flush=True)
            new = run(preset, seed, workdir / f"{preset}-{seed}")
            lines = [line for line in lines if (line["preset"], line["seed"]) != (preset, seed)] + new
            file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    draw(lines, out)
    print(table(lines))


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_list("presets", list(SEEDS), "which presets to run")
    flags.DEFINE_string("workdir", "runs/claims", "directory of the runs")
    flags.DEFINE_string("out", "results/llrnn", "directory of lines, figures and table")
    flags.DEFINE_bool("draw_only", False, "run nothing, draw from the lines there are")
    app.run(main)
