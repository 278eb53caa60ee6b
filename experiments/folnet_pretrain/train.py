"""Pretrains FOLNet (Chen 2023) or a Transformer on masked words and a sentence task.

Trains the model and then, if the config has a baseline, a Transformer on the same batches (in `baseline/` of
the workdir). Losses on held-out text are measured during training; at the end the models fill in masked words
of it, and figures are drawn. `load` reads trained models.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments import runtime
from experiments.folnet_pretrain import figures, measures, vocabularies
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.parts import NONE, Text
from experiments.runtime.training import Program, Scalar, Task
from folnet import objective
from folnet.pretraining import PretrainingBatches

BASELINE = "baseline"


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the model and the baseline and draws the figures.

    Args:
        config: see `experiments.folnet_pretrain.config`.
        workdir: directory of the run; None saves and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The result of the model, under its name, and of the baseline, under "baseline".

    Raises:
        runtime.WorkdirError: the text is missing or does not match (see `open_text`), or the workdir belongs
            to another run.
    """
    began = time.monotonic()
    config = config.resolved()
    text = open_text(config, workdir)
    configs: dict[str, Config] = {config.model.name: config}
    results: dict[str, runtime.FitResult] = {}
    results[config.model.name] = first = train(config.in_session(began), text, workdir, parallel)
    if not config.is_over(first.step, first.train_seconds):
        return results  # the session's time is up; running the command again continues
    if config.baseline != NONE:
        configs[BASELINE] = config.for_baseline(first.train_seconds)
        below = None if workdir is None else Path(workdir) / BASELINE
        results[BASELINE] = train(configs[BASELINE].in_session(began), text, below, parallel)
    if workdir is not None and runtime.is_first():
        figures.draw(Path(workdir), configs, results)
    return results


def open_text(config: Config, workdir: Path | None = None) -> Text:
    """Returns the text, after checking that it matches the config and the workdir's vocabulary.

    Raises:
        runtime.WorkdirError: the text is missing (the message gives the command that prepares it) or does not
            match; this is raised before anything is compiled.
    """
    try:
        text = config.data.open()
        training_batches(config, text)
        next(measures.held_out_batches(config, text), None)
        vocabularies.settle(text.tokenizer, config.model.vocab_size, workdir)
    except (ValueError, RuntimeError) as error:
        raise runtime.WorkdirError(f"data: {error}") from error
    return text


def train(
    config: Config, text: Text, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains one model on the text; see `main` for the arguments."""
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
        totals=totals,
        parallel=parallel,
        name=figures.shown(config.model.name),
    )


def training_batches(config: Config, text: Text, process: int = 0, processes: int = 1) -> PretrainingBatches:
    """Returns a run's batches as a function of the step, restricted to the rows of one process.

    Raises:
        ValueError: the text does not match the config.
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
    """Counts the masked words and the sentence pairs of a whole batch; `totals` of `runtime.fit`."""
    return {
        "predictions": jnp.sum(batch["mlm_labels"] >= 0, dtype=jnp.float32),
        "sentences": jnp.sum(batch["next_sentence_label"] >= 0, dtype=jnp.float32),
    }


def make_init(model: nn.Module) -> Callable[[jax.Array], Any]:
    """Returns `init(key)` for `runtime.fit`, which draws the model's initial parameters."""

    def init(key):
        return model.init(key, jnp.zeros((1, 8), jnp.int32))["params"]

    return init


def make_losses(config: Config, model: nn.Module) -> Callable[..., tuple[objective.Loss, objective.Loss]]:
    """Returns `losses(params, batch, dropout=None)`: the losses of masked words and of the sentence task.

    Dropout is applied only if the key `dropout` is given.
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
    """Returns `loss(params, batch, key)` for `runtime.fit`: mean over masked words plus mean over sentences.

    Both are means over the whole batch, however it is split: each part divides its sums by the counts of the
    whole batch, and the results add up. (The authors average over what each device processes at once.)
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
        share = batch["input_ids"].shape[0] / config.batch_size  # the shares of all parts sum to 1
        return runtime.Sums(total, share, metrics)

    return loss


def abstract_state(config: Config) -> runtime.TrainState:
    """Returns the shapes, dtypes and shardings of the run's state, for reading its checkpoints."""
    model = config.model.make(config.data.pretrain_loss)
    task = Task(
        config.seed, config.batch_size, make_init(model), make_loss(config, model), config.make_optimizer()
    )
    return Program(task, "jit").abstract_state()
