"""GLUE's metrics, by scikit-learn and scipy, and its averages as computed in the paper. All are fractions.

Where Table 6 names two metrics, the paper does not say which one Tables 3 and 4 report. We follow ELECTRA
(Clark et al. 2020), with which such rows are usually compared: Spearman's correlation for STS-B, Matthews'
for CoLA, accuracy for all others. Table 10 names its metrics: F1 for QQP and MRPC, Pearson's correlation for
STS-B.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import logic_zoo

GLUE_COLUMNS = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
"""The columns of Tables 3, 4 and 10, in order."""

FINE_TUNED = dict.fromkeys(GLUE_COLUMNS, "accuracy") | {"CoLA": "matthews", "STS-B": "spearman"}
"""The metric in each column of Tables 3 and 4."""

ZERO_SHOT = FINE_TUNED | {"QQP": "f1", "MRPC": "f1", "STS-B": "pearson"}
"""The metric in each column of Table 10."""


def _sklearn() -> Any:
    with logic_zoo.extra("metrics"):
        import sklearn.metrics
    return sklearn.metrics


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the fraction of correct predictions."""
    labels, predictions = _pair(labels, predictions)
    return float(_sklearn().accuracy_score(labels, predictions))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns the harmonic mean of precision and recall of class 1; 0 if it never occurs."""
    labels, predictions = _pair(labels, predictions)
    return float(_sklearn().f1_score(labels, predictions, zero_division=0.0))


def matthews(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Matthews' correlation coefficient; 0 if labels or predictions are constant."""
    labels, predictions = _pair(labels, predictions)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0  # scikit-learn returns the same, with a warning
    return float(_sklearn().matthews_corrcoef(labels, predictions))


def pearson(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Pearson's correlation; 0 if labels or predictions are constant, as for Matthews'."""
    import scipy.stats

    return _correlation(scipy.stats.pearsonr, labels, predictions)


def spearman(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Returns Spearman's rank correlation, with mean ranks for ties; 0 if one side is constant."""
    import scipy.stats

    return _correlation(scipy.stats.spearmanr, labels, predictions)


METRICS: Mapping[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}
"""Metrics by name; each takes labels [N] and predictions [N]."""


def require(names: Sequence[str]) -> None:
    """Raises ImportError if scikit-learn is needed and missing, ValueError for an unknown metric."""
    if unknown := [name for name in names if name not in METRICS]:
        raise ValueError(f"metric: got {unknown[0]!r}, expected one of {', '.join(map(repr, METRICS))}")
    if set(names) - {"pearson", "spearman"}:
        _sklearn()


def glue_average(columns: Mapping[str, float]) -> float:
    """Returns the average of Tables 3 and 4: over eight tasks, with the mean of both halves for MNLI.

    The numbers of Table 3 imply this. For its rows with both halves of MNLI it gives the printed average in
    13 of 14 cases after rounding (row 13 is 87.756 for 87.7, as close as rounded terms allow); matched alone
    gives 12 of them, all nine columns 6. (In Table 4 one row, the base model of 160 GB, is printed as 89.2,
    the mean of nine columns; that of eight would be 89.1.)

    Args:
        columns: a number for each of `GLUE_COLUMNS`; "MNLI-mm" is optional, as in rows of other papers.

    Raises:
        ValueError: If a column is missing or unknown.
    """
    _known(columns, optional=("MNLI-mm",))
    halves = [columns[name] for name in ("MNLI-m", "MNLI-mm") if name in columns]
    return math.fsum([math.fsum(halves) / len(halves), *(columns[name] for name in GLUE_COLUMNS[2:])]) / 8


def zero_shot_average(columns: Mapping[str, float]) -> float:
    """Returns the average of Table 10: over its nine columns, counting both halves of MNLI.

    It reproduces all three rows (33.3 with 0 for the missing correlation, 44.3, 51.5); `glue_average` would
    give 33.4, 43.4 and 51.5.

    Raises:
        ValueError: If a column is missing or unknown.
    """
    _known(columns)
    return math.fsum(columns[name] for name in GLUE_COLUMNS) / len(GLUE_COLUMNS)


def median_over_seeds(values: Sequence[float]) -> float:
    """Returns the median, which the tables report over five seeds; raises ValueError without values."""
    if not len(values):
        raise ValueError("values: got none, expected at least one number")
    return float(np.median(values))


def _known(columns: Mapping[str, float], optional: Sequence[str] = ()) -> None:
    missing = [name for name in GLUE_COLUMNS if name not in columns and name not in optional]
    unknown = [name for name in columns if name not in GLUE_COLUMNS]
    if missing or unknown:
        raise ValueError(
            f"columns: got missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}; "
            f"expected {', '.join(GLUE_COLUMNS)}"
        )


def _pair(labels: ArrayLike, predictions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.ndim != 1 or labels.shape != predictions.shape or not labels.size:
        raise ValueError(
            f"predictions, labels: got shapes {predictions.shape} and {labels.shape}, expected the same [N] "
            "with N > 0"
        )
    return labels, predictions


def _correlation(function: Callable[..., Any], labels: ArrayLike, predictions: ArrayLike) -> float:
    labels, predictions = _pair(labels, predictions)
    # In float32, the usual type of a model's outputs, only six digits would be accurate.
    labels, predictions = labels.astype(np.float64), predictions.astype(np.float64)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return float(function(labels, predictions).statistic)
