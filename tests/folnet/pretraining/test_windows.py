"""Windows compared with the text they come from."""

import itertools
import string
from typing import Any

import numpy as np
import pytest
from scipy import stats

from folnet.pretraining.documents import Document, is_held_out
from folnet.pretraining.windows import (
    MemoryWindows,
    Windows,
    check_packing,
    make_windows,
    prepare,
    tokenize_document,
)
from folnet.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.folnet.small_text import LENGTHS, corpus, split


def places(tokens) -> list[Any]:
    """Returns document and place of each token."""
    where = corpus()[2]
    return [where.get(int(token)) for token in tokens]


def take_all(windows):
    return windows.take(range(len(windows)))


def test_tokens_of_a_document():
    """All tokens in order, with the starts of sentences."""
    documents, tokenizer, _, begins = corpus()
    for number, document in enumerate(documents):
        tokens, starts = tokenize_document(document.text, tokenizer)
        assert places(tokens) == [(number, place) for place in range(LENGTHS[number])]
        assert np.flatnonzero(starts).tolist() == begins[number]


@pytest.mark.parametrize("packing", ["document", "sentences"])
@pytest.mark.parametrize("length", [8, 32, 128])
def test_windows_go_through_each_document(packing, length):
    """Every token occurs once and in order, except a remainder of one.

    Place, count and sentences are right.
    """
    begins = corpus()[3]
    windows = split(length, packing).train
    assert isinstance(windows, Windows)
    assert windows.room == length - 3
    seen: dict[int, list] = {}
    for window in take_all(windows):
        found = places(window.tokens)
        document, first = found[0]
        assert 2 <= len(found) <= windows.room
        assert found == [(document, first + step) for step in range(len(found))]
        assert (window.starts + first).tolist() == [
            start for start in begins[document] if first <= start < first + len(found)
        ]
        seen.setdefault(document, []).append((window.place, window.count, first, len(found)))
    for document, parts in seen.items():
        assert [place for place, *_ in parts] == list(range(len(parts)))
        assert {count for _, count, *_ in parts} == {len(parts)}
        firsts = [first for *_, first, _ in parts]
        ends = [first + size for *_, first, size in parts]
        dropped = np.asarray(firsts) - [0, *ends[:-1]]  # a sentence's last token, alone in its window
        assert set(dropped.tolist()) <= ({0, 1} if packing == "sentences" and length == 8 else {0})
        assert LENGTHS[document] - ends[-1] in (0, 1)
        sizes = [size for *_, size in parts[:-1]]
        if packing == "document":
            assert set(sizes) <= {windows.room}
        else:  # whole sentences, as many as fit; one that is too long is cut
            for first, size in zip(firsts, sizes, strict=False):
                following = [start for start in begins[document] if start > first]
                fitting = [start - first for start in following if start - first <= windows.room]
                assert size == (max(fitting) if fitting else windows.room)
    assert sorted(seen) == list(range(len(LENGTHS)))


def test_a_document_of_any_length():
    """Tokenizing sentences in chunks does not affect the result."""
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "a", "b", "##b"])
    text = "\n".join(["a bb", "", "\t", "b"] * 700)
    tokens, begins = tokenize_document(text, tokenizer)
    assert tokens.tolist() == [5, 6, 7, 6] * 700
    assert begins.tolist() == [True, False, False, True] * 700


def test_documents_run_on():
    """All windows but the last are full; a separator occurs between documents and nowhere else."""
    tokenizer = corpus()[1]
    windows = take_all(split(32, "corpus").train)
    assert {len(window.tokens) for window in windows[:-1]} == {29}
    assert {(window.place, window.count) for window in windows} == {(0, 0)}
    stream = np.concatenate([window.tokens for window in windows])
    expected = []
    for document, length in enumerate(LENGTHS):
        expected += [None] * (document > 0) + [(document, place) for place in range(length)]
    assert places(stream) == expected[: len(stream)]
    assert len(expected) - len(stream) < 2
    assert [stream[i] for i, place in enumerate(expected[: len(stream)]) if place is None] == [
        tokenizer.sep_id
    ] * (len(LENGTHS) - 1)


def test_short_windows_are_a_function_of_seed_and_text():
    """Their fraction is as requested, they depend on the document's text only, and no token is lost."""
    documents, tokenizer, *_ = corpus()

    def made(chosen, seed):
        arguments = {"length": 16, "short_fraction": 0.3, "seed": seed}
        return [window.tokens.tolist() for window in make_windows(chosen, tokenizer, **arguments)]

    every = made(documents, 0)
    inside = [tokens for tokens, following in itertools.pairwise(every) if following]
    short = np.mean([len(tokens) < 13 for tokens in inside])
    assert 0.15 < short < 0.45
    assert made([documents[5]], 0) == [tokens for tokens in every if places(tokens)[0][0] == 5]
    assert made(documents, 1) != every
    lost = sum(LENGTHS) - sum(map(len, every))
    assert 0 <= lost <= len(LENGTHS)


