import re
from collections import Counter

import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    Bang,
    Both,
    Ket,
    Lam,
    Pair,
    Sum,
    Var,
    Zero,
    bang,
    banged,
    derivation,
    derivative,
    lam,
    let_bang,
    normalize,
    numeral,
    validate,
)

A, B = Atom("A", 3), Atom("B", 2)
E = logic.endo(A)


def rules(tree):
    return Counter(node.rule for node in tree.instances())


PROGRAMS = {
    "numeral": numeral(3, A),
    "no numeral": numeral(0, A),
    "word": logic.binary_integer("0110", A),
    "plus": logic.plus(A),
    "mult": logic.mult(A),
    "square": logic.square(A),
    "concat": logic.concat(A),
    "repeat": logic.repeat(A),
    "feed": logic.feed(A),
    "three times four": logic.mult(A)(numeral(3, A), bang(numeral(4, A))),
    "ntm": logic.ntm_master(A, A, B),
    "ntm in normal form": normalize(logic.ntm_master(A, A, B)),
    "derivative": derivative(logic.square(A)),
    "second derivative": derivative(derivative(numeral(3, A))),
    "codereliction": lam(A, A, lambda x, y: Ket(Zero(A), (x, y))),
    "zero": lam(A, A, lambda x, y: Pair(x, Both(y, Zero(B)))),
    "two zeros, one of which takes x": lam(A, lambda x: Pair(Zero(A), Zero(B))),
    "one summand": lam(Bang(A), lambda y: let_bang(Sum((y,)), lambda x: bang(x))),
    "zeros": lam(A, lambda x: Both(Zero(B), Zero(A))),
    "a program of a hidden type variable": logic.parse(r"/\X. \y:X. /\X. \z:X. <>"),
    "a zero of a hidden type variable": logic.parse(r"/\X. \y:X. /\X. 0:X"),
    "shared": banged(A, lambda x: Both(x, Both(Pair(x, x), logic.Star()))),
}


@pytest.mark.parametrize("term", PROGRAMS.values(), ids=PROGRAMS)
def test_every_rule_instance_is_one_and_the_conclusion_is_the_type(term):
    tree = derivation(term)
    assert tree.hypotheses == ()
    assert tree.conclusion == logic.check(term)
    validate(tree)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_numeral_contracts_its_uses(n):
    counted = rules(derivation(numeral(n, A)))
    assert counted["contraction"] == max(n - 1, 0)
    assert counted["dereliction"] == counted["-oL"] == n
    assert counted["weakening"] == (n == 0)
    assert counted["cut"] == 0


@pytest.mark.parametrize("name", ["three times four", "derivative", "ntm"])
def test_cut_elimination_eliminates_the_cuts(name):
    assert rules(derivation(normalize(PROGRAMS[name])))["cut"] == 0
    if name != "derivative":
        assert rules(derivation(PROGRAMS[name]))["cut"] > 0


def test_differential_rules_appear_where_the_term_has_tangents():
    counted = rules(derivation(PROGRAMS["codereliction"]))
    assert counted["codereliction"] == 1
    assert counted["deriving"] == 1
    assert rules(derivation(banged(A, lambda x: lam(A, lambda v: Ket(x, (v,))))))["deriving"] == 1
    assert rules(derivation(derivative(numeral(2, A))))["sum"] == 1


def test_a_context_becomes_the_hypotheses():
    f, x = Var("f", E), Var("x", A)
    tree = derivation(f(f(x)), unrestricted={"f": E, "unused": B}, linear={"x": A})
    assert Counter(tree.hypotheses) == Counter([Bang(E), Bang(B), A])
    validate(tree)
    with pytest.raises(logic.LinearityError):
        derivation(f(f(x)), linear={"f": E, "x": A})


def test_two_variables_of_one_name_stay_apart():
    x, f = Var("x", A), Var("f", E)
    tree = derivation(Lam("x", A, Lam("f", E, Lam("x", A, x)(f(x)))))
    validate(tree)
    assert tree.sequent == "|- A -o (A -o A) -o A"


def test_it_is_printed_as_a_tree():
    assert str(derivation(numeral(1, A))) == "\n".join(
        [
            "   ------ ax   ------ ax",
            "   A |- A      A |- A",
            "   ------------------ -oL",
            "     A -o A, A |- A",
            "   ----------------- dereliction",
            "   !(A -o A), A |- A",
            "  ------------------- -oR",
            "  !(A -o A) |- A -o A",
            "---------------------- -oR",
            "|- !(A -o A) -o A -o A",
        ]
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_bars_reach_over_what_stands_above_and_below(name):
    lines = ["", *str(derivation(PROGRAMS[name])).splitlines()]
    bars = [(number, bar.span()) for number, line in enumerate(lines) for bar in re.finditer("-{3,}", line)]
    assert bars
    for number, (start, end) in bars:
        for line in (lines[number - 1], lines[number + 1]):
            for text in re.finditer(r"\S+( {1,2}\S+)*", line):
                if text.start() < end and start < text.end():
                    assert start <= text.start() < text.end() <= end, (line, lines[number])


def test_a_derivation_as_deep_as_a_large_numeral():
    assert rules(derivation(numeral(300, A)))["contraction"] == 299
