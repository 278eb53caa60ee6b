"""What the tour shows of FOLNet's pretraining."""

from pathlib import Path

from experiments import runtime
from experiments.folnet_pretrain import figures, measures
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.parts import NONE
from experiments.folnet_pretrain.train import BASELINE, main


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in a directory, and says what is to be seen there."""
    results = main(config, workdir=directory)
    first, beside = results[config.model.name], results[BASELINE]
    line = first.results["unigram_entropy"]
    below = measures.first_below(directory, line)
    equal = measures.recorded(directory / BASELINE, first.step)
    name, other = figures.shown(config.model.name), figures.shown(NONE)
    rows = []
    answers = [first.results["filled"], beside.results["filled"]]
    for ours, theirs in figures.chosen(answers):
        rows.append(
            {
                "held-out text": figures.shortened(ours["before"], ours["after"]),
                "stands there": ours["word"],
                name: figures.marked(ours),
                other: figures.marked(theirs),
            }
        )
    told = (
        f"{name} loses {first.metrics['eval/mlm_loss']:.2f} nats a masked word of held-out text after "
        f"{first.step} steps, in {first.train_seconds:.0f} s"
    )
    if below is not None:
        told += f" (below the line {line:.2f} of word frequencies alone from step {below} on)"
    if equal is not None:
        told += f"; {other} {equal:.2f} after as many steps"
    told += f" and {beside.metrics['eval/mlm_loss']:.2f} after as many seconds, {beside.step} steps."
    shares = [result.metrics["eval/mlm_accuracy"] for result in (first, beside)]
    told += f" Of the masked words {name} fills in {shares[0]:.0%} rightly, {other} {shares[1]:.0%}."
    pictures = {
        "loss_by_steps": "Held-out loss of masked words against steps.",
        "loss_by_seconds": "The same against seconds of training.",
        "filled": "Masked words of held-out text: what stands there, and what the models put there.",
    }
    return runtime.Stop(
        title="FOLNet: words from the properties of tokens and the relations between them",
        meaning=(
            "FOLNet deduces properties of tokens and relations of pairs of tokens, layer by layer, by "
            "learned Horn clauses. Here it learns to fill in masked words of Python's language reference. "
            f"{told}"
        ),
        rows=rows,
        figures={directory / f"{figure}.png": caption for figure, caption in pictures.items()},
        caveat=(
            f"{first.results['parameters']:,} and {beside.results['parameters']:,} parameters, eighty "
            "thousand pieces of text, one seed, the best of three learning rates each: nothing follows about "
            "which is better. The table has words that either fills in rightly, and words that neither does."
        ),
    )
