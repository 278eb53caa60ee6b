"""Windows: they have every piece, and the best one of a piece is found by looking at all."""

from typing import Any

import numpy as np
import pytest

from folnet.tasks import windows


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_windows_reach_the_end_and_no_further(stride):
    for pieces in range(14):
        starts = list(windows.starts(pieces, 5, stride))
        assert starts == [number * stride for number in range(len(starts))]
        assert {*range(pieces)} == {at for start in starts for at in range(start, min(start + 5, pieces))}
        assert len(starts) == 1 or starts[-2] + 5 < pieces


def test_strides_and_queries_fit_into_small_windows():
    assert windows.fitted(384, 128, 64) == (128, 64)
    assert windows.fitted(64, 128, 64) == (20, 21)
    assert windows.fitted(8, 128, 64) == (1, 2)
    assert windows.fitted(4, 128, 64) == (1, 1)
    assert windows.fitted(128, 10) == (10, 0)


def test_the_best_window_of_a_token_has_the_larger_smaller_context():
    rng = np.random.default_rng(0)
    owner, first, count = [], [], []
    for text in range(4):
        pieces = int(rng.integers(1, 20))
        for start in windows.starts(pieces, 6, int(rng.integers(1, 6))):
            owner.append(text)
            first.append(start)
            count.append(min(6, pieces - start))
    column = rng.integers(0, 3, len(owner))
    arrays: list[Any] = [np.asarray(values, np.int32) for values in (owner, first, count, column)]
    found = windows.best(*arrays, length=9)
    for text in range(4):
        mine = [row for row in range(len(owner)) if owner[row] == text]
        for piece in range(max(first[row] + count[row] for row in mine)):
            inside = [row for row in mine if first[row] <= piece < first[row] + count[row]]
            scores = [min(piece - first[row], first[row] + count[row] - 1 - piece) + 0.01 * count[row]
                      for row in inside]  # fmt: skip
            best = inside[int(np.argmax(scores))]
            there = [row for row in inside if found[row, column[row] + piece - first[row]]]
            assert there == [best]
    assert found.sum() == sum(max(f + c for o, f, c in zip(owner, first, count, strict=True) if o == text)
                              for text in range(4))  # fmt: skip
