"""Measurements of models that write: perplexity on held-out text, and samples."""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Int64

from experiments import runtime
from experiments.folnet_language.config import Config
from experiments.folnet_language.data import Data, PairRows, Rows, in_order
from experiments.folnet_language.writing import Writer
from experiments.folnet_pretrain import vocabularies
from experiments.folnet_pretrain.measures import make_sums
from folnet.objective import Loss
from folnet.pretraining import unigram_cross_entropy
from kernels.decoding import Sampling

LOSS = "eval/loss"
"""The name of the held-out loss in the record of a run."""
WAYS = ("greedy", "sampled", "beam")
"""How samples are written: the most probable words, words drawn at random, and a beam search."""


def make_evaluate(
    config: Config,
    losses: Callable[[Any, Any], tuple[Loss, Loss]],
    data: Data,
    parallel: str | runtime.Layout = "jit",
) -> Callable[[Any], dict[str, float]]:
    """Returns `evaluate(params)` for `runtime.fit`: measures of `train.make_losses` on the held-out rows.

    They are the loss in nats per token, its exponential (the perplexity), the fraction of tokens that are the
    most probable ones, and of pairs the fraction of targets that greedy generation would write without error.
    """
    batches = list(in_order(data.held_out, config.eval_batch_size, config.eval_batches))
    sums = make_sums(losses, batches, config.eval_batch_size, parallel)

    def evaluate(params):
        words, texts = sums(params)
        loss = float(words.mean)
        found = {"loss": loss, "perplexity": perplexity(loss), "accuracy": float(words.accuracy)}
        return found | ({"exact_match": float(texts.accuracy)} if config.data.pairs else {})

    return evaluate


def perplexity(loss: float) -> float:
    """Returns exp(loss), infinite instead of an overflow."""
    return math.exp(loss) if loss < 700 else math.inf


def conclude(config: Config, model: Any, params: Any, data: Data) -> dict[str, Any]:
    """Returns what a run's summary says besides its measures.

    `unigram_perplexity` is that of a model which knows the words' frequencies in training alone, on the
    held-out rows; `rows` and `truncated` count the rows and the texts that were cut off.
    """
    learned, held_out = (counts(rows, config) for rows in (data.train, data.held_out))
    return {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "unigram_perplexity": perplexity(unigram_cross_entropy(learned, held_out)),
        "rows": {"train": len(data.train), "held_out": len(data.held_out)},
        "truncated": {"train": data.train.truncated, "held_out": data.held_out.truncated},
        vocabularies.FINGERPRINT: data.tokenizer.fingerprint,
        "samples": samples(config, Writer(model, params, data.tokenizer), data.held_out),
    }


def counts(rows: Rows, config: Config) -> Int64[np.ndarray, "V"]:
    """Counts the words to predict in all rows."""
    found = np.zeros(config.model.vocab_size, np.int64)
    for batch in in_order(rows, config.eval_batch_size):
        labels = batch["labels"] if config.data.pairs else batch["labels"][:, 1:]
        found += np.bincount(labels[labels >= 0], minlength=len(found))
    return found


def samples(config: Config, writer: Writer, rows: Rows) -> list[dict[str, str]]:
    """Continues some held-out texts, or answers some inputs, in each of the `WAYS`.

    Returns:
        For evenly spaced rows: what was `given`, the `target`, which is the text that follows it, and what
        the model wrote.
    """
    count = min(config.samples, len(rows))
    if not count:
        return []
    chosen = [place * len(rows) // count for place in range(count)]
    if isinstance(rows, PairRows):
        given, target = zip(*(rows.pairs[row] for row in chosen), strict=True)
        prompts = writer.read(given)
    else:
        labels = rows.take(chosen)["labels"]
        # A short text leaves at least its last word to write.
        texts = [row[row >= 0].tolist() for row in labels]
        prompts = [row[: min(config.prompt_tokens + 1, len(row) - 1)] for row in texts]
        given = [writer.tokenizer.decode(row) for row in prompts]
        after = zip(prompts, texts, strict=True)
        target = [writer.tokenizer.decode(row[len(some) :][: config.new_tokens]) for some, row in after]
    key, sampling = jax.random.key(config.seed), Sampling(top_p=config.top_p)
    options = ({}, {"key": key, "sampling": sampling}, {"num_beams": config.beams})
    ways = WAYS if config.beams > 1 else WAYS[:2]
    written = [
        writer.continued(prompts, config.new_tokens, **some) for some, _ in zip(options, ways, strict=False)
    ]
    return [
        {"given": some, "target": wanted}
        | {way: texts[0].text for way, texts in zip(ways, found, strict=True)}
        for some, wanted, *found in zip(given, target, *written, strict=True)
    ]
