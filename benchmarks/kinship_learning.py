"""The ablation in results/kinship: the preset `ablation` of `experiments.kinship`, models by seeds.

    python -m benchmarks.kinship_learning --workdir=runs/kinship-claims
    python -m benchmarks.kinship_learning --models=jmc.atp,j.at,relation_aware --workdir=runs/kinship-claims

Every run trains one model with one seed, for as many seconds; after equal steps they are compared by what was
measured on the way, at the last step that all of them came to. Writes to `results/kinship/`:
`learning.jsonl` (a line a seed and model: accuracy by length, curve, times, versions, commit), the pictures
and `learning.md`, the table. What is interrupted goes on where it was; lines of other models are kept;
`--draw_only` draws again from the lines there are.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from benchmarks import timing
from experiments import runtime
from experiments.kinship import config as presets
from experiments.kinship import figures, measures
from experiments.kinship import train as experiment
from experiments.kinship.config import Config

SEEDS, RECORD = 3, "learning.jsonl"
MODELS = ("jmc.atp", "j.at")
"""Trained by default; the first is what the others are compared with."""

Line = Mapping[str, Any]


def run(preset: str, config: Config, workdir: Path) -> dict[str, Any]:
    """Trains one model with one seed; its line."""
    (result,) = experiment.main(config, workdir=workdir).values()
    return line_of(preset, config, result, workdir)


def line_of(preset: str, config: Config, result: runtime.FitResult, workdir: Path) -> dict[str, Any]:
    """The line of a finished run."""
    return {
        "preset": preset,
        **measures.line(config, result, workdir),
        "compile_seconds": result.summary["compile_seconds"],
        "wall_seconds": result.summary["wall_seconds"],
        "command": f"python -m experiments.kinship --config={preset} "
        f'--config.model={config.model} --config.baselines="()" --config.lrs="()" --config.lr={config.lr} '
        f"--config.seed={config.seed}",
        "params_sha256": result.summary["params_sha256"],
        **timing.where_and_when(),
    }


def claim(
    preset: str, config: Config, models: Sequence[str], seeds: int, workdir: Path, out: Path
) -> list[Line]:
    """Trains models with seeds, seed by seed, and records each when it is done; all lines there are then."""
    out.mkdir(parents=True, exist_ok=True)
    lines = read(out)
    for seed in range(seeds):
        for model in models:
            print(f"{preset}: {model}, seed {seed}", flush=True)
            of_run = dataclasses.replace(config.for_model(model), seed=seed)
            new = run(preset, of_run, workdir / f"{preset}-{model}-{seed}")
            done = preset, model, seed
            lines = [line for line in lines if (line["preset"], line["model"], line["seed"]) != done]
            lines.append(new)
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (out / RECORD).write_text(text, encoding="utf-8")
    return lines


def read(out: Path) -> list[Line]:
    """The lines of a record; none if there is no record."""
    file = out / RECORD
    return [json.loads(text) for text in file.read_text("utf-8").splitlines()] if file.exists() else []


def equal_step(lines: Sequence[Line]) -> int | None:
    """The last step at which all runs were measured."""
    steps = set.intersection(*({point.step for point in measures.points(line)} for line in lines))
    return max(steps, default=None)


def spread(values: Sequence[float]) -> str:
    """The mean with its 95 % interval over seeds."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    mean, low, high = runtime.intervals.mean_interval(values)
    return f"{mean:.3f} ({low:.3f} to {high:.3f})"


def verdict(first: Sequence[float], second: Sequence[float]) -> str:
    """What two models' seeds allow to be said; nothing of one seed."""
    if min(len(first), len(second)) < 2:
        return "nothing (one seed)"
    (_, low, high), (_, other_low, other_high) = map(runtime.intervals.mean_interval, (first, second))
    if low > other_high:
        return "higher, the intervals are apart"
    if high < other_low:
        return "lower, the intervals are apart"
    return "nothing, the intervals overlap"


