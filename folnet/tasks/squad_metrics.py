"""Exact match and F1 of SQuAD 2.0, as defined by the benchmark's script (evaluate-v2.0.py).

Answers are compared in lower case, without ASCII punctuation, without the articles a, an and the, and with
single spaces. F1 compares bags of words. The best of several gold answers counts; if there is none, or none
with more than articles and punctuation, the gold answer is "". All numbers are fractions.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from folnet.tasks.squad_questions import Question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Threshold(NamedTuple):
    """A threshold for null odds: the answer is kept if the odds do not exceed it."""

    value: float
    score: float
    """Mean of the metric at this threshold."""


def normalize(text: str) -> str:
    """Lowercases, removes punctuation, removes articles and merges spaces, in this order.

    So "the." is removed and "a-n" becomes an article.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact(gold: str, prediction: str) -> float:
    """Returns 1 if both are equal after `normalize`, else 0."""
    return float(normalize(gold) == normalize(prediction))


def f1(gold: str, prediction: str) -> float:
    """Returns the harmonic mean of the words' precision and recall; if either is empty, whether both are."""
    wanted, got = normalize(gold).split(), normalize(prediction).split()
    if not wanted or not got:
        return float(wanted == got)
    common = sum((Counter(wanted) & Counter(got)).values())
    return 2 * common / (len(wanted) + len(got))


METRICS: Mapping[str, Callable[[str, str], float]] = {"exact": exact, "f1": f1}
"""Metrics by name; each takes a gold answer and a prediction."""


def gold_texts(question: Question) -> list[str]:
    """Returns the texts that count as correct."""
    return [gold.text for gold in question.golds if normalize(gold.text)] or [""]


def scores(
    questions: Sequence[Question], predictions: Mapping[str, str], metric: str = "f1"
) -> dict[str, float]:
    """Returns a metric for every question, by id.

    Raises:
        ValueError: If the metric is unknown, there are no questions, or one has no prediction. (The
            benchmark's script excludes such a question from the mean, which favors a lost answer over a
            wrong one.)
    """
    if metric not in METRICS:
        raise ValueError(f"metric: got {metric!r}, expected one of {', '.join(map(repr, METRICS))}")
    if not questions:
        raise ValueError("questions: got none, expected at least one")
    if missing := [question.index for question in questions if question.index not in predictions]:
        raise ValueError(
            f"predictions: got none for {len(missing)} questions (first {missing[0]}), expected one for each"
        )
    return {
        question.index: max(
            METRICS[metric](gold, predictions[question.index]) for gold in gold_texts(question)
        )
        for question in questions
    }


def evaluate(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """Returns the means of `exact` and `f1`: of all questions, of `/answerable` and of `/unanswerable` ones.

    Predictions are texts by question id, "" for no answer. Raises like `scores`.
    """
    found: dict[str, float] = {}
    for metric in METRICS:
        by_id = scores(questions, predictions, metric)
        found[metric] = _mean(by_id.values())
        for kind, wanted in (("answerable", True), ("unanswerable", False)):
            if part := [by_id[question.index] for question in questions if question.answerable is wanted]:
                found[f"{metric}/{kind}"] = _mean(part)
    return found


def best_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    metric: str = "f1",
) -> Threshold:
    """Returns the threshold with the greatest mean; questions with higher null odds count as unanswered.

    The benchmark's script considers a threshold after every question and starts at 0. This considers one only
    after the last of several equal odds, and starts below all odds, so that the returned score is what the
    threshold achieves. Both agree where the script's odds are distinct probabilities above 0.

    Predictions must be the best span of each question, not "" because of an earlier threshold; `null_odds` is
    the score of no answer minus that of the span.

    Returns:
        The least of the best thresholds; it is just below all odds if never answering is best.

    Raises:
        ValueError: As for `scores`, or if odds are missing.
    """
    if missing := [question.index for question in questions if question.index not in null_odds]:
        raise ValueError(
            f"null_odds: got none for {len(missing)} questions (first {missing[0]}), expected one for each"
        )
    answered = scores(questions, predictions, metric)
    order = sorted(questions, key=lambda question: null_odds[question.index])
    odds = np.asarray([null_odds[question.index] for question in order])
    # Unanswerable questions score with "", so an answer gains its score minus theirs.
    silent = {question.index: float(gold_texts(question) == [""]) for question in order}
    gains = np.cumsum([answered[question.index] - silent[question.index] for question in order])
    ends = np.flatnonzero(np.append(odds[1:] != odds[:-1], True))
    totals = np.concatenate([[0.0], gains[ends]])
    # Sums of fractions such as thirds are inexact; among totals equal up to rounding the first is chosen.
    best = int(np.flatnonzero(totals >= totals.max() - 1e-9)[0])
    value = float(odds[ends[best - 1]]) if best else float(np.nextafter(odds[0], -np.inf))
    return Threshold(value, (sum(silent.values()) + float(totals[best])) / len(order))


def _mean(values) -> float:
    values = list(values)
    return float(sum(values) / len(values))
