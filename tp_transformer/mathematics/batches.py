"""Batches of the Mathematics Dataset for training and evaluation.

Axis letters: B questions, S and T lengths of the bucket.
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, SupportsIndex

import numpy as np
from jaxtyping import Bool, Int32

import logic_zoo
from tp_transformer.mathematics.modules import Split, check_modules
from tp_transformer.mathematics.order import BUCKETS, BatchOrder
from tp_transformer.mathematics.questions import Question
from tp_transformer.mathematics.sources import Joined, Source
from tp_transformer.mathematics.vocabulary import DEFAULT, Vocabulary

if TYPE_CHECKING:
    from grain import IterDataset
else:  # Grain takes a second to import, which `dataset` does
    IterDataset = Iterable

_ENDLESS = 2**40


class Batch(NamedTuple):
    """A batch of questions and answers as arrays."""

    source: Int32[np.ndarray, "B S"]
    """Start, question, end, padding."""

    target: Int32[np.ndarray, "B T"]
    """Start, answer, end, padding: [:, :-1] is the decoder's input, [:, 1:] its labels."""

    module: Int32[np.ndarray, "B"]
    """Indices into `Batches.modules`."""

    index: Int32[np.ndarray, "B"]
    """Indices of the questions; -1 in an unused row (whose target is start and padding)."""

    @property
    def valid(self) -> Bool[np.ndarray, "B"]:
        """True in rows that have a question."""
        return self.index >= 0


class Batches:
    """The batches of a split; `batches[step]` is a function of the step and the constructor's arguments.

    With several hosts, each one returns its own rows of every batch; all rows of a batch have the same shape
    on all hosts.
    """

    def __init__(
        self,
        source: Source,
        split: Split,
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
        """Opens the questions and assigns them to batches.

        Args:
            source: source of questions.
            split: "train" (the three levels combined, as in the paper), one of the levels, or a test split.
            modules: names of modules; by default all modules of the source. Modules are mixed in proportion
                to their numbers of questions.
            batch_size: B, the number of questions per batch over all hosts.
            buckets: lengths (source, target) of batches; `WHOLE` mixes all lengths.
            seed: seed of the order.
            shuffle: whether to use another order in each epoch.
            keep_last: whether to include the last batch of an epoch if it is incomplete, for evaluation.
            process_index: index of this host.
            process_count: number of hosts; must divide `batch_size`.
            vocabulary: maps characters to ids.

        Raises:
            ValueError: an argument is invalid or a file is damaged; see `Source` and `BatchOrder`.
        """
        if not 0 <= process_index < process_count:
            raise ValueError(f"process_index: got {process_index}, expected 0 to {process_count - 1}")
        if batch_size % process_count:
            raise ValueError(f"batch_size: got {batch_size}, expected a multiple of {process_count=}")
        have = source.modules(split)
        if not have:
            raise ValueError(f"source: got no module of {split}, expected at least one")
        self.split = split
        own = modules is None or (modules and set(have).issuperset(modules))  # of a source of other questions
        self.modules = tuple(dict.fromkeys(modules or have)) if own else check_modules(split, modules)
        """Names of the modules that `Batch.module` refers to."""
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
        """Returns the number of batches per epoch."""
        return len(self.order)

    @property
    def num_questions(self) -> int:
        """Number of questions in all modules."""
        return len(self._questions)

    def question(self, index: SupportsIndex) -> Question:
        """Returns the text of a question by its `Batch.index`."""
        return self._questions[operator.index(index)]

    def __getitem__(self, step: int) -> Batch:
        """Returns this host's rows of the batch at a step, counted over all epochs."""
        bucket, indices = self.order.batch(step)
        indices = indices[self._rows]
        source_length, target_length = self.order.buckets[bucket]
        there = indices >= 0
        pairs = self._questions.take(indices[there].tolist())
        vocabulary = self.vocabulary
        source = np.full((len(indices), source_length), vocabulary.pad, np.int32)
        target = np.full((len(indices), target_length), vocabulary.pad, np.int32)
        source[:, :2] = (
            vocabulary.start,
            vocabulary.end,
        )  # gives attention in unused rows something to attend to
        target[:, 0] = vocabulary.start
        source[there] = vocabulary.encode_batch([pair.question for pair in pairs], source_length)
        target[there] = vocabulary.encode_batch([pair.answer for pair in pairs], target_length)
        module = np.searchsorted(self._ends, indices, side="right")
        return Batch(source, target, module.astype(np.int32), indices.astype(np.int32))

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over the batches of the first epoch."""
        return map(self.__getitem__, range(len(self)))

    def dataset(
        self, steps: int | None = None, *, threads: int = 2, ahead: int = 4, workers: int = 0
    ) -> IterDataset[Batch]:
        """Returns the batches as a Grain dataset that prepares them in advance.

        The position of its iterators (`get_state`, `set_state`) is a small dictionary, the same on all hosts,
        that can be saved with a checkpoint. This is optional, since the batch of a step is `batches[step]`.

        Args:
            steps: number of batches; unlimited by default.
            threads: number of threads that read and encode.
            ahead: number of batches prepared in advance.
            workers: number of additional processes. One or two threads suffice unless steps are very short.
        """
        for name, value, least in (("threads", threads, 1), ("ahead", ahead, 1), ("workers", workers, 0)):
            if value < least:
                raise ValueError(f"{name}: got {value}, expected at least {least}")
        if steps is not None and steps < 0:
            raise ValueError(f"steps: got {steps}, expected at least 0")
        with logic_zoo.extra("data"):
            import grain

        numbers = grain.MapDataset.range(_ENDLESS if steps is None else steps)
        batches = numbers.map(self.__getitem__).to_iter_dataset(
            grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(ahead, threads))
        )
        if workers:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        return batches
