"""Metrics compared with their definitions and scikit-learn; averages compared with the paper's tables."""

import math
import sys

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from folnet.tasks import metrics as task_metrics
from folnet.tasks.metrics import GLUE_COLUMNS, METRICS

# Lines 2 to 15 of Table 3, its columns and its average.
TABLE_3 = """
83.9 84.1 90.9 88.2 92.6 61.5 89.2 88.2 66.8 82.7
84.9 84.5 91.1 91.6 92.2 61.1 89.6 89.5 72.2 84.0
85.0 84.9 91.4 91.4 93.5 63.8 90.1 89.9 72.9 84.7
84.7 84.9 91.4 91.5 93.8 63.4 89.8 90.6 72.6 84.7
85.7 85.3 91.6 91.8 93.8 65.7 90.4 91.0 73.5 85.4
85.2 85.2 91.3 91.8 93.7 64.1 89.9 89.3 71.8 84.6
85.8 85.7 91.4 92.0 93.7 64.2 90.0 90.5 71.8 84.9
85.7 85.5 91.4 91.8 93.2 63.5 90.1 90.2 74.7 85.1
86.7 86.6 91.6 92.8 93.1 63.6 91.1 89.9 80.9 86.2
87.4 87.4 91.9 93.3 94.0 62.9 91.3 91.4 81.6 86.7
88.1 87.6 91.7 93.9 94.2 64.7 91.2 91.4 83.2 87.3
88.2 87.9 91.9 94.1 94.5 66.9 91.6 91.5 83.5 87.7
85.9 86.3 91.6 92.7 93.6 63.4 90.5 91.0 75.8 85.6
88.3 87.9 91.8 94.2 94.7 65.6 91.1 91.1 83.2 87.5
"""
TABLE_10 = """
32.7 33.0 0.0 49.5 50.9 0.0 0.0 81.2 52.7 33.3
50.8 51.7 49.7 50.8 83.6 2.0 -3.2 61.9 51.3 44.3
50.8 52.6 55.4 59.7 79.5 6.4 23.6 77.2 58.2 51.5
"""


def rows(table):
    """Returns columns by name, and the printed average."""
    for line in table.strip().splitlines():
        *numbers, average = map(float, line.split())
        yield dict(zip(GLUE_COLUMNS, numbers, strict=True)), average


def test_the_averages_are_the_papers():
    """Table 3 averages eight tasks, Table 10 nine columns; all printed numbers have one decimal."""
    exact = 0
    for columns, printed in rows(TABLE_3):
        average = task_metrics.glue_average(columns)
        assert abs(average - printed) < 0.1
        exact += abs(average - printed) <= 0.05 + 1e-9
    assert exact == 13  # of 14, as the docstring says
    for columns, printed in rows(TABLE_10):
        assert round(task_metrics.zero_shot_average(columns), 1) == printed
    others = [abs(task_metrics.glue_average(columns) - printed) for columns, printed in rows(TABLE_10)]
    assert max(others) > 0.8
    one_half = {name: float(name == "MNLI-mm") for name in GLUE_COLUMNS}
    assert task_metrics.glue_average(one_half) == 0.5 / 8
    # Line 1, BERT's own, has only the matched half.
    names = [name for name in GLUE_COLUMNS if name != "MNLI-mm"]
    bert = dict(zip(names, (84.5, 91.3, 91.7, 93.2, 58.9, 89.5, 87.3, 68.6), strict=True))
    assert round(task_metrics.glue_average(bert), 1) == 83.1
    with pytest.raises(ValueError, match="missing: MNLI-mm, unknown: none"):
        task_metrics.zero_shot_average(bert)
    with pytest.raises(ValueError, match="missing: RTE, unknown: WNLI"):
        task_metrics.glue_average({name if name != "RTE" else "WNLI": 1.0 for name in GLUE_COLUMNS})


LABELS, GUESSES = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 1, 0, 0, 0, 0, 1]


