"""The page of a finished run: its held-out loss and its samples, in `page.html`."""

from pathlib import Path

from experiments import runtime
from experiments.folnet_language.config import Config
from experiments.folnet_language.measures import LOSS, perplexity
from experiments.runtime import page
from experiments.runtime.experiment import Stop

type Figure = runtime.plots.Figure  # evaluated lazily, since matplotlib is imported only to draw

PAGE, CURVE = "page.html", "loss.png"
_FREQUENCIES = "word frequencies alone"


def draw(workdir: Path, config: Config, result: runtime.FitResult) -> Path:
    """Writes the page and its picture; returns the page's path."""
    rows = [row for row in runtime.metrics.read(workdir / "metrics.jsonl") if row.get(LOSS) is not None]
    curve = [row["step"] for row in rows], [row[LOSS] for row in rows]
    found, metrics = result.results, result.metrics
    pictures = {}
    if runtime.can_draw():
        drawn = runtime.plots.save(curve_of(curve, found["unigram_perplexity"]), workdir / CURVE)
        pictures = {drawn: "Perplexity on held-out text during training."}
    measured = {"parameters": f"{found['parameters']:,}", "steps": f"{result.step:,}"}
    measured |= {"held-out perplexity": f"{metrics['eval/perplexity']:.3g}"}
    measured |= {_FREQUENCIES: f"{found['unigram_perplexity']:.3g}"}
    if config.data.pairs:
        measured["targets without error"] = f"{metrics['eval/exact_match']:.1%}"
    stops = [
        Stop(
            title="Perplexity on held-out text",
            meaning="Among so many equally likely words the model chooses, on average, each next one.",
            rows=[measured],
            figures=pictures,
            caveat="Perplexities of different vocabularies cannot be compared.",
        )
    ]
    if found["samples"]:
        stops.append(
            Stop(
                title="What the model writes",
                meaning="Written with the most probable words (greedy), with words drawn at random (sampled, "
                f"top_p = {config.top_p}), and by a search with {config.beams} beams.",
                rows=found["samples"],
                figures={},
                caveat="Evenly spaced held-out rows, not chosen.",
            )
        )
    return page.write(workdir / PAGE, stops, title="A FOLNet that writes", introduction=config.data.source)


def curve_of(curve: tuple[list[int], list[float]], unigram: float) -> Figure:
    """Draws held-out perplexity by step, from losses, with the perplexity of word frequencies alone."""
    steps, losses = curve
    ends = [steps[0], steps[-1]] if steps else []
    return runtime.plots.curve_figure(
        {
            "FOLNet": (steps, [perplexity(loss) for loss in losses]),
            _FREQUENCIES: (ends, [unigram] * len(ends)),
        },
        title="Held-out perplexity",
        xlabel="steps",
        ylabel="perplexity per token",
        ylog=True,
    )
