"""Pretrains FOLNet (Chen 2023) or a transformer: masked words, and a question about two segments.

Trains the model; then, if the config has a baseline, the transformer it is compared with, on the same batches
(in `baseline/` of the workdir). Held-out text is measured during training; at the end the models fill in
masked words of it, and both are drawn. `load` reads what was trained.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments import runtime
from experiments.folnet_pretrain import figures, measures
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.parts import NONE, Text
from experiments.runtime import processes
from experiments.runtime.training import Program, Scalar, Task
from folnet import objective
from folnet.pretraining import PretrainingBatches
from folnet.tokenization import WordPieceTokenizer

BASELINE = "baseline"
VOCABULARY = ".vocab.txt"
"""The vocabulary in a workdir; hidden, so that a workdir with nothing else still counts as empty."""


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
        runtime.WorkdirError: as `open_text`; or the workdir belongs to another run.
    """
    config = config.resolved()
    text = open_text(config, workdir)
    configs, results = {config.model.name: config}, {}
    results[config.model.name] = first = train(config, text, workdir, parallel)
    if config.session_seconds and not config.is_over(first.step, first.train_seconds):
        return results  # this process's time is up; the same command continues
    if config.baseline != NONE:
        configs[BASELINE] = config.for_baseline(first.train_seconds)
        below = None if workdir is None else Path(workdir) / BASELINE
        results[BASELINE] = train(configs[BASELINE], text, below, parallel)
    if workdir is not None and runtime.is_first():
        figures.draw(Path(workdir), configs, results)
    return results


def open_text(config: Config, workdir: Path | None = None) -> Text:
    """The text, checked against the config and against the vocabulary that the workdir was begun with.

    Raises:
        runtime.WorkdirError: it is missing (with the command that makes it) or does not fit; nothing has been
            compiled yet.
    """
    try:
        text = config.data.open()
        pieces, rows = text.tokenizer.vocab_size, config.model.vocab_size
        if pieces > rows:
            raise ValueError(
                f"model.vocab_size={rows} must be at least the {pieces} pieces of the vocabulary; a multiple "
                f"of 8 such as {text.tokenizer.padded_vocab_size}"
            )
        training_batches(config, text)
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
    batches = training_batches(config, text, jax.process_index(), jax.process_count())

    def conclude(params):
        asked = measures.blanks(config, text, config.blanks)
        return {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **measures.lines(config, text),
            "filled": measures.fill(config, model, params, text, asked),
        }

    return runtime.fit(
        config,
        init=make_init(model),
        loss=make_loss(config, model),
        batches=lambda step: batches(step)._asdict(),
        optimizer=config.make_optimizer(),
        evaluate=measures.make_evaluate(config, make_losses(config, model), text, parallel),
        conclude=conclude,
        workdir=workdir,
        accumulate=config.accumulate,
        totals=totals,
        parallel=parallel,
        name=figures.shown(config.model.name),
    )


def training_batches(config: Config, text: Text, process: int = 0, processes: int = 1) -> PretrainingBatches:
    """The batches of a run as a function of the step, or one process's rows of them.

    Raises:
        ValueError: the text does not fit the config.
    """
    return PretrainingBatches(
        text.train,
        text.tokenizer,
        config.batch_size,
        seed=config.seed,
        process_index=process,
        process_count=processes,
        **config.data.drawing,
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


def make_losses(config: Config, model: nn.Module) -> Callable[..., tuple[objective.Loss, objective.Loss]]:
    """`losses(params, batch, dropout=None)`: of masked words, and of the question about sentences.

    With the key `dropout` the model drops activations.
    """

    def losses(params, batch, dropout=None):
        out: Any = model.apply(
            {"params": params},
            batch["input_ids"],
            batch["token_type_ids"],
            batch["attention_mask"] if config.mask_padding else None,
            dropout is None,
            mlm_positions=batch["mlm_positions"],
            rngs=None if dropout is None else {"dropout": dropout},
        )
        words = objective.masked_language_model(out.prediction_logits, batch["mlm_labels"])
        return words, objective.sentence(out.seq_relationship_logits, batch["next_sentence_label"])

    return losses


def make_loss(config: Config, model: nn.Module) -> Callable[..., runtime.Sums]:
    """`loss(params, batch, key)` of `runtime.fit`: the mean over masked words plus the mean over sentences.

    Both are means over the whole batch, however it is cut into parts: each part divides by the whole's
    counts, and the numerators add up. (The authors average over what a device sees at once.)
    """
    drops = config.model.hidden_dropout_prob > 0 or config.model.attention_probs_dropout_prob > 0
    losses = make_losses(config, model)

    def loss(params, batch, key):
        words, sentences = losses(params, batch, key if drops else None)
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
