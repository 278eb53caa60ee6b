import copy
import pickle

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
    LetBang,
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
from llrnn.logic.names import fresh
from llrnn.logic.term import excerpt, rename

A, B = Atom("A", 3), Atom("B", 2)
E = logic.endo(A)


def test_names_come_from_the_python_function():
    assert str(lam(E, A, lambda push, start: push(start))) == r"\push. \start. push start"
    assert str(banged(E, lambda f: lam(A, lambda z: f(f(z))))) == r"\!f. \z. f (f z)"
    assert show(lam(A, lambda x: x), types=True) == r"\x:A[3]. x"
    named_alike = lam(A, A, lambda x, x1: Pair(Var("x", A), Pair(x, x1)))
    assert str(named_alike) == r"\x1. \x2. x (x) (x1 (x) x2)"


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
        (lambda: lam(A, lambda x: let_bang(Var("z", Bang(A)), lambda y: y)), r"\x. let !y = z in y"),
        (lambda: lam(Bang(A), lambda z: let_bang(z, lambda y: Pair(y, z))), r"\z. let !y = z in y (x) z"),
    ],
)
def test_terms_print_as_on_paper(term, text):
    assert str(term()) == text


def test_only_free_variables_are_renamed():
    inner = Var("x", A)
    renamed = rename(LetBang(Var("x", Bang(A)), "x", inner), {"x": "z"})
    assert renamed == LetBang(Var("z", Bang(A)), "x", inner)


def test_an_excerpt_has_the_ends_of_what_is_longer():
    assert excerpt(Var("abcdefghi", A), 9) == "abcdefghi"
    assert excerpt(Var("abcdefghij", A), 9) == "ab .. ij"


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
    x, v = Var("x", A), Var("v", A)
    for more, fewer in ((Ket(x, (v, v)), Ket(x, (v,))), (v + v + v, v + v)):
        object.__setattr__(more, "skeleton", fewer.skeleton)  # hashes may collide
        assert not alpha_equal(more, fewer)
        assert not alpha_equal(fewer, more)


@pytest.mark.parametrize(
    ("hint", "taken", "name"),
    [("x", "y", "x"), ("x", "x", "x1"), ("x", "x x1 x2", "x3"), ("x7", "x7 x1", "x2"), ("12", "12", "x1")],
)
def test_a_fresh_name_is_the_first_that_is_not_taken(hint, taken, name):
    assert fresh(hint, set(taken.split())) == name


def test_only_tangents_sums_and_zeros_leave_plain_linear_logic():
    assert logic.is_plain(logic.repeat(A))
    assert logic.is_plain(bang(Star()))
    assert not logic.is_plain(lam(A, lambda x: Ket(Zero(A), (x,))))
    assert not logic.is_plain(banged(A, lambda x: Sum((x,))))
    assert not logic.is_plain(Zero(A))


def test_a_numeral_of_more_than_a_thousand_is_an_ordinary_term():
    n = logic.numeral(1500, A)  # more than Python's stack has frames
    assert logic.check(n) == logic.integer(A)
    assert n == logic.numeral(1500, A)
    assert n != logic.numeral(1499, A)
    assert str(n).count("f (") == 1499
    assert copy.deepcopy(n) is n
    assert pickle.loads(pickle.dumps(n)) == n


def test_the_hash_is_that_of_other_processes():
    """Unlike Python's hash of a string."""
    assert hash(logic.numeral(2, A)) == hash(logic.numeral(2, B)) == 2754676826
    assert hash(logic.numeral(3, A)) != 2754676826


def test_pickling_writes_a_subterm_once():
    term = Var("x", A)
    for _ in range(100):
        term = term + term
    assert len(pickle.loads(pickle.dumps(term)).children) == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: lam(E, E, lambda f, g: f(g)),
            r"argument: got `g` : A -o A, expected type A for `f` : A -o A$",
        ),
        (
            lambda: Var("f", Lolli(Atom("A", 4), B))(Var("x", A)),
            r"argument: got `x` : A\[3\], expected type A\[4\] for `f` : A\[4\] -o B$",
        ),
        (
            lambda: Ket(Var("x", A), (Var("y", Atom("A", 4)),)),
            r"vectors: got `y` : A\[4\], expected the type of the point, A\[3\]",
        ),
        (
            lambda: Sum((Var("x", A), Var("y", Atom("A", 4)))),
            r"terms: got `y` : A\[4\], expected the type of the first term, `x` : A\[3\]",
        ),
        (
            lambda: lam(A, A, lambda x, y: x(y)),
            r"function: got `x` : A, expected a type A -o B for the argument `y` : A",
        ),
        (
            lambda: logic.numeral(2, A)(Var("f", E)),
            r"argument: got `f` : A -o A, expected type !\(A -o A\) for .*; promote it",
        ),
        (lambda: Var("f", E)(bang(Var("x", A))), r"argument: got `!x` : !A, expected .*; open it first"),
        (
            lambda: let_pair(Var("x", A), lambda a, b: Pair(a, b)),
            r"scrutinee of .*: got `x` : A, expected type A \(x\) B",
        ),
        (lambda: let_bang(Var("x", A), lambda y: y), r"scrutinee of .*: got `x` : A, expected type !A"),
        (lambda: let_star(Var("x", A), Star()), r"scrutinee of .*: got `x` : A, expected type 1"),
        (lambda: Fst(Var("x", A)), r"product of fst: got `x` : A, expected type A & B"),
        (
            lambda: Ket(Var("x", A), (Var("y", B),)),
            r"vectors: got `y` : B, expected the type of the point, A",
        ),
        (
            lambda: Sum((Var("x", A), Var("y", B))),
            r"terms: got `y` : B, expected the type of the first term, `x` : A",
        ),
        (
            lambda: logic.LetPair(Var("t", Tensor(A, A)), "x", "x", Star()),
            r"right: got 'x', the same name as left",
        ),
    ],
)
def test_a_term_that_cannot_be_typed_is_refused_where_it_is_built(build, message):
    with pytest.raises(logic.IllTyped, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: App(Var("f", E), 3), "argument: got 3, expected a term"),  # pyrefly: ignore
        (lambda: Var("", A), "name: got '', expected a non-empty string"),
        (lambda: Var("x", 3), "of: got 3, expected the type of variable x"),  # pyrefly: ignore
        (lambda: Sum(()), r"terms: got \(\), expected a non-empty tuple"),
        (lambda: Ket(Star(), [Star()]), "vectors: got .*, expected a tuple"),  # pyrefly: ignore
        (lambda: lam(A, lambda x: 3), "body: got a function that returns 3"),  # pyrefly: ignore
        (lambda: lam(A, lambda x, y: x), r"body: got a function of 2 parameters .*, expected 1"),
        (lambda: lam(lambda x: x), r"types: got \[\], expected at least one type"),
        (lambda: lam(A, 3, lambda x, y: x), r"types: got \[A, 3\], expected"),  # pyrefly: ignore
        (lambda: lam(A, Star()), "body: got .*, expected a function from terms to a term"),
        (lambda: logic.both(Star()), "terms: got 1, expected at least 2"),
        (lambda: logic.numeral(-1, A), "n: got -1, expected an integer of at least 0"),
        (lambda: logic.numeral(True, A), "n: got True, expected an integer"),
        (lambda: logic.binary_integer("012", A), 'word: got \'012\', expected a string of "0" and "1"'),
    ],
)
def test_bad_arguments_are_refused_by_name(build, message):
    with pytest.raises(ValueError, match=message):
        build()
