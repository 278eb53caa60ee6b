"""A task's splits as arrays, and batches of them as a function of the step."""

import dataclasses
import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from experiments.folnet_finetune.config import Config
from folnet import tasks
from folnet.tasks import metrics as task_metrics
from folnet.tokenization import WordPieceTokenizer

VOCABULARY = "vocab.txt"
POOL = 32
"""Number of batches whose examples are sorted by length, where batches have several lengths."""

AnyTask = tasks.SequenceTask | tasks.SquadTask


def task_of(config: Config) -> AnyTask:
    """The task; ValueError for one of another kind."""
    task = tasks.open_task(config.task)
    if isinstance(task, tasks.SquadTask):
        return dataclasses.replace(task, stride=config.stride, query_length=config.query_length)
    if isinstance(task, tasks.ClutrrTask):
        return dataclasses.replace(task, released=config.released_text)
    if not isinstance(task, tasks.SequenceTask):
        raise ValueError(f"task={config.task} has no head here, expected texts into classes, or SQuAD")
    return task


class Split(NamedTuple):
    """A part of a task's data."""

    name: str
    examples: Sequence[Any]
    features: Any
    """`tasks.Features` or `tasks.SpanFeatures`."""

    @property
    def labelled(self) -> bool:
        """Whether it can be scored; the labels of most test splits are not published."""
        return not isinstance(self.examples, tasks.Examples) or all(
            example.label is not None for example in self.examples
        )

    @property
    def rows(self) -> int:
        """Examples as the model sees them; of SQuAD, windows."""
        return len(self.features.input_ids)


class Data(NamedTuple):
    """All of it."""

    task: AnyTask
    tokenizer: WordPieceTokenizer
    train: Split
    dev: tuple[Split, ...]
    """One; two of MNLI; none of CLUTRR as its authors publish it."""
    test: tuple[Split, ...]
    """Those that are there."""

    @property
    def measured(self) -> tuple[Split, ...]:
        """All but the training split."""
        return self.dev + self.test


def vocabulary(config: Config) -> Path:
    """The file of pieces."""
    return Path(config.vocabulary or Path(config.checkpoint) / VOCABULARY).expanduser()


def how_to_make(checkpoint: Any) -> str:
    """The commands that make a directory to start from."""
    room = "python -m experiments.folnet_pretrain"
    return (
        f"Make it: {room}.load --pretrained=RUN --to={checkpoint}, or of the authors' files "
        f"{room}.convert FILES {checkpoint}"
    )


def missing(config: Config) -> list[str]:
    """Which files and libraries are missing, and how to get them; nothing is read yet."""
    task, found = task_of(config), []
    try:
        task.check(config.data_dir or ".", _needed(task))
    except ValueError as error:
        found.append(f"data_dir: {error}")
    if config.checkpoint and not Path(config.checkpoint).expanduser().is_dir():
        found.append(
            f"checkpoint: there is no directory {config.checkpoint}. {how_to_make(config.checkpoint)}. "
            "Or begin from scratch: --config.checkpoint= --config.vocabulary=FILE"
        )
    elif not (config.vocabulary or config.checkpoint):
        found.append("vocabulary: a model from scratch needs a file, such as BERT's vocab.txt")
    elif not vocabulary(config).is_file():
        found.append(
            f"vocabulary: there is no file {vocabulary(config)}; FOLNet has the vocab.txt of uncased BERT, "
            "--config.vocabulary=FILE"
        )
    try:
        if isinstance(task, tasks.SequenceTask):
            task_metrics.require(task.metrics)
    except ImportError as error:
        found.append(str(error))
    return found


def _needed(task: AnyTask) -> list[str]:
    """The splits that a run requires: what it learns from, and what the paper reports."""
    if isinstance(task, tasks.ClutrrTask):
        return ["train", "test"]
    return [split for split in task.splits if not split.startswith("test")]


def check_rows(tokenizer: WordPieceTokenizer, rows: int) -> None:
    """ValueError if there are pieces that a model's table of words has no row for."""
    if tokenizer.vocab_size > rows:
        raise ValueError(
            f"vocabulary has {tokenizer.vocab_size} pieces, the model's table of words only {rows} rows "
            "(model.vocab_size)"
        )


def open_data(config: Config, tokenizer: WordPieceTokenizer) -> Data:
    """Reads the splits and cuts them into pieces.

    Raises:
        ValueError: a file is damaged (with its line), or `length` is too short for its examples.
    """
    task = task_of(config)

    def split(name: str) -> Split:
        examples: Any = task.examples(config.data_dir, name)
        return Split(name, examples, task.features(examples, tokenizer, config.tokens))

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
    """Numbers by which other data are recognised: vocabulary, rows, the training split's tokens."""
    found = {f"rows of {split.name}": split.rows for split in (data.train, *data.measured)}
    tokens = zlib.crc32(np.ascontiguousarray(data.train.features.input_ids))
    return {"vocabulary": data.tokenizer.fingerprint, **found, "tokens of train": tokens}


