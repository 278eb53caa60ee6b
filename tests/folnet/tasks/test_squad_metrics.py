"""Exact match and F1 on the difficult cases of the benchmark's definition, and the best threshold."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folnet.tasks import squad_metrics as metrics
from folnet.tasks.squad_questions import Gold, Question


def question(index, *golds):
    """Returns a question with some gold answers."""
    return Question(index, "?", " ".join(golds), tuple(Gold(text, 0) for text in golds))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Dog", "dog"),
        ("a  dog\t\nand\u00a0an ox ", "dog and ox"),
        ("the", ""),
        ("The.", ""),  # punctuation goes first
        ("a-n ox", "ox"),  # and leaves an article
        ("theatre Anna", "theatre anna"),  # an article is a word
        ("the a an the", ""),
        ("U.S.A.'s $5,000", "usas 5000"),
        ("“quoted” – ’s", "“quoted” – ’s"),  # only ASCII's punctuation
        ("éa the-n", "éa then"),
        ("  ", ""),
        ("ÀB", "àb"),
    ],
)
def test_normalize(text, expected):
    """Lower case, no punctuation, no articles, single spaces, in this order."""
    assert metrics.normalize(text) == expected
    assert metrics.normalize(expected) == expected


@pytest.mark.parametrize(
    ("gold", "prediction", "exact", "f1"),
    [
        ("the cat", "Cat!", 1, 1),
        ("cat sat", "cat", 0, 2 / 3),
        ("cat cat dog", "cat dog dog", 0, 2 / 3),  # bags: one cat and one dog in common
        ("cat", "dog", 0, 0),
        ("", "", 1, 1),
        ("", "cat", 0, 0),
        ("cat", "", 0, 0),
        ("the", "", 1, 1),  # nothing is left of the article
        ("", "a an.", 1, 1),
        ("dog sat", "sat dog", 0, 1),  # F1 does not see the order
    ],
)
def test_one_answer(gold, prediction, exact, f1):
    """The expected values are computed by hand."""
    assert metrics.exact(gold, prediction) == exact
    assert metrics.f1(gold, prediction) == pytest.approx(f1)
    assert metrics.f1(prediction, gold) == pytest.approx(f1)


QUESTIONS = [
    question("several", "cat", "the red cat", "dog sat"),
    question("none"),
    question("articles", "the", "cat"),
    question("only articles", "The"),
]


def test_gold_answers():
    """The best of several counts; those that normalize to nothing do not, and without any it is ""."""
    assert metrics.gold_texts(QUESTIONS[0]) == ["cat", "the red cat", "dog sat"]
    assert [metrics.gold_texts(q) for q in QUESTIONS[1:]] == [[""], ["cat"], [""]]
    predictions = {"several": "red cat", "none": "", "articles": "", "only articles": ""}
    assert metrics.scores(QUESTIONS, predictions, "exact") == {
        "several": 1,
        "none": 1,
        "articles": 0,
        "only articles": 1,
    }
    predictions |= {"several": "cat sat", "none": "a cat"}
    found = metrics.evaluate(QUESTIONS, predictions)
    # 2/3 from "cat" and 1/2 from "dog sat" and "red cat".
    assert found == pytest.approx(
        {
            "exact": 1 / 4,
            "exact/answerable": 1 / 3,
            "exact/unanswerable": 0,
            "f1": (2 / 3 + 0 + 0 + 1) / 4,
            "f1/answerable": (2 / 3 + 0 + 1) / 3,
            "f1/unanswerable": 0,
        }
    )
    assert set(metrics.evaluate(QUESTIONS[:1], predictions)) == {
        "exact",
        "exact/answerable",
        "f1",
        "f1/answerable",
    }


RECORDED = json.loads((Path(__file__).parent / "data" / "squad_script.json").read_text())


def test_the_benchmarks_own_script():
    """Results of evaluate-v2.0.py for 150 sets of gold answers and a prediction.

    They have articles within words, ASCII and other punctuation, all kinds of spaces, several gold answers
    and none.
    """
    assert len(RECORDED["answers"]) == 150
    for golds, prediction, exact, f1 in RECORDED["answers"]:
        asked = [question("0", *golds)]
        assert metrics.scores(asked, {"0": prediction}, "exact") == {"0": exact}
        assert metrics.scores(asked, {"0": prediction}, "f1")["0"] == pytest.approx(f1, abs=1e-12)


@pytest.mark.parametrize("case", RECORDED["thresholds"])
def test_the_best_threshold_of_the_benchmarks_own_script(case):
    """Where odds are distinct probabilities; the script returns 0 where never answering is best."""
    asked = [question(str(i), *golds) for i, golds in enumerate(case["golds"])]
    spans = {str(i): text for i, text in enumerate(case["predictions"])}
    odds = {str(i): number for i, number in enumerate(case["odds"])}
    found = metrics.evaluate(asked, spans)
    for metric in ("exact", "f1"):
        assert found[metric] == pytest.approx(case["all"][metric], abs=1e-12)
        score, value = case[metric]
        best = metrics.best_threshold(asked, spans, odds, metric)
        assert best.score == pytest.approx(score, abs=1e-12)
        assert best.value == value or (value == 0 and best.value < min(case["odds"]))


def test_what_cannot_be_scored():
    """Missing answers and odds, unknown metrics, no questions."""
    with pytest.raises(ValueError, match="got none for 3 questions \\(first none\\)"):
        metrics.evaluate(QUESTIONS, {"several": ""})
    with pytest.raises(ValueError, match="questions: got none"):
        metrics.evaluate([], {})
    with pytest.raises(ValueError, match="metric: got 'em', expected one of 'exact', 'f1'"):
        metrics.scores(QUESTIONS, {}, "em")
    with pytest.raises(ValueError, match="null_odds: got none for 4 questions"):
        metrics.best_threshold(QUESTIONS, {}, {})


CASES = st.lists(
    st.tuples(
        st.sampled_from(["", "cat", "red cat"]),
        st.sampled_from(["cat", "dog", "red cat"]),
        st.integers(-2, 2),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(CASES, st.sampled_from(["exact", "f1"]))
def test_the_best_threshold_is_the_best(cases, metric):
    """Compared with trying all of them, including tied odds; its score is as stated, and it is the least."""
    asked = [question(str(i), *([gold] if gold else [])) for i, (gold, _, _) in enumerate(cases)]
    spans = {str(i): span for i, (_, span, _) in enumerate(cases)}
    odds = {str(i): float(number) for i, (_, _, number) in enumerate(cases)}

    def at(threshold):
        kept = {index: "" if odds[index] > threshold else spans[index] for index in spans}
        return metrics.evaluate(asked, kept)[metric]

    found = metrics.best_threshold(asked, spans, odds, metric)
    tried = {threshold: at(threshold) for threshold in np.arange(-2.5, 3.0, 0.5)}
    assert found.score == pytest.approx(max(tried.values()))
    assert at(found.value) == pytest.approx(found.score)
    assert np.isfinite(found.value)
    lower = [score for threshold, score in tried.items() if threshold < found.value - 1e-9]
    silent = found.value < min(odds.values())  # then all that is lower is the same
    assert silent or max(lower) < found.score - 1e-9


def test_the_best_threshold_by_hand():
    """Equal to the benchmark's script where odds are distinct probabilities."""
    asked = [question("0", "cat"), question("1"), question("2", "dog"), question("3")]
    spans = {"0": "cat", "1": "cat", "2": "dog", "3": "cat"}
    odds = {"0": 0.1, "1": 0.2, "2": 0.3, "3": 0.9}
    # Silence: 2 right; up to 0.1: 3; up to 0.2: 2; up to 0.3: 3; all: 2.
    assert metrics.best_threshold(asked, spans, odds) == metrics.Threshold(0.1, 0.75)
    wrong = dict.fromkeys(spans, "ox")
    silent = metrics.best_threshold(asked, wrong, odds)
    assert silent.value < 0.1
    assert silent.score == 0.5


def test_of_thresholds_that_differ_by_rounding_only_the_first_is_chosen():
    """2/9 - 1 - 1 + 1 + 1 is more than 2/9 in float64."""
    assert 2 / 9 - 1 - 1 + 1 + 1 > 2 / 9
    asked = [question("0", "dog"), question("1"), question("2"), question("3", "cat"), question("4", "cat")]
    spans = {"0": "dog 1 2 3 4 5 6 7", **dict.fromkeys("1234", "cat")}
    odds = {str(number): float(number) for number in range(5)}
    assert metrics.best_threshold(asked, spans, odds) == (0.0, pytest.approx(4 / 9))
