"""Syntactic roles of the characters of expressions, against labels by hand and against values."""

import numpy as np
import pytest

from experiments.mathematics import syntax
from tp_transformer import mathematics

BY_HAND = {
    "Calculate -10 - -3 - (3 + -1) - -15.": {
        "kind": "..........100.2.10.2.30.2.103.2.100.",
        "place": "...........10....0....0....0.....10.",
        "depth": "...........00.0..0.0..1.1..1..0..00.",
        "operand": "...........00....1....0....1.....11.",
        "inverse": "...........00....1....1....1.....11.",
    },
    "What is (-3)/(-6)*(4/(8/10))?": {
        "kind": "........31032310323023020033.",
        "place": "..........0....0...0..0.10...",
        "depth": "..........1.0..1.0.11.2222...",
        "operand": "..........0....1...0..0.11...",
        "inverse": "..........0....1...0..1.00...",
    },
}


@pytest.mark.parametrize("question", BY_HAND)
def test_labels(question):
    """The second question is of the form of figure 2: a denominator's denominator is in the numerator."""
    found = syntax.parse(question)
    assert found is not None
    for name, want in BY_HAND[question].items():
        shown = "".join("." if label == syntax.NONE else str(label) for label in getattr(found, name))
        assert shown == want, name


@pytest.mark.parametrize("question", ["What is 7?", "Is 3 bigger than 4?", "", "Calculate (3 + 4.", "- )("])
def test_questions_without_an_expression(question):
    assert syntax.parse(question) is None


def test_denominators_are_those_of_the_value():
    """Doubling a factor of the denominator halves the value of products and quotients, and no other."""
    for question, _ in mathematics.draw("interpolate", "arithmetic__mul_div_multiple", 30, seed=3):
        found = syntax.parse(question)
        assert found is not None
        at = np.flatnonzero(found.kind != syntax.NONE)
        first, last = at[0], at[-1] + 1
        starts = np.flatnonzero((found.kind == 0) & (np.r_[syntax.NONE, found.kind[:-1]] != 0))
        value = eval(question[first:last])
        if not value:
            continue
        for start in starts:
            doubled = eval(f"{question[first:start]}2*{question[start:last]}".replace("/2*", "/2/"))
            assert doubled == pytest.approx(value * (0.5 if found.inverse[start] else 2)), question
