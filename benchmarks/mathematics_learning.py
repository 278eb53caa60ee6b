"""The comparison of the paper at a size that fits: both architectures, both initialisations, several seeds.

    python -m benchmarks.mathematics_learning --preset=modules --workdir=runs/mathematics

Each run has a directory of its own and is resumed from it; a finished one is not run again, so the same
command goes on after an interruption (`--seconds=500` ends this session in time, with everything saved). The
Transformer has as many parameters as the TP-Transformer. Writes to `results/mathematics/`: `learning.jsonl`
(a line a run), `learning.md` (the table, with intervals over seeds) and `accuracy_SPLIT.png` (figure 3,
exact match averaged over seeds); `--draw_only` draws again from the lines that are there.
"""

import dataclasses
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from benchmarks import timing
from experiments import runtime
from experiments.mathematics import config as presets
from experiments.mathematics import figures
from experiments.mathematics import train as experiment
from experiments.mathematics.config import Config
from tp_transformer import evaluation, mathematics

MODELS = ("tp_transformer", "transformer")
INITIALIZATIONS = ("uniform", "xavier")
"""Those that ran in the TP-Transformer and in the Transformer; each architecture is given both."""

SPLITS = (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)


def config_of(base: Config, name: str, initialization: str, seed: int) -> Config:
    """The preset with one of the models, of as many parameters as the preset's."""
    model = dataclasses.replace(base.model, initialization=initialization)
    if name != model.name:
        model = dataclasses.replace(model, name=name).matched(model.parameters())
    return dataclasses.replace(base, model=model, seed=seed)


def line_of(config: Config, preset: str, result: runtime.FitResult) -> dict[str, Any]:
    """What is recorded of a finished run."""
    return {
        "preset": preset,
        "model": config.model.name,
        "initialization": config.model.initialization,
        "seed": config.seed,
        "filter_features": config.model.filter_features,
        "steps": result.step,
        "train_seconds": round(result.train_seconds, 2),
        "compile_seconds": result.summary["compile_seconds"],
        "wall_seconds": result.summary["wall_seconds"],
        "results": result.results,
        "params_sha256": result.summary["params_sha256"],
        **timing.where_and_when(),
    }


def key_of(line: Mapping[str, Any]) -> tuple:
    """What tells runs apart."""
    return line["preset"], line["model"], line["initialization"], line["seed"]


def label(model: str, initialization: str) -> str:
    """What a group of runs is called."""
    return f"{figures.shown(model)}, {initialization}"


