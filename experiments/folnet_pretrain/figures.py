"""The pictures, drawn from the records and results of finished runs."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.measures import held_out_curve
from experiments.folnet_pretrain.parts import FOLNET

type Figure = runtime.plots.Figure  # evaluated lazily, since matplotlib is imported only to draw

LINE = "entropy of the words asked for"
BLANK = "____"
RIGHT, WRONG = "#00734f", "#b23c00"
"""Green and red of the house's palette, dark enough for small letters; a sign says the same."""
_SIGNS = {True: "\N{CHECK MARK}", False: "\N{BALLOT X}"}
ROWS = 12
"""Texts in a picture of words filled in, and in the tour's table."""
_WIDTH = 82  # characters of a line of text
_TEXT, _WORD = 64, 17  # how wide the column of text is, and each of the others


def draw(
    workdir: Path, configs: Mapping[str, Config], results: Mapping[str, runtime.FitResult]
) -> dict[str, Path]:
    """Draws the losses of a run and its baseline, and the words that they fill in.

    Args:
        workdir: the run's directory; that of another is below it, by its name.
        configs: the config of each run, the main one first.
        results: its result, under the same names.

    Returns:
        The files written, by the name of the figure.
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
    """What an architecture is called where people read it."""
    return "FOLNet" if model == FOLNET else "Transformer"


def loss(
    curves: Mapping[str, Sequence[tuple[int, float, float]]],
    line: float,
    *,
    seconds: bool,
    last: int | None = None,
) -> "Figure":
    """Held-out loss of masked words during training, and what word frequencies alone would lose.

    Args:
        curves: steps, seconds and losses, by what the model is called.
        line: the entropy of the words asked for.
        seconds: against seconds instead of steps.
        last: the step up to which steps are drawn; all by default.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not any(curves.values()):
        raise ValueError("curves must have at least one measurement, got none")
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
        ylabel="nats a masked word",
    )


def filled(answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> "Figure":
    """Held-out texts with a word masked: what stands there, and what each model puts there.

    `chosen` says which; how many are right is counted over all. `answers` has for each model the same blanks
    with its guesses, as a run's results have them.

    Raises:
        ValueError: models were asked different things.
    """
    rows = chosen(list(answers.values()))
    texts = [textwrap.wrap(blank(row[0]["before"], row[0]["after"]), _WIDTH) for row in rows]
    heights = [len(lines) + 0.8 for lines in texts]
    shares = [f"{sum(e['right'] for e in of)} of {len(of)} right" for of in answers.values()]
    columns = ["stands there", *(f"{name}\n{share}" for name, share in zip(answers, shares, strict=True))]
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
    """Some blanks with the guesses of all models, in order: half of them such as any model got right.

    Which model it was makes no difference, so none is flattered; of a kind with too few, there are fewer.

    Args:
        answers: each model's to the same blanks.
        count: the maximum.

    Raises:
        ValueError: models were asked different things.
    """
    rows = list(zip(*answers, strict=True))
    for row in rows:
        if len({(entry["before"], entry["word"], entry["after"]) for entry in row}) != 1:
            raise ValueError("answers must be to the same blanks")
    right = [index for index, row in enumerate(rows) if any(entry["right"] for entry in row)]
    wrong = [index for index in range(len(rows)) if index not in right]
    return [rows[index] for index in sorted(right[: count - count // 2] + wrong[: count // 2])]


def marked(entry: Mapping[str, Any]) -> str:
    """A guess with a sign of whether it is right, and its probability."""
    return f"{_SIGNS[entry['right']]} {entry['guess']} ({entry['probability']:.0%})"


def blank(before: str, after: str) -> str:
    """A text with a gap in it; dots where it begins within a word."""
    return f"{before.replace('##', '...', 1) if before.startswith('##') else before} {BLANK} {after}".strip()


def shortened(before: str, after: str, *, characters: int = 32) -> str:
    """The text around a blank, at most so many characters to either side."""
    left = before if len(before) <= characters else "... " + before[-characters:].split(" ", 1)[-1]
    right = after if len(after) <= characters else after[:characters].rsplit(" ", 1)[0] + " ..."
    return blank(left, right)
