"""Batches of the Mathematics Dataset for training and evaluation, with Grain."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from tp_transformer.mathematics.modules import check_modules
from tp_transformer.mathematics.order import BUCKETS, BatchOrder
from tp_transformer.mathematics.questions import Question
from tp_transformer.mathematics.sources import Joined, Source
from tp_transformer.mathematics.vocabulary import DEFAULT, Vocabulary

if TYPE_CHECKING:
    import grain

_ENDLESS = 2**40


class Batch(NamedTuple):
    """Questions and answers as arrays. Axes: B questions, S and T the bucket's lengths."""

    source: Int32[np.ndarray, "B S"]
    """Start, question, end, padding."""

    target: Int32[np.ndarray, "B T"]
    """Start, answer, end, padding: the decoder is given [:, :-1] and learns [:, 1:]."""

    module: Int32[np.ndarray, "B"]
    """Which of `Batches.modules`."""

    index: Int32[np.ndarray, "B"]
    """Which of the questions; -1 in a row that has none (its target is padding behind the start)."""

    @property
    def valid(self) -> Bool[np.ndarray, "B"]:
        """Rows that have a question."""
        return self.index >= 0


class Batches:
    """The batches of a split; `batches[step]` is a function of the step and the arguments below, nothing
    else.

    With several hosts each gives its own rows of every batch; all rows of a batch, on all hosts, have one
    shape.
    """

    def __init__(
        self,
        source: Source,
        split: str,
        modules: Sequence[str] | None = None,
        *,
        batch_size: int,
        buckets: Sequence[tuple[int, int]] = BUCKETS,
        seed: int = 0,
        shuffle: bool = True,
        keep_last: bool = False,
        process_index: int = 0,
        process_count: int = 1,
        vocabulary: Vocabulary = DEFAULT,
    ):
        """Opens the questions and plans their batches.

        Args:
            source: where questions come from.
            split: "train" (the three levels as one, as in the paper), one of them, or a test split.
            modules: which; by default all the source has. Each has a share in proportion to its questions.
            batch_size: questions a batch, over all hosts, B.
            buckets: lengths (source, target) of batches; `WHOLE` mixes all lengths.
            seed: of the order.
            shuffle: another order in each epoch.
            keep_last: also give the last batch of an epoch if it is incomplete. For evaluation.
            process_index: which host this is.
            process_count: how many there are; must divide `batch_size`.
            vocabulary: characters to ids.

        Raises:
            ValueError: an argument is wrong or a file damaged; see `Source` and `BatchOrder`.
        """
        if not 0 <= process_index < process_count:
            raise ValueError(f"process_index must be in 0 .. {process_count - 1}, got {process_index}")
        if batch_size % process_count:
            raise ValueError(f"batch_size={batch_size} must be a multiple of process_count={process_count}")
        have = source.modules(split)
        if not have:
            raise ValueError(f"source must have questions of {split}; it has no module of that split")
        self.split = split
        self.modules = check_modules(split, have if modules is None else modules)
        """Names of the modules, by `Batch.module`."""
        self.vocabulary = vocabulary
        self._questions = Joined([source.questions(split, module) for module in self.modules])
        self._ends = np.cumsum([len(part) for part in self._questions.parts])
        self.order = BatchOrder(
            self._questions.lengths(),
            batch_size,
            buckets=buckets,
            seed=seed,
            shuffle=shuffle,
            keep_last=keep_last,
        )
        rows = batch_size // process_count
        self._rows = slice(process_index * rows, (process_index + 1) * rows)

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.order)

    @property
    def num_questions(self) -> int:
        """Questions in all."""
        return len(self._questions)

    def question(self, index: int) -> Question:
        """The text behind `Batch.index`."""
        return self._questions[index]

    def __getitem__(self, step: int) -> Batch:
        """The rows this host has of the batch at a step of the whole training, over all epochs."""
        bucket, indices = self.order.batch(step)
        indices = indices[self._rows]
        source_length, target_length = self.order.buckets[bucket]
        there = indices >= 0
        pairs = self._questions.take(indices[there].tolist())
        vocabulary = self.vocabulary
        source = np.full((len(indices), source_length), vocabulary.pad, np.int32)
        target = np.full((len(indices), target_length), vocabulary.pad, np.int32)
        source[:, :2] = vocabulary.start, vocabulary.end  # a row without a question attends to something
        target[:, 0] = vocabulary.start
        source[there] = vocabulary.encode_batch([pair.question for pair in pairs], source_length)
        target[there] = vocabulary.encode_batch([pair.answer for pair in pairs], target_length)
        module = np.searchsorted(self._ends, np.maximum(indices, 0), side="right")
        return Batch(source, target, module.astype(np.int32), indices.astype(np.int32))

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the first epoch."""
        return map(self.__getitem__, range(len(self)))

    def dataset(
        self, steps: int | None = None, *, threads: int = 2, ahead: int = 4, workers: int = 0
    ) -> "grain.IterDataset[Batch]":
        """The batches as a Grain dataset that works ahead.

        Its iterators know their position (`get_state`, `set_state`): a small dictionary to save with a
        checkpoint, the same on all hosts. Or give no thought to it: the batch of a step is `batches[step]`.

        Args:
            steps: how many batches; without end by default.
            threads: that read and encode at the same time.
            ahead: batches made in advance.
            workers: other processes that do so. A thread or two are enough unless steps are very short.
        """
        for name, value, least in (("threads", threads, 1), ("ahead", ahead, 1), ("workers", workers, 0)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if steps is not None and steps < 0:
            raise ValueError(f"steps must be at least 0, got {steps}")
        import grain  # here: `batches[step]` needs nothing of it

        numbers = grain.MapDataset.range(_ENDLESS if steps is None else steps)
        batches = numbers.map(self.__getitem__).to_iter_dataset(
            grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(ahead, threads))
        )
        if workers:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        return batches