def columns(features: Any, mask_padding: bool) -> dict[str, np.ndarray]:
    """What the model and its loss take of features, by name, [N, ...] each.

    `label` is a text's class or number, `start` and `end` are an answer's.
    """
    found = {"input_ids": features.input_ids, "token_type_ids": features.token_type_ids}
    if mask_padding:
        found["attention_mask"] = features.attention_mask
    if isinstance(features, tasks.SpanFeatures):
        return found | {"start": features.start_positions, "end": features.end_positions}
    return found | {"label": features.label}


class Batches:
    """`batches(step)` of a run: in every epoch each example exactly once, in a new order.

    The last batch of an epoch is padded with rows of `weight` 0. (The authors' sampler has the same order in
    all epochs, and their runs end as many batches early as there are epochs; we see no reason for either.)
    """

    def __init__(self, features: Any, config: Config):
        """Prepares the batches of the training split's features."""
        self._columns = columns(features, config.mask_padding)
        self._size, self._seed = config.batch_size, config.seed
        self._lengths = (*config.lengths, features.input_ids.shape[1])
        self._fits = fitting(features, self._lengths)
        self._per_epoch = config.steps_per_epoch(len(self._fits))
        self._order = functools.lru_cache(maxsize=2)(self._draw)  # batches are made a little ahead

    def __call__(self, step: int) -> dict[str, np.ndarray]:
        """The batch of a step, counted from 0."""
        epoch, place = divmod(step, self._per_epoch)
        rows = self._order(epoch)[place]
        return take(self._columns, rows, self._size, self._lengths[self._fits[rows].max()])

    def _draw(self, epoch: int) -> list[Int[np.ndarray, "n"]]:
        """The batches of an epoch, as indices of their examples."""
        rng = np.random.default_rng([self._seed, epoch])
        order = rng.permutation(len(self._fits))
        if len(self._lengths) == 1:
            return list(_cut(order, self._size))
        pools = [pool[np.argsort(self._fits[pool], kind="stable")] for pool in _cut(order, POOL * self._size)]
        # One sequence: cut pool by pool, each pool would have a last batch that is not full.
        found = list(_cut(np.concatenate(pools), self._size))
        return [found[place] for place in rng.permutation(len(found))]


def _cut(rows: Int[np.ndarray, "N"], size: int) -> Iterator[Int[np.ndarray, "n"]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def fitting(features: Any, lengths: Sequence[int]) -> Int[np.ndarray, "N"]:
    """For each row the index of the least of some rising lengths that its tokens fit into."""
    return np.searchsorted(lengths, features.attention_mask.sum(axis=1))


def take(
    table: Mapping[str, np.ndarray], rows: Int[np.ndarray, "n"], size: int, length: int
) -> dict[str, np.ndarray]:
    """Some rows as a batch of a fixed size.

    Args:
        table: arrays [N, ...] by name, those of rank 2 with tokens along their second axis.
        rows: at most `size` of them.
        size: B; missing rows are copies of the first, without a label.
        length: T; tokens beyond it are cut off.

    Returns:
        The batch, and `weight` [B]: 1 for the rows, 0 for what is filled in.
    """
    filled = np.concatenate([rows, np.full(size - len(rows), rows[0], rows.dtype)])
    weight = (np.arange(size) < len(rows)).astype(np.float32)
    found = {}
    for name, array in table.items():
        part = array[filled]
        if part.ndim > 1:
            part = part[:, :length]
        elif np.issubdtype(part.dtype, np.integer):
            part = np.where(weight > 0, part, np.asarray(tasks.NO_LABEL, part.dtype))
        found[name] = part
    return found | {"weight": weight}


def sequential(split: Split, config: Config) -> Iterator[tuple[Int[np.ndarray, "n"], dict[str, np.ndarray]]]:
    """A split's rows in batches for measuring, each row once: their indices, and the batch."""
    lengths = (*config.lengths, split.features.input_ids.shape[1])
    fits = fitting(split.features, lengths)
    table = columns(split.features, config.mask_padding)
    table = {name: array for name, array in table.items() if array.ndim > 1}
    for place, length in enumerate(lengths):
        for rows in _cut(np.flatnonzero(fits == place), config.eval_batch_size):
            batch = take(table, rows, config.eval_batch_size, length)
            del batch["weight"]
            yield rows, batch
