"""The pictures of `experiments/llrnn/train.py`, drawn from the records and results of finished runs."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import numpy as np

from experiments import runtime
from experiments.llrnn.config import Config
from llrnn import model as models

_ADDRESSES = ("write_address", "read_address")


def draw(
    workdir: Path, configs: Mapping[str, Config], results: Mapping[str, runtime.FitResult]
) -> dict[str, Path]:
    """Draws what there is to see of a run and its baseline.

    Args:
        workdir: the run's directory; the baseline's is `baseline/` in it.
        configs: the config of each run, the main one first.
        results: its result, under the same names.

    Returns:
        The files written, by the name of the figure.
    """
    drawn = {"error_by_length": error_by_length(configs, results)}
    first, config = next(iter(configs.items()))
    if "held_out_once" in config.make_task().splits:
        drawn["held_out"] = held_out(workdir, configs)
    addresses = addresses_over_time(config, results[first])
    if addresses is not None:
        drawn["addresses"] = addresses
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in drawn.items()}


def shown(cell: str) -> str:
    """What a cell is called where people read it."""
    words = cell.replace("_", " ")
    return words.replace("ntm", "NTM").replace("lstm", "LSTM")


def labels(configs: Mapping[str, Config]) -> dict[str, str]:
    """What each run is called in a figure: its cell."""
    return {name: shown(config.cell.name) for name, config in configs.items()}


def error_by_length(configs: Mapping[str, Config], results: Mapping[str, runtime.FitResult]):
    """Error per symbol at the end of training against the length of the sequence, a line a run and split."""
    curves, label = {}, labels(configs)
    for name, result in results.items():
        for split, points in by_split(result.results):
            line = label[name] + ("" if split == "train" else f", {split.replace('_', ' ')}")
            curves[line] = ([length for length, _ in points], [error for _, error in points])
    config = next(iter(configs.values()))
    task = config.make_task()
    return runtime.plots.curve_figure(
        curves,
        title=config.task.replace("_", " "),
        xlabel="length of the sequence",
        ylabel="error per symbol",
        xlog=max(task.test_lengths) > 8 * task.train_lengths[1],
        ylim=(-0.03, 1.0),
        marks={"longest trained": task.train_lengths[1]},
    )


def by_split(results: Mapping[str, dict]) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    """The final errors of a run as (split, [(length, error), ...])."""
    found: dict[str, list[tuple[int, float]]] = {}
    for name, value in results.items():
        if match := re.fullmatch(r"(\w+)/error_(\d+)", name):
            found.setdefault(match.group(1), []).append((int(match.group(2)), value["error"]))
    for split, points in found.items():
        yield split, sorted(points)


def held_out(workdir: Path, configs: Mapping[str, Config]):
    """Accuracy on held-out and on trained pairs against the seconds of training, a pair of lines a run."""
    curves = {}
    for (name, config), label in zip(configs.items(), labels(configs).values(), strict=True):
        longest = config.make_task().train_lengths[1]
        records = runtime.metrics.read((workdir if name != "baseline" else workdir / name) / "metrics.jsonl")
        for split in ("held_out_once", "train"):
            key = f"eval/{split}/error_{longest}"
            points = [(row["train_seconds"], 1 - row[key]) for row in records if row.get(key) is not None]
            kind = "trained pairs" if split == "train" else "held-out pairs"
            curves[f"{label}, {kind}"] = ([x for x, _ in points], [y for _, y in points])
    return runtime.plots.curve_figure(
        curves,
        title="Applying g^k: pairs (k, g) never seen in training",
        xlabel="seconds of training",
        ylabel="accuracy",
        ylim=(-0.03, 1.05),
    )


def addresses_over_time(config: Config, result: runtime.FitResult):
    """Where a memory writes and reads at each step of one sequence, or None for a cell without addresses."""
    task = config.make_task()
    model = config.make_model(task)
    length = min(2 * task.train_lengths[1], max(task.test_lengths))
    batch = task.sample(jax.random.key(0), 1, length)
    params = {"params": jax.device_get(result.params)}
    output = models.run_with_intermediates(model, params, task.encode(batch.tokens))
    found = output.intermediates or {}
    panels = {name.replace("_", " "): np.asarray(found[name])[0].T for name in _ADDRESSES if name in found}
    if not panels:
        return None
    return runtime.plots.heatmap_figure(
        panels,
        title=f"{config.task.replace('_', ' ')}, length {length}: the {shown(config.cell.name)}'s addresses",
        xlabel="step",
        ylabel="location on the ring",
        limits=(0.0, 1.0),
        colour_label="weight",
        size=(7.2, 3.2),
    )
