"""Assignment of questions to batches: shuffled, grouped by length into few shapes, a function of the step.

A batch is padded to its longest question and answer. To compile few shapes and pad little, questions are put
into buckets, each with a length for the source and one for the target, and a batch comes from one bucket.
Questions left over in a bucket move to the next larger one, so that an epoch leaves out less than one batch
in total.

There is no state between steps. Every shuffle is a permutation that is computed position by position, so any
batch of any epoch can be computed directly, on any host, and the step is the position in the data.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, Integer, UInt8, UInt32

from tp_transformer.mathematics.vocabulary import MAX_ANSWER, MAX_QUESTION

WHOLE = ((MAX_QUESTION + 2, MAX_ANSWER + 2),)
"""A single shape, which mixes questions of all lengths, as in the paper's batches."""

BUCKETS = ((40, 12), (64, 14), (96, 18), (120, 26), *WHOLE)
"""Lengths (source, target), including start and end.

Of all increasing chains of five buckets these need the least padding for the whole training set: 73 of 100
symbols belong to a question or an answer, compared with 39 for a single shape. Eight buckets would reach 78.
"""

_ROUNDS = 6
_WORD = 0xBF58476D1CE4E5B9  # odd; from Steele et al.'s SplitMix64, as are the shifts


def permute(positions: Integer[np.ndarray, "N"], size: int, key: Sequence[int]) -> Int64[np.ndarray, "N"]:
    """Applies a pseudo-random permutation of 0 .. size - 1 to positions, without storing the permutation.

    A Feistel network permutes the smallest power of four that is at least `size`; results beyond `size` are
    sent through it again until they are in range (cycle walking), which keeps it a permutation. The
    nonnegative integers of `key` select it.
    """
    values = np.asarray(positions, np.uint64)
    half = ((size - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    keys = np.random.SeedSequence(list(key)).generate_state(_ROUNDS, np.uint64)
    result = values.copy()
    outside = np.arange(len(values))
    while len(outside):
        left, right = result[outside] >> half, result[outside] & mask
        for round_key in keys:
            mixed = (right ^ round_key) * _WORD
            mixed ^= mixed >> 31
            mixed *= _WORD
            left, right = right, left ^ (mixed >> 27) & mask
        result[outside] = left << half | right
        outside = outside[result[outside] >= size]
    return result.astype(np.int64)


def check_buckets(buckets: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Returns the buckets as tuples; raises ValueError if they do not increase or are too short."""
    buckets = tuple((int(source), int(target)) for source, target in buckets)
    if not buckets or min(map(min, buckets)) < 3:
        raise ValueError(
            f"buckets: got {buckets}, expected one or more (source, target) lengths of at least 3"
        )
    for small, large in itertools.pairwise(buckets):
        if small == large or small[0] > large[0] or small[1] > large[1]:
            raise ValueError(f"buckets: got {small} before {large}, expected increasing lengths")
    return buckets


class BatchOrder:
    """The order of questions in batches of one or more epochs."""

    def __init__(
        self,
        lengths: UInt8[np.ndarray, "N 2"],
        batch_size: int,
        *,
        buckets: Sequence[tuple[int, int]] = BUCKETS,
        seed: int = 0,
        shuffle: bool = True,
        keep_last: bool = False,
    ):
        """Puts questions into buckets.

        Args:
            lengths: numbers of characters of all questions and answers.
            batch_size: B, the number of questions per batch.
            buckets: increasing lengths (source, target) of batches, including start and end.
            seed: seed of the shuffles.
            shuffle: whether to use another order in each epoch; otherwise questions are in the given order
                within each bucket.
            keep_last: whether to include the last, incomplete batch.

        Raises:
            ValueError: a question is longer than the last bucket, or there are too few questions for a batch.
        """
        self.buckets = check_buckets(buckets)
        self.batch_size, self.seed, self.shuffle = batch_size, seed, shuffle
        if batch_size < 1:
            raise ValueError(f"batch_size: got {batch_size}, expected at least 1")
        if seed < 0:
            raise ValueError(f"seed: got {seed}, expected at least 0")
        bucket = np.zeros(len(lengths), np.uint8)
        for source, target in self.buckets:
            bucket += (lengths[:, 0] > source - 2) | (lengths[:, 1] > target - 2)
        if len(lengths) and int(bucket.max()) == len(self.buckets):
            row = int(bucket.argmax())
            raise ValueError(
                f"buckets: got {self.buckets[-1]} for the longest, expected room for question {row}, whose "
                f"{lengths[row, 0]} and {lengths[row, 1]} characters need two more for start and end"
            )
        self._own = np.bincount(bucket, minlength=1)  # up to the largest bucket that is needed
        self._first = np.cumsum(self._own) - self._own
        self._sorted = self._sort(bucket) if len(self.buckets) > 1 else None
        self._pool, self._full = [], []
        left = 0
        for own in self._own.tolist():
            self._pool.append(own + left)
            full, left = divmod(own + left, batch_size)
            self._full.append(full)
        self.left_out = 0 if keep_last else left
        """Number of questions that an epoch leaves out."""
        counts = [*self._full[:-1], self._full[-1] + (keep_last and left > 0)]
        self._ends = np.cumsum(counts)
        if not len(self):
            raise ValueError(f"batch_size: got {batch_size}, expected at most {len(lengths)}, all questions")

    def _sort(self, bucket: UInt8[np.ndarray, "N"]) -> UInt32[np.ndarray, "N"]:
        """Sorts the questions by bucket; an argsort would temporarily need four times the memory."""
        order = np.empty(len(bucket), np.uint32)
        for number, (first, own) in enumerate(zip(self._first, self._own, strict=True)):
            order[first : first + own] = np.flatnonzero(bucket == number)
        return order

    def __len__(self) -> int:
        """Returns the number of batches per epoch."""
        return int(self._ends[-1])

    def batch(self, step: int) -> tuple[int, Int64[np.ndarray, "B"]]:
        """Returns the bucket and the questions' indices of a step's batch; steps count over all epochs.

        In an incomplete batch, unused rows have index -1.
        """
        if step < 0:
            raise ValueError(f"step: got {step}, expected at least 0")
        epoch, place = divmod(step, len(self))
        if self.shuffle:
            place = int(permute(np.asarray([place]), len(self), (self.seed, epoch, len(self.buckets)))[0])
        bucket = int(np.searchsorted(self._ends, place, side="right"))
        number = place - (int(self._ends[bucket - 1]) if bucket else 0)
        positions = number * self.batch_size + np.arange(self.batch_size)
        indices = np.full(self.batch_size, -1)
        there = positions < self._pool[bucket]
        indices[there] = self._questions(epoch, bucket, positions[there])
        return bucket, indices

    def _questions(
        self, epoch: int, bucket: int, positions: Int64[np.ndarray, "n"]
    ) -> Int64[np.ndarray, "n"]:
        """Returns the questions at positions of a bucket's pool: its own, then leftovers of smaller ones."""
        if self.shuffle:
            positions = permute(positions, self._pool[bucket], (self.seed, epoch, bucket))
        own = positions < self._own[bucket]
        found = np.empty(len(positions), np.int64)
        found[own] = positions[own] + self._first[bucket]
        if self._sorted is not None:  # with a single bucket, indices are 0, 1, 2 ...
            found[own] = self._sorted[found[own]]
        if not own.all():
            behind = self._full[bucket - 1] * self.batch_size
            found[~own] = self._questions(epoch, bucket - 1, positions[~own] - self._own[bucket] + behind)
        return found
