"""A task's splits as arrays, and their batches as a function of the step."""

import dataclasses
import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from experiments.folnet_finetune import kinds
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.kinds import Split
from folnet import tasks
from folnet.tasks import metrics as task_metrics
from folnet.tasks import own
from folnet.tokenization import WordPieceTokenizer

VOCABULARY = "vocab.txt"
POOL = 32
"""Number of batches in a group whose examples are sorted by length, if batches have several lengths."""

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
PER_TOKEN = (*INPUTS, "tags")
"""Arrays of a batch whose last axis is that of tokens."""

AnyTask = tasks.Task[Any, Any]


def task_of(config: Config) -> AnyTask:
    """Returns the task with the config's options; raises ValueError for an unsupported kind."""
    task = config.open_task()
    kinds.of(task)
    if isinstance(task, tasks.ClutrrTask):
        return dataclasses.replace(task, released=config.released_text)
    return with_windows(task, config)


def with_windows[T: AnyTask](task: T, config: Config) -> T:
    """Returns a task that reads long texts in the windows of a config; texts with classes if it says so."""
    divides = isinstance(task, tasks.SquadTask | own.OwnTask)
    if not divides or (isinstance(task, own.TextTask) and not config.own.windows):
        return task
    return dataclasses.replace(task, stride=config.stride, query_length=config.query_length)


class Data(NamedTuple):
    """A task, its tokenizer and its available splits."""

    task: AnyTask
    tokenizer: WordPieceTokenizer
    train: Split
    dev: tuple[Split, ...]
    """Usually one; two for MNLI; none for CLUTRR as published by its authors."""
    test: tuple[Split, ...]
    """The available test splits."""

    @property
    def measured(self) -> tuple[Split, ...]:
        """All splits except the training split."""
        return self.dev + self.test


def vocabulary(config: Config) -> Path:
    """Returns the path of the vocabulary file."""
    return Path(config.vocabulary or Path(config.checkpoint) / VOCABULARY).expanduser()


def how_to_make(checkpoint: Any) -> str:
    """Returns a sentence with the commands that create the directory of a checkpoint."""
    room = "python -m experiments.folnet_pretrain"
    return (
        f"To create it, run {room}.load --pretrained=RUN --to={checkpoint}, or for the authors' files "
        f"{room}.convert FILES {checkpoint}"
    )


def missing(config: Config) -> list[str]:
    """Returns a message for each missing file or library and how to get it; reads no file's contents."""
    task, found = task_of(config), []
    try:
        task.check(config.data_dir or ".", _needed(task))
    except ValueError as error:
        found.append(f"own.{error}" if isinstance(task, own.OwnTask) else f"data_dir: {error}")
    if config.checkpoint and not Path(config.checkpoint).expanduser().is_dir():
        found.append(
            f"checkpoint: got {config.checkpoint}, expected a directory. {how_to_make(config.checkpoint)}. "
            "To start from scratch, use --config.checkpoint= and --config.vocabulary=FILE or "
            "--config.new_vocabulary=SIZE"
        )
    elif not (config.new_vocabulary or config.vocabulary or config.checkpoint):
        found.append(
            "vocabulary: got '', expected a file such as BERT's vocab.txt for a model from scratch, or "
            "--config.new_vocabulary=SIZE, or a pretrained model: --config.checkpoint=DIR"
        )
    elif not config.new_vocabulary and not vocabulary(config).is_file():
        found.append(
            f"vocabulary: got {vocabulary(config)}, expected a file. FOLNet uses the vocab.txt of uncased "
            "BERT: --config.vocabulary=FILE"
        )
    try:
        if isinstance(task, tasks.SequenceTask):
            task_metrics.require(task.metrics)
    except ImportError as error:
        found.append(str(error))
    return found


def _needed(task: AnyTask) -> list[str]:
    """Returns the splits that a run requires: for training, and for the scores that the paper reports."""
    if isinstance(task, tasks.ClutrrTask):
        return ["train", "test"]
    return [split for split in task.splits if not split.startswith("test")]


def open_tokenizer(config: Config) -> WordPieceTokenizer:
    """Returns the tokenizer of the vocabulary file, or one learned from the training split.

    Raises:
        ValueError: a file is damaged.
    """
    if not config.new_vocabulary:
        return WordPieceTokenizer.load(vocabulary(config), lowercase=config.lowercase)
    task = task_of(config)
    texts = kinds.of(task).texts(task.examples(config.data_dir, "train"))
    return WordPieceTokenizer.train(texts, config.new_vocabulary, lowercase=config.lowercase)


def open_data(config: Config, tokenizer: WordPieceTokenizer) -> Data:
    """Reads and tokenizes the splits.

    Raises:
        ValueError: a file is damaged (the message gives the line), or `length` is too short for the examples.
    """
    task = task_of(config)

    def split(name: str) -> Split:
        examples = task.examples(config.data_dir, name)
        features = task.features(examples, tokenizer, config.tokens)
        return Split(name, examples, features, task.labelled(examples))

    directory = Path(config.data_dir).expanduser()
    there = [name for name in task.splits if task.find(directory, name) is not None]
    if not config.predict:
        there = [name for name in there if name in _needed(task) or name.startswith("validation")]
    return Data(
        task,
        tokenizer,
        split("train"),
        tuple(split(name) for name in there if name.startswith("validation")),
        tuple(split(name) for name in there if name.startswith("test")),
    )


