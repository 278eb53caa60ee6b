"""Figures of finished pretraining runs, drawn from their records and results."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.measures import held_out_curve
from experiments.folnet_pretrain.parts import FOLNET

type Figure = runtime.plots.Figure  # evaluated lazily, since matplotlib is imported only to draw

LINE = "entropy of the masked words"
BLANK = "____"
RIGHT, WRONG = "#00734f", "#b23c00"
"""Green and red of our palette, dark enough for small text; a sign repeats the information."""
_SIGNS = {True: "\N{CHECK MARK}", False: "\N{BALLOT X}"}
ROWS = 12
"""Number of texts in the figure of filled-in words and in the tour's table."""
_WIDTH = 82  # characters per line of text
_TEXT, _WORD = 64, 17  # widths of the text column and of each other column


def draw(
    workdir: Path, configs: Mapping[str, Config], results: Mapping[str, runtime.FitResult]
) -> dict[str, Path]:
    """Draws the losses of a run and its baseline, and the words they fill in.

    Args:
        workdir: directory of the main run; the others are in subdirectories with their names.
        configs: the config of each run by name, the main run first.
        results: the result of each run by name.

    Returns:
        The path of each figure by name.
    """
    main = next(iter(configs))
    curves = {
        shown(config.model.name): held_out_curve(workdir if name == main else workdir / name)
        for name, config in configs.items()
    }
    line = results[main].results["unigram_entropy"]
    drawn = {
        "loss_by_steps": loss(curves, line, seconds=False, last=results[main].step),
        "loss_by_seconds": loss(curves, line, seconds=True),
    }
    answers = {shown(configs[name].model.name): result.results["filled"] for name, result in results.items()}
    if answers[shown(configs[main].model.name)]:
        drawn["filled"] = filled(answers)
    return {name: runtime.plots.save(figure, workdir / f"{name}.png") for name, figure in drawn.items()}


def shown(model: str) -> str:
    """Returns the display name of an architecture."""
    return "FOLNet" if model == FOLNET else "Transformer"


def loss(
    curves: Mapping[str, Sequence[tuple[int, float, float]]],
    line: float,
    *,
    seconds: bool,
    last: int | None = None,
) -> "Figure":
    """Plots the held-out loss of masked words during training, with the loss of word frequencies alone.

    Args:
        curves: (step, seconds, loss) of each measurement, by the model's display name.
        line: the entropy of the masked words.
        seconds: plot against seconds instead of steps.
        last: last step to plot; all by default.

    Raises:
        ValueError: there is no measurement.
    """
    if not any(curves.values()):
        raise ValueError("curves: got no measurement, expected at least one")
    drawn = {}
    for name, points in curves.items():
        points = [point for point in points if last is None or point[0] <= last]
        drawn[name] = [point[1 if seconds else 0] for point in points], [point[2] for point in points]
    longest = max(max(x, default=0) for x, _ in drawn.values())
    drawn[LINE] = [0, longest], [line, line]
    return runtime.plots.curve_figure(
        drawn,
        title="Held-out loss of masked words",
        xlabel="seconds of training" if seconds else "steps",
        ylabel="nats per masked word",
    )


def filled(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> "Figure":
    """Draws a table of held-out texts with one masked word: the original word and each model's guess.

    `chosen` selects the rows; the heading counts correct guesses over all blanks. `answers` maps each model
    to the same blanks with its guesses, as in a run's results.

    Raises:
        ValueError: the models have different blanks.
    """
    rows = chosen(list(answers.values()))
    texts = [textwrap.wrap(blank(row[0]["before"], row[0]["after"]), _WIDTH) for row in rows]
    heights = [len(lines) + 0.8 for lines in texts]
    shares = [f"{sum(e['right'] for e in of)} of {len(of)} correct" for of in answers.values()]
    columns = ["original", *(f"{name}\n{share}" for name, share in zip(answers, shares, strict=True))]
    import matplotlib
    from matplotlib.figure import Figure

    with runtime.plots.style(), matplotlib.rc_context({"axes.grid": False}):
        figure = Figure(figsize=(5.0 + 1.5 * len(columns), 0.17 * sum(heights) + 0.75))
        axes = figure.add_subplot()
        axes.axis("off")
        places = [_TEXT + _WORD * column for column in range(len(columns))]
        axes.set(xlim=(0, places[-1] + _WORD), ylim=(sum(heights), -2.4))
        for x, head in zip([0, *places], ["held-out text", *columns], strict=True):
            axes.text(x, -1.4, head, fontsize=8, weight="bold", va="center")
        y = 0.0
        for lines, row, height in zip(texts, rows, heights, strict=True):
            axes.axhline(y - 0.3, color="#dddddd", linewidth=0.6)
            for offset, words in enumerate(lines):
                axes.text(0, y + offset + 0.4, words, fontsize=7, family="monospace", va="center")
            middle = y + len(lines) / 2
            axes.text(places[0], middle, row[0]["word"], fontsize=8, va="center")
            for x, entry in zip(places[1:], row, strict=True):
                colour = RIGHT if entry["right"] else WRONG
                axes.text(x, middle, marked(entry), fontsize=8, va="center", color=colour)
            y += height
    return figure


def chosen(
    answers: Sequence[Sequence[Mapping[str, Any]]], count: int = ROWS
) -> list[tuple[Mapping[str, Any], ...]]:
    """Selects blanks, in order, with the guesses of all models; in half of them some model is correct.

    The choice does not depend on which model is correct, so that none is favored. If there are too few blanks
    of one kind, fewer are returned.

    Args:
        answers: for each model, its answers to the same blanks.
        count: maximum number of blanks.

    Raises:
        ValueError: the models have different blanks.
    """
    rows = list(zip(*answers, strict=True))
    for row in rows:
        if len({(entry["before"], entry["word"], entry["after"]) for entry in row}) != 1:
            raise ValueError("answers: got different blanks, expected the same ones for all models")
    right = [index for index, row in enumerate(rows) if any(entry["right"] for entry in row)]
    wrong = [index for index in range(len(rows)) if index not in right]
    return [rows[index] for index in sorted(right[: count - count // 2] + wrong[: count // 2])]


def marked(entry: Mapping[str, Any]) -> str:
    """Returns a guess as text: a sign for correct or wrong, the word, and its probability."""
    return f"{_SIGNS[entry['right']]} {entry['guess']} ({entry['probability']:.0%})"


def blank(before: str, after: str) -> str:
    """Returns a text with a gap, with leading dots if the text starts within a word."""
    return f"{before.replace('##', '...', 1) if before.startswith('##') else before} {BLANK} {after}".strip()


def shortened(before: str, after: str, *, characters: int = 32) -> str:
    """Returns the text around a blank, with at most `characters` characters on either side."""
    left = before if len(before) <= characters else "... " + before[-characters:].split(" ", 1)[-1]
    right = after if len(after) <= characters else after[:characters].rsplit(" ", 1)[0] + " ..."
    return blank(left, right)
