"""From logits to answers, compared with trying every span: thresholds, windows and ties."""

import itertools

import numpy as np
import pytest

from folnet.tasks.squad_answers import NO_SPAN, Answer, Candidate, answers
from folnet.tasks.squad_features import SpanFeatures, span_features
from folnet.tasks.squad_questions import Question
from tests.folnet import small_tasks

LENGTH = 20


@pytest.fixture(scope="module")
def features():
    """Returns features of two questions about a paragraph of several windows and one about a short one."""
    context = " ".join(small_tasks.WORDS.split())
    asked = [Question("0", "Who?", context, ()), Question("1", "dog dog dog dog dog", context, ())]
    asked.append(Question("2", "Who?", "The dog sat.", ()))
    return asked, span_features(asked, small_tasks.tokenizer(), length=LENGTH, stride=5, query_length=4)


def spans(questions, features: SpanFeatures, starts, ends, longest):
    """Yields every possible answer by the definition: question, score, text."""
    best = features.best()
    for window, token in np.argwhere(best).tolist():
        number = int(features.question[window])
        last = int(features.column[window] + features.count[window])
        for end in range(token, min(token + longest, last)):
            shift = int(features.first[window] - features.column[window])
            offsets = features.offsets[number]
            text = questions[number].context[offsets[token + shift, 0] : offsets[end + shift, 1]]
            yield number, starts[window, token] + ends[window, end], text


@pytest.mark.parametrize("longest", [1, 4, 30])
def test_the_best_of_all_spans(features, longest):
    """With as many starts and ends as tokens, none is skipped; the odds follow the definition."""
    questions, windows = features
    rng = np.random.default_rng(longest)
    starts, ends = rng.normal(size=(2, *windows.input_ids.shape))
    found = answers(questions, windows, starts, ends, best=LENGTH, longest=longest)
    assert [answer.index for answer in found] == ["0", "1", "2"]
    every = list(spans(questions, windows, starts, ends, longest))
    for number, answer in enumerate(found):
        mine = sorted((item[1:] for item in every if item[0] == number), reverse=True)
        null = (starts[:, 0] + ends[:, 0])[windows.question == number].min()
        assert answer.null_odds == pytest.approx(null - mine[0][0])
        assert answer.text == ("" if null > mine[0][0] else mine[0][1])
        assert answer.at(np.inf).text == mine[0][1]
        assert answer.at(-np.inf).text == ""
        # The best, each text once.
        texts = dict.fromkeys(text for _, text in mine)
        wanted = list(itertools.islice(texts, LENGTH))
        assert [c.text for c in answer.candidates if c.text] == wanted
        assert ("", pytest.approx(null)) in answer.candidates
        scores = [candidate.score for candidate in answer.candidates]
        assert scores == sorted(scores, reverse=True)


def test_only_the_best_starts_and_ends_are_combined(features):
    """With one of each there is one span, or none if the end is before the start or too far from it."""
    questions, windows = features
    start, end = np.zeros((2, *windows.input_ids.shape))
    row = int(np.flatnonzero(windows.question == 2)[0])
    first = int(windows.column[row])
    start[row, first], end[row, first + 1] = 5, 5
    (_, _, answer) = answers(questions, windows, start, end, best=1)
    assert (answer.text, answer.null_odds) == ("The dog", -10)
    start[row, first + 2] = 6
    (_, _, answer) = answers(questions, windows, start, end, best=1)
    assert (answer.text, answer.null_odds) == ("", NO_SPAN)
    assert answers(questions, windows, start, end, best=2)[2].text == "The dog"
    assert answers(questions, windows, start, end, best=2, longest=1)[2].text == "The"  # 5 + 0
    # Logits of the question, of [SEP] and of padding mean nothing.
    start[row, first:], end[row, first:] = 0, 0
    start[row, [1, first - 1, -1]] = end[row, [1, first - 1, -1]] = 99
    end[row, first + 1] = 1
    (_, _, answer) = answers(questions, windows, start, end)
    assert answer.text in ("The dog", "dog")
    assert max(candidate.score for candidate in answer.candidates) == 1


def test_no_answer_is_the_least_of_the_windows(features):
    """One window that contains an answer suffices; no answer must be better by more than the threshold."""
    questions, windows = features
    start, end = np.zeros((2, *windows.input_ids.shape))
    rows = np.flatnonzero(windows.question == 0)
    start[rows, 0] = np.arange(len(rows)) + 3.0
    answer = answers(questions, windows, start, end)[0]
    assert (answer.null_odds, answer.text) == (3.0, "")
    assert answers(questions, windows, start, end, threshold=3.0)[0].text != ""
    assert answers(questions, windows, start, end, threshold=2.9)[0].text == ""


def test_a_span_that_begins_where_another_window_knows_more(features):
    """A start counts in one window only; its end may have a better context in the next window."""
    questions, windows = features
    best = windows.best()
    row = int(np.flatnonzero(windows.question == 0)[0])
    mine = np.flatnonzero(best[row])
    assert best[row + 1].any()
    assert mine[-1] + 1 < windows.column[row] + windows.count[row]
    start, end = np.zeros((2, *windows.input_ids.shape))
    start[row, mine[-1]], end[row, mine[-1] + 1] = 5, 5
    found = answers(questions, windows, start, end)[0]
    assert (len(found.text.split()), found.null_odds) == (2, -10)
    start[row, mine[-1]], start[row, mine[-1] + 1] = 0, 5
    assert answers(questions, windows, start, end)[0].null_odds == -5


def test_what_does_not_fit(features):
    """Numbers, shapes, values, and questions without a window."""
    questions, windows = features
    zeros = np.zeros(windows.input_ids.shape)
    for name in ("best", "longest"):
        with pytest.raises(ValueError, match=f"{name}: got 0, expected at least 1"):
            answers(questions, windows, zeros, zeros, **{name: 0})
    with pytest.raises(ValueError, match=r"end_logits: got shape \(2, 20\), expected"):
        answers(questions, windows, zeros, zeros[:2])
    with pytest.raises(ValueError, match="start_logits: got nan, expected finite numbers"):
        answers(questions, windows, np.where(np.arange(zeros.shape[1]) == 1, np.nan, zeros), zeros)
    with pytest.raises(ValueError, match="features: got no window for question"):
        answers([*questions, Question("3", "?", "dog", ())], windows, zeros, zeros)
    with pytest.raises(ValueError, match="questions: got 2, expected question 2 of the features"):
        answers(questions[:2], windows, zeros, zeros)


def test_the_defaults_are_berts():
    """An answer has at most 30 tokens, and 20 starts, ends and texts are kept."""
    context = " ".join(small_tasks.WORDS.split()[:41])
    asked = [Question("0", "Who?", context, ())]
    windows = span_features(asked, small_tasks.tokenizer(), length=80, stride=60, query_length=4)
    column = int(windows.column[0])
    for end, words in ((29, 30), (30, 1)):
        starts, ends = np.zeros((2, 1, 80))
        starts[0, column] = ends[0, column + end] = 5
        starts[0, 0] = -50
        found = answers(asked, windows, starts, ends)[0]
        assert len(found.text.split()) == words
        assert len(found.candidates) == 20 + 1


def test_another_threshold():
    """It chooses again between the best span and no answer."""
    answer = Answer("0", "", 1.5, (Candidate("", 3.0), Candidate("dog", 1.5), Candidate("cat", 1.0)))
    assert [answer.at(threshold).text for threshold in (1.4, 1.5, 2.0)] == ["", "dog", "dog"]
    assert Answer("0", "", NO_SPAN, (Candidate("", 3.0),)).at(np.inf).text == ""
