"""Which questions are in which batch: shuffled, by length, in few shapes, as a function of the step alone.

A batch is padded to its longest question and answer. So that few shapes are compiled and little is padded,
questions are put into buckets, each with a length for the source and one for the target. A batch comes from
one bucket; what a bucket has left over goes to the next larger one, so that an epoch leaves out less than one
batch in all.

Nothing is kept between steps. Every shuffle is a permutation that is computed position by position, so any
batch of any epoch is found at once, on any host, and the position in the data is the step.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64, UInt8, UInt32

from tp_transformer.mathematics.vocabulary import MAX_ANSWER, MAX_QUESTION

WHOLE = ((MAX_QUESTION + 2, MAX_ANSWER + 2),)
"""One shape for all, as batches in the paper are: any question beside any other."""

BUCKETS = ((40, 12), (64, 14), (96, 18), (120, 26), *WHOLE)
"""Lengths (source, target), with start and end.

Of all growing chains of five these pad the whole training set least: 73 of 100 symbols are a question's or an
answer's, against 39 with one shape. Eight would make it 78.
"""

_ROUNDS = 6
_WORD = np.uint64(0xBF58476D1CE4E5B9)  # odd; of Steele et al.'s SplitMix64, as are the shifts


def permute(positions: np.ndarray, size: int, key: Sequence[int]) -> Int64[np.ndarray, "N"]:
    """Where a pseudo-random permutation of 0 .. size - 1 takes positions, without ever writing it out.

    A Feistel network permutes the smallest power of four that is at least `size`; what falls beyond `size` is
    sent through it again until it does not (cycle walking), which keeps it a permutation. The key's integers,
    none negative, choose it.
    """
    values = np.asarray(positions, np.uint64)
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    keys = np.random.SeedSequence(list(key)).generate_state(_ROUNDS, np.uint64)
    result = values.copy()
    outside = np.arange(len(values))
    while len(outside):
        left, right = result[outside] >> bits, result[outside] & mask
        for round_key in keys:
            mixed = (right ^ round_key) * _WORD
            mixed ^= mixed >> np.uint64(31)
            mixed *= _WORD
            left, right = right, left ^ (mixed >> np.uint64(27)) & mask
        result[outside] = left << bits | right
        outside = outside[result[outside] >= size]
    return result.astype(np.int64)


def check_buckets(buckets: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The buckets; ValueError if they do not grow, or are too short for any question."""
    buckets = tuple((int(source), int(target)) for source, target in buckets)
    if not buckets or min(map(min, buckets)) < 3:
        raise ValueError(f"buckets must be (source, target) lengths of at least 3, some; got {buckets}")
    for small, large in itertools.pairwise(buckets):
        if small == large or small[0] > large[0] or small[1] > large[1]:
            raise ValueError(f"buckets must grow in both lengths, got {small} before {large}")
    return buckets


class BatchOrder:
    """The order of questions in batches."""

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
            lengths: characters of every question and answer [N, 2].
            batch_size: questions a batch, B.
            buckets: lengths (source, target) of the batches, growing; with start and end.
            seed: of the shuffles.
            shuffle: another order in each epoch; otherwise by bucket and in the given order.
            keep_last: also give the last, incomplete batch.

        Raises:
            ValueError: a question is longer than the last bucket, or there is not a single batch.
        """
        self.buckets = check_buckets(buckets)
        self.batch_size, self.seed, self.shuffle = batch_size, seed, shuffle
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        bucket = np.zeros(len(lengths), np.uint8)
        for source, target in self.buckets:
            bucket += (lengths[:, 0] > source - 2) | (lengths[:, 1] > target - 2)
        if len(lengths) and int(bucket.max()) == len(self.buckets):
            row = int(bucket.argmax())
            raise ValueError(
                f"buckets must have room for every question: number {row} has {lengths[row, 0]} and its "
                f"answer {lengths[row, 1]} characters; with start and end they exceed {self.buckets[-1]}"
            )
        self._own = np.bincount(bucket, minlength=len(self.buckets))
        self._first = np.cumsum(self._own) - self._own
        self._sorted = self._sort(bucket) if len(self.buckets) > 1 else None
        self._pool, self._full = [], []
        left = 0
        for own in self._own.tolist():
            self._pool.append(own + left)
            full, left = divmod(own + left, batch_size)
            self._full.append(full)
        self.left_out = 0 if keep_last else left
        """Questions without a batch in an epoch."""
        counts = [*self._full[:-1], self._full[-1] + (keep_last and left > 0)]
        self._ends = np.cumsum(counts)
        if not len(self):
            raise ValueError(f"batch_size must be at most the {len(lengths)} questions, got {batch_size}")

    def _sort(self, bucket: UInt8[np.ndarray, "N"]) -> UInt32[np.ndarray, "N"]:
        """The questions by bucket; an argsort would need four times the memory for a moment."""
        order = np.empty(len(bucket), np.uint32)
        for number, (first, own) in enumerate(zip(self._first, self._own, strict=True)):
            order[first : first + own] = np.flatnonzero(bucket == number)
        return order

    def __len__(self) -> int:
        """Batches an epoch."""
        return int(self._ends[-1])

    def batch(self, step: int) -> tuple[int, Int64[np.ndarray, "B"]]:
        """The bucket of a step's batch, counted over all epochs, and the indices of its questions.

        An incomplete batch has index -1 where it has no question.
        """
        if step < 0:
            raise ValueError(f"step must be at least 0, got {step}")
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

    def _questions(self, epoch: int, bucket: int, positions: np.ndarray) -> np.ndarray:
        """The questions at positions of a bucket's pool: its own, then what the smaller ones left over."""
        if not len(positions):
            return positions
        if self.shuffle:
            positions = permute(positions, self._pool[bucket], (self.seed, epoch, bucket))
        own = positions < self._own[bucket]
        found = np.empty(len(positions), np.int64)
        found[own] = positions[own] + self._first[bucket]
        if self._sorted is not None:  # with one bucket they are 0, 1, 2 ...
            found[own] = self._sorted[found[own]]
        if not own.all():
            behind = self._full[bucket - 1] * self.batch_size
            found[~own] = self._questions(epoch, bucket - 1, positions[~own] - self._own[bucket] + behind)
        return found
