import itertools

import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    Bang,
    Both,
    Fst,
    Ket,
    Lam,
    LetBang,
    LetPair,
    Lolli,
    One,
    Pair,
    Star,
    Sum,
    Tensor,
    Var,
    With,
    Zero,
    bang,
    binary_integer,
    check,
    denote,
    lam,
    let_bang,
    let_pair,
    let_star,
    normalize,
    numeral,
)

A, B = Atom("A", 3), Atom("B", 2)
E = logic.endo(A)


def n(k):
    return numeral(k, A)


def w(word):
    return binary_integer(word, A)


def parsed(text):
    return logic.parse(text, {"A": A, "E": E})


@pytest.mark.parametrize(
    ("program", "result"),
    [
        (logic.plus(A)(n(2), n(3)), n(5)),
        (logic.plus(A)(n(0), n(0)), n(0)),
        (logic.mult(A)(n(3), bang(n(4))), n(12)),
        (logic.mult(A)(n(0), bang(n(4))), n(0)),
        (logic.mult(A)(n(4), bang(n(0))), n(0)),
        (logic.square(A)(bang(n(5))), n(25)),
        (logic.plus(A)(logic.mult(A)(n(2), bang(n(3))), logic.square(A)(bang(n(2)))), n(10)),
        (logic.concat(A)(w("01"), w("110")), w("01110")),
        (logic.repeat(A)(bang(w("011"))), w("011011")),
        (logic.evaluate(A)(bang(n(3))), n(3)),
        (logic.feed(A)(w("001"), bang(n(2)), bang(n(3))), n(7)),
        (logic.plus(A)(n(150), n(250)), n(400)),
        (logic.mult(A)(n(20), bang(n(20))), n(400)),
    ],
)
def test_closed_programs_reach_their_church_normal_forms(program, result):
    assert normalize(program) == result
    assert check(program) == check(result)
    assert normalize(result) == result


def test_normal_forms_do_not_depend_on_where_a_let_was_written():
    late = lam(Bang(E), A, lambda y, z: let_bang(y, lambda f: f(f(z))))
    assert normalize(late) == n(2)
    crossed = lam(
        Bang(E),
        Bang(E),
        lambda p, q: let_bang(q, lambda y: let_bang(p, lambda x: lam(A, lambda z: x(y(z))))),
    )
    assert normalize(crossed) == w("10")
    expanded = lam(logic.integer(A), Bang(E), A, lambda m, y, z: m(y)(z))(n(3))
    assert normalize(expanded) == n(3)


@pytest.mark.parametrize(
    ("term", "result"),
    [
        (lambda x, f: Fst(Both(f(x), Star())), lambda x, f: f(x)),
        (lambda x, f: let_star(Star(), f(x)), lambda x, f: f(x)),
        (lambda x, f: let_pair(Pair(f, x), lambda g, y: g(y)), lambda x, f: f(x)),
        (lambda x, f: Lam("g", E, Var("g", E)(x))(f), lambda x, f: f(x)),
        (lambda x, f: f(x + x), lambda x, f: f(x) + f(x)),
        (lambda x, f: (f + f)(x), lambda x, f: f(x) + f(x)),
        (lambda x, f: f(Zero(A)), lambda x, f: Zero(A)),
        (lambda x, f: f(Sum((Zero(A), x))), lambda x, f: f(x)),
        (lambda x, f: Pair(x + x, Zero(B)), lambda x, f: Zero(Tensor(A, B))),
        (lambda x, f: Both(x, x + Zero(A)), lambda x, f: Both(x, x)),
        (lambda x, f: Both(Zero(A), x), lambda x, f: Both(Zero(A), x)),
        (lambda x, f: Both(x, Zero(A)), lambda x, f: Both(x, Zero(A))),
        (lambda x, f: Both(Zero(A), Zero(B)), lambda x, f: Zero(With(A, B))),
        (lambda x, f: Fst(Both(x, x) + Both(f(x), x)), lambda x, f: x + f(x)),
        (lambda x, f: Ket(Zero(A), (x + f(x),)), lambda x, f: Ket(Zero(A), (x,)) + Ket(Zero(A), (f(x),))),
        (
            lambda x, f: lam(B, lambda y: Pair(x, y) + Pair(f(x), y)),
            lambda x, f: lam(B, lambda y: Pair(x, y)) + lam(B, lambda y: Pair(f(x), y)),
        ),
        (lambda x, f: bang(x + x), lambda x, f: bang(x + x)),  # promotion is not linear
    ],
)
def test_each_rule_in_one_step(term, result):
    x, f = Var("x", A), Var("f", E)
    assert normalize(term(x, f)) == result(x, f)


