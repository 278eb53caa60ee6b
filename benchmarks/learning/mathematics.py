"""The comparison of the paper at a size that fits: both architectures, both initialisations, several seeds.

The Transformer has as many parameters as the TP-Transformer. Figures are those of figure 3: exact match by
module, over all seeds. `results/` has the preset `quick` of the TP-Transformer; all of the comparison is

    python -m benchmarks.learning --only=mathematics --presets=modules --data=data/chosen
        --variants=tp_transformer-uniform,tp_transformer-xavier,transformer-uniform,transformer-xavier
"""

import dataclasses
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import machine, records
from benchmarks.records import Line
from experiments import mathematics, runtime
from experiments.mathematics import figures
from tp_transformer import evaluation
from tp_transformer.mathematics import EXTRAPOLATE, INTERPOLATE

MODELS = ("tp_transformer", "transformer")
INITIALIZATIONS = ("uniform", "xavier")
"""Those that ran in the TP-Transformer and in the Transformer; each architecture is given both."""


def configure(config: mathematics.Config, variant: str) -> mathematics.Config:
    """The preset with one of the models, of as many parameters as the preset's."""
    name, _, initialization = variant.partition("-")
    if name not in MODELS or initialization not in INITIALIZATIONS:
        raise ValueError(f"variants: got {variant!r}, expected some of {', '.join(VARIANTS)}")
    model = dataclasses.replace(config.model, initialization=initialization)
    if name != model.name:
        model = dataclasses.replace(model, name=name).matched(model.parameters())
    return dataclasses.replace(config, model=model)


def lines(run: records.Run) -> Iterator[tuple[runtime.FitResult, dict[str, Any]]]:
    """The model's line."""
    (result,), model = run.results.values(), run.config.model
    if result.step >= run.config.steps:
        kept = {key: getattr(model, key) for key in ("initialization", "filter_features")}
        chosen = {"name": model.name, **kept}.items()
        fields = " ".join(f"--config.model.{key}={value}" for key, value in chosen)
        command = f"python -m experiments.mathematics --config={run.preset} {fields}"
        command += f" --config.seed={run.config.seed}"
        yield result, {"model": model.name, **kept, "results": result.results, "command": command}


def groups(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Runs by what a model and an initialisation are called, each group in the order of seeds."""
    runs_of = records.grouped([{**line, "variant": variant_of(line)} for line in lines], "variant")
    return {
        f"{figures.shown(runs[0]['model'])}, {runs[0]['initialization']}": runs
        for variant in VARIANTS
        if (runs := runs_of.get(variant))
    }


HEAD = ("model, initialisation", "parameters", "split", "exact match, a number a seed", "mean (95 %)")
HEAD += ("modules above 95 %", "commonest answer", "seconds")


def table(lines: Sequence[Line]) -> str:
    """Exact match averaged over modules: a number a seed, their mean and its 95 % interval over seeds."""
    parts = ["# Exact match by architecture and initialisation\n"]
    for preset, of_preset in records.grouped(lines, "preset").items():
        rows, one = [], of_preset[0]
        for name, runs in groups(of_preset).items():
            seconds = ", ".join(f"{run['train_seconds']:.0f}" for run in runs)
            for split in (INTERPOLATE, EXTRAPOLATE):
                if split not in runs[0]["results"]:
                    continue
                found = [run["results"][split] for run in runs]
                values = [of_seed["average"] for of_seed in found]
                spread = records.spread(values, 4) if len(values) > 1 else "-"
                each = ", ".join(f"{value:.4f}" for value in values)
                above = ", ".join(str(of_seed["above_95"]) for of_seed in found)
                of_first = runs[0]["results"]
                always = f"{of_first['commonest_answer'][split]['average']:.4f}"
                parameters = f"{of_first['parameters']:,}"
                rows.append((name, parameters, split, each, spread, above, always, seconds))
        where = f"jax {one['versions']['jax']}, {one['date']}"
        parts.append(f"preset `{preset}`, {one['steps']:,} steps; {where}\n")
        parts.append(machine.markdown(HEAD, rows))
    return "\n".join(parts)


def drawn(lines: Sequence[Line]) -> Mapping[str, Any]:
    """Bars of the right answers of all seeds together, of the preset that came last."""
    found, runs_of = {}, groups([line for line in lines if line["preset"] == lines[-1]["preset"]])
    first = next(iter(runs_of.values()))[0]["results"]
    for split in (INTERPOLATE, EXTRAPOLATE):
        if split in first:
            scores = {
                name: functools.reduce(
                    operator.add, [evaluation.Scores.from_json(run["results"][split]) for run in runs]
                )
                for name, runs in runs_of.items()
            }
            scores[figures.ALWAYS] = evaluation.Scores.from_json(first["commonest_answer"][split])
            title = f"Exact match by module, {split}; all seeds together"
            found[f"accuracy_{split}"] = figures.bars(scores, title=title)
    return found


def variant_of(line: Line) -> str:
    """The variant of a run."""
    return f"{line['model']}-{line['initialization']}"


VARIANTS = [f"{model}-{initialization}" for model in MODELS for initialization in INITIALIZATIONS]
ROOM = records.Room(
    experiment=mathematics.EXPERIMENT,
    folder="mathematics",
    presets={"quick": 3},
    lines=lines,
    table=table,
    figures=drawn,
    variants=("tp_transformer-uniform",),
    configure=configure,
    variant=variant_of,
    cut=True,
)
