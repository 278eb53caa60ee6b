"""Rows of a text, or of inputs and targets, and their batches as a function of the step."""

import abc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import logic_zoo
from folnet.objective import IGNORED
from folnet.pretraining import Windows, is_held_out
from folnet.tasks import pairs as pair_files
from folnet.tasks.pairs import Pair
from folnet.tokenization import WordPieceTokenizer

Batch = dict[str, np.ndarray]


class Rows(abc.ABC):
    """N rows of model inputs and labels."""

    truncated: dict[str, int]
    """By kind of text, how many were cut off."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def take(self, indices: Sequence[int]) -> Batch:
        """Returns some rows as arrays by name; `labels` [n, T] has -100 where no word counts."""


class TextRows(Rows):
    """The windows of a text: [CLS] window, and [SEP] where its document ends.

    `labels` are the words of `input_ids`; the model predicts each from those before it.
    """

    def __init__(self, windows: Windows, tokenizer: WordPieceTokenizer):
        """Reads nothing yet."""
        self.windows, self._tokenizer, self.truncated = windows, tokenizer, {}
        # A packed row has no end of its own: its documents are separated already.
        self.width = windows.room + (1 if windows.packing == "corpus" else 2)

    def __len__(self) -> int:
        return len(self.windows)

    def take(self, indices: Sequence[int]) -> Batch:
        ids = np.full((len(indices), self.width), self._tokenizer.pad_id, np.int32)
        labels = np.full_like(ids, IGNORED[0])
        for row, window in enumerate(self.windows.take(indices)):
            ends = [self._tokenizer.sep_id] if window.place == window.count - 1 else []
            tokens = [self._tokenizer.cls_id, *window.tokens.tolist(), *ends]
            ids[row, : len(tokens)] = labels[row, : len(tokens)] = tokens
        return {"input_ids": ids, "labels": labels}


class PairRows(Rows):
    """Inputs, [CLS] tokens [SEP], and targets, tokens [SEP]; the decoder starts with [CLS]."""

    def __init__(self, pairs: Sequence[Pair], tokenizer: WordPieceTokenizer, length: int, target_length: int):
        """Tokenizes all pairs, with so many tokens at most in an input and in a target."""
        inputs = tokenizer.ids([pair.input for pair in pairs])
        targets = tokenizer.ids([pair.target for pair in pairs])
        self.pairs = pairs
        self.truncated = {
            "inputs": sum(len(row) + 2 > length for row in inputs),
            "targets": sum(len(row) + 1 > target_length for row in targets),
        }
        made = tokenizer.assemble(inputs, length=min(length, 2 + max(map(len, inputs))))
        width = min(target_length, 1 + max(map(len, targets)))
        labels = np.full((len(pairs), width), IGNORED[0], np.int32)
        given = np.full_like(labels, tokenizer.pad_id)
        given[:, 0] = tokenizer.cls_id
        for row, tokens in enumerate(targets):
            words = [*tokens, tokenizer.sep_id][:width]
            labels[row, : len(words)] = words
            given[row, 1 : len(words)] = words[:-1]
        self._arrays = {
            "input_ids": made.input_ids,
            "attention_mask": made.attention_mask,
            "decoder_input_ids": given,
            "labels": labels,
        }

    def __len__(self) -> int:
        return len(self.pairs)

    def take(self, indices: Sequence[int]) -> Batch:
        return {name: array[np.asarray(indices, np.int64)] for name, array in self._arrays.items()}


class Data(NamedTuple):
    """The rows to train on and to measure with, and their tokenizer."""

    train: Rows
    held_out: Rows
    tokenizer: WordPieceTokenizer


def read_pairs(
    source: str, validation: str, held_out: float, input: str, target: str
) -> tuple[list[Pair], list[Pair]]:
    """Reads the pairs to train on and to measure with; see `folnet.tasks.pairs`.

    Args:
        source: the file to train on.
        validation: the file to measure with; "" holds out a fraction of the rows of `source`, those of equal
            inputs together.
        held_out: this fraction.
        input: column of the inputs, or "".
        target: column of the targets, or "".

    Raises:
        ValueError: a file is damaged, or one of the parts is empty.
    """
    every = pair_files.read(Path(source).expanduser(), input, target)
    if validation:
        return every, pair_files.read(Path(validation).expanduser(), input, target)
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for pair in every:
        parts[is_held_out(pair.input, held_out)].append(pair)
    if not all(parts):
        raise ValueError(
            f"data.held_out: got {held_out}, expected a fraction that leaves rows of {source} on both sides, "
            f"not {len(parts[0])} to train on and {len(parts[1])} held out; or a --validation file"
        )
    return parts


class Batches:
    """`batches(step)` of a run: epochs follow each other without a gap, each a permutation of the rows.

    A batch is a function of the seed and the step, so a resumed run sees the batches it would have seen.
    """

    def __init__(self, rows: Rows, batch_size: int, *, seed: int, process: int = 0, processes: int = 1):
        """Plans the batches; `process` of so many gets its rows of each.

        Raises:
            ValueError: the processes do not divide the batch.
        """
        if batch_size % processes:
            raise ValueError(f"batch_size: got {batch_size}, expected a multiple of {processes} processes")
        with logic_zoo.extra("data"):
            import grain  # lazily, since it is slow to import

        self._rows, self._size, each = rows, batch_size, batch_size // processes
        self._own = range(process * each, (process + 1) * each)
        self._order: Any = grain.MapDataset.range(len(rows)).shuffle(seed=seed).repeat()

    def __call__(self, step: int) -> Batch:
        """Returns this process's rows of the batch of a step, counted from 0."""
        return self._rows.take([int(self._order[step * self._size + row]) for row in self._own])


def in_order(rows: Rows, size: int, most: int = 0) -> Iterator[Batch]:
    """Yields the rows once, in batches of `size`; the last is filled with rows without labels.

    With `most`, at most so many batches of evenly spaced rows.
    """
    count = min(len(rows), most * size) if most else len(rows)
    chosen = [place * len(rows) // count for place in range(count)]
    for start in range(0, count, size):
        batch = rows.take(chosen[start : start + size])
        missing = size - len(batch["labels"])
        fill = {"labels": np.full((missing, batch["labels"].shape[1]), IGNORED[0], np.int32)}
        yield {
            name: np.concatenate([array, fill.get(name, np.repeat(array[:1], missing, axis=0))])
            for name, array in batch.items()
        }
