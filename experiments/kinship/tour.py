"""The tour's stop for kinship problems."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from experiments import runtime
from experiments.kinship import figures, measures
from experiments.kinship.config import Config
from experiments.kinship.train import main

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "kinship" / "learning.jsonl"
"""The published record, of runs from before `experiments.claims`."""


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in `directory` and returns its results as a stop, next to any published ones."""
    results = main(config, workdir=directory)
    lengths, first = config.metric_lengths, results[config.model]
    tests = {
        name: {k: test["accuracy"] for k, test in result.results["tests"].items()}
        for name, result in results.items()
    }
    rows = [_row(name, "here", accuracies, lengths) for name, accuracies in tests.items()]
    pictures = {
        directory / "by_length.png": "This run: accuracy on new problems by length of the chain.",
        directory / "by_seconds.png": "This run: mean accuracy on longer chains during training.",
    }
    published = measures.of_preset(PUBLISHED, "ablation")
    for name, lines in published.items():
        means = {k: float(np.mean([line["accuracies"][k] for line in lines])) for k in lines[0]["accuracies"]}
        rows.append(_row(name, f"{len(lines)} seeds, mean", means, lengths))
    if published:
        seconds = max(line["train_seconds"] for lines in published.values() for line in lines)
        path = runtime.plots.save(figures.of_lines(published)["by_length"], directory / "published.png")
        pictures[path] = f"Published: mean over seeds with 95 % interval, {seconds:.0f} s per model."
    trained, longest, own = config.data.train_lengths, config.data.test_lengths[-1], tests[config.model]
    parameters = " and ".join(f"{result.results['parameters']:,}" for result in results.values())
    return runtime.Stop(
        title="FOLNet: kinship, from short to long chains of facts",
        meaning=(
            "Who is Kim to Lee, given only who is whose son, sister or wife? Facts are relations between "
            "people, from which the model infers others. It is trained on problems of "
            f"{' and '.join(map(str, trained))} facts and tested on longer ones. After "
            f"{first.train_seconds:.0f} s of training, {figures.shown(config.model)} answers "
            f"{own[str(trained[-1])]:.0%} of new problems of {trained[-1]} facts correctly, {own['4']:.0%} "
            f"of those with 4 and {own[str(longest)]:.0%} of those with {longest}; guessing is correct one "
            "time in eighteen."
        ),
        rows=rows,
        figures=pictures,
        caveat=(
            f"The models have {parameters} parameters and the same training time. This run has one seed and "
            f"{config.data.test_problems} problems per length. The metric was chosen in advance: "
            f"{config.metric}."
        ),
    )


def _row(name: str, run: str, accuracies: Mapping[str, float], lengths: Sequence[int]) -> dict[str, str]:
    mean = float(np.mean([accuracies[str(k)] for k in lengths]))
    return {
        "model": figures.shown(name),
        "run": run,
        **{f"k = {k}": f"{accuracies[str(k)]:.0%}" for k in (2, 3, 4, 6, 8, 10)},
        f"mean, {figures.spelt(lengths)}": f"{mean:.1%}",
    }
