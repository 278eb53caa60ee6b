"""The assignment of questions to batches: permutations, buckets, epochs."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tp_transformer.mathematics.order import BUCKETS, WHOLE, BatchOrder, permute

CHAIN = ((10, 5), (20, 5), (20, 9), (40, 12))


def _lengths(count, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(1, 39, count), rng.integers(1, 11, count)], 1).astype(np.uint8)


@hypothesis.given(st.integers(1, 5000), st.lists(st.integers(0, 2**32), min_size=1, max_size=3))
@hypothesis.settings(deadline=None, max_examples=60)
def test_permute_is_a_permutation(size, key):
    """Every position is hit once; results depend only on the key and each position."""
    places = permute(np.arange(size), size, key)
    np.testing.assert_array_equal(np.sort(places), np.arange(size))
    some = np.arange(size)[:: max(1, size // 7)]
    np.testing.assert_array_equal(permute(some, size, key), places[some])


@pytest.mark.unchecked  # checking the annotations of thousands of calls took most of the time
@pytest.mark.parametrize("size", [5, 16, 17])
def test_permute_is_even(size):
    """Over many keys positions are uniform and neighbours separate (chi-squared, six sigma)."""
    keys = 1200
    table = np.stack([permute(np.arange(size), size, (key,)) for key in range(keys)])
    for column in (0, size // 2, size - 1):
        counts = np.bincount(table[:, column], minlength=size)
        chi = ((counts - keys / size) ** 2 / (keys / size)).sum()
        assert abs(chi - (size - 1)) < 6 * np.sqrt(2 * (size - 1)), (column, chi)
    steps = np.bincount((table[:, 1] - table[:, 0]) % size, minlength=size)[1:]
    chi = ((steps - keys / (size - 1)) ** 2 / (keys / (size - 1))).sum()
    assert abs(chi - (size - 2)) < 6 * np.sqrt(2 * (size - 2))


def test_permute_has_room_for_every_question_there_is():
    """Works for a hundred million positions without computing all of them."""
    size = 112_000_000
    positions = np.arange(0, size, size // 1000)
    places = permute(positions, size, (1, 2))
    assert len(set(places.tolist())) == len(positions)
    assert 0 <= places.min() < size // 100 < 99 * (size // 100) < places.max() < size


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("count", [7, 100, 1003])
@pytest.mark.parametrize("buckets", [CHAIN, CHAIN[2:], ((40, 12),)])
def test_an_epoch_has_every_question_once(shuffle, count, buckets):
    """Except for less than one batch; no question exceeds its bucket."""
    lengths = _lengths(count)
    order = BatchOrder(lengths, 7, buckets=buckets, shuffle=shuffle)
    assert len(order) == count // 7
    assert order.left_out == count % 7
    for epoch in range(3):
        seen = []
        for step in range(epoch * len(order), (epoch + 1) * len(order)):
            bucket, indices = order.batch(step)
            source, target = buckets[bucket]
            assert (lengths[indices] + 2 <= (source, target)).all()
            seen += indices.tolist()
        assert len(set(seen)) == len(seen) == count - count % 7


def test_questions_go_into_the_smallest_bucket_that_fits():
    """Apart from leftovers, batches of a larger bucket contain only questions that need it."""
    lengths = _lengths(5000)
    order = BatchOrder(lengths, 10, buckets=CHAIN)
    smaller = dict.fromkeys(range(len(CHAIN)), 0)
    for step in range(len(order)):
        bucket, indices = order.batch(step)
        if bucket:
            smaller[bucket] += (lengths[indices] + 2 <= CHAIN[bucket - 1]).all(1).sum().item()
    assert all(count < 10 for count in smaller.values()), smaller


def test_epochs_differ_and_seeds_differ():
    """Epochs and seeds change the order of batches and within batches."""
    lengths = _lengths(600)

    def epoch(number, seed):
        order = BatchOrder(lengths, 6, buckets=CHAIN, seed=seed)
        return [order.batch(number * len(order) + step) for step in range(len(order))]

    first, second, other = epoch(0, 0), epoch(1, 0), epoch(0, 1)
    for another in (second, other):
        assert [bucket for bucket, _ in first] != [bucket for bucket, _ in another]
        companions = {frozenset(indices.tolist()) for _, indices in first}
        assert len(companions & {frozenset(indices.tolist()) for _, indices in another}) < 3
    again = epoch(0, 0)
    assert all(a == b and (i == j).all() for (a, i), (b, j) in zip(first, again, strict=True))


def test_a_seed_gives_the_same_order_for_ever():
    """Recorded: another permutation would change the batches of every published run."""
    assert permute(np.arange(12), 12, (1, 2)).tolist() == [3, 4, 7, 10, 1, 9, 0, 2, 8, 6, 11, 5]
    assert permute(np.arange(3), 100_000, (7,)).tolist() == [59038, 36825, 93110]
    assert permute(np.arange(4), 16, (7,)).tolist() == [15, 9, 10, 5]
    assert permute(np.arange(4), 17, (7,)).tolist() == [4, 14, 15, 9]
    order = BatchOrder(_lengths(40), 4, buckets=CHAIN, seed=5)
    recorded = {0: (3, [19, 38, 17, 12]), 3: (3, [13, 18, 15, 37]), 10: (2, [7, 5, 31, 23])}
    recorded[15] = 3, [11, 12, 21, 13]
    for step, (bucket, indices) in recorded.items():
        found = order.batch(step)
        assert (found[0], found[1].tolist()) == (bucket, indices)


def test_a_shuffled_epoch_mixes_the_buckets():
    """Short and long batches alternate, since a run of one length would bias the gradient."""
    lengths = np.repeat(np.asarray([[3, 1], [30, 1]], np.uint8), 500, axis=0)
    order = BatchOrder(lengths, 10, buckets=CHAIN)
    of_step = np.asarray([order.batch(step)[0] for step in range(len(order))])
    assert 30 < np.count_nonzero(np.diff(of_step)) < 70  # 50 expected; 6 sigma is 30


def test_unshuffled_and_whole():
    """For evaluation: every question in the given order, the last batch padded with -1."""
    lengths = _lengths(23)
    order = BatchOrder(lengths, 5, buckets=WHOLE, shuffle=False, keep_last=True)
    batches = [order.batch(step)[1] for step in range(len(order))]
    assert len(batches) == 5
    np.testing.assert_array_equal(np.concatenate(batches), [*range(23), -1, -1])
    one = BatchOrder(lengths[:3], 5, shuffle=False, keep_last=True)
    np.testing.assert_array_equal(one.batch(0)[1][-2:], [-1, -1])
    for count, batches in ((20, 4), (21, 5)):
        assert len(BatchOrder(_lengths(count), 5, shuffle=False, keep_last=True)) == batches
    with_buckets = BatchOrder(lengths, 5, buckets=CHAIN, shuffle=False, keep_last=True)
    everything = np.concatenate([with_buckets.batch(step)[1] for step in range(len(with_buckets))])
    assert sorted(everything.tolist()) == [-1, -1, *range(23)]


def test_an_incomplete_batch_is_no_longer_than_its_questions_need():
    """Larger buckets without a question are not used, which would compile a program for nothing."""
    lengths = np.full((7, 2), 3, np.uint8)
    order = BatchOrder(lengths, 4, buckets=((5, 5), (20, 20), (162, 32)), shuffle=False, keep_last=True)
    assert [order.batch(step)[0] for step in range(len(order))] == [0, 0]
    with pytest.raises(ValueError, match="batch_size: got 4, expected at most 0, all questions"):
        BatchOrder(lengths[:0], 4, keep_last=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: got 0, expected at least 1"),
        ({"batch_size": 21}, "batch_size: got 21, expected at most 20, all questions"),
        ({"seed": -1}, "seed: got -1, expected at least 0"),
        ({"buckets": ()}, "buckets: got"),
        ({"buckets": ((20, 2),)}, "lengths of at least 3"),
        ({"buckets": ((20, 12), (40, 11))}, r"got \(20, 12\) before \(40, 11\)"),
        ({"buckets": ((40, 11), (20, 12))}, r"got \(40, 11\) before \(20, 12\)"),
        ({"buckets": ((20, 12), (20, 12))}, "expected increasing lengths"),
        (
            {"buckets": ((39, 12),)},
            r"got \(39, 12\) .*, expected room for question 4, whose 38 and 1 characters",
        ),
    ],
)
def test_refusals(arguments, message):
    """Sizes and buckets are checked by the constructor."""
    lengths = np.asarray([[5, 5]] * 20, np.uint8)
    lengths[4] = 38, 1
    with pytest.raises(ValueError, match=message):
        BatchOrder(lengths, **({"batch_size": 4} | arguments))
    with pytest.raises(ValueError, match=r"step: got .*, expected at least 0"):
        BatchOrder(lengths, 4).batch(-1)


def test_the_smallest_buckets_hold_one_character():
    """With start and end; the next one may be longer in one of both only."""
    buckets = ((3, 3), (3, 4), (5, 4))
    order = BatchOrder(np.asarray([[1, 1], [1, 2], [3, 2]], np.uint8), 1, buckets=buckets, shuffle=False)
    assert [order.batch(step)[0] for step in range(3)] == [0, 1, 2]


def test_default_buckets_hold_every_question():
    """160 and 30 characters fit with start and end."""
    assert BUCKETS[-1:] == WHOLE == ((162, 32),)
    BatchOrder(np.asarray([[160, 30]] * 4, np.uint8), 4)
