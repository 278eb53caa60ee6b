"""Draws the figures of a run on the Mathematics Dataset from its metrics and results."""

import colorsys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runtime
from experiments.mathematics.config import EXPRESSIONS, Config
from experiments.mathematics.measures import Sampled
from tp_transformer import TPTransformer, evaluation, mathematics, roles

type Figure = runtime.plots.Figure  # evaluated lazily, since matplotlib is imported only to draw

ALWAYS = "always the most frequent answer"
ROWS = 12
"""Number of questions in a figure of roles."""


def draw(
    workdir: Path,
    configs: Mapping[str, Config],
    results: Mapping[str, runtime.FitResult],
    source: mathematics.Source,
) -> dict[str, Path]:
    """Draws a run (the first entry of `configs`) and its baseline, if any.

    Returns:
        The paths written, by figure name.
    """
    config, first = next(iter(configs.values())), next(iter(results.values()))
    always = first.results["commonest_answer"]
    drawn = {"learning": learning(workdir, configs, scores(always, mathematics.INTERPOLATE))}
    for split in always:
        shares = {shown(configs[name].model.name): scores(of.results, split) for name, of in results.items()}
        shares[ALWAYS] = scores(always, split)
        drawn[f"accuracy_{split}"] = bars(shares, title=f"Exact match by module, {split}")
    model = config.model.make()
    if isinstance(model, TPTransformer):
        modules = config.data.test_modules(source)[mathematics.INTERPOLATE]
        shown_modules = modules if config.data.questions == EXPRESSIONS else modules[:1]
        if figure := of_roles(config, model, jax.device_get(first.params), source, shown_modules):
            drawn["roles"] = figure
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in drawn.items()}


def shown(model: str) -> str:
    """Returns an architecture's display name."""
    names = {
        "tp_transformer": "TP-Transformer",
        "transformer": "Transformer",
        "gated_transformer": "gated Transformer",
    }
    return names.get(model, model)


def title_of(module: str) -> str:
    """Returns a module's display name."""
    return module.replace("__", ": ").replace("_", " ")


def scores(results: Mapping[str, Any], split: str) -> evaluation.Scores:
    """Reads the scores of a split from a run's results."""
    return evaluation.Scores.from_json(results[split])


def bars(shares: Mapping[str, evaluation.Scores], *, title: str, intervals: bool = False) -> "Figure":
    """Draws each model's exact match by module in one split, as in figure 3 of the paper.

    With `intervals`, each bar has its 95 % Wilson interval.

    Raises:
        ValueError: `shares` has no module.
    """
    modules = list(dict.fromkeys(module for of_model in shares.values() for module in of_model.modules))
    if not modules:
        raise ValueError("shares: got no module, expected at least 1")
    thickness = 0.8 / len(shares)
    with runtime.plots.style(), runtime.plots.without_grid():
        figure = runtime.plots.Figure(figsize=(6.4, 1.2 + 0.13 * len(modules) * (len(shares) + 0.6)))
        axes = figure.add_subplot()
        for index, (name, of_model) in enumerate(shares.items()):
            places = np.arange(len(modules)) + thickness * (index - (len(shares) - 1) / 2)
            values = [of_model.accuracies.get(module, np.nan) for module in modules]
            colour = "#aaaaaa" if name == ALWAYS else runtime.plots.COLOURS[index]
            label = f"{name}: {of_model.average:.1%} on average"
            axes.barh(places, values, thickness, color=colour, label=label)
            if intervals:
                there = [
                    (at, of_model.modules.get(module)) for at, module in zip(places, modules, strict=True)
                ]
                for at, share in ((at, share) for at, share in there if share):
                    axes.plot(
                        runtime.intervals.wilson_interval(*share), (at, at), color="black", linewidth=0.8
                    )
        axes.axvline(evaluation.THRESHOLD, color="#777777", linewidth=1, linestyle=(0, (2, 2)))
        axes.set_yticks(np.arange(len(modules)), [title_of(module) for module in modules], fontsize=7)
        axes.set(xlim=(0, 1), ylim=(len(modules) - 0.5, -0.5), xlabel="exact match")
        axes.set_title(title, loc="left")
        figure.legend(loc="outside lower center")
    return figure


