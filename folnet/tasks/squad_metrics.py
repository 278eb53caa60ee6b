"""Exact match and F1 of SQuAD 2.0, as the benchmark's own script defines them (evaluate-v2.0.py).

Answers are compared in lower case, without ASCII punctuation, without the articles a, an and the, and with
single spaces. F1 is that of the bags of words. Of several gold answers the best counts; if there is none, or
none that is more than articles and punctuation, "" is the gold answer. All numbers are fractions.
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
    """A threshold for null odds and what it gives: the answer is kept if the odds are not above it."""

    value: float
    score: float
    """The mean of the metric."""


def normalize(text: str) -> str:
    """Lower case, then no punctuation, then no articles, then single spaces: in this order, so "the." goes
    and "a-n" becomes an article.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact(gold: str, prediction: str) -> float:
    """1 if both are the same after `normalize`, else 0."""
    return float(normalize(gold) == normalize(prediction))


def f1(gold: str, prediction: str) -> float:
    """The harmonic mean of precision and recall of words; where one has none, whether both have none."""
    wanted, got = normalize(gold).split(), normalize(prediction).split()
    if not wanted or not got:
        return float(wanted == got)
    common = sum((Counter(wanted) & Counter(got)).values())
    return 2 * common / (len(wanted) + len(got))


METRICS: Mapping[str, Callable[[str, str], float]] = {"exact": exact, "f1": f1}
"""By name; each takes a gold answer and a prediction."""


def gold_texts(question: Question) -> list[str]:
    """What counts as right."""
    return [gold.text for gold in question.golds if normalize(gold.text)] or [""]


def scores(
    questions: Sequence[Question], predictions: Mapping[str, str], metric: str = "f1"
) -> dict[str, float]:
    """A metric for every question, by id.

    Raises:
        ValueError: no such metric, no question, or one without a prediction (the benchmark's script leaves
            such a question out of the mean, which makes a lost answer better than a wrong one).
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    if not questions:
        raise ValueError("questions must not be empty")
    if missing := [question.index for question in questions if question.index not in predictions]:
        raise ValueError(
            f"predictions must have all questions, {len(missing)} are missing, first {missing[0]}"
        )
    return {
        question.index: max(
            METRICS[metric](gold, predictions[question.index]) for gold in gold_texts(question)
        )
        for question in questions
    }


def evaluate(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """Mean `exact` and `f1`: of all, of those with an answer (`/answerable`), of others (`/unanswerable`).

    Predictions are texts by question id, "" for no answer. Raises as `scores` does.
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
    """The threshold that makes the mean greatest: a question with higher null odds counts as not answered.

    The benchmark's script goes through the questions one by one and begins at 0; this looks only behind the
    last of equal odds and begins below all of them, so that what it promises is what the threshold gives. It
    is the same where the script's odds are different probabilities above 0.

    Predictions are the best span of each, not "" because of some threshold already; `null_odds` is how much
    better no answer is.

    Returns:
        The least of the best: just below all odds if it is best never to answer.

    Raises:
        ValueError: as for `scores`; or odds are missing.
    """
    if missing := [question.index for question in questions if question.index not in null_odds]:
        raise ValueError(f"null_odds must have all questions, {len(missing)} are missing, first {missing[0]}")
    answered = scores(questions, predictions, metric)
    order = sorted(questions, key=lambda question: null_odds[question.index])
    odds = np.asarray([null_odds[question.index] for question in order], np.float64)
    # By "" the unanswerable are right; so a question's answer adds what it scores less that.
    silent = {question.index: float(gold_texts(question) == [""]) for question in order}
    gains = np.cumsum([answered[question.index] - silent[question.index] for question in order])
    ends = np.flatnonzero(np.append(odds[1:] != odds[:-1], True))
    totals = np.concatenate([[0.0], gains[ends]])
    # Sums of thirds are not exact; of totals that are equal but for that the first is meant.
    best = int(np.flatnonzero(totals >= totals.max() - 1e-9)[0])
    value = float(odds[ends[best - 1]]) if best else float(np.nextafter(odds[0], -np.inf))
    return Threshold(value, (sum(silent.values()) + float(totals[best])) / len(order))


def _mean(values) -> float:
    values = list(values)
    return float(sum(values) / len(values))
