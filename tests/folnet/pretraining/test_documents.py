"""Sentences, paragraphs, and which documents are held out."""

import numpy as np
import pytest

from folnet.pretraining.documents import Documents, Listed, is_held_out, sentences, unwrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. Smith met J. Chen, e.g. On Monday. So did I. He left.", 3),
        ('He said "no." Then "Yes!" (She too.) End', ['He said "no."', 'Then "Yes!"', "(She too.)", "End"]),
        ("It is 3.5 of v1.2. Not 4", ["It is 3.5 of v1.2.", "Not 4"]),
        ("a line\n\n another one  \nand a third", ["a line", "another one", "and a third"]),
        ("lower. case goes on... and on", ["lower. case goes on... and on"]),
        ("Wait... What?! Yes", ["Wait...", "What?!", "Yes"]),
        ("你好。再见。", ["你好。", "再见。"]),
        ("  \n\n", []),
        ("", []),
    ],
)
def test_sentences(text, expected):
    """Split at line ends and after the marks that end a sentence."""
    found = sentences(text)
    if isinstance(expected, int):
        assert len(found) == expected, found
    else:
        assert found == expected
    # Nothing but white space is lost.
    assert "".join("".join(found).split()) == "".join(text.split())


def test_unwrap():
    """A paragraph becomes a line; paragraphs are separated by blank lines, possibly with white space."""
    assert unwrap("a b\n  c\r\nd\n \t\n\n\ne\nf\n") == "a b c d\ne f"
    assert unwrap("\n\n") == ""


def test_held_out_is_a_fair_and_fixed_choice():
    """Membership depends on the text alone.

    The fraction is within four standard deviations, and larger fractions include smaller ones.
    """
    texts = [f"text {number}" for number in range(4000)]
    for fraction in (0.0, 0.05, 0.5, 1.0):
        share = np.mean([is_held_out(text, fraction) for text in texts])
        assert abs(share - fraction) <= 4 * np.sqrt(fraction * (1 - fraction) / len(texts))
    small, large = ({text for text in texts if is_held_out(text, f)} for f in (0.05, 0.2))
    assert small < large
    other = {text for text in texts if is_held_out(text, 0.2, salt="b")}
    assert 0 < len(large & other) < len(large)
    # A choice that changed from one version to the next would mix what was kept apart.
    assert [number for number in range(40) if is_held_out(f"text {number}", 0.1)] == [10, 23, 32, 37]


def test_documents_are_a_sequence():
    """They behave like a list; an index out of range is an error."""
    listed = Listed([("a", "one"), ("b", "two"), ("c", "three")])
    assert isinstance(listed, Documents)
    assert [document.text for document in listed] == ["one", "two", "three"]
    assert listed[-1] == ("c", "three")
    assert listed[1:] == [("b", "two"), ("c", "three")]
    with pytest.raises(IndexError, match=r"index: got 3, expected 0 to 2"):
        listed[3]