def table(models: Mapping[str, Sequence[Line]], preset: str) -> str:
    """The runs of a preset as Markdown: every one, their means, and what may be said of them."""
    runs = [line for of_model in models.values() for line in of_model]
    one, step = runs[0], equal_step(runs)
    equal: dict[str, list[float]] = {}
    for model, of_model in models.items():
        curves = [{point.step: point.value for point in measures.points(line)} for line in of_model]
        equal[model] = [curve[step] for curve in curves] if step else []
    last = {model: [line["metric"]["value"] for line in of_model] for model, of_model in models.items()}
    lengths = [name for name in one["accuracies"] if name.isdigit()]
    trained = " and ".join(map(str, one["train_lengths"]))
    text = [
        f"## `{preset}`",
        "",
        f"Trained on chains of {trained} facts ({one['form']}), {one['test_problems']} test problems of each "
        f"length. What counts was named before: {one['metric']['name']}. The last measurement is that after "
        f"equal time; equal steps are {step}. {one['devices']['cpus']} CPU cores, "
        f"jax {one['versions']['jax']}, {one['date']}: `{one['command']}`, and the like.",
        "",
    ]
    head = ["model", "parameters", "seed", "equal steps", "equal time", "steps", "seconds", "commit"]
    rows = [head, ["---"] * len(head)]
    for model, of_model in models.items():
        for place, line in enumerate(of_model):
            at_step = f"{equal[model][place]:.3f}" if step else "-"
            rows.append(
                [
                    figures.shown(model),
                    f"{line['parameters']:,}",
                    str(line["seed"]),
                    at_step,
                    f"{last[model][place]:.3f}",
                    str(line["steps"]),
                    f"{line['train_seconds']:.0f}",
                    (line["commit"] or "")[:12],
                ]
            )
    text += [*_rows(rows), "", "Mean and 95 % interval (Student's t over seeds):", ""]
    head = ["model", "seeds", "equal steps", "equal time"]
    rows = [head, ["---"] * len(head)]
    for model, of_model in models.items():
        at_step = spread(equal[model]) if step else "-"
        rows.append([figures.shown(model), str(len(of_model)), at_step, spread(last[model])])
    text += [*_rows(rows), ""]
    head = ["model", *(f"k = {length}" for length in lengths)]
    rows = [head, ["---"] * len(head)]
    for model, of_model in models.items():
        means = [sum(line["accuracies"][k] for line in of_model) / len(of_model) for k in lengths]
        rows.append([figures.shown(model), *(f"{mean:.3f}" for mean in means)])
    text += ["Mean accuracy by the length of the chain, after equal time:", "", *_rows(rows), ""]
    first, *others = models
    for other in others:
        steps = verdict(equal[first], equal[other]) if step else "nothing"
        text.append(
            f"{figures.shown(first)} against {figures.shown(other)}: after equal steps {steps}; after equal "
            f"time {verdict(last[first], last[other])}."
        )
    return "\n".join(text) + "\n"


def _rows(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]


def draw(out: Path) -> None:
    """Writes the table and the pictures of every preset there is a line of."""
    parts = ["# Kinship: what was learned\n\nMade by `python -m benchmarks.kinship_learning`.\n"]
    for preset in dict.fromkeys(line["preset"] for line in read(out)):
        models = measures.of_preset(out / RECORD, preset)
        parts.append(table(models, preset))
        for name, figure in figures.of_lines(models).items():
            runtime.plots.save(figure, out / f"{preset}_{name}.png")
    (out / "learning.md").write_text("\n".join(parts), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    out = Path(values.out)
    if not values.draw_only:
        try:
            config = presets.get_config(values.preset)
            dataclasses.replace(config, model=values.models[0], baselines=(*values.models[1:],)).validate()
        except (ValueError, IndexError) as error:
            raise app.UsageError(str(error)) from error
        claim(values.preset, config, values.models, values.seeds, Path(values.workdir), out)
    if not read(out):
        raise app.UsageError(f"--out={out} has no {RECORD} to draw from")
    draw(out)
    print((out / "learning.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("preset", "ablation", "which preset's sizes, problems and time")
    flags.DEFINE_list("models", list(MODELS), "which models, the one others are compared with first")
    flags.DEFINE_integer("seeds", SEEDS, "how many", lower_bound=1)
    flags.DEFINE_string("workdir", "runs/kinship-claims", "where the runs are kept")
    flags.DEFINE_string("out", "results/kinship", "where the record goes")
    flags.DEFINE_bool("draw_only", False, "train nothing")
    app.run(main)
