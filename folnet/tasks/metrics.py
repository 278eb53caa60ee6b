"""GLUE's metrics by scikit-learn and scipy, and its averages as the paper forms them. All are fractions.

Where Table 6 names two metrics the paper does not say which of them is in Tables 3 and 4. This takes the
convention of ELECTRA (Clark et al. 2020), with which such rows are usually compared: Spearman's correlation
for STS-B, Matthews' for CoLA, accuracy for all others. Table 10 does say: F1 for QQP and MRPC, Pearson's for
STS-B.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

GLUE_COLUMNS = ("MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE")
"""The columns of Tables 3, 4 and 10, in their order."""

FINE_TUNED = dict.fromkeys(GLUE_COLUMNS, "accuracy") | {"CoLA": "matthews", "STS-B": "spearman"}
"""The metric in each column of Tables 3 and 4."""

ZERO_SHOT = FINE_TUNED | {"QQP": "f1", "MRPC": "f1", "STS-B": "pearson"}
"""The metric in each column of Table 10."""


def _sklearn() -> Any:
    try:
        import sklearn.metrics
    except ImportError as error:
        raise ImportError(
            "GLUE's metrics need scikit-learn: install the extra `metrics` (pip install -e '.[metrics]')"
        ) from error
    return sklearn.metrics


def accuracy(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The fraction that is right."""
    labels, predictions = _pair(labels, predictions)
    return float(_sklearn().accuracy_score(labels, predictions))


def f1(labels: ArrayLike, predictions: ArrayLike) -> float:
    """The harmonic mean of precision and recall of class 1; 0 where nothing is in it."""
    labels, predictions = _pair(labels, predictions)
    return float(_sklearn().f1_score(labels, predictions, zero_division=0.0))


def matthews(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Matthews' correlation coefficient; 0 where one side has only one class."""
    labels, predictions = _pair(labels, predictions)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0  # scikit-learn says so too, but warns
    return float(_sklearn().matthews_corrcoef(labels, predictions))


def pearson(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Pearson's correlation; 0 where it is not defined because one side is constant, as with Matthews'."""
    import scipy.stats

    return _correlation(scipy.stats.pearsonr, labels, predictions)


def spearman(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Spearman's rank correlation, equal values having their mean rank; 0 where one side is constant."""
    import scipy.stats

    return _correlation(scipy.stats.spearmanr, labels, predictions)


METRICS: Mapping[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}
"""By name; each takes labels [N] and predictions [N]."""


def require(names: Sequence[str]) -> None:
    """Raises ImportError if scikit-learn is needed and missing, ValueError for a metric that is none."""
    if unknown := [name for name in names if name not in METRICS]:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {unknown[0]!r}")
    if set(names) - {"pearson", "spearman"}:
        _sklearn()


def glue_average(columns: Mapping[str, float]) -> float:
    """The average of Tables 3 and 4: over eight tasks, MNLI's being the mean of matched and mismatched.

    The numbers of Table 3 say so: of its rows with both halves of MNLI this gives the printed average in 13
    of 14 after rounding (row 13 is 87.756 for 87.7, as close as rounded terms allow); matched alone gives 12
    of them, all nine columns 6. (In Table 4 one row, the base model of 160 GB, is printed as 89.2, which is
    the mean of nine columns; of eight it would be 89.1.)

    Args:
        columns: a number for each of `GLUE_COLUMNS`; "MNLI-mm" may be left out, as in rows of other papers.

    Raises:
        ValueError: a column is missing or is none of the nine.
    """
    _known(columns, optional=("MNLI-mm",))
    halves = [columns[name] for name in ("MNLI-m", "MNLI-mm") if name in columns]
    return math.fsum([math.fsum(halves) / len(halves), *(columns[name] for name in GLUE_COLUMNS[2:])]) / 8


def zero_shot_average(columns: Mapping[str, float]) -> float:
    """The average of Table 10: over its nine columns, both halves of MNLI counting.

    All three of its rows come out as printed (33.3 with 0 for the one that has no correlation, 44.3, 51.5);
    with `glue_average` they would be 33.4, 43.4 and 51.5.

    Raises:
        ValueError: a column is missing or is none of the nine.
    """
    _known(columns)
    return math.fsum(columns[name] for name in GLUE_COLUMNS) / len(GLUE_COLUMNS)


def median_over_seeds(values: Sequence[float]) -> float:
    """What the tables report of five seeds; raises ValueError without any."""
    if not len(values):
        raise ValueError("values must have at least one number, got none")
    return float(np.median(np.asarray(values, np.float64)))


def _known(columns: Mapping[str, float], optional: Sequence[str] = ()) -> None:
    missing = [name for name in GLUE_COLUMNS if name not in columns and name not in optional]
    unknown = [name for name in columns if name not in GLUE_COLUMNS]
    if missing or unknown:
        raise ValueError(
            f"columns must be {', '.join(GLUE_COLUMNS)}; missing: {', '.join(missing) or 'none'}, "
            f"unknown: {', '.join(unknown) or 'none'}"
        )


def _pair(labels: ArrayLike, predictions: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.ndim != 1 or labels.shape != predictions.shape or not labels.size:
        raise ValueError(
            f"predictions have shape {predictions.shape}, labels {labels.shape}; expected the same [N], N > 0"
        )
    return labels, predictions


def _correlation(function: Callable[..., Any], labels: ArrayLike, predictions: ArrayLike) -> float:
    labels, predictions = _pair(labels, predictions)
    # float64: the default of a model's numbers would leave six digits.
    labels, predictions = labels.astype(np.float64), predictions.astype(np.float64)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return float(function(labels, predictions).statistic)
