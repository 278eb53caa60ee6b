"""What the tour shows of kinship problems."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import runtime
from experiments.kinship import figures, measures
from experiments.kinship.config import Config
from experiments.kinship.train import main

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "kinship" / "learning.jsonl"
"""What `benchmarks.kinship_learning` has written."""


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in a directory, and says what is to be seen there."""
    results = main(config, workdir=directory)
    lengths, first = config.metric_lengths, results[config.model]
    parameters = " and ".join(f"{result.results['parameters']:,}" for result in results.values())
    rows = [
        _row(name, "here", {k: test["accuracy"] for k, test in result.results["tests"].items()}, lengths)
        for name, result in results.items()
    ]
    pictures = {
        directory / "by_length.png": "This run: accuracy on new problems by the length of their chain.",
        directory / "by_seconds.png": "This run: what counts, during training.",
    }
    given = published()
    for name, lines in given.items():
        means = {k: float(np.mean([line["accuracies"][k] for line in lines])) for k in lines[0]["accuracies"]}
        rows.append(_row(name, f"{len(lines)} seeds, mean", means, lengths))
    if given:
        seconds = max(line["train_seconds"] for lines in given.values() for line in lines)
        path = directory / "published.png"
        runtime.plots.save(figures.of_lines(given)["by_length"], path)
        pictures[path] = f"Published: mean over seeds with its 95 % interval, {seconds:.0f} s a model."
    tests = first.results["tests"]
    longest = str(config.data.test_lengths[-1])
    return runtime.Stop(
        title="FOLNet: kinship, from short chains of facts to long ones",
        meaning=(
            "Who is Kim to Lee, when all that is told is who is whose son, sister or wife? Facts stand "
            "between people as relations; the model concludes others from them. It is trained on problems of "
            f"{' and '.join(map(str, config.data.train_lengths))} facts and asked about longer ones. After "
            f"{first.train_seconds:.0f} s of training {figures.shown(config.model)} answers "
            f"{tests[str(config.data.train_lengths[-1])]['accuracy']:.0%} of the new problems of "
            f"{config.data.train_lengths[-1]} facts, {tests['4']['accuracy']:.0%} of 4 and "
            f"{tests[longest]['accuracy']:.0%} of {longest}; a guess is right one time in eighteen."
        ),
        rows=rows,
        figures=pictures,
        caveat=(
            f"{parameters} parameters, as many seconds of training each; the run made here is one seed, "
            f"{config.data.test_problems} problems of each length. What counts was named before: "
            f"{config.metric}."
        ),
    )


def published() -> dict[str, list[dict[str, Any]]]:
    """The lines of the ablation in results/kinship, by model; none where the results are not at hand."""
    return measures.of_preset(PUBLISHED, "ablation")


def _row(name: str, run: str, accuracies: Mapping[str, float], lengths: Sequence[int]) -> dict[str, str]:
    shown = {f"k = {k}": f"{accuracies[str(k)]:.0%}" for k in (2, 3, 4, 6, 8, 10)}
    mean = float(np.mean([accuracies[str(k)] for k in lengths]))
    return {
        "model": figures.shown(name),
        "run": run,
        **shown,
        f"mean, {figures.spelt(lengths)}": f"{mean:.1%}",
    }
