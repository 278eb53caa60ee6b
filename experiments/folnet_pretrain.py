r"""Pretraining of FOLNet (Chen 2023): words that are masked, and a question about two segments.

    python -m experiments.folnet_pretrain --config=experiments/configs/folnet_pretrain.py:quick \
        --workdir=runs/folnet

Trains the model; then the transformer it is compared with, if the config has one (in `baseline/` below the
workdir), on the same batches for as many steps and, at a constant learning rate, on until it was given as
many seconds. Measures held-out text all along, lets the models fill in masked words of it at the end, and
draws both. What was trained is read by `experiments.folnet_weights`, also as a directory to fine-tune from.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments import folnet_figures, runtime
from experiments import folnet_measures as measures
from experiments.configs import folnet_pretrain as presets
from experiments.configs.folnet_parts import NONE, Text
from experiments.configs.folnet_pretrain import Config
from experiments.runtime import processes
from experiments.runtime.training import Program, Scalar, Task
from folnet.tokenization import WordPieceTokenizer

BASELINE = "baseline"
VOCABULARY = ".vocab.txt"
"""In a workdir, the pieces: hidden, so that a workdir that has nothing else is still free."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the model and the baseline and draws the figures.

    Args:
        config: see `experiments.configs.folnet_pretrain`.
        workdir: where the run is kept; None keeps and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The result of the model, under its name, and of the baseline, under "baseline".

    Raises:
        runtime.WorkdirError: there is no text, with the command that makes it; or it does not fit.
    """
    config = config.resolved()
    text = open_text(config, workdir)
    configs, results = {config.model.name: config}, {}
    results[config.model.name] = first = train(config, text, workdir, parallel)
    if config.session_seconds and first.step < config.steps:
        return results  # this process's time is up; the same command goes on
    if config.baseline != NONE:
        configs[BASELINE] = config.for_baseline(first.train_seconds)
        below = None if workdir is None else Path(workdir) / BASELINE
        results[BASELINE] = train(configs[BASELINE], text, below, parallel)
    if workdir is not None and runtime.is_first():
        folnet_figures.draw(Path(workdir), configs, results)
    return results


def open_text(config: Config, workdir: Path | None = None) -> Text:
    """The text, checked against the config and against the vocabulary that the workdir was begun with.

    Raises:
        runtime.WorkdirError: it is not there, or does not fit; nothing was compiled yet.
    """
    try:
        text = config.data.open()
        pieces, rows = text.tokenizer.vocab_size, config.model.vocab_size
        if pieces > rows:
            raise ValueError(
                f"model.vocab_size={rows} must be at least the {pieces} pieces of the vocabulary; a multiple "
                f"of 8 such as {text.tokenizer.padded_vocab_size}"
            )
        measures.training_batches(config, text)
        if workdir is not None:
            processes.first_before_others(lambda: _keep(text.tokenizer, Path(workdir)), ValueError)
    except (ValueError, RuntimeError) as error:
        raise runtime.WorkdirError(f"the text: {error}") from error
    return text


def _keep(tokenizer: WordPieceTokenizer, workdir: Path) -> None:
    path = workdir / VOCABULARY
    if path.exists():
        begun = WordPieceTokenizer.load(path, lowercase=tokenizer.lowercase)
        if begun.fingerprint != tokenizer.fingerprint:
            raise ValueError(
                f"workdir {workdir} was begun with the vocabulary {begun.fingerprint}, the text now gives "
                f"{tokenizer.fingerprint}: it has changed since; choose another workdir"
            )
        return
    workdir.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path)


def train(
    config: Config, text: Text, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains one model."""
    model = config.model.make(config.data.pretrain_loss)
    batches = measures.training_batches(config, text, of_process=True)

    def conclude(params):
        asked = measures.blanks(config, text, config.blanks)
        return {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **measures.lines(config, text),
            "filled": measures.to_json(asked, measures.fill(config, model, params, text, asked)),
        }

    return runtime.fit(
        config,
        init=make_init(model),
        loss=make_loss(config, model),
        batches=lambda step: measures.arrays(config, batches(step)),
        optimizer=config.make_optimizer(),
        evaluate=measures.make_evaluate(config, model, text, parallel),
        conclude=conclude,
        workdir=workdir,
        accumulate=config.accumulate,
        totals=totals,
        parallel=parallel,
        name=folnet_figures.shown(config.model.name),
    )


def totals(batch: Mapping[str, Any]) -> dict[str, Any]:
    """`totals(batch)` of `runtime.fit`: what is asked for in the whole of it, by kind."""
    return {
        "predictions": jnp.sum(batch["mlm_labels"] >= 0, dtype=jnp.float32),
        "sentences": jnp.sum(batch["next_sentence_label"] >= 0, dtype=jnp.float32),
    }


def make_init(model: nn.Module) -> Callable[[jax.Array], Any]:
    """`init(key)` of `runtime.fit`."""

    def init(key):
        return model.init(key, jnp.zeros((1, 8), jnp.int32))["params"]

    return init


def make_loss(config: Config, model: nn.Module) -> Callable[..., runtime.Sums]:
    """`loss(params, batch, key)` of `runtime.fit`: the mean over masked words plus the mean over sentences.

    Both are means over the whole batch, however it is cut into parts: each part divides by the whole's
    counts, and the numerators add up. (The authors average over what a device sees at once.)
    """
    drops = config.model.hidden_dropout_prob > 0 or config.model.attention_probs_dropout_prob > 0

    def loss(params, batch, key):
        words, sentences = measures.losses(model, params, batch, dropout=key if drops else None)
        total = words.sum / jnp.maximum(batch["predictions"], 1)
        metrics: dict[str, tuple[Scalar, Scalar]] = {
            "mlm_loss": (words.sum, words.count),
            "mlm_accuracy": (words.correct, words.count),
        }
        if config.data.asks_about_sentences:
            total += sentences.sum / jnp.maximum(batch["sentences"], 1)
            metrics["sentence_loss"] = (sentences.sum, sentences.count)
            metrics["sentence_accuracy"] = (sentences.correct, sentences.count)
        share = batch["input_ids"].shape[0] / config.batch_size  # shares of all parts add up to 1
        return runtime.Sums(total, share, metrics)

    return loss


def abstract_state(config: Config) -> runtime.TrainState:
    """Shapes, types and shardings of the run's state, for reading its checkpoints."""
    model = config.model.make(config.data.pretrain_loss)
    task = Task(
        config.seed, config.batch_size, make_init(model), make_loss(config, model), config.make_optimizer()
    )
    return Program(task, "jit").abstract_state()


def tour_stop(directory: Path) -> runtime.Stop:
    """The `quick` preset, for the tour."""
    config = presets.get_config("quick")
    results = main(config, workdir=directory)
    first, beside = results[config.model.name], results[BASELINE]
    line = first.results["unigram_entropy"]
    below = measures.first_below(directory, line)
    equal = measures.recorded(directory / BASELINE, first.step)
    name, other = folnet_figures.shown(config.model.name), folnet_figures.shown(NONE)
    rows = []
    answers = [first.results["filled"], beside.results["filled"]]
    for ours, theirs in folnet_figures.chosen(answers):
        rows.append(
            {
                "held-out text": folnet_figures.shortened(ours["before"], ours["after"]),
                "stands there": ours["word"],
                name: folnet_figures.marked(ours),
                other: folnet_figures.marked(theirs),
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


if __name__ == "__main__":
    runtime.launch(main, config="experiments/configs/folnet_pretrain.py:quick")
