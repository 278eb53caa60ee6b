"""Pretraining of FOLNet (Chen 2023): words that are masked, and which of two halves came first.

    python -m experiments.folnet_pretrain --config=experiments/configs/folnet_pretrain.py:quick \
        --workdir=runs/folnet
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from experiments import folnet_measures as measures
from experiments import runtime
from experiments.configs.folnet_pretrain import Config, Text, parameters
from experiments.runtime.training import Program, Task
from folnet import objective, pretraining


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    text = config.data.open()
    return {"folnet": train(config.resolved(), text, workdir, parallel)}


def train(
    config: Config, text: Text, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains one model."""
    model = config.model.make(config.data.pretrain_loss)
    batches = training_batches(config, text)
    evaluate = measures.evaluator(config, model, text, parallel)

    def conclude(params):
        return {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **measures.lines(config, batches, text),
        }

    return runtime.fit(
        config,
        init=make_init(model),
        loss=make_loss(config, model),
        batches=lambda step: fed(config, batches(step)),
        optimizer=config.make_optimizer(),
        evaluate=evaluate,
        conclude=conclude,
        workdir=workdir,
        accumulate=config.accumulate,
        parallel=parallel,
        name=config.model.name,
    )


def training_batches(config: Config, text: Text) -> pretraining.PretrainingBatches:
    """The batches that a run trains on."""
    return pretraining.PretrainingBatches(
        text.train,
        text.tokenizer,
        config.batch_size,
        objective=config.data.objective,
        cut=config.data.cut or None,
        mask_rate=config.data.mask_rate,
        whole_words=config.data.whole_words,
        dynamic=config.data.dynamic,
        seed=config.seed,
    )


def fed(config: Config, batch: pretraining.PretrainingBatch) -> dict[str, Any]:
    """A batch as the loss takes it.

    Besides the arrays it has how many predictions and sentences there are in the whole of it, as scalars: a
    device that sees a part of the batch, or a part of the batch that is gone through by itself, cannot know.
    """
    fields = batch._asdict()
    if not config.mask_padding:
        del fields["attention_mask"]
    return fields | {
        "predictions": np.asarray((batch.mlm_labels >= 0).sum(), np.float32),
        "sentences": np.asarray((batch.next_sentence_label >= 0).sum(), np.float32),
    }


def make_init(model: nn.Module) -> Callable[[jax.Array], Any]:
    """`init(key)` of `runtime.fit`."""

    def init(key):
        return model.init(key, jnp.zeros((1, 8), jnp.int32))["params"]

    return init


def make_loss(config: Config, model: nn.Module) -> Callable[..., runtime.Sums]:
    """`loss(params, batch, key)` of `runtime.fit`: the mean over masked words plus the mean over sentences.

    Both means are of the whole batch, however it is cut into parts: each part divides by the whole's counts.
    """
    drops = config.model.hidden_dropout_prob or config.model.attention_probs_dropout_prob

    def loss(params, batch, key):
        words, sentences = measures.losses(model, params, batch, dropout=key if drops else None)
        total = words.sum / jnp.maximum(batch["predictions"], 1)
        total += sentences.sum / jnp.maximum(batch["sentences"], 1)
        metrics = {"mlm_loss": (words.sum, words.count), "mlm_accuracy": (words.correct, words.count)}
        if config.data.objective in ("sop", "nsp"):
            metrics["sentence_loss"] = (sentences.sum, sentences.count)
            metrics["sentence_accuracy"] = (sentences.correct, sentences.count)
        return runtime.Sums(total, len(batch["input_ids"]) / config.batch_size, metrics)

    return loss


if __name__ == "__main__":
    runtime.launch(main, config="experiments/configs/folnet_pretrain.py:quick")
