"""Confidence intervals of a mean over seeds and of a proportion over trials."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import special


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Returns the mean of independent measurements and the ends of its Student-t confidence interval.

    Raises:
        ValueError: for fewer than two values, or a confidence outside (0, 1).
    """
    if len(values) < 2:
        raise ValueError(f"values: got {len(values)} measurements, expected at least 2")
    _check_confidence(confidence)
    count = len(values)
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = float(special.stdtrit(count - 1, (1 + confidence) / 2)) * math.sqrt(variance / count)
    return mean, mean - half, mean + half


def mean_band(rows: Sequence[Sequence[float]]) -> tuple[list[float], list[float], list[float]]:
    """Returns the mean and 95 % interval over seeds (rows) of each column, within [0, 1], for figures.

    With a single seed, mean and ends are its values.
    """
    found = [
        mean_interval(values) if len(values) > 1 else (values[0],) * 3 for values in zip(*rows, strict=True)
    ]
    mean, low, high = np.clip(np.array(found).reshape(-1, 3).T, 0, 1).tolist()
    return mean, low, high


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Returns the score interval (Wilson 1927) of a proportion: within [0, 1], and valid for few trials.

    Raises:
        ValueError: unless 0 <= successes <= trials and trials > 0, or for a confidence outside (0, 1).
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(
            f"successes: got {successes} of {trials} trials, expected 0 <= successes <= trials and trials > 0"
        )
    _check_confidence(confidence)
    z = float(special.ndtri((1 + confidence) / 2))
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    # At the ends, centre and half are equal in exact arithmetic; rounding must not leave [0, 1].
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == trials else centre + half)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: got {confidence}, expected a number between 0 and 1")