def test_lets_do_not_stand_between_the_halves_of_a_cut():
    t, x = Var("t", Tensor(A, One)), Var("x", A)
    opened = let_pair(t, lambda a, c: let_star(c, Both(a, x)))
    assert normalize(Fst(opened)) == let_pair(t, lambda a, c: let_star(c, a))
    function = let_pair(t, lambda a, c: let_star(c, lam(A, lambda y: Pair(y, a))))
    assert normalize(function(x)) == let_pair(t, lambda a, c: let_star(c, Pair(x, a)))
    nested = let_bang(let_pair(t, lambda a, c: let_star(c, Ket(Zero(A), (a,)))), lambda z: Pair(z, z))
    zero = Zero(Tensor(A, A))
    assert normalize(nested) == zero  # d(z (x) z) at 0 is 0


def test_opening_a_ket_differentiates():
    v, g, p = Var("v", A), Var("g", Lolli(A, Lolli(A, A))), Var("p", A)
    opened = let_bang(Ket(p, (v,)), lambda z: g(z)(z))
    assert normalize(opened) == g(p)(v) + g(v)(p)
    assert normalize(let_bang(Ket(p, (v,)), lambda z: Star())) == Zero(One)
    assert normalize(let_bang(Ket(p, (v,)), lambda z: bang(z))) == Ket(p, (v,))
    assert normalize(let_bang(Ket(p, (v,)), lambda z: Both(z, Star()))) == Both(v, Zero(One))
    twice = let_bang(Ket(p, (v, Var("w", A))), lambda z: bang(g(z)(z)))
    assert (
        len(normalize(twice).children) == 6
    )  # Faa di Bruno: g(v)(w), g(w)(v), and two by two first derivatives


def test_a_derivative_that_is_zero_on_both_sides_is_zero():
    text = r"\!p:!A. \!q:!!A. let !x = ||p>_p>_q in <let !y = x in *, let !y = x in *>"
    opened, zero = parsed(text), parsed(r"\!p:!A. \!q:!!A. 0:(1 & 1)")
    assert normalize(normalize(opened)) == normalize(opened)
    assert logic.equivalent(opened, zero)


