r"""Pretraining of FOLNet (Chen 2023): words that are masked, and a question about two segments.

    python -m experiments.folnet_pretrain --config=quick \
        --workdir=runs/folnet

Trains the model; then the transformer it is compared with, if the config has one (in `baseline/` below the
workdir), on the same batches for as many steps and, at a constant learning rate, on until it was given as
many seconds. Measures held-out text all along, lets the models fill in masked words of it at the end, and
draws both. What was trained is read by `experiments.folnet_pretrain.load`, also as a directory to fine-tune
from.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments import runtime
from experiments.folnet_pretrain import figures as folnet_figures
from experiments.folnet_pretrain import measures
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.parts import NONE, Text
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
        config: see `experiments.folnet_pretrain.config`.
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
