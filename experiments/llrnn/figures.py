"""Draws the figures of finished runs from their metrics and results."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments import runtime
from experiments.llrnn.config import Config
from llrnn import model as models
from llrnn import tasks

_ADDRESSES = ("write_address", "read_address")


def draw(
    workdir: Path, configs: Mapping[str, Config], results: Mapping[str, runtime.FitResult]
) -> dict[str, Path]:
    """Draws a run and its baseline.

    Args:
        workdir: the run's directory, with the baseline's in `baseline/`.
        configs: the config of each run by name, the main one first.
        results: the result of each run by name.

    Returns:
        The paths written, by figure name.
    """
    drawn = {"error_by_length": error_by_length(configs, results)}
    first, config = next(iter(configs.items()))
    if "held_out_once" in config.make_task().splits:
        drawn["held_out"] = held_out(workdir, configs)
    addresses = addresses_over_time(config, results[first].params)
    if addresses is not None:
        drawn["addresses"] = addresses
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in drawn.items()}


def shown(name: str) -> str:
    """Returns the display name of a cell or encoder."""
    return name.replace("_", " ").replace("ntm", "NTM").replace("lstm", "LSTM")


def error_by_length(configs: Mapping[str, Config], results: Mapping[str, runtime.FitResult]):
    """Draws the final error per symbol against sequence length, one line per run and split."""
    curves = {}
    for name, result in results.items():
        for split, points in by_split(result.results).items():
            line = "" if split == "train" else f", {split.replace('_', ' ')}"
            curves[shown(configs[name].model_name) + line] = ([x for x, _ in points], [y for _, y in points])
    config = next(iter(configs.values()))
    task = config.make_task()
    return runtime.plots.curve_figure(
        curves,
        title=config.task.replace("_", " "),
        xlabel="sequence length",
        ylabel="error per symbol",
        xlog=max(task.test_lengths) > 8 * task.train_lengths[1],
        ylim=(-0.03, 1.0),
        marks={"longest in training": task.train_lengths[1]},
        beside=len(curves) > 3,
    )


def by_split(results: Mapping[str, Any]) -> dict[str, list[tuple[int, float]]]:
    """Returns a run's final errors as sorted (length, error) pairs, by split."""
    found: dict[str, list[tuple[int, float]]] = {}
    for name, value in results.items():
        if match := re.fullmatch(r"(\w+)/error_(\d+)", name):
            found.setdefault(match.group(1), []).append((int(match.group(2)), value["error"]))
    return {split: sorted(points) for split, points in found.items()}


def held_out(workdir: Path, configs: Mapping[str, Config]):
    """Draws accuracy on held-out and training steps against training time, two lines per run."""
    task = next(iter(configs.values())).make_task()
    steps, title = "steps", f"{shown(task.name)}: steps never seen in training"
    if isinstance(task, tasks.GroupPowers):
        steps, title = "pairs", "Applying g^k: pairs (k, g) never seen in training"
    curves = {}
    for name, config in configs.items():
        longest = config.make_task().train_lengths[1]
        records = runtime.metrics.read((workdir if name != "baseline" else workdir / name) / "metrics.jsonl")
        for split in ("held_out_once", "train"):
            key = f"eval/{split}/error_{longest}"
            points = [(row["train_seconds"], 1 - row[key]) for row in records if row.get(key) is not None]
            kind = f"training {steps}" if split == "train" else f"held-out {steps}"
            curves[f"{shown(config.model_name)}, {kind}"] = ([x for x, _ in points], [y for _, y in points])
    return runtime.plots.curve_figure(
        curves,
        title=title,
        xlabel="seconds of training",
        ylabel="accuracy",
        ylim=(-0.03, 1.05),
        beside=True,
    )


def addresses_over_time(config: Config, params: Any, seed: int = 0):
    """Draws a memory's write and read addresses over one sequence; None for cells without addresses."""
    task = config.make_task()
    model = config.make_model(task)
    length = min(2 * task.train_lengths[1], max(task.test_lengths))
    inputs = jax.jit(lambda key: task.encode(task.sample(key, 1, length).tokens))(jax.random.key(seed))
    variables = {"params": jax.device_get(params)}
    output = models.run_with_intermediates(model, variables, inputs)
    found = output.intermediates or {}
    panels = {name.replace("_", " "): np.asarray(found[name])[0].T for name in _ADDRESSES if name in found}
    if not panels:
        return None
    return runtime.plots.heatmap_figure(
        panels,
        title=f"Addresses of the {shown(config.cell.name)}: {config.task.replace('_', ' ')}, length {length}",
        xlabel="step",
        ylabel="location on the ring",
        limits=(0.0, 1.0),
        colour_label="weight",
        size=(7.2, 3.2),
    )
