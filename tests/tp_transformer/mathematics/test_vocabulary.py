"""The vocabulary: sizes, ids, encoding and decoding."""

import dataclasses

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tp_transformer.mathematics.vocabulary import CHARACTERS, DEFAULT, END, PAD, START, Vocabulary

TEXTS = st.text(alphabet=CHARACTERS, max_size=160)
KINDS = (DEFAULT, Vocabulary.released(), Vocabulary("ab", pad=4, start=1, end=0, first=7))


def test_sizes_are_the_papers():
    """72 symbols in the paper; the released weights have an additional unused one."""
    assert len(CHARACTERS) == 69
    assert DEFAULT.size == 72
    assert Vocabulary.released().size == 73


def test_a_note_makes_no_other_vocabulary():
    assert dataclasses.replace(DEFAULT, note="where it comes from") == DEFAULT


def test_golden_ids():
    """Ids agree with the recorded outputs of the authors' code."""
    assert (DEFAULT.pad, DEFAULT.start, DEFAULT.end) == (PAD, START, END) == (0, 1, 2)
    assert Vocabulary.released().special_ids == {"pad": 1, "start": 2, "end": 3}


def test_written_out():
    """Ids of a text by hand: a space is the first character, '-' the ninth."""
    np.testing.assert_array_equal(DEFAULT.encode("- "), [1, 11, 3, 2])
    np.testing.assert_array_equal(Vocabulary.released().encode("- "), [2, 12, 4, 3])


@hypothesis.given(st.lists(TEXTS, max_size=5))
@hypothesis.settings(deadline=None, max_examples=50)
def test_batches_are_the_texts_padded(texts):
    """Rows equal the encoded texts and decode to them."""
    rows = DEFAULT.encode_batch(texts, 162)
    assert rows.shape == (len(texts), 162)
    assert rows.dtype == np.int32
    for row, text in zip(rows, texts, strict=True):
        np.testing.assert_array_equal(row[: len(text) + 2], DEFAULT.encode(text))
        assert (row[len(text) + 2 :] == PAD).all()
        assert DEFAULT.decode(row) == text


@pytest.mark.parametrize("vocabulary", KINDS, ids=["paper", "released", "own"])
def test_round_trip(vocabulary):
    """Every character has a separate id in every vocabulary."""
    ids = vocabulary.encode(vocabulary.characters)
    assert len(set(ids.tolist())) == len(ids)
    assert max(ids) == vocabulary.size - 1
    assert vocabulary.decode(ids) == vocabulary.characters
    assert vocabulary.decode(ids[1:]) == vocabulary.characters


def test_decoding_stops_at_the_first_end_or_padding():
    """Symbols after the end are ignored; a start symbol inside the text is shown."""
    one, two = DEFAULT.encode("12")[1:3]
    assert DEFAULT.decode([START, one, END, two]) == "1"
    assert DEFAULT.decode([START, one, PAD, two, END]) == "1"
    assert DEFAULT.decode([START, one, START, two, END]) == "1\ufffd2"
    assert DEFAULT.decode([START]) == ""
    assert Vocabulary.released().decode([2, 0, 3]) == "\ufffd", "an id without a symbol"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DEFAULT.encode("2 + B"), "'B' at position 4"),
        (lambda: DEFAULT.encode("2\u00d72"), "'\u00d7' at position 1"),
        (lambda: DEFAULT.encode_batch(["1", "2?", "x#"]), "'#' at position 1"),
        (lambda: DEFAULT.encode_batch(["1", "\u00e9"]), "'\u00e9' at position 0"),
        (lambda: DEFAULT.encode_batch(["123"], 4), "length: got 4, expected at least 5"),
        (lambda: DEFAULT.decode([START, -1]), "-1 at position 1, expected 0 to 71"),
        (lambda: Vocabulary(""), "expected one or more ASCII characters"),
        (lambda: Vocabulary("\u00e9"), "expected one or more ASCII characters"),
        (lambda: Vocabulary("ab", pad=-1), "three different ids"),
        (lambda: Vocabulary("ab", first=254), "got 256 symbols, expected all ids below 255"),
        (lambda: DEFAULT.decode([START, 72]), "72 at position 1, expected 0 to 71"),
        (lambda: Vocabulary("aba"), r"got \['a'\] more than once"),
        (lambda: Vocabulary("fbafabf"), r"got \['a', 'b', 'f'\] more than once"),
        (lambda: Vocabulary("a\n"), "no line breaks"),
        (lambda: Vocabulary("ab", pad=1, start=1), "three different ids"),
        (lambda: Vocabulary("ab", end=3), "below first=3"),
    ],
)
def test_refusals(call, message):
    """Errors state the position."""
    with pytest.raises(ValueError, match=message):
        call()


def test_as_many_symbols_as_ids():
    """The largest vocabulary, and the shortest batch; without a length, that of the longest text."""
    assert Vocabulary("ab", first=253).decode([1, 254, 253]) == "ba"
    assert DEFAULT.encode_batch(["123"], 5).shape == (1, 5)
    assert DEFAULT.encode_batch(["1", "123"]).shape == (2, 5)
    assert DEFAULT.encode_batch([]).shape == (0, 2)


def test_frozen():
    """Neither a vocabulary nor its table of ids can be modified."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.pad = 5  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        DEFAULT.ids[0] = 3


def test_rows_in_another_vocabulary_are_those_of_the_same_symbols():
    """An id that is no symbol, and a character that the other lacks, have none."""
    ours, other = Vocabulary("abc", pad=3, start=0, end=1, first=4), Vocabulary("cxa", pad=0, start=1, end=2)
    assert ours.rows_in(other).tolist() == [1, 2, -1, 0, 5, -1, 3]
    assert ours.rows_in(ours).tolist() == [0, 1, -1, 3, 4, 5, 6]
    assert DEFAULT.rows_in(Vocabulary.released()).tolist() == list(range(1, 73))