def test_substitution_does_not_capture():
    y = Var("y", A)
    # (\x. \y. x (x) y) y: the argument y is not the bound one.
    assert normalize(Lam("x", A, Lam("y", A, Pair(Var("x", A), y)))(y)) == Lam("z", A, Pair(y, Var("z", A)))
    # let x (x) y = (y, x) in ..: the substitution is simultaneous.
    x = Var("x", A)
    assert normalize(LetPair(Pair(y, x), "x", "y", Pair(x, y))) == Pair(y, x)
    # A ket whose vector mentions a variable of the name that is opened.
    u, x1 = Var("u", A), Var("x1", A)
    for other in (u, x1):  # x1 is the first name to come to mind for the other x
        opened = LetBang(Ket(Zero(A), (x,)), "x", Pair(x, other))
        assert normalize(opened) == Pair(x, other)
    # The ket's variable, hidden by another of its name.
    hidden = LetBang(Ket(u, (y,)), "x", Pair(x, Lam("x", A, x)))
    assert normalize(hidden) == Pair(y, Lam("z", A, Var("z", A)))
    g = Var("g", Lolli(A, Tensor(A, A)))
    half = LetBang(Ket(u, (y,)), "x", LetPair(g(x), "x", "w", Pair(x, Var("w", A))))
    assert normalize(half) == LetPair(g(y), "a", "b", Pair(Var("a", A), Var("b", A)))
    # A vector under a binder of a name that it mentions.
    under = LetBang(Ket(u, (y,)), "x", Lam("y", A, Pair(x, y)))
    assert normalize(under) == Lam("z", A, Pair(y, Var("z", A)))
    # A vector under a let that binds a name that it mentions.
    pair = Var("t", Tensor(A, A))
    under = LetBang(Ket(u, (y,)), "x", LetPair(pair, "y", "w", Pair(x, Pair(y, Var("w", A)))))
    assert normalize(under) == LetPair(pair, "a", "b", Pair(y, Pair(Var("a", A), Var("b", A))))
    # A let that floats out of a lambda whose variable has the name it binds.
    t = Var("t", Tensor(A, A))
    floated = normalize(Lam("x", B, LetPair(t, "x", "y", Pair(Pair(x, y), Star()))))
    assert floated == LetPair(t, "a", "b", Lam("x", B, Pair(Pair(Var("a", A), Var("b", A)), Star())))
    # A let in the subject of a let that binds a name of its subject: the inner t is the outer one.
    subject = LetPair(t, "x", "y", Pair(x, Pair(y, Star())))
    moved = normalize(
        Lam("u", A, LetPair(subject, "t", "z", Pair(u, Pair(Var("t", A), Var("z", Tensor(A, One))))))
    )
    assert moved == LetPair(t, "x", "y", Lam("u", A, Pair(u, Pair(x, Pair(y, Star())))))
    # The new name of one side is not that of the other, used or not.
    opened = Lam("z", A, LetPair(t, "x", "x1", Var("z", A)))(x)
    assert normalize(opened) == LetPair(t, "a", "b", x)


def test_names_stay_where_nothing_would_be_captured():
    """The substitution of z reaches the subject only, so that the x of the body is no danger to its x."""
    g = Var("g", Lolli(A, Tensor(A, A)))
    let = Lam("z", A, LetPair(g(Var("z", A)), "x", "y", Pair(Var("y", A), Var("x", A))))(Var("x", A))
    assert str(normalize(let)) == "let x (x) y = g x in y (x) x"


def in_a_row(order, names):
    """Returns lets in this order, of which each second one opens what the one before it binds."""
    f, pair = Var("f", Lolli(A, Tensor(A, One))), Tensor(A, One)
    term = Var("x", A)
    for k in reversed(order):
        a, c = names[k]
        subject = Var(f"p{k}", pair) if k % 2 == 0 else f(Var(names[k - 1][0], A))
        term = LetPair(subject, a, c, logic.LetStar(Var(c, One), term))
    return term


def test_independent_lets_have_one_order():
    """Whatever it was, and whatever their names are; no let changes places with one that it uses."""
    names = [("a", "b"), ("c", "d"), ("a1", "b"), ("e", "a2")]
    orders = [
        order
        for order in itertools.permutations(range(4))
        if order.index(0) < order.index(1) and order.index(2) < order.index(3)
    ]
    (normal,) = {normalize(in_a_row(order, names)) for order in orders}
    assert len(orders) == 6
    assert len(str(normal).split("let")) == 9
    assert normalize(normal) == normal
    # Here the x of the first is the outer one, and the last binds another.
    p, q = Var("p", Tensor(One, A)), Var("q", Lolli(A, One))
    one = logic.LetStar(q(Var("x", A)), LetPair(p, "c", "x", logic.LetStar(Var("c", One), Var("x", A))))
    other = LetPair(p, "c", "y", logic.LetStar(Var("c", One), logic.LetStar(q(Var("x", A)), Var("y", A))))
    assert normalize(one) == normalize(other) == other


