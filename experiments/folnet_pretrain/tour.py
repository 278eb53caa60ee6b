"""What the tour shows of FOLNet's pretraining."""

from pathlib import Path

from experiments import runtime
from experiments.folnet_pretrain import figures, measures
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.train import BASELINE, main

PICTURES = {
    "loss_by_steps": "Loss on held-out text against training steps.",
    "loss_by_seconds": "The same against seconds of training.",
    "filled": "Masked words of held-out text: the original word, and what each model fills in.",
}


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in a directory and describes its results."""
    results = main(config, workdir=directory)
    first, baseline = results[config.model.name], results[BASELINE]
    line = first.results["unigram_entropy"]
    below = measures.first_below(directory, line)
    equal = measures.recorded(directory / BASELINE, first.step)
    name, other = figures.shown(config.model.name), figures.shown(config.baseline)
    rows = [
        {
            "held-out text": figures.shortened(ours["before"], ours["after"]),
            "stands there": ours["word"],
            name: figures.marked(ours),
            other: figures.marked(theirs),
        }
        for ours, theirs in figures.chosen([first.results["filled"], baseline.results["filled"]])
    ]
    loss = (
        f"After {first.step} steps ({first.train_seconds:.0f} s) {name} loses "
        f"{first.metrics['eval/mlm_loss']:.2f} nats per masked word of held-out text"
    )
    if below is not None:
        loss += f"; from step {below} on it beats {line:.2f}, what word frequencies alone reach"
    loss += f". {other} loses "
    if equal is not None:
        loss += f"{equal:.2f} after as many steps, "
    loss += f"{baseline.metrics['eval/mlm_loss']:.2f} after as many seconds, {baseline.step} steps."
    shares = [result.metrics["eval/mlm_accuracy"] for result in (first, baseline)]
    return runtime.Stop(
        title="FOLNet: words from the properties of tokens and the relations between them",
        meaning=(
            "FOLNet applies learned Horn clauses, layer by layer, to properties of tokens and relations of "
            "pairs of tokens. Here it learns to fill in masked words of Python's language reference. "
            f"{loss} {name} fills in {shares[0]:.0%} of the masked words correctly, {other} {shares[1]:.0%}."
        ),
        rows=rows,
        figures={directory / f"{figure}.png": caption for figure, caption in PICTURES.items()},
        caveat=(
            f"{first.results['parameters']:,} and {baseline.results['parameters']:,} parameters, 83 thousand "
            "tokens of text, one seed, the best of three learning rates each: nothing follows about which is "
            "better. The table shows words that either model fills in correctly, and words that neither does."
        ),
    )
