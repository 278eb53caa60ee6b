"""What is measured of a pretrained model: held-out text, the lines it must get below, words filled in."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from experiments import runtime
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.parts import Text
from experiments.runtime import mesh, processes
from folnet import pretraining
from folnet.objective import Loss
from folnet.tokenization import WordPieceTokenizer

COUNTED = 200
"""Batches whose predictions are counted for the unigram lines, at most."""


def held_out_batches(config: Config, text: Text) -> Iterator[pretraining.PretrainingBatch]:
    """Held-out examples, always the same: the windows in a random order, `eval_masks` times."""
    for masks in range(config.eval_masks):
        batches = pretraining.PretrainingBatches(
            text.held_out,
            text.tokenizer,
            config.eval_batch_size,
            seed=masks,
            repeat=False,
            **config.data.drawing,
        )
        count = min(config.eval_batches or len(batches), len(batches))
        yield from map(batches, range(count))


def make_evaluate(
    config: Config,
    losses: Callable[[Any, Any], tuple[Loss, Loss]],
    text: Text,
    parallel: str | runtime.Layout = "jit",
) -> Callable[[Any], dict[str, float]]:
    """`evaluate(params)` of `runtime.fit`: the means of `train.make_losses` over held-out text."""
    batches = [batch._asdict() for batch in held_out_batches(config, text)]
    devices = runtime.Layout.of(parallel).mesh_to_measure()
    even = config.eval_batch_size % devices.shape[mesh.AXIS] == 0
    split = NamedSharding(devices, PartitionSpec(mesh.AXIS) if even else PartitionSpec())
    measured = jax.jit(losses)

    def evaluate(params):
        words, sentences = processes.summed(
            lambda batch: measured(params, jax.device_put(batch, split)), batches
        )
        found = {"mlm_loss": float(words.mean), "mlm_accuracy": float(words.accuracy)}
        if config.data.asks_about_sentences:
            found["sentence_accuracy"] = float(sentences.accuracy)
        return found

    return evaluate


def lines(config: Config, text: Text) -> dict[str, Any]:
    """What a model that ignores the text would lose, in nats per masked word, and what was counted.

    `unigram_entropy` is the entropy of the pieces asked for in the corpus, training and held-out parts in the
    proportion of their tokens: the least loss of a model that gives the same answer everywhere.
    `unigram_held_out` is what the frequencies of the training part lose on the held-out one.
    """
    train = pretraining.PretrainingBatches(
        text.train, text.tokenizer, config.batch_size, seed=config.seed, **config.data.drawing
    )
    learned = pretraining.label_counts(train, min(len(train), COUNTED))
    held_out = np.zeros_like(learned)
    for batch in held_out_batches(config, text):
        held_out += np.bincount(batch.mlm_labels[batch.mlm_labels >= 0], minlength=len(held_out))
    share = len(text.held_out) / (len(text.train) + len(text.held_out))
    corpus = (1 - share) * learned / learned.sum() + share * held_out / held_out.sum()
    return {
        "unigram_entropy": pretraining.unigram_entropy(corpus),
        "unigram_held_out": pretraining.unigram_cross_entropy(learned, held_out),
        "held_out_predictions": int(held_out.sum()),
        "windows": {"train": len(text.train), "held_out": len(text.held_out)},
        "vocabulary": text.tokenizer.fingerprint,
    }


@dataclasses.dataclass(frozen=True)
class Blank:
    """A held-out window with one piece masked.

    Attributes:
        before: the text before it.
        word: the piece that was there.
        after: the text after it.
        ids: the window's tokens as a model reads them [T], the word masked.
        segments: their segments [T].
        place: of the mask.
    """

    before: str
    word: str
    after: str
    ids: np.ndarray
    segments: np.ndarray
    place: int


def blanks(config: Config, text: Text, count: int) -> list[Blank]:
    """Blanks in held-out windows, evenly spaced: in each a piece drawn at random, the same for all models.

    Pieces that are no text ([UNK], [SEP] between documents) are left out. The config's seed draws
    the pieces, at most `count`.
    """
    tokenizer, rng = text.tokenizer, np.random.default_rng(config.seed)
    special = np.isin(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
    found = []
    for index in dict.fromkeys((np.arange(count) * len(text.held_out) // max(count, 1)).tolist()):
        (window,) = text.held_out.take([index])
        tokens = window.tokens.astype(np.int32)
        if (places := np.flatnonzero(~special[tokens])).size:
            found.append(_blank(tokenizer, tokens, int(rng.choice(places)), config.data.length))
    return found


def _blank(tokenizer: WordPieceTokenizer, tokens: np.ndarray, place: int, length: int) -> Blank:
    """With both halves of the window in their order, as the objectives with two segments have them."""
    middle = len(tokens) // 2
    inputs = tokenizer.assemble([tokens[:middle].tolist()], [tokens[middle:].tolist()], length=length)
    ids, at = inputs.input_ids[0].copy(), place + (1 if place < middle else 2)
    ids[at] = tokenizer.mask_id
    return Blank(
        before=tokenizer.decode(tokens[:place]),
        word=tokenizer.vocabulary[tokens[place]],
        after=tokenizer.decode(tokens[place + 1 :]),
        ids=ids,
        segments=inputs.token_type_ids[0],
        place=at,
    )


def fill(
    config: Config, model: nn.Module, params: Any, text: Text, asked: list[Blank]
) -> list[dict[str, Any]]:
    """Blanks with the likeliest piece for each, `guess`, its `probability`, and whether it is `right`."""
    if not asked:
        return []
    batch = {
        "input_ids": np.stack([blank.ids for blank in asked]),
        "token_type_ids": np.stack([blank.segments for blank in asked]),
        "mlm_positions": np.asarray([[blank.place] for blank in asked], np.int32),
    }
    mask = batch["input_ids"] != text.tokenizer.pad_id if config.mask_padding else None

    @jax.jit
    def probabilities(params):
        out: Any = model.apply(
            {"params": params},
            batch["input_ids"],
            batch["token_type_ids"],
            mask,
            True,
            mlm_positions=batch["mlm_positions"],
        )
        # Rows of the table above the vocabulary are no words.
        return jax.nn.softmax(out.prediction_logits[:, 0, : text.tokenizer.vocab_size])

    found = np.asarray(probabilities(params), np.float64)
    pieces = [text.tokenizer.vocabulary[piece] for piece in found.argmax(axis=1)]
    return [
        {"before": blank.before, "word": blank.word, "after": blank.after}
        | {"guess": piece, "probability": float(chance), "right": piece == blank.word}
        for blank, piece, chance in zip(asked, pieces, found.max(axis=1), strict=True)
    ]


def held_out_curve(workdir: Path) -> list[tuple[int, float, float]]:
    """Steps, seconds of training and held-out loss, wherever a run was measured."""
    rows = runtime.metrics.read(workdir / "metrics.jsonl")
    key = "eval/mlm_loss"
    return [(row["step"], row["train_seconds"], row[key]) for row in rows if row.get(key) is not None]


def recorded(workdir: Path, step: int) -> float | None:
    """The held-out loss at a step; None if it was not measured then."""
    return {at: loss for at, _, loss in held_out_curve(workdir)}.get(step)


def first_below(workdir: Path, line: float) -> int | None:
    """The first step at which the held-out loss was measured below a line; None if it never was."""
    return next((step for step, _, loss in held_out_curve(workdir) if loss < line), None)
