"""The figures of a run on the Mathematics Dataset, drawn from its record and its results."""

import colorsys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runtime
from experiments.mathematics.config import Config
from experiments.mathematics.measures import Sampled
from tp_transformer import TPTransformer, evaluation, mathematics, roles

type Figure = runtime.plots.Figure  # evaluated lazily, since matplotlib is imported only to draw

ALWAYS = "always the commonest answer"
ROWS = 12
"""Questions in a picture of roles."""


def draw(
    workdir: Path,
    configs: Mapping[str, Config],
    results: Mapping[str, runtime.FitResult],
    source: mathematics.Source,
) -> dict[str, Path]:
    """Draws a run, the first of `configs`, and its baseline if any; the files, by the name of the figure."""
    config, first = next(iter(configs.values())), next(iter(results.values()))
    always = first.results["commonest_answer"]
    drawn = {"learning": learning(workdir, configs, scores(always, mathematics.INTERPOLATE))}
    for split in always:
        shares = {shown(configs[name].model.name): scores(of.results, split) for name, of in results.items()}
        shares[ALWAYS] = scores(always, split)
        drawn[f"accuracy_{split}"] = bars(shares, title=f"Exact match by module, {split}")
    model = config.model.make()
    if isinstance(model, TPTransformer):
        module = config.data.test_modules(source)[mathematics.INTERPOLATE][0]
        if figure := of_roles(config, model, jax.device_get(first.params), source, module):
            drawn["roles"] = figure
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in drawn.items()}


def shown(model: str) -> str:
    """What an architecture is called where people read it."""
    return {"tp_transformer": "TP-Transformer", "transformer": "Transformer"}.get(model, model)


def title_of(module: str) -> str:
    """A module's name where people read it."""
    return module.replace("__", ": ").replace("_", " ")


def scores(results: Mapping[str, Any], split: str) -> evaluation.Scores:
    """The scores of a split in a run's results."""
    return evaluation.Scores.from_json(results[split])


def bars(shares: Mapping[str, evaluation.Scores], *, title: str) -> "Figure":
    """Figure 3: bars of each model's exact match by module in one split; ValueError if there is no module."""
    modules = list(dict.fromkeys(module for of_model in shares.values() for module in of_model.modules))
    if not modules:
        raise ValueError("shares must hold at least one module, got none")
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
        axes.axvline(evaluation.THRESHOLD, color="#777777", linewidth=1, linestyle=(0, (2, 2)))
        axes.set_yticks(np.arange(len(modules)), [title_of(module) for module in modules], fontsize=7)
        axes.set(xlim=(0, 1), ylim=(len(modules) - 0.5, -0.5), xlabel="exact match")
        axes.set_title(title, loc="left")
        figure.legend(loc="outside lower center")
    return figure


def learning(workdir: Path, configs: Mapping[str, Config], always: evaluation.Scores) -> "Figure":
    """Exact match on the interpolation set against steps: of a single model also by module, if few."""
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
    config: Config, model: TPTransformer, params: dict, source: mathematics.Source, module: str
) -> "Figure | None":
    """Figure 2 of a trained model; None if its role vectors are too few, or too alike, for the clusters."""
    some = Sampled(source, config.role_questions).questions(mathematics.INTERPOLATE, module)
    questions = [pair.question for pair in some]
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
        title=f"{title_of(module)}: characters by the cluster of their role vector\n"
        f"head {config.role_head} of the last encoder layer, {config.role_clusters} clusters of "
        f"{len(questions)} questions, {explained:.0%} of the variance",
    )


def marked(question: str) -> str:
    """A question with the signs that the paper's figure has for its start and end."""
    return f"#{question}%"


def palette(count: int) -> list[tuple[float, float, float]]:
    """Light colours for dark letters, neighbours in number far apart in hue; too many to be told apart."""
    golden = (5**0.5 - 1) / 2  # a turn that never comes close to an earlier one
    return [
        colorsys.hls_to_rgb((0.6 + index * golden) % 1, (0.82, 0.7)[index % 2], 0.75)
        for index in range(count)
    ]


def coloured(
    questions: Sequence[str], labels: Sequence[np.ndarray] | np.ndarray, *, title: str, width: int = 64
) -> "Figure":
    """Characters in boxes of their clusters' colours, the number of the cluster below each (figure 2).

    Args:
        questions: as symbols, one character each; longer ones continue in the next line.
        labels: for each question the cluster of each symbol [S]; at least as many as it has characters.
        title: what the figure shows.
        width: characters per line.

    Raises:
        ValueError: a question without its labels.
    """
    from matplotlib.patches import Rectangle

    lines: list[list[tuple[str, int]]] = []
    for question, row in zip(questions, labels, strict=True):
        if len(question) > len(row) or (np.asarray(row[: len(question)]) < 0).any():
            raise ValueError(f"labels must have a cluster for each of the characters of {question!r}")
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
