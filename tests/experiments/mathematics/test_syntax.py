"""Syntactic roles of the characters of expressions, against labels by hand, values, and the drawn trees."""

import random
from typing import Any

import numpy as np
import pytest

from experiments.mathematics import expressions, syntax
from tp_transformer import mathematics

SYMBOLS = "+-*/"

BY_HAND = {
    "Calculate -10 - -3 - (3 + -1) - -15.": {
        "kind": "..........100.2.10.2.30.2.103.2.100.",
        "place": "...........10....0....0....0.....10.",
        "depth": "...........00.0..0.0..1.1..1..0..00.",
        "operand": "...........00....1....0....1.....11.",
        "operator": "...........11....1....0....0.....11.",
        "inverse": "...........00....1....1....1.....11.",
    },
    "What is (-3)/(-6)*(4/(8/10))?": {
        "kind": "........31032310323023020033.",
        "place": "..........0....0...0..0.10...",
        "depth": "..........1.0..1.0.11.2222...",
        "operand": "..........0....1...0..0.11...",
        "operator": "..........3....3...3..3.33...",
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


def leaves(tree: Any, operand=syntax.NONE, operator=syntax.NONE, inverse=0):
    """Returns operand, operator and inverse of each number of a tree, from left to right."""
    if not isinstance(tree, tuple):
        return [(operand, operator, inverse)]
    left, symbol, right = tree
    label = SYMBOLS.index(symbol)
    turned = inverse ^ (symbol in "-/")
    return leaves(left, 0, label, inverse) + leaves(right, 1, label, turned)


def parsed(question):
    """Returns the same for each number of a question."""
    found = syntax.parse(question)
    assert found is not None, question
    first = np.flatnonzero((found.kind == 0) & (np.r_[syntax.NONE, found.kind[:-1]] != 0))
    for name in ("operand", "operator", "inverse"):  # all digits of a number have the same label
        labels = getattr(found, name)
        for at in np.flatnonzero(found.kind == 0):
            assert labels[at] == labels[first[first <= at][-1]]
    return [(found.operand[at], found.operator[at], found.inverse[at]) for at in first.tolist()]


@pytest.mark.parametrize("module", expressions.MODULES)
def test_roles_of_small_expressions_are_those_of_the_drawn_tree(module):
    source, seen = expressions.Expressions(0, 0), set()
    for seed in range(100):
        tree = expressions.draw_tree(module, random.Random(seed))
        question = source.draw(module, random.Random(seed)).question
        assert parsed(question) == leaves(tree), question
        seen |= set(leaves(tree))
    assert len(seen) == (8 if module == "right" else 4)


def drawn(op) -> Any:
    """Returns the generator's tree."""
    children = op.children
    if not children:
        return int(op.value)
    named = isinstance(children, dict)
    names = ("numer", "denom") if named and "numer" in children else ("left", "right") if named else (0, 1)
    left, right = (children[name] for name in names)
    return drawn(left), SYMBOLS[["Add", "Sub", "Mul", "Div"].index(type(op).__name__)], drawn(right)


def chain(tree: Any, joined: str) -> list[Any]:
    """Returns operands that the generator writes without brackets, each after its symbol."""
    if not isinstance(tree, tuple) or tree[1] not in joined:
        return [("", regrouped(tree))]
    left, symbol, right = tree
    if symbol == "/":  # its numerator has brackets
        return [("", regrouped(left)), (symbol, regrouped(right))]
    (_, first), *others = chain(right, joined)
    return [*chain(left, joined), (symbol, first), *others]


def regrouped(tree: Any) -> Any:
    """Groups sums in a sum, and products and quotients in a product, from the left, as they are read."""
    if not isinstance(tree, tuple) or tree[1] not in "+*":
        return (regrouped(tree[0]), tree[1], regrouped(tree[2])) if isinstance(tree, tuple) else tree
    (_, found), *others = chain(tree, "+" if tree[1] == "+" else "*/")
    for symbol, operand in others:
        found = (found, symbol, operand)
    return found


def test_roles_of_the_dataset_are_those_of_the_generators_tree(monkeypatch):
    """But for brackets that it leaves out, in some questions."""
    mathematics.import_generator()
    from mathematics_dataset.sample import arithmetic

    made, make = [], arithmetic.arithmetic

    def kept(**options):
        made.append(make(**options))
        return made[-1]

    monkeypatch.setattr(arithmetic, "arithmetic", kept)
    questions = [pair.question for pair in mathematics.draw("interpolate", "arithmetic__mixed", 100, seed=5)]
    assert len(made) == 100
    trees = list(map(drawn, made))
    for question, tree in zip(questions, trees, strict=True):
        assert parsed(question) == leaves(regrouped(tree)), question
    assert sum(parsed(question) == leaves(tree) for question, tree in zip(questions, trees, strict=True)) > 60
    assert {label[1] for tree in trees for label in leaves(tree)} == {0, 1, 2, 3}
