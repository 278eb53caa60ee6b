"""What is measured of a pretrained model: held-out text, the lines it must get below, words filled in."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from experiments import runtime
from experiments.configs.folnet_pretrain import Config, Text
from experiments.runtime import mesh
from folnet import objective, pretraining


def losses(
    model: nn.Module, params: Any, batch: dict[str, Any], *, dropout: jax.Array | None = None
) -> tuple[objective.Loss, objective.Loss]:
    """Of masked words, and of the question about sentences; with a key, something is dropped."""
    out: Any = model.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch.get("attention_mask"),
        dropout is None,
        mlm_positions=batch["mlm_positions"],
        rngs=None if dropout is None else {"dropout": dropout},
    )
    words = objective.masked_language_model(out.prediction_logits, batch["mlm_labels"])
    return words, objective.sentence(out.seq_relationship_logits, batch["next_sentence_label"])


def held_out(config: Config, text: Text, masks: int | None = None) -> Iterator[pretraining.PretrainingBatch]:
    for seed in range(masks or config.eval_masks):
        batches = pretraining.PretrainingBatches(
            text.held_out,
            text.tokenizer,
            config.eval_batch_size,
            objective=config.data.objective,
            cut=config.data.cut or None,
            mask_rate=config.data.mask_rate,
            whole_words=config.data.whole_words,
            dynamic=False,
            seed=seed,
            shuffle=False,
            repeat=False,
        )
        for step in range(len(batches)):
            yield batches(step)


def evaluator(config, model, text, parallel):
    batches = [b._asdict() for b in held_out(config, text)]
    if not config.mask_padding:
        for b in batches:
            del b["attention_mask"]

    @jax.jit
    def measured(params, batch):
        return losses(model, params, batch)

    def evaluate(params):
        words, sentences = jax.tree.map(lambda *s: sum(s), *[measured(params, b) for b in batches])
        return {
            "mlm_loss": float(words.mean),
            "mlm_accuracy": float(words.accuracy),
            "sentence_accuracy": float(sentences.accuracy),
        }

    return evaluate


def lines(config, batches, text):
    counts = pretraining.label_counts(batches, min(len(batches), 200))
    ours = np.zeros_like(counts)
    for b in held_out(config, text):
        ours += np.bincount(b.mlm_labels[b.mlm_labels >= 0], minlength=len(ours))
    return {
        "unigram_entropy": pretraining.unigram_entropy(counts + ours),
        "unigram_held_out": pretraining.unigram_cross_entropy(counts, ours),
    }