def test_short_windows_have_any_length_from_two_to_a_full_one():
    """All are equally likely."""
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "a"])
    document = Document("x", "a " * 9000)
    sizes = [len(w.tokens) for w in make_windows([document], tokenizer, length=10, short_fraction=1.0)]
    counts = np.bincount(sizes[:-1])
    assert np.flatnonzero(counts).tolist() == [2, 3, 4, 5, 6, 7]
    assert stats.chisquare(counts[2:]).pvalue > 1e-4


def test_held_out_documents_are_kept_apart():
    """No token is on both sides, and the texts' hashes determine the sides."""
    documents = corpus()[0]
    train, held_out = split(32, held_out=0.4)
    sides = [{places(w.tokens)[0][0] for w in take_all(part)} for part in (train, held_out)]
    assert sides[0] | sides[1] == set(range(len(LENGTHS)))
    assert sides[1] == {n for n, document in enumerate(documents) if is_held_out(document.text, 0.4)}
    assert sides[0].isdisjoint(sides[1])
    assert len(sides[1]) > 1
    assert train.num_tokens + held_out.num_tokens <= sum(LENGTHS)
    assert train.vocabulary == held_out.vocabulary == corpus()[1].fingerprint


def test_texts_without_text():
    """Empty documents and those of a single token have no window."""
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "a"])
    documents = [Document("x", ""), Document("y", " \n"), Document("z", "a"), Document("v", "a a\n\na")]
    (window,) = make_windows(documents, tokenizer, length=8)
    assert window.tokens.tolist() == [5, 5, 5]
    assert window.starts.tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"documents: got .* expected some text"):
        prepare(documents[:3], tokenizer, held_out=0)
    empty = MemoryWindows([], room=5, packing="document", vocabulary="")
    assert (len(empty), empty.num_tokens, empty.take([])) == (0, 0, [])


def windows_of(texts, packing):
    """Makes windows of up to five of the words a to z."""
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *string.ascii_lowercase])
    documents = [Document(str(number), text) for number, text in enumerate(texts)]
    for window in make_windows(documents, tokenizer, length=8, packing=packing):
        text = "".join("," if n == tokenizer.sep_id else tokenizer.vocabulary[n] for n in window.tokens)
        yield text, window.starts.tolist(), window.place, window.count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b\nc d e", [("abcde", [0, 2], 0, 1)]),  # the last sentence fits just so
        ("a b\nc d e f", [("ab", [0], 0, 2), ("cdef", [0], 1, 2)]),
        ("a b c d e\nf\ng h i j k", [("abcde", [0], 0, 2), ("ghijk", [0], 1, 2)]),  # f is left alone
        ("a b c d e\nf g\nh i j k", [("abcde", [0], 0, 3), ("fg", [0], 1, 3), ("hijk", [0], 2, 3)]),
    ],
)
def test_sentences_that_just_fit(text, expected):
    """A window with a single token is none, and is not counted."""
    assert list(windows_of([text], "sentences")) == expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a b c", "", "d\ne f"], [("abc,d", [0, 4], 0, 0), ("ef", [0], 0, 0)]),
        (["a b c", " \n", "d\ne"], [("abc,d", [0, 4], 0, 0)]),
        (["a b c", "d"], [("abc,d", [0, 4], 0, 0)]),
    ],
)
def test_sentences_of_documents_that_run_on(texts, expected):
    """A separator begins none, documents without text have none, and a last token alone is dropped."""
    assert list(windows_of(texts, "corpus")) == expected


def test_bounds_of_arguments():
    """Values at the ends of their ranges are accepted."""
    check_packing("document", 5, 1.0, 2**16)
    check_packing("corpus", 2**16 - 1, 0.0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"packing": "full"}, "packing: got 'full', expected one of 'document', 'sentences', 'corpus'"),
        ({"length": 4}, r"length: got 4, expected 5 to 65535 tokens"),
        ({"length": 2**16}, r"length: got 65536, expected 5 to 65535"),
        ({"short_fraction": -0.1}, r"short_fraction: got -0.1, expected 0 to 1"),
        ({"short_fraction": 1.1}, r"short_fraction: got 1.1, expected 0 to 1"),
        (
            {"short_fraction": 0.1, "packing": "corpus"},
            "short_fraction: got 0.1, expected 0 \\(packing 'corpus'",
        ),
        ({"held_out": 1.0}, "held_out: got 1.0, expected at least 0 and below 1"),
    ],
)
def test_bad_arguments(arguments, message):
    """The error names the argument, before anything is read."""
    with pytest.raises(ValueError, match=message):
        prepare(iter([Document("x", "text")]), corpus()[1], **arguments)


def test_vocabularies_that_are_too_large():
    """Ids are stored in two bytes."""
    large = WordPieceTokenizer([*SPECIAL_TOKENS, *map(str, range(2**16))])
    with pytest.raises(ValueError, match="tokenizer: got 65541 pieces, expected at most 65536"):
        prepare([Document("x", "1 2 3")], large)