def test_lets_within_subjects_are_sorted_once():
    """Twice at each of these depths would take years."""
    g, term = Var("g", Lolli(Bang(A), Bang(A))), Var("y", A)
    for _ in range(60):
        term = LetBang(g(bang(term)), "x", LetBang(g(bang(Var("x", A))), "y", Var("y", A)))
    assert normalize(term) == term


def test_a_term_that_is_no_proof_is_refused():
    with pytest.raises(logic.LinearityError, match="got two uses"):
        normalize(lam(A, lambda x: Pair(x, x)))
    with pytest.raises(ValueError, match="term: got 3, expected a term"):
        normalize(3)  # pyrefly: ignore


def test_normal_forms_have_the_value_of_the_program(rng):
    program = logic.ntm_master(B, A, B)
    x, y = rng.normal(size=(2, 3, 3))
    s = (rng.normal(size=2), (rng.normal(size=3), (rng.normal(size=3), rng.normal(size=(2, 3)))))
    arguments = denote(n(2)), denote(numeral(1, logic.dual(A))), x, y, rng.normal(size=2), s
    first, second = (logic.dense(denote(t)(*arguments)) for t in (program, normalize(program)))
    np.testing.assert_allclose(first[0], second[0], rtol=1e-12)
    np.testing.assert_allclose(first[1][1][1], second[1][1][1], rtol=1e-12)
    assert check(normalize(program)) == check(program)


