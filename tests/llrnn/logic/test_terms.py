import copy

import pytest

from llrnn import logic
from llrnn.logic import (
    App,
    Atom,
    Bang,
    Both,
    Fst,
    Ket,
    Lam,
    Lolli,
    One,
    Pair,
    Star,
    Sum,
    Tensor,
    Var,
    Zero,
    alpha_equal,
    bang,
    banged,
    lam,
    let_bang,
    let_pair,
    let_star,
    show,
)

A, B = Atom("A", 3), Atom("B", 2)
E = logic.endo(A)


def test_names_come_from_the_python_function():
    assert str(lam(E, A, lambda push, start: push(start))) == r"\push. \start. push start"
    assert str(banged(E, lambda f: lam(A, lambda z: f(f(z))))) == r"\!f. \z. f (f z)"
    assert show(lam(A, lambda x: x), types=True) == r"\x:A. x"


def test_an_outer_variable_is_not_captured_by_an_inner_binder_of_the_same_name():
    shadowed = lam(A, lambda z: (lambda outer: lam(E, lambda z: z(outer)))(z))
    # The inner z is the function, the outer one its argument.
    assert shadowed == Lam("x", A, Lam("f", E, App(Var("f", E), Var("x", A))))
    assert logic.check(shadowed) == Lolli(A, Lolli(E, A))


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (
            lambda: lam(Tensor(A, B), lambda t: let_pair(t, lambda x, y: Pair(y, x))),
            r"\t. let x (x) y = t in y (x) x",
        ),
        (lambda: lam(One, A, lambda c, x: let_star(c, x)), r"\c. \x. let * = c in x"),
        (lambda: lam(Bang(A), lambda y: let_bang(y, lambda x: Ket(x, (x, Zero(A))))), r"\!x. |x, 0>_x"),
        (lambda: banged(A, lambda x: bang(Both(x, x))), r"\!x. !<x, x>"),
        (lambda: banged(A, lambda x: x + x), r"\!x. x + x"),
        (lambda: banged(E, A, lambda f, x: f(x + x)), r"\!f. \!x. f (x + x)"),
        (lambda: lam(logic.With(E, B), A, lambda p, x: Fst(p)(x)), r"\p. \x. fst p x"),
        (lambda: lam(A, lambda x: lam(A, lambda y: y)(x)), r"\x. (\y. y) x"),
    ],
)
def test_terms_print_as_on_paper(term, text):
    assert str(term()) == text


def test_equality_is_up_to_bound_names():
    assert logic.numeral(3, A) == logic.numeral(3, A)
    assert Lam("x", A, Var("x", A)) == Lam("y", A, Var("y", A))
    assert hash(Lam("x", A, Var("x", A))) == hash(Lam("y", A, Var("y", A)))
    assert Lam("x", A, Var("y", A)) != Lam("y", A, Var("y", A))
    assert Lam("x", A, Var("y", A)) != Lam("x", A, Var("z", A))
    assert Lam("x", A, Lam("y", A, Var("x", A))) != Lam("x", A, Lam("y", A, Var("y", A)))
    assert Lam("x", A, Lam("x", A, Var("x", A))) == Lam("x", A, Lam("y", A, Var("y", A)))
    assert Lam("x", A, Var("x", A)) != Lam("x", B, Var("x", B))
    assert logic.numeral(2, A) != logic.numeral(3, A)
    shared = Var("x", A)  # one object, bound on one side only
    assert not alpha_equal(Lam("x", A, shared), Lam("y", A, shared))


def test_only_tangents_sums_and_zeros_leave_plain_linear_logic():
    assert logic.is_plain(logic.repeat(A))
    assert logic.is_plain(bang(Star()))
    assert not logic.is_plain(lam(A, lambda x: Ket(Zero(A), (x,))))
    assert not logic.is_plain(banged(A, lambda x: Sum((x,))))
    assert not logic.is_plain(Zero(A))


def test_a_numeral_of_thousands_is_an_ordinary_term():
    n = logic.numeral(3000, A)
    assert logic.check(n) == logic.integer(A)
    assert n == logic.numeral(3000, A)
    assert n != logic.numeral(2999, A)
    assert str(n).count("f (") == 2999
    assert copy.deepcopy(n) is n


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: lam(E, E, lambda f, g: f(g)),
            r"`f` : A -o A expects an argument of type A, but `g` has type A -o A$",
        ),
        (lambda: lam(A, A, lambda x, y: x(y)), r"`x` : A is applied to `y` : A, but is not a function"),
        (
            lambda: logic.numeral(2, A)(Var("f", E)),
            r"expects .* !\(A -o A\), but `f` has type A -o A; promote it",
        ),
        (lambda: Var("f", E)(bang(Var("x", A))), r"but `!x` has type !A; open it first"),
        (lambda: let_pair(Var("x", A), lambda a, b: Pair(a, b)), r"type A \(x\) B, but `x` has type A"),
        (lambda: let_bang(Var("x", A), lambda y: y), r"type !A, but `x` has type A"),
        (lambda: let_star(Var("x", A), Star()), r"type 1, but `x` has type A"),
        (lambda: Fst(Var("x", A)), r"fst needs a term of type A & B, but `x` has type A"),
        (lambda: Ket(Var("x", A), (Var("y", B),)), r"type of its point, A, but `y` has type B"),
        (lambda: Sum((Var("x", A), Var("y", B))), r"`x` : A is added to `y` : B"),
        (lambda: logic.LetPair(Var("t", Tensor(A, A)), "x", "x", Star()), r"binds one name twice"),
    ],
)
def test_a_term_that_cannot_be_typed_is_refused_where_it_is_built(build, message):
    with pytest.raises(logic.IllTyped, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: App(Var("f", E), 3), "argument: expected a term, got 3"),  # pyrefly: ignore
        (lambda: Var("", A), "name: expected a non-empty string"),
        (lambda: Var("x", 3), "of: expected the type of variable x"),  # pyrefly: ignore
        (lambda: Sum(()), "terms: expected a non-empty tuple"),
        (lambda: Ket(Star(), [Star()]), "vectors: expected a tuple"),  # pyrefly: ignore
        (lambda: lam(A, lambda x: 3), "body: the function must return a term, got 3"),
        (lambda: lam(A, lambda x, y: x), "body: 1 types are given for a function of 2 parameters"),
        (lambda: lam(lambda x: x), "types: expected at least one type"),
        (lambda: lam(A, Star()), "body: expected a function from terms to a term"),
        (lambda: logic.both(Star()), "terms: a product has at least two"),
        (lambda: logic.numeral(-1, A), "n: expected an integer of at least 0"),
        (lambda: logic.numeral(True, A), "n: expected an integer"),
        (lambda: logic.binary_integer("012", A), 'word: expected a string of "0" and "1"'),
    ],
)
def test_bad_arguments_are_refused_by_name(build, message):
    with pytest.raises(ValueError, match=message):
        build()
