"""From logits to an answer: the best span of all windows, or none (BERT's procedure for SQuAD 2.0).

A span's score is start + end of its tokens' logits; that of no answer is start[0] + end[0], the least over
the windows, since one window that sees an answer is enough. No answer is given if it is better than the best
span by more than a threshold, which is found on the validation split (`squad_metrics.best_threshold`).

W windows, T tokens.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from folnet.settings import at_least
from folnet.tasks.squad_features import SpanFeatures
from folnet.tasks.squad_questions import Question

BEST = 20
"""Starts and ends that are combined in a window, and answers that are kept."""

LONGEST = 30
"""Tokens of an answer."""

NO_SPAN = float(np.finfo(np.float32).max)
"""Null odds of a question whose paragraph has no span at all; not infinite, for JSON."""


class Candidate(NamedTuple):
    """A possible answer."""

    text: str
    """"" for none."""
    score: float


class Answer(NamedTuple):
    """The answer to a question."""

    index: str
    """The question's id."""
    text: str
    """Characters of the paragraph as they stand there; "" for no answer."""
    null_odds: float
    """The score of no answer less that of the best span."""
    candidates: tuple[Candidate, ...]
    """The best, different in text and no answer among them."""

    def at(self, threshold: float) -> "Answer":
        """With another threshold."""
        best = next((candidate.text for candidate in self.candidates if candidate.text), "")
        return self._replace(text="" if self.null_odds > threshold else best)


def answers(
    questions: Sequence[Question],
    features: SpanFeatures,
    start_logits: Float[np.ndarray, "W T"],
    end_logits: Float[np.ndarray, "W T"],
    *,
    best: int = BEST,
    longest: int = LONGEST,
    threshold: float = 0.0,
) -> list[Answer]:
    """The answer to every question.

    Args:
        questions: that the features were made of.
        features: all their windows.
        start_logits: of the model, for the windows in order.
        end_logits: likewise.
        best: how many starts and ends of a window are combined; only tokens of the paragraph count.
        longest: tokens of an answer.
        threshold: how much better no answer must be than the best span.

    Raises:
        ValueError: a number is too small, the logits are not of these windows, or a question has no window.
    """
    at_least(1, best=best, longest=longest)
    shape = features.input_ids.shape
    # float64: sums of two float32 logits are then exact, and ties are those of the logits.
    starts, ends = (np.asarray(logits, np.float64) for logits in (start_logits, end_logits))
    for name, logits in (("start_logits", starts), ("end_logits", ends)):
        if logits.shape != shape:
            raise ValueError(f"{name} has shape {logits.shape}, expected {shape} as the features")
        if not np.isfinite(logits).all():
            raise ValueError(f"{name} must be finite, got {logits[~np.isfinite(logits)][0]}")
    windows: list[list[int]] = [[] for _ in questions]
    for window, number in enumerate(features.question.tolist()):
        if number >= len(questions):
            raise ValueError(f"questions are {len(questions)}, but the features have question {number}")
        windows[number].append(window)
    allowed = features.best()
    found = []
    for number, question in enumerate(questions):
        if not windows[number]:
            raise ValueError(f"features have no window of question {question.index}")
        null = min(float(starts[window, 0] + ends[window, 0]) for window in windows[number])
        spans = [
            (score, window, start, end)
            for window in windows[number]
            for score, start, end in _spans(
                starts[window],
                ends[window],
                np.flatnonzero(allowed[window]),
                int(features.column[window]) + np.arange(int(features.count[window])),
                best,
                longest,
            )
        ]
        spans.sort(key=lambda span: -span[0])  # stable: of equal ones the first
        texts: dict[str, float] = {}
        for score, window, start, end in spans:
            if len(texts) == best:
                break
            shift = int(features.first[window]) - int(features.column[window])
            offsets = features.offsets[number]
            texts.setdefault(question.context[offsets[start + shift, 0] : offsets[end + shift, 1]], score)
        odds = null - spans[0][0] if spans else NO_SPAN
        ranked = sorted([*texts.items(), ("", null)], key=lambda pair: -pair[1])
        candidates = tuple(Candidate(*pair) for pair in ranked)
        found.append(Answer(question.index, "", odds, candidates).at(threshold))
    return found


def _spans(
    starts: Float[np.ndarray, "T"],
    ends: Float[np.ndarray, "T"],
    first: Int[np.ndarray, "F"],
    last: Int[np.ndarray, "P"],
    best: int,
    longest: int,
) -> Iterator[tuple[float, int, int]]:
    """Score, first and last token of the spans made of the best starts and the best ends of a window.

    A start must have its best window in this one, so that a span counts once; its end need not.
    """
    begin = first[np.argsort(-starts[first], kind="stable")[:best]]
    finish = last[np.argsort(-ends[last], kind="stable")[:best]]
    for start in begin.tolist():
        for end in finish.tolist():
            if start <= end < start + longest:
                yield float(starts[start] + ends[end]), start, end
