"""Measurements of a pretrained model: held-out losses, reference losses and filled-in words."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import NamedSharding, PartitionSpec

from experiments import runtime
from experiments.folnet_pretrain import vocabularies
from experiments.folnet_pretrain.config import Config
from experiments.folnet_pretrain.parts import Text
from experiments.runtime import mesh, processes
from folnet import pretraining
from folnet.objective import Loss
from folnet.tokenization import WordPieceTokenizer

COUNTED = 200
"""Maximum number of training batches whose masked words are counted for the reference losses."""


def held_out_batches(config: Config, text: Text) -> Iterator[pretraining.PretrainingBatch]:
    """Yields the same held-out batches on each call: all windows in random order, `eval_masks` times."""
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
    """Returns `evaluate(params)` for `runtime.fit`: means of `train.make_losses` over the held-out text."""
    batches = [batch._asdict() for batch in held_out_batches(config, text)]
    sums = make_sums(losses, batches, config.eval_batch_size, parallel)

    def evaluate(params):
        words, sentences = sums(params)
        found = {"mlm_loss": float(words.mean), "mlm_accuracy": float(words.accuracy)}
        if config.data.asks_about_sentences:
            found["sentence_accuracy"] = float(sentences.accuracy)
        return found

    return evaluate


def make_sums[T](
    losses: Callable[[Any, Any], T],
    batches: Sequence[Mapping[str, Any]],
    rows: int,
    parallel: str | runtime.Layout = "jit",
) -> Callable[[Any], T]:
    """Returns the function of parameters that sums `losses(params, batch)` over batches of so many rows.

    Each process measures some of the batches, on all of its devices if they divide the rows.
    """
    devices = runtime.Layout.of(parallel).mesh_to_measure()
    even = rows % devices.shape[mesh.AXIS] == 0
    split = NamedSharding(devices, PartitionSpec(mesh.AXIS) if even else PartitionSpec())
    measured = jax.jit(losses)
    return lambda params: processes.summed(
        lambda batch: measured(params, jax.device_put(batch, split)), batches
    )


def lines(config: Config, text: Text) -> dict[str, Any]:
    """Returns the losses of models that ignore the text, in nats per masked word, and what was counted.

    `unigram_entropy` is the entropy of the masked pieces in the corpus, with the training and held-out parts
    weighted by their numbers of windows: the lowest loss of a model whose answer is the same everywhere.
    `unigram_held_out` is the held-out loss of the frequencies in the training part.
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
        vocabularies.FINGERPRINT: text.tokenizer.fingerprint,
    }


@dataclasses.dataclass(frozen=True)
class Blank:
    """A held-out window with one piece masked.

    Attributes:
        before: the text before the mask.
        word: the original piece.
        after: the text after the mask.
        ids: the model's input tokens [T], with the word masked.
        segments: the tokens' segments [T].
        place: the mask's index in `ids`.
    """

    before: str
    word: str
    after: str
    ids: np.ndarray
    segments: np.ndarray
    place: int


def blanks(config: Config, text: Text, count: int) -> list[Blank]:
    """Masks one random piece in each of at most `count` evenly spaced held-out windows.

    The config's seed determines the pieces, so they are the same for all models. Pieces that are not text
    ([UNK], or [SEP] between documents) are never masked.
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
    """Masks one token of a window, which becomes two segments as in the objectives with sentence tasks."""
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
    """Returns for each blank the most likely piece, `guess`, its `probability` and whether it is `right`."""
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
        # The table may have more rows than the vocabulary has words.
        return jax.nn.softmax(out.prediction_logits[:, 0, : text.tokenizer.vocab_size])

    found = np.asarray(probabilities(params), np.float64)
    pieces = [text.tokenizer.vocabulary[piece] for piece in found.argmax(axis=1)]
    return [
        {"before": blank.before, "word": blank.word, "after": blank.after}
        | {"guess": piece, "probability": float(chance), "right": piece == blank.word}
        for blank, piece, chance in zip(asked, pieces, found.max(axis=1), strict=True)
    ]


def held_out_curve(workdir: Path) -> list[tuple[int, float, float]]:
    """Returns (step, seconds of training, held-out loss) for each evaluation of a run."""
    rows = runtime.metrics.read(workdir / "metrics.jsonl")
    key = "eval/mlm_loss"
    return [(row["step"], row["train_seconds"], row[key]) for row in rows if row.get(key) is not None]


def recorded(workdir: Path, step: int) -> float | None:
    """Returns the held-out loss at a step, or None if the run was not evaluated then."""
    return {at: loss for at, _, loss in held_out_curve(workdir)}.get(step)


def first_below(workdir: Path, line: float) -> int | None:
    """Returns the first step with a held-out loss below `line`, or None."""
    return next((step for step, _, loss in held_out_curve(workdir) if loss < line), None)