def fingerprint(data: Data) -> dict[str, Any]:
    """Returns values that identify the data: vocabulary, rows, and a checksum of the training tokens."""
    found = {f"rows of {split.name}": split.rows for split in (data.train, *data.measured)}
    tokens = zlib.crc32(np.ascontiguousarray(data.train.features.input_ids))
    return {"vocabulary": data.tokenizer.fingerprint, **found, "tokens of train": tokens}


def columns(features: Any, mask_padding: bool) -> dict[str, np.ndarray]:
    """Returns the inputs of the model and its loss by name, with shapes [N, ...].

    `label` is the class or number of a text, or the right choice among those that exist; `tags` are the
    classes of words; `start` and `end` are the positions of an answer.
    """
    found = {name: getattr(features, name) for name in (INPUTS if mask_padding else INPUTS[:2])}
    match features:
        case tasks.SpanFeatures():
            return found | {"start": features.start_positions, "end": features.end_positions}
        case own.WordFeatures():
            return found | {"tags": features.tags}
        case own.ChoiceFeatures():
            return found | {"label": features.label, "exists": features.exists}
    return found | {"label": features.label}


class Batches:
    """`batches(step)` of a run: each epoch has every example exactly once, in a new order.

    The last batch of an epoch is padded with rows of `weight` 0. (The authors' sampler uses the same order in
    all epochs, and their runs end one batch per epoch early; we see no reason for either.)
    """

    def __init__(self, features: Any, config: Config):
        """Prepares batches of the training split's features."""
        self._columns = columns(features, config.mask_padding)
        self._size, self._seed = config.batch_size, config.seed
        self._lengths = (*config.lengths, features.input_ids.shape[-1])
        self._fits = fitting(features, self._lengths)
        self._per_epoch = config.steps_per_epoch(len(self._fits))
        self._order = functools.lru_cache(maxsize=2)(self._draw)  # 2, since batches are prefetched

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        """Returns the batch of a step, counted from 0."""
        epoch, place = divmod(step, self._per_epoch)
        rows = self._order(epoch)[place]
        return take(self._columns, rows, self._size, self._lengths[self._fits[rows].max()])

    def _draw(self, epoch: int) -> list[Int[np.ndarray, "n"]]:
        """Draws the batches of an epoch, as indices of their examples."""
        rng = np.random.default_rng([self._seed, epoch])
        order = rng.permutation(len(self._fits))
        if len(self._lengths) == 1:
            return list(_cut(order, self._size))
        pools = [pool[np.argsort(self._fits[pool], kind="stable")] for pool in _cut(order, POOL * self._size)]
        # Cut the concatenation: cut separately, each pool would end with an incomplete batch.
        found = list(_cut(np.concatenate(pools), self._size))
        return [found[place] for place in rng.permutation(len(found))]


def _cut(rows: Int[np.ndarray, "N"], size: int) -> Iterator[Int[np.ndarray, "n"]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def fitting(features: Any, lengths: Sequence[int]) -> Int[np.ndarray, "N"]:
    """Returns for each row the index of the smallest of the increasing `lengths` that fits its tokens."""
    sizes = features.attention_mask.sum(axis=-1)
    return np.searchsorted(lengths, sizes.reshape(len(sizes), -1).max(axis=1))


def take(
    table: Mapping[str, np.ndarray], rows: Int[np.ndarray, "n"], size: int, length: int
) -> dict[str, np.ndarray]:
    """Returns rows as a batch of a fixed size.

    Args:
        table: arrays [N, ...] by name; those of `PER_TOKEN` have tokens along the last axis.
        rows: indices of at most `size` rows.
        size: B; missing rows are filled with copies of the first one, without a label.
        length: T; later tokens are cut off.

    Returns:
        The batch by name, with `weight` [B]: 1 for the given rows, 0 for the copies.
    """
    filled = np.concatenate([rows, np.full(size - len(rows), rows[0], rows.dtype)])
    weight = (np.arange(size) < len(rows)).astype(np.float32)
    found = {}
    for name, array in table.items():
        part = array[filled]
        if name in PER_TOKEN:
            part = part[..., :length]
        if name not in INPUTS and np.issubdtype(part.dtype, np.integer):
            there = weight.reshape(-1, *[1] * (part.ndim - 1)) > 0
            part = np.where(there, part, np.asarray(tasks.NO_LABEL, part.dtype))
        found[name] = part
    return found | {"weight": weight}


def sequential(split: Split, config: Config) -> Iterator[tuple[Int[np.ndarray, "n"], dict[str, np.ndarray]]]:
    """Yields all rows of a split once, in batches for evaluation: their indices and the batch."""
    lengths = (*config.lengths, split.features.input_ids.shape[-1])
    fits = fitting(split.features, lengths)
    table = columns(split.features, config.mask_padding)
    table = {name: array for name, array in table.items() if name in INPUTS}
    for place, length in enumerate(lengths):
        for rows in _cut(np.flatnonzero(fits == place), config.eval_batch_size):
            batch = take(table, rows, config.eval_batch_size, length)
            del batch["weight"]
            yield rows, batch
