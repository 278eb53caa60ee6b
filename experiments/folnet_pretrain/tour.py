"""The tour's stop for FOLNet's pretraining."""

from pathlib import Path

from experiments import runtime
from experiments.folnet_pretrain import figures, measures
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.train import BASELINE, main

PICTURES = {
    "loss_by_steps": "Loss on held-out text by training step.",
    "loss_by_seconds": "Loss on held-out text by seconds of training.",
    "filled": "Masked words of held-out text: the original word and each model's guess.",
}


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in `directory` and returns its results as a stop of the tour."""
    results = main(config, workdir=directory)
    first, baseline = results[config.model.name], results[BASELINE]
    line = first.results["unigram_entropy"]
    below = measures.first_below(directory, line)
    equal = measures.recorded(directory / BASELINE, first.step)
    name, other = figures.shown(config.model.name), figures.shown(config.baseline)
    rows = [
        {
            "held-out text": figures.shortened(ours["before"], ours["after"]),
            "original": ours["word"],
            name: figures.marked(ours),
            other: figures.marked(theirs),
        }
        for ours, theirs in figures.chosen([first.results["filled"], baseline.results["filled"]])
    ]
    loss = (
        f"After {first.step} steps ({first.train_seconds:.0f} s) {name} has a loss of "
        f"{first.metrics['eval/mlm_loss']:.2f} nats per masked word of held-out text"
    )
    if below is not None:
        loss += f"; from step {below} on it is below {line:.2f}, the loss of word frequencies alone"
    loss += f". {other} has a loss of "
    if equal is not None:
        loss += f"{equal:.2f} after the same number of steps and "
    loss += f"{baseline.metrics['eval/mlm_loss']:.2f} after the same time ({baseline.step} steps)."
    shares = [result.metrics["eval/mlm_accuracy"] for result in (first, baseline)]
    return runtime.Stop(
        title="FOLNet: words from properties of tokens and relations between them",
        meaning=(
            "FOLNet applies learned Horn clauses, layer by layer, to properties of tokens and relations "
            "between tokens. Here it learns to fill in masked words of Python's language reference. "
            f"{loss} {name} fills in {shares[0]:.0%} of the masked words correctly, {other} {shares[1]:.0%}."
        ),
        rows=rows,
        figures={directory / f"{figure}.png": caption for figure, caption in PICTURES.items()},
        caveat=(
            f"The models have {first.results['parameters']:,} and {baseline.results['parameters']:,} "
            "parameters. With 83 thousand tokens of text, one seed and the best of three learning rates for "
            "each, this run does not show which is better. The table shows words that at least one model "
            "fills in correctly and words that neither does."
        ),
    )
