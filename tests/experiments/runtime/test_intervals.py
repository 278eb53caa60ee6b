"""Intervals, compared with published tables, SciPy, and their coverage by enumeration."""

import math

import pytest
from scipy import stats

from experiments.runtime import intervals


def test_mean_interval_by_hand():
    # Student's t at .975 with 4 degrees of freedom is 2.776 in every table; the standard error is
    # sqrt(2.5 / 5).
    mean, low, high = intervals.mean_interval([1, 2, 3, 4, 5])
    assert mean == 3
    assert (high - mean) == pytest.approx(2.776445 * math.sqrt(0.5), rel=1e-6)
    assert (mean - low) == pytest.approx(high - mean)


def test_a_band_for_figures_stays_between_0_and_1():
    """The interval of .9 and 1, and of 0 and .1, would reach beyond; one seed has no interval."""
    mean, low, high = intervals.mean_band([[0.9, 0.0, 0.5], [1.0, 0.1, 0.6]])
    assert mean == pytest.approx([0.95, 0.05, 0.55])
    assert (low[1], high[0]) == (0, 1)
    assert 0 < low[0] < high[1] < 1
    assert intervals.mean_band([[0.25]]) == ([0.25], [0.25], [0.25])


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_mean_interval_is_scipys(confidence):
    values = [0.91, 0.95, 0.99, 0.97]
    _, low, high = intervals.mean_interval(values, confidence)
    expected = stats.t.interval(confidence, 3, loc=sum(values) / 4, scale=stats.sem(values))
    assert (low, high) == pytest.approx(expected)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize(("successes", "trials"), [(1, 1), (0, 4), (3, 4), (4, 4), (81, 263), (1000, 1000)])
def test_wilson_interval_is_scipys(successes, trials, confidence):
    expected = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    low, high = intervals.wilson_interval(successes, trials, confidence)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= successes / trials <= high <= 1


def test_wilson_interval_ends_where_the_score_test_does():
    """The ends p solve |share - p| = z sqrt(p (1 - p) / n): the definition, not the formula."""
    for p in intervals.wilson_interval(81, 263):
        assert abs(81 / 263 - p) == pytest.approx(1.959963985 * math.sqrt(p * (1 - p) / 263), rel=1e-8)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        intervals.mean_interval([1.0])
    with pytest.raises(ValueError, match="confidence: got 1"):
        intervals.mean_interval([1.0, 2.0], confidence=1)
    for successes, trials in [(0, 0), (1, 0), (-1, 3), (4, 3)]:
        with pytest.raises(ValueError, match=f"successes: got {successes}"):
            intervals.wilson_interval(successes, trials)
    with pytest.raises(ValueError, match="confidence: got 0"):
        intervals.wilson_interval(1, 3, confidence=0)
