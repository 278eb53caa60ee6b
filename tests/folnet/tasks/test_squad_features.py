"""Windows contain every token, and labels locate every answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folnet.tasks.squad_features import SpanFeatures, piece_span, span_features
from folnet.tasks.squad_questions import Gold, Question
from tests.folnet import small_tasks


@pytest.fixture(scope="module")
def tokenizer():
    return small_tasks.tokenizer()


def questions(context, asked, golds):
    """Returns questions about one paragraph."""
    return [Question(str(i), asked, context, (gold,) if gold else ()) for i, gold in enumerate(golds)]


def piece_of(features: SpanFeatures, window: int, token: int) -> int:
    """Returns the index of the paragraph's piece at a token."""
    return token - int(features.column[window]) + int(features.first[window])


ANSWERS = [
    "Zürich",
    "café",
    "café —",
    "SISTER’S   dog",
    "dog",
    "中文",
    "25$",
    "25$ a",
    "(1998–2003)",
    "The",
    "it.",
    ".",
]


@pytest.mark.parametrize("text", ANSWERS)
@pytest.mark.parametrize("around", ["", " ", "  "])
def test_every_answer_is_found_again(tokenizer, text, around):
    """With accents, non-ASCII characters, double spaces and capitals; outer spaces do not count."""
    context = small_tasks.CONTEXT.replace(text, around + text + around, 1)
    start = context.index(around + text + around)
    gold = Gold(around + text + around, start)
    (pieces,) = tokenizer.pieces([context])
    first, last = piece_span(pieces.offsets, gold) or (-1, -1)
    assert context[pieces.offsets[first, 0] : pieces.offsets[last, 1]] == text
    features = span_features([Question("0", "Who?", context, (gold,))], tokenizer, length=300)
    begin, end = int(features.start_positions[0]), int(features.end_positions[0])
    assert (piece_of(features, 0, begin), piece_of(features, 0, end)) == (first, last)
    np.testing.assert_array_equal(features.input_ids[0, begin : end + 1], pieces.ids[first : last + 1])


def test_answers_that_no_piece_begins_with(tokenizer):
    """All pieces that overlap the answer are included; removed characters are in none."""
    (pieces,) = tokenizer.pieces(["dog \u200b\x00 cat"])
    assert piece_span(pieces.offsets, Gold("o", 1)) == (0, 0)
    assert piece_span(pieces.offsets, Gold("og \u200b\x00 c", 1)) == (0, 1)
    assert piece_span(pieces.offsets, Gold("\x00", 5)) is None


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.integers(1, 60),
    length=st.integers(14, 30),
    stride=st.integers(1, 6),
    asked=st.integers(1, 9),
    seed=st.integers(0, 9),
)
def test_windows_cover_everything(tokenizer, pieces, length, stride, asked, seed):
    """Every piece is in a window and answered in exactly one, with the most context.

    There are as many windows as needed, and an answer is labelled exactly in those that contain all of it.
    """
    rng = np.random.default_rng(seed)
    words = rng.choice(small_tasks.WORDS.split(), pieces).tolist()
    context, query = " ".join(words), " ".join(["dog"] * asked)
    first = int(rng.integers(pieces))
    last = int(rng.integers(first, min(pieces, first + 4)))
    begin = len(" ".join(words[:first])) + (first > 0)
    text = " ".join(words[first : last + 1])
    items = questions(context, query, [Gold(text, begin), None])
    features = span_features(items, tokenizer, length=length, stride=stride, query_length=5)
    kept = min(asked, 5)
    room = length - kept - 3
    ids = tokenizer.ids([context])[0]
    assert len(ids) == pieces
    count = 1 + max(0, -(-(pieces - room) // stride))
    assert features.question.tolist() == [0] * count + [1] * count
    best = features.best()
    covered = []
    for window in range(2 * count):
        here = features.input_ids[window]
        start, size = int(features.first[window]), int(features.count[window])
        column = int(features.column[window])
        assert start == (window % count) * stride
        assert column == kept + 2
        assert here[[0, column - 1, column + size]].tolist() == [
            tokenizer.cls_id,
            tokenizer.sep_id,
            tokenizer.sep_id,
        ]
        np.testing.assert_array_equal(here[column : column + size], ids[start : start + size])
        assert features.attention_mask[window].sum() == column + size + 1
        np.testing.assert_array_equal(
            np.flatnonzero(features.token_type_ids[window]), column + np.arange(size + 1)
        )
        covered += [piece_of(features, window, token) for token in np.flatnonzero(best[window]).tolist()]
        labels = int(features.start_positions[window]), int(features.end_positions[window])
        if window < count and start <= first and last < start + size:
            assert labels == (column + first - start, column + last - start)
        else:
            assert labels == (0, 0)
    assert covered[: len(covered) // 2] == covered[len(covered) // 2 :]
    assert sorted(covered) == sorted([*range(pieces), *range(pieces)])
    assert_best_windows(features, 0, pieces)


def assert_best_windows(features: SpanFeatures, number: int, pieces: int) -> None:
    """Checks BERT's definition of the best window.

    It maximizes the smaller context plus a hundredth of the window's length; the first of equal windows wins.
    """
    best = features.best()
    rows = np.flatnonzero(features.question == number).tolist()
    for piece in range(pieces):
        scores = {}
        for row in rows:
            start, size = int(features.first[row]), int(features.count[row])
            if start <= piece < start + size:
                scores[row] = min(piece - start, start + size - 1 - piece) + 0.01 * size
        found = [row for row in scores if best[row, features.column[row] + piece - features.first[row]]]
        assert found == [max(scores, key=lambda row: scores[row])]


def test_the_best_windows_of_long_paragraphs(tokenizer):
    """At the paper's length the last window may be so short that the tie-break decides."""
    for pieces in (381, 500, 511, 640):
        items = questions(" ".join(["dog"] * pieces), "dog", [None])
        assert_best_windows(span_features(items, tokenizer, length=384), 0, pieces)


def test_an_answer_across_two_windows(tokenizer):
    """If no window contains all of it, all are labelled with [CLS]."""
    words = ["dog"] * 20
    gold = Gold(" ".join(words[2:14]), len("dog dog "))
    features = span_features(
        questions(" ".join(words), "Who?", [gold]), tokenizer, length=16, stride=4, query_length=4
    )
    assert len(features.question) > 2
    assert not features.start_positions.any()
    assert not features.end_positions.any()


def test_paragraphs_are_cut_once(tokenizer):
    """Questions about one paragraph share its offsets; the defaults are the paper's numbers."""
    items = questions("The dog sat. " * 200, "Who? " * 100, [None, None])
    features = span_features(items, tokenizer, length=384)
    assert features.offsets[0] is features.offsets[1]
    assert np.unique(np.diff(features.first[features.question == 0])).tolist() == [128]
    assert features.column.tolist() == [66] * len(features.column)


def test_what_does_not_fit(tokenizer):
    """Numbers that are too small are named."""
    for name in ("stride", "query_length"):
        with pytest.raises(ValueError, match=f"{name}: got 0, expected at least 1"):
            span_features([], tokenizer, length=384, **{name: 0})
    with pytest.raises(
        ValueError, match=r"length: got 128, expected at least query_length \+ stride \+ 3 = 195"
    ):
        span_features([], tokenizer, length=128)
    with pytest.raises(ValueError, match="length: got 194, expected at least"):
        span_features([], tokenizer, length=194)
    assert span_features([], tokenizer, length=195).input_ids.shape == (0, 195)
    empty = span_features([], tokenizer, length=384)
    assert empty.input_ids.shape == (0, 384)
    assert empty.best().shape == (0, 384)