def learning(workdir: Path, configs: Mapping[str, Config], always: evaluation.Scores) -> "Figure":
    """Draws exact match on the interpolation split against steps.

    For a single model with 2 to 5 modules, also draws one curve per module.
    """
    key, curves, steps = f"eval/{mathematics.INTERPOLATE}", {}, []
    for name, config in configs.items():
        folder = workdir / name if curves else workdir
        rows = [row for row in runtime.metrics.read(folder / "metrics.jsonl") if row.get(key) is not None]
        labels = {key: shown(config.model.name)}
        if len(configs) == 1:
            labels[key] += ", average"
            modules = sorted(column for column in rows[-1] if column.startswith(f"{key}/"))
            if 1 < len(modules) <= 5:
                labels |= {module: title_of(module.removeprefix(f"{key}/")) for module in modules}
        own = [row["step"] for row in rows]
        curves |= {label: (own, [row[column] for row in rows]) for column, label in labels.items()}
        steps += own
    curves[f"{ALWAYS}, average"] = ([min(steps), max(steps)], [always.average] * 2)
    return runtime.plots.curve_figure(
        curves,
        title="Held-out questions answered exactly",
        xlabel="steps",
        ylabel="exact match",
        ylim=(-0.03, 1.03),
        size=(6.0, 3.6),
    )


def of_roles(
    config: Config, model: TPTransformer, params: dict, source: mathematics.Source, modules: Sequence[str]
) -> "Figure | None":
    """Draws figure 2 of the paper, with questions of the modules in turn.

    Returns None if there are fewer distinct role vectors than clusters.
    """
    some = Sampled(source, max(config.role_questions // len(modules), 1))
    of_modules = [some.questions(mathematics.INTERPOLATE, module) for module in modules]
    questions = [pair.question for turn in zip(*of_modules, strict=False) for pair in turn]
    ids = jnp.asarray(mathematics.DEFAULT.encode_batch(questions))
    try:
        clusters = roles.cluster_roles(
            model, params, ids, head=config.role_head, k=config.role_clusters, seed=config.seed
        )
    except ValueError:
        return None
    explained = 1 - clusters.inertia / clusters.total
    return coloured(
        [marked(question) for question in questions[:ROWS]],
        clusters.labels[:ROWS],
        title=f"{', '.join(map(title_of, modules))}: "
        "characters coloured by the cluster of their role vector\n"
        f"head {config.role_head} of the last encoder layer, {config.role_clusters} clusters of "
        f"{len(questions)} questions, {explained:.0%} of the variance",
    )


def marked(question: str) -> str:
    """Adds the paper's symbols for the start and the end of a question."""
    return f"#{question}%"


def palette(count: int) -> list[tuple[float, float, float]]:
    """Returns light colours for dark text; consecutive ones differ strongly in hue."""
    golden = (5**0.5 - 1) / 2  # multiples of the golden ratio spread the hues evenly
    return [
        colorsys.hls_to_rgb((0.6 + index * golden) % 1, (0.82, 0.7)[index % 2], 0.75)
        for index in range(count)
    ]


def coloured(
    questions: Sequence[str], labels: Sequence[np.ndarray] | np.ndarray, *, title: str, width: int = 64
) -> "Figure":
    """Draws characters in boxes coloured by cluster, with the cluster number below each (figure 2).

    Args:
        questions: the questions, one character per symbol; long ones are wrapped.
        labels: for each question, the cluster of each symbol [S], with S at least the question's length.
        title: title of the figure.
        width: characters per line.

    Raises:
        ValueError: a question has fewer labels than characters, or a negative label.
    """
    from matplotlib.patches import Rectangle

    lines: list[list[tuple[str, int]]] = []
    for question, row in zip(questions, labels, strict=True):
        if len(question) > len(row) or (np.asarray(row[: len(question)]) < 0).any():
            raise ValueError(
                f"labels: got {list(row)}, expected a cluster for each character of {question!r}"
            )
        cells = list(zip(question, map(int, row), strict=False))
        lines += [cells[start : start + width] for start in range(0, len(cells), width)]
    columns = max(map(len, lines))
    colours = palette(1 + max(number for line in lines for _, number in line))
    with runtime.plots.style(), runtime.plots.without_grid():
        figure = runtime.plots.Figure(figsize=(max(4.5, 0.135 * columns + 0.2), 0.31 * len(lines) + 0.7))
        axes = figure.add_subplot()
        for y, line in enumerate(lines):
            for x, (character, number) in enumerate(line):
                axes.add_patch(Rectangle((x, 1.25 * y), 1, 1, facecolor=colours[number], linewidth=0))
                middle = {"ha": "center", "va": "center"}
                axes.text(x + 0.5, 1.25 * y + 0.36, character, fontsize=8, family="monospace", **middle)
                axes.text(x + 0.5, 1.25 * y + 0.82, str(number), fontsize=4, color="#444444", **middle)
        axes.set(xlim=(0, columns), ylim=(1.25 * len(lines), -0.1))
        axes.axis("off")
        wrapped = "\n".join(textwrap.fill(part, 90) for part in title.splitlines())
        axes.set_title(wrapped, loc="left", fontsize=9)
    return figure
