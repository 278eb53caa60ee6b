"""The pictures of `experiments/mathematics/train.py`, drawn from the records and results of finished runs."""

import colorsys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runtime
from experiments.mathematics.config import Config
from experiments.mathematics.measures import Sampled
from tp_transformer import TPTransformer, evaluation, mathematics, roles

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # otherwise imported where something is drawn

ALWAYS = "always the commonest answer"
ROWS = 12
"""Questions in a picture of roles."""


def draw(
    workdir: Path,
    configs: Mapping[str, Config],
    results: Mapping[str, runtime.FitResult],
    source: mathematics.Source,
) -> dict[str, Path]:
    """Draws what there is to see of a run and its baseline.

    Args:
        workdir: the run's directory; the baseline's is `baseline/` in it.
        configs: the config of each run, the main one first.
        results: its result, under the same names.
        source: the questions.

    Returns:
        The files written, by the name of the figure.
    """
    config, first = next(iter(configs.values())), next(iter(results.values()))
    labels = {name: shown(of.model.name) for name, of in configs.items()}
    drawn = {"learning": learning(workdir, configs, first)}
    for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE):
        if split in first.results:
            scores = {labels[name]: read(result, split) for name, result in results.items()}
            scores[ALWAYS] = evaluation.Scores.from_json(first.results["commonest_answer"][split])
            drawn[f"accuracy_{split}"] = bars(scores, title=f"Exact match by module, {split}")
    model = config.model.make()
    if isinstance(model, TPTransformer):
        module = config.data.test_modules(source)[mathematics.INTERPOLATE][0]
        figure = of_roles(config, model, jax.device_get(first.params), source, module)
        if figure is not None:
            drawn["roles"] = figure
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in drawn.items()}


def shown(model: str) -> str:
    """What an architecture is called where people read it."""
    return {"tp_transformer": "TP-Transformer", "transformer": "Transformer"}.get(model, model)


def title_of(module: str) -> str:
    """A module's name where people read it."""
    return module.replace("__", ": ").replace("_", " ")


def read(result: runtime.FitResult, split: str) -> evaluation.Scores:
    """The scores that a run's results hold."""
    return evaluation.Scores.from_json(result.results[split])


def bars(scores: Mapping[str, evaluation.Scores], *, title: str) -> "Figure":
    """Figure 3: the exact match of every module, a bar a model, modules in the order of the data set.

    Args:
        scores: of one split, by what the model is called.
        title: what the figure shows.

    Raises:
        ValueError: there is nothing to draw.
    """
    modules = list(dict.fromkeys(module for of_model in scores.values() for module in of_model.modules))
    if not modules:
        raise ValueError("scores must hold at least one module, got none")
    thickness = 0.8 / len(scores)
    with runtime.plots.style(), runtime.plots.without_grid():
        figure = runtime.plots.Figure(figsize=(6.4, 1.2 + 0.13 * len(modules) * (len(scores) + 0.6)))
        axes = figure.add_subplot()
        for index, (name, of_model) in enumerate(scores.items()):
            places = np.arange(len(modules)) + thickness * (index - (len(scores) - 1) / 2)
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


def learning(workdir: Path, configs: Mapping[str, Config], first: runtime.FitResult) -> "Figure":
    """Exact match on the interpolation set against steps, averaged and by module if there are few."""
    curves = {}
    for name, config in configs.items():
        folder = workdir if config is next(iter(configs.values())) else workdir / name
        key = f"eval/{mathematics.INTERPOLATE}"
        rows = [row for row in runtime.metrics.read(folder / "metrics.jsonl") if row.get(key) is not None]
        steps = [row["step"] for row in rows]
        label = shown(config.model.name)
        curves[f"{label}, average" if len(configs) == 1 else label] = (steps, [row[key] for row in rows])
        modules = sorted(column for column in rows[-1] if column.startswith(f"{key}/")) if rows else []
        if len(configs) == 1 and 1 < len(modules) <= 5:
            for module in modules:
                curves[title_of(module.removeprefix(f"{key}/"))] = (steps, [row[module] for row in rows])
    always = evaluation.Scores.from_json(first.results["commonest_answer"][mathematics.INTERPOLATE])
    ends = [min(min(x) for x, _ in curves.values()), max(max(x) for x, _ in curves.values())]
    curves[f"{ALWAYS}, average"] = (ends, [always.average] * 2)
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
    questions = [
        pair.question for pair in Sampled(source, config.role_questions).questions("interpolate", module)
    ]
    ids = mathematics.DEFAULT.encode_batch(questions, max(map(len, questions)) + 2)
    try:
        clusters = roles.cluster_roles(
            model, params, jnp.asarray(ids), head=config.role_head, k=config.role_clusters, seed=config.seed
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
    """Light colours for dark letters, neighbours in number far apart in hue.

    So many cannot all be told apart; the figures also write the number of the cluster.
    """
    golden = (5**0.5 - 1) / 2  # turns that never come close to one made before
    return [
        colorsys.hls_to_rgb((0.6 + index * golden) % 1, (0.82, 0.7)[index % 2], 0.75)
        for index in range(count)
    ]


def coloured(questions: Sequence[str], labels: np.ndarray, *, title: str, width: int = 64) -> "Figure":
    """Characters in boxes of their clusters' colours, the number of the cluster below each (figure 2).

    Args:
        questions: as symbols, one character each; longer ones go on in the next line.
        labels: cluster of each symbol [N, S]; at least as many as the question has characters.
        title: what the figure shows.
        width: characters a line.

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
        axes.set_title(
            "\n".join(textwrap.fill(part, 90) for part in title.splitlines()), loc="left", fontsize=9
        )
    return figure
