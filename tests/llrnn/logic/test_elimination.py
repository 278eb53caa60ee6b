import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    Both,
    Fst,
    Ket,
    Lam,
    Pair,
    Var,
    Zero,
    bang,
    cut_elimination,
    let_bang,
    let_pair,
    numeral,
)

A = Atom("A", 2)
E = logic.endo(A)


def test_a_trace_is_printed_line_by_line():
    x, v, f = Var("x", A), Var("v", A), Var("f", E)
    term = Lam("y", A, Fst(Both(Var("y", A), x)))(f(let_bang(Ket(x, (v,)), lambda p: f(p))))
    assert str(cut_elimination(term)) == "\n".join(
        [
            "      (\\y. fst <y, x>) (f (let !p = |v>_x in f p))",
            "   -o fst <f (let !p = |v>_x in f p), x>",
            "    & f (let !p = |v>_x in f p)",
            "    d f (f v)",
        ]
    )
    assert str(cut_elimination(x)) == "      x"
    assert cut_elimination(Both(x, Zero(A))).steps == ()


def test_one_plus_one_is_two_in_eight_steps():
    trace = cut_elimination(logic.plus(A)(numeral(1, A), numeral(1, A)))
    assert trace.normal == numeral(2, A)
    assert [step.rule for step in trace.steps] == ["-o", "-o", "-o", "!", "-o", "-o", "!", "-o"]


def test_lets_and_sums_move_out_and_sums_are_sorted_last():
    t, x, f = Var("t", logic.Tensor(A, A)), Var("x", A), Var("f", E)
    opened = f(let_pair(t, lambda a, b: f(a) + a))
    trace = cut_elimination(Pair(opened, x))
    assert [step.rule for step in trace.steps][-1] == "order"
    assert {step.rule for step in trace.steps} == {"let", "sum", "order"}


def test_independent_lets_are_sorted():
    """They move out of the two arguments in another order than subterms are normalised in."""
    term = logic.parse(
        r"\!p:!(A -o A (x) A). \!q:!(A -o A -o A (x) A). \!h:!(A -o A -o A). \!s:!(A -o 1). \!x:!A. "
        r"h (let a (x) b = (let u (x) v = p x in q u v) in h a b) (let * = s x in x)",
        {"A": A},
    )
    trace = cut_elimination(term)
    assert trace.normal == logic.normalize(term)
    assert all(logic.normalize(step.term) == trace.normal for step in trace.steps)


def test_substitution_captures_nothing():
    x = Var("x", A)
    (step,) = cut_elimination(Lam("y", A, Lam("x", A, Pair(x, Var("y", A))))(x)).steps
    assert step.term == Lam("z", A, Pair(Var("z", A), x))


def test_refusals():
    with pytest.raises(ValueError, match="limit: got 3, expected at least the number of steps"):
        cut_elimination(logic.mult(A)(numeral(2, A), bang(numeral(2, A))), limit=3)
    with pytest.raises(logic.LinearityError, match="got two uses"):
        cut_elimination(logic.lam(A, lambda x: Pair(x, x)))