def grouped(lines: Sequence[Mapping[str, Any]], preset: str) -> dict[str, list[Mapping[str, Any]]]:
    """The runs of a preset by model and initialisation, each group in the order of seeds."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for model, initialization in itertools.product(MODELS, INITIALIZATIONS):
        runs = [
            line
            for line in sorted(lines, key=lambda line: line["seed"])
            if key_of(line)[:3] == (preset, model, initialization)
        ]
        if runs:
            found[label(model, initialization)] = runs
    return found


def pooled(runs: Sequence[Mapping[str, Any]], split: str) -> evaluation.Scores:
    """Right answers of all seeds together."""
    scores = [evaluation.Scores.from_json(run["results"][split]) for run in runs]
    total = scores[0]
    for of_seed in scores[1:]:
        total += of_seed
    return total


def table(lines: Sequence[Mapping[str, Any]], preset: str) -> str:
    """Exact match averaged over modules: a number a seed, their mean and its 95 % interval over seeds."""
    rows = []
    for name, runs in grouped(lines, preset).items():
        for split in SPLITS:
            if split not in runs[0]["results"]:
                continue
            values = [run["results"][split]["average"] for run in runs]
            spread = "-"
            if len(values) > 1:
                spread = "{:.4f} ({:.4f} to {:.4f})".format(*runtime.intervals.mean_interval(values))
            above = ", ".join(str(run["results"][split]["above_95"]) for run in runs)
            seconds = ", ".join(f"{run['train_seconds']:.0f}" for run in runs)
            each = ", ".join(f"{value:.4f}" for value in values)
            always = runs[0]["results"]["commonest_answer"][split]["average"]
            parameters = runs[0]["results"]["parameters"]
            cells = [name, f"{parameters:,}", split, each, spread, above, f"{always:.4f}", seconds]
            rows.append(f"| {' | '.join(cells)} |")
    head = (
        "| model, initialisation | parameters | split | exact match, a number a seed | mean (95 %) "
        "| modules above 95 % | commonest answer | seconds |\n" + "| --- " * 8 + "|"
    )
    one = lines[0]
    where = f"preset `{preset}`, {one['steps']:,} steps; jax {one['versions']['jax']}, {one['date']}"
    return f"# Exact match by architecture and initialisation\n\n{where}\n\n{head}\n" + "\n".join(rows) + "\n"


def draw(lines: Sequence[Mapping[str, Any]], preset: str, out: Path) -> None:
    """Writes the table and the bars."""
    groups = grouped(lines, preset)
    if not groups:
        return
    (out / "learning.md").write_text(table(lines, preset), encoding="utf-8")
    if not runtime.can_draw():
        return
    for split in SPLITS:
        scores = {name: pooled(runs, split) for name, runs in groups.items() if split in runs[0]["results"]}
        if scores:
            one = next(iter(groups.values()))[0]["results"]["commonest_answer"][split]
            scores[figures.ALWAYS] = evaluation.Scores.from_json(one)
            figure = figures.bars(scores, title=f"Exact match by module, {split}; all seeds together")
            runtime.plots.save(figure, out / f"accuracy_{split}.png")


def compare(
    base: Config,
    preset: str,
    seeds: int,
    workdir: Path,
    out: Path,
    *,
    seconds: float = 0.0,
    models: Sequence[str] = MODELS,
    initializations: Sequence[str] = INITIALIZATIONS,
) -> list[dict[str, Any]]:
    """Runs what is missing of the comparison, records each finished run at once, draws all there are.

    Args:
        base: the preset's config.
        preset: its name.
        seeds: how many of each model.
        workdir: has a directory for each run.
        out: where lines, table and figures go.
        seconds: start or continue no run for longer than this altogether; 0 is no limit.
        models: which of `MODELS`.
        initializations: which of `INITIALIZATIONS`.

    Returns:
        The lines of all runs that are finished.
    """
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    file = out / "learning.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    # Seed by seed, so that what is there when time is up can be compared.
    for seed, initialization, name in itertools.product(range(seeds), initializations, models):
        if (preset, name, initialization, seed) in map(key_of, lines):
            continue
        left = seconds - (time.monotonic() - began)
        if seconds and left <= 0:
            break
        config = config_of(base, name, initialization, seed)
        config.session_seconds = left if seconds else 0.0
        print(f"{label(name, initialization)}, seed {seed}", flush=True)
        directory = workdir / f"{name}-{initialization}-{seed}"
        result = experiment.main(config, workdir=directory)[name]
        if result.step < config.steps:
            break
        lines.append(line_of(config, preset, result))
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    draw(lines, preset, out)
    return lines


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    try:
        base = presets.get_config(values.preset)
        if values.data:
            base.data.directory = values.data
        base.validate()
        seeds = 0 if values.draw_only else values.seeds
        out = Path(values.out)
        which = {"models": values.models, "initializations": values.initializations}
        workdir = Path(values.workdir)
        lines = compare(base, values.preset, seeds, workdir, out, seconds=values.seconds, **which)
    except ValueError as error:
        raise app.UsageError(str(error)) from error
    if grouped(lines, values.preset):
        print(table(lines, values.preset))


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("preset", "modules", "of experiments/mathematics/config.py")
    flags.DEFINE_string("data", None, "directory of questions, in the place of the preset's")
    flags.DEFINE_integer("seeds", 3, "of each model and initialisation", lower_bound=0)
    flags.DEFINE_multi_enum("models", MODELS, MODELS, "which architectures; said once for each")
    flags.DEFINE_multi_enum("initializations", INITIALIZATIONS, INITIALIZATIONS, "which, likewise")
    flags.DEFINE_string("workdir", "runs/mathematics-modules", "directory of the runs")
    flags.DEFINE_string("out", "results/mathematics", "directory of lines, table and figures")
    flags.DEFINE_float("seconds", 0.0, "end this session after so many seconds; 0: when all is done")
    flags.DEFINE_bool("draw_only", False, "run nothing, draw from the lines there are")
    app.run(main)
