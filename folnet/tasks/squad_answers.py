"""From logits to an answer: the best span of all windows, or no answer (BERT's procedure for SQuAD 2.0).

The score of a span is the sum of the logits of its start and end. The score of no answer is start[0] +
end[0], minimized over windows, since one window with an answer is enough. "No answer" is predicted if its
score exceeds that of the best span by more than a threshold, chosen on the validation split
(`squad_metrics.best_threshold`).

W windows, T tokens; F tokens that may start a span, P tokens of the paragraph.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from folnet.settings import at_least
from folnet.tasks.squad_features import SpanFeatures
from folnet.tasks.squad_questions import Question

BEST = 20
"""Number of starts and ends combined in a window, and of answers kept."""

LONGEST = 30
"""Maximum number of tokens in an answer."""

NO_SPAN = float(np.finfo(np.float32).max)
"""Null odds of a question whose paragraph has no span; finite, for JSON."""


class Candidate(NamedTuple):
    """A possible answer with its score."""

    text: str
    """"" for no answer."""
    score: float


class Answer(NamedTuple):
    """The answer to a question, and its alternatives."""

    index: str
    """Id of the question."""
    text: str
    """Text copied from the paragraph; "" for no answer."""
    null_odds: float
    """The score of no answer minus that of the best span."""
    candidates: tuple[Candidate, ...]
    """The best candidates, with different texts, including no answer."""

    def at(self, threshold: float) -> "Answer":
        """Returns the answer under another threshold."""
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
    """Returns the answer to every question.

    Args:
        questions: the questions the features were made from.
        features: all their windows.
        start_logits: the model's logits for the windows, in order.
        end_logits: likewise.
        best: number of starts and ends to combine per window; only tokens of the paragraph count.
        longest: maximum number of tokens in an answer.
        threshold: how much the score of no answer must exceed that of the best span.

    Raises:
        ValueError: If a number is too small, the logits do not match the windows, or a question has no
            window.
    """
    at_least(1, best=best, longest=longest)
    shape = features.input_ids.shape
    # In float64, sums of two float32 logits are exact, so ties only occur between equal logits.
    starts, ends = (np.asarray(logits, np.float64) for logits in (start_logits, end_logits))
    for name, logits in (("start_logits", starts), ("end_logits", ends)):
        if logits.shape != shape:
            raise ValueError(f"{name}: got shape {logits.shape}, expected {shape} as in features")
        if not np.isfinite(logits).all():
            raise ValueError(f"{name}: got {logits[~np.isfinite(logits)][0]}, expected finite numbers")
    windows: list[list[int]] = [[] for _ in questions]
    for window, number in enumerate(features.question.tolist()):
        if number >= len(questions):
            raise ValueError(f"questions: got {len(questions)}, expected question {number} of the features")
        windows[number].append(window)
    allowed = features.best()
    found = []
    for number, question in enumerate(questions):
        if not windows[number]:
            raise ValueError(f"features: got no window for question {question.index}, expected one")
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
        spans.sort(key=lambda span: -span[0])  # stable: the first of equal spans wins
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
    """Yields score, first and last token of the spans between the best starts and ends of a window.

    A start must have its best context in this window, so that each span counts once; its end need not.
    """
    begin = first[np.argsort(-starts[first], kind="stable")[:best]]
    finish = last[np.argsort(-ends[last], kind="stable")[:best]]
    for start in begin.tolist():
        for end in finish.tolist():
            if start <= end < start + longest:
                yield float(starts[start] + ends[end]), start, end