def test_normal_forms_do_not_depend_on_the_order_of_sums_and_of_vectors():
    x, y, f = Var("x", A), Var("y", A), Var("f", E)
    g = Var("g", Lolli(A, Lolli(A, A)))
    assert normalize(f(x) + x) == normalize(x + f(x)) == Sum((x, f(x)))
    assert normalize((y + x) + (x + f(y))) == normalize(Sum((f(y), x, y, x))) == Sum((x, x, y, f(y)))
    assert normalize(bang(f(x) + x)) == bang(x + f(x))
    assert normalize(Ket(x, (f(y), y, x))) == Ket(x, (x, y, f(y)))
    # A bound variable counts by the depth of its binder, and not by its name.
    for names in (("a", "b"), ("b", "a")):
        p, q = (Var(name, A) for name in names)
        terms = g(p)(q), g(q)(p)
        either = [Lam(names[0], A, Lam(names[1], A, bang(Sum(pair)))) for pair in (terms, terms[::-1])]
        assert normalize(either[0]) == normalize(either[1]) == either[0]
    # The variables of a pair have different depths, and none that of a variable outside.
    z, h = Var("z", A), Var("h", Lolli(A, Lolli(A, Lolli(A, A))))
    pair = Var("k", Lolli(A, Tensor(A, A)))(z)
    for first, second, third in ((x, y, z), (y, z, x)):
        calls = h(first)(second)(third), h(second)(first)(third)
        lets = [LetPair(pair, "x", "y", bang(Sum(summands))) for summands in (calls, calls[::-1])]
        assert normalize(Lam("z", A, lets[0])) == normalize(Lam("z", A, lets[1]))
    # One part of a pair is sorted, the other as it was.
    assert normalize(Both(Both(f(x) + x, x), x)) == Both(Both(x + f(x), x), x)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (lambda: logic.plus(A)(n(2), n(3)), lambda: logic.plus(A)(n(4), n(1)), True),
        (lambda: logic.plus(A)(n(2), n(3)), lambda: n(6), False),
        (lambda: n(1), lambda: logic.banged(E, lambda f: f), True),
        (
            lambda: lam(With(A, B), lambda p: Both(Fst(p), logic.Snd(p))),
            lambda: lam(With(A, B), lambda p: p),
            True,
        ),
        (
            lambda: lam(With(A, A), lambda p: Both(logic.Snd(p), Fst(p))),
            lambda: lam(With(A, A), lambda p: p),
            False,
        ),
        (lambda: lam(One, lambda c: let_star(c, Star())), lambda: lam(One, lambda c: c), True),
        (
            lambda: lam(Tensor(A, B), lambda t: let_pair(t, lambda x, y: Pair(x, y))),
            lambda: lam(Tensor(A, B), lambda t: t),
            True,
        ),
        (
            lambda: lam(Tensor(A, A), lambda t: let_pair(t, lambda x, y: Pair(y, x))),
            lambda: lam(Tensor(A, A), lambda t: t),
            False,
        ),
        (
            lambda: lam(Bang(A), lambda y: let_bang(y, lambda x: bang(x))),
            lambda: lam(Bang(A), lambda y: y),
            True,
        ),
        (
            lambda: lam(Bang(A), lambda y: let_bang(y, lambda x: bang(bang(x)))),
            lambda: lam(Bang(A), lambda y: let_bang(y, lambda x: bang(let_bang(bang(x), lambda z: bang(z))))),
            True,
        ),
        (lambda: logic.banged(E, lambda f: lam(A, lambda z: f(f(z)))), lambda: n(1), False),
        (
            lambda: lam(Lolli(A, E), A, A, lambda f, x, y: f(x)(y)),
            lambda: lam(Lolli(A, E), A, A, lambda f, x, y: f(y)(x)),
            False,
        ),
        (lambda: logic.derivative(n(2)), lambda: logic.derivative(logic.plus(A)(n(1), n(1))), True),
        (lambda: n(1), lambda: numeral(1, B), False),
        *(
            (lambda left=left: parsed(left), lambda right=right: parsed(right), same)
            for left, right, same in (
                (r"\k:!A -o A. \z:!A. k (let !x = z in !x)", r"\k:!A -o A. \z:!A. k z", True),
                (
                    r"\k:(A (x) A) -o A. \z:A (x) A. k (let x (x) y = z in x (x) y)",
                    r"\k:(A (x) A) -o A. \z:A (x) A. k z",
                    True,
                ),
                (
                    r"\k:(A (x) A) -o A. \z:A (x) A. let x (x) y = z in k (y (x) x)",
                    r"\k:(A (x) A) -o A. \z:A (x) A. k z",
                    False,
                ),
                (r"\k:1 -o A. \z:1. k (let * = z in *)", r"\k:1 -o A. \z:1. k z", True),
                (  # the subject is y, and goes under a binder of another y
                    r"\f:E. \k:!A -o E. \y:!A. let !x = y in \y:A. f (k !x y)",
                    r"\f:E. \k:!A -o E. \y:!A. \z:A. f (k y z)",
                    True,
                ),
                (  # the variable is used twice
                    r"\k:!A -o !A -o A. \z:!A. let !x = z in k !x !x",
                    r"\k:!A -o !A -o A. \z:!A. let !x = z in k !x !0:A",
                    False,
                ),
                (  # what is rebuilt is another x
                    r"\h:A -o E. \k:!A -o A. \z:!A. let !x = z in \!x:!A. h (k !x) x",
                    r"\h:A -o E. \k:!A -o A. \z:!A. \!x:!A. h (k z) x",
                    False,
                ),
                (  # a promotion is not linear
                    r"\k:!!A -o A. \z:!A. let !x = z in k !!x",
                    r"\k:!!A -o A. \z:!A. let !x = z in k !(let !y = !x in !y)",
                    True,
                ),
                (
                    r"\k:!(!A & !A) -o A. \z:!A. let !x = z in k |<!x, !x>>_0:(!A & !A)",
                    r"\k:!(!A & !A) -o A. \z:!A. k |<z, z>>_0:(!A & !A)",
                    False,  # although their denotations are equal
                ),
            )
        ),
    ],
)
def test_equivalence(left, right, same):
    assert logic.equivalent(left(), right()) == same
    assert logic.equivalent(left(), left())