def test_by_hand():
    """With 3 hits, 1 miss, 2 false alarms and 4 correct rejections; ranks with ties."""
    assert METRICS["accuracy"](LABELS, GUESSES) == pytest.approx(0.7)
    assert METRICS["f1"](LABELS, GUESSES) == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert METRICS["matthews"](LABELS, GUESSES) == pytest.approx((3 * 4 - 1 * 2) / math.sqrt(4 * 5 * 5 * 6))
    assert METRICS["accuracy"]([0, 1, 2, 2], [0, 2, 1, 2]) == 0.5
    gold, guess = [0.0, 1.0, 2.0, 5.0], [1.0, 1.0, 2.0, 30.0]
    assert METRICS["pearson"](gold, guess) == pytest.approx(np.corrcoef(gold, guess)[0, 1])
    # Ranks 1 2 3 4 and 1.5 1.5 3 4.
    assert METRICS["spearman"](gold, guess) == pytest.approx(
        np.corrcoef([1, 2, 3, 4], [1.5, 1.5, 3, 4])[0, 1]
    )
    assert METRICS["spearman"]([1, 2, 3], [10, 100, 1000]) == pytest.approx(1.0)


PAIRS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_against_the_definitions(pairs):
    """By counting, for any classes, including constant labels."""
    labels, guesses = (np.asarray(side) for side in zip(*pairs, strict=True))
    hit, miss, false, right = (
        sum(pair == wanted for pair in pairs) for wanted in ((1, 1), (1, 0), (0, 1), (0, 0))
    )
    assert METRICS["accuracy"](labels, guesses) == pytest.approx((hit + right) / len(pairs))
    f1 = 2 * hit / (2 * hit + miss + false) if hit + miss + false else 0.0
    assert METRICS["f1"](labels, guesses) == pytest.approx(f1)
    below = (hit + miss) * (hit + false) * (right + miss) * (right + false)
    matthews = (hit * right - miss * false) / math.sqrt(below) if below else 0.0
    assert METRICS["matthews"](labels, guesses) == pytest.approx(matthews)


def test_against_scikit_learn():
    """On many examples of three classes, with correlations in float32."""
    rng = np.random.default_rng(0)
    labels, guesses = rng.integers(0, 3, (2, 500))
    assert METRICS["accuracy"](labels, guesses) == sklearn.metrics.accuracy_score(labels, guesses)
    assert METRICS["matthews"](labels, guesses) == sklearn.metrics.matthews_corrcoef(labels, guesses)
    gold = rng.uniform(0, 5, 300).astype(np.float32)
    guess = (gold + rng.normal(size=300)).astype(np.float32)
    wanted = np.corrcoef(gold.astype(np.float64), guess.astype(np.float64))[0, 1]
    assert METRICS["pearson"](gold, guess) == pytest.approx(wanted, abs=1e-12)


def test_what_is_not_defined():
    """The correlation with a constant is 0, as for Matthews', without a warning."""
    for name in ("pearson", "spearman"):
        assert METRICS[name]([1.0, 2.0, 3.0], [2.5, 2.5, 2.5]) == 0.0
        assert METRICS[name]([2.5, 2.5, 2.5], [1.0, 2.0, 3.0]) == 0.0
        assert METRICS[name]([0.0, 1.0, 1.0], [1.0, 0.0, 0.0]) == pytest.approx(-1.0)
        assert METRICS[name]([2.0], [3.0]) == 0.0
    assert METRICS["matthews"]([0, 1, 1], [1, 1, 1]) == 0.0
    for function in METRICS.values():
        with pytest.raises(ValueError, match=r"got shapes \(2,\) and \(3,\)"):
            function([0, 1, 1], [0, 1])
        with pytest.raises(ValueError, match="N > 0"):
            function([], [])


def test_medians():
    """Of five values, the third."""
    assert task_metrics.median_over_seeds([0.1, 0.9, 0.5, 0.7, 0.2]) == 0.5
    with pytest.raises(ValueError, match="values: got none"):
        task_metrics.median_over_seeds([])


def test_without_scikit_learn(monkeypatch):
    """The error names the extra; correlations do not need it."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    with pytest.raises(ImportError, match=r"pip install 'logic-zoo\[metrics\]'"):
        METRICS["accuracy"]([1], [1])
    with pytest.raises(ImportError, match=r"pip install 'logic-zoo\[metrics\]'"):
        task_metrics.require(["pearson", "matthews"])
    task_metrics.require(["pearson", "spearman"])
    with pytest.raises(ValueError, match=r"metric: got 'auc', expected one of 'accuracy', .*"):
        task_metrics.require(["auc"])
    assert METRICS["spearman"]([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
