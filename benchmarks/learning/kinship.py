"""The ablation on kinship problems: models by seeds, all for as many seconds, by the length of the chain.

After equal steps models are compared by what was measured on the way, at the last step that all of them came
to.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import machine, records
from benchmarks.records import Line
from experiments import kinship, runtime
from experiments.kinship import figures, measures


def lines(run: records.Run) -> Iterator[tuple[runtime.FitResult, dict[str, Any]]]:
    """The model's line."""
    (result,), config = run.results.values(), run.config
    if not config.session_seconds or config.is_over(result.step, result.train_seconds):
        command = (
            f"python -m experiments.kinship --config={run.preset} --config.model={config.model} "
            f'--config.baselines="()" --config.lrs="()" --config.lr={config.lr} --config.seed={config.seed}'
        )
        yield result, {**measures.line(config, result, run.workdir), "command": command}


def equal_step(lines: Sequence[Line]) -> int | None:
    """The last step at which all runs were measured."""
    steps = set.intersection(*({point.step for point in measures.points(line)} for line in lines))
    return max(steps, default=None)


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


def of_preset(models: Mapping[str, Sequence[Line]], preset: str) -> str:
    """The runs of a preset as Markdown: every one, their means, and what may be said of them."""
    runs = [line for of_model in models.values() for line in of_model]
    one, step = runs[0], equal_step(runs)
    equal, last = {}, {}
    for model, of_model in models.items():
        curves = [{point.step: point.value for point in measures.points(line)} for line in of_model]
        equal[model] = [curve[step] for curve in curves] if step else []
        last[model] = [line["metric"]["value"] for line in of_model]
    lengths = [name for name in one["accuracies"] if name.isdigit()]
    trained = " and ".join(map(str, one["train_lengths"]))
    text = [
        f"## `{preset}`\n\n"
        f"Trained on chains of {trained} facts ({one['form']}), {one['test_problems']} test problems of each "
        f"length. What counts was named before: {one['metric']['name']}. The last measurement is that after "
        f"equal time; equal steps are {step}. {one['devices']['cpus']} CPU cores, "
        f"jax {one['versions']['jax']}, {one['date']}: `{one['command']}`, and the like.\n"
    ]
    each, means, by_length = [], [], []
    for model, of_model in models.items():
        shown = figures.shown(model)
        for place, line in enumerate(of_model):
            at_step = f"{equal[model][place]:.3f}" if step else "-"
            row = shown, f"{line['parameters']:,}", line["seed"], at_step, f"{last[model][place]:.3f}"
            each.append((*row, line["steps"], f"{line['train_seconds']:.0f}", records.commit(line)))
        at_step = records.spread(equal[model], 3) if step else "-"
        means.append((shown, len(of_model), at_step, records.spread(last[model], 3)))
        of_length = [sum(line["accuracies"][k] for line in of_model) / len(of_model) for k in lengths]
        by_length.append((shown, *(f"{mean:.3f}" for mean in of_length)))
    head = ("model", "parameters", "seed", "equal steps", "equal time", "steps", "seconds", "commit")
    text.append(machine.markdown(head, each))
    text.append("Mean and 95 % interval (Student's t over seeds):\n")
    text.append(machine.markdown(("model", "seeds", "equal steps", "equal time"), means))
    text.append("Mean accuracy by the length of the chain, after equal time:\n")
    text.append(machine.markdown(("model", *(f"k = {length}" for length in lengths)), by_length))
    first, *others = models
    said = []
    for other in others:
        steps = verdict(equal[first], equal[other]) if step else "nothing"
        said.append(
            f"{figures.shown(first)} against {figures.shown(other)}: after equal steps {steps}; after equal "
            f"time {verdict(last[first], last[other])}.\n"
        )
    return "\n".join([*text, "".join(said)])


def presets(lines: Sequence[Line]) -> dict[str, dict[str, list[Line]]]:
    """Lines by preset and model."""
    return {
        preset: records.grouped(runs, "model") for preset, runs in records.grouped(lines, "preset").items()
    }


def table(lines: Sequence[Line]) -> str:
    """All presets of a record."""
    head = "# Kinship: what was learned\n\nMade by `python -m benchmarks.learning --only=kinship`.\n"
    return "\n".join([head, *(of_preset(models, preset) for preset, models in presets(lines).items())])


def drawn(lines: Sequence[Line]) -> Mapping[str, Any]:
    """The figures of each preset."""
    return {
        f"{preset}_{name}": figure
        for preset, models in presets(lines).items()
        for name, figure in figures.of_lines(models).items()
    }


ROOM = records.Room(
    experiment=kinship.EXPERIMENT,
    folder="kinship",
    presets={"ablation": 3},
    lines=lines,
    table=table,
    figures=drawn,
    variants=("jmc.atp", "j.at"),
    configure=kinship.Config.for_model,
    variant=lambda line: line["model"],
    cut=True,
)
