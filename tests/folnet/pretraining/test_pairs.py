"""Where windows are cut, and how second segments are replaced."""

import numpy as np
import pytest
from scipy import stats

from folnet.pretraining.pairs import (
    another_document,
    check_objective,
    cut,
    cut_in_the_middle,
    segment_of,
)
from folnet.pretraining.windows import MemoryWindows, Window
from tests.folnet.small_text import split

LEAST_P = 1e-4


def window(size, starts=(), place=0, count=1):
    return Window(np.arange(size, dtype=np.uint16), np.asarray(starts, np.uint16), place, count)


@pytest.mark.parametrize("size", [124, 125])
def test_the_released_cut(size):
    """Chi-squared tests of n // 2 - 1 plus or minus Geometric(0.2)."""
    rng = np.random.default_rng(0)
    shifts = np.asarray([cut_in_the_middle(size, rng) for _ in range(8000)]) - (size // 2 - 1)
    assert 0 not in shifts
    assert stats.binomtest(int((shifts > 0).sum()), len(shifts)).pvalue > LEAST_P
    counts = np.bincount(np.abs(shifts), minlength=16)
    observed = [*counts[1:15], counts[15:].sum()]
    expected = [0.2 * 0.8 ** (step - 1) for step in range(1, 15)]
    expected.append(1 - sum(expected))
    assert stats.chisquare(observed, np.asarray(expected) * len(shifts)).pvalue > LEAST_P


@pytest.mark.parametrize("size", [2, 3, 5])
def test_both_halves_have_a_token(size):
    """Including the smallest windows, where the released code may leave a half empty."""
    rng = np.random.default_rng(0)
    assert {cut_in_the_middle(size, rng) for _ in range(200)} == set(range(1, size))


def test_cuts_between_sentences():
    """Each inner start of a sentence is equally likely; without any, the cut is near the middle."""
    rng = np.random.default_rng(0)
    found = [cut(window(20, (0, 3, 9, 17)), "sentence", rng) for _ in range(3000)]
    assert set(found) == {3, 9, 17}
    assert stats.chisquare(np.bincount(found)[[3, 9, 17]]).pvalue > LEAST_P
    assert {cut(window(4, (0,)), "sentence", rng) for _ in range(50)} == {1, 2, 3}
    assert len({cut(window(20, (3,)), "middle", rng) for _ in range(100)}) > 5


def test_another_document_is_any_other_window():
    """Each window outside the document is equally likely, also for documents at either end."""
    rng = np.random.default_rng(0)
    for first, count in ((0, 3), (4, 2), (7, 3)):
        for place in range(count):
            drawn = [
                another_document(first + place, window(2, (), place, count), 10, rng) for _ in range(1500)
            ]
            others = sorted(set(range(10)) - set(range(first, first + count)))
            assert sorted(set(drawn)) == others
            assert stats.chisquare(np.bincount(drawn, minlength=10)[others]).pvalue > LEAST_P


def test_a_segment_begins_with_a_sentence_and_has_the_size():
    """If enough tokens follow some sentence; otherwise the size takes precedence."""
    rng = np.random.default_rng(0)
    tokens = np.arange(30)
    found = {tuple(segment_of(tokens, np.asarray([2, 11, 20, 29]), 10, rng)) for _ in range(100)}
    assert found == {tuple(range(start, start + 10)) for start in (2, 11, 20)}
    assert segment_of(tokens, np.asarray([25]), 10, rng).tolist() == list(range(20, 30))
    assert segment_of(tokens, np.asarray([], int), 40, rng).tolist() == list(range(30))


def test_what_an_objective_needs():
    """The error names the argument."""
    windows = split(32).train
    with pytest.raises(ValueError, match="objective: got 'mlm', expected one of 'sop', 'nsp', 'pair'"):
        check_objective("mlm", "middle", windows)
    with pytest.raises(ValueError, match="cut: got 'end', expected one of 'middle', 'sentence'"):
        check_objective("sop", "end", windows)
    for packing in ("sentences", "corpus"):
        with pytest.raises(ValueError, match=f"windows: got packing '{packing}', expected 'document'"):
            check_objective("nsp", "sentence", split(32, packing).train)
        check_objective("sop", "middle", split(32, packing).train)
    alone = MemoryWindows(
        [window(9, (), place, 3) for place in range(3)], room=9, packing="document", vocabulary=""
    )
    with pytest.raises(ValueError, match="got those of one document, expected at least two"):
        check_objective("nsp", "sentence", alone)
