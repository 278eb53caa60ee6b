"""The quantifier of types: its rules, names, values, and programs that iterate what they compute."""

import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    ForAll,
    IllTyped,
    Ket,
    Lam,
    LetBang,
    Lolli,
    One,
    Pair,
    Tensor,
    TypeApp,
    TypeLam,
    TypeVariable,
    Var,
    With,
    bang,
    banged,
    check,
    cut_elimination,
    denote,
    derivation,
    derivative,
    equivalent,
    lam,
    normalize,
    parse,
    parse_type,
    polymorphic,
    second_order,
    show,
    substitute,
    validate,
    with_types,
)
from llrnn.logic.second_order import BINARY, INTEGER, numeral
from tests.llrnn.logic.matrices import A, B, E, close, matrices, matrix

X, Y = TypeVariable("X"), TypeVariable("Y")
SAME = polymorphic(lambda X: lam(X, lambda x: x))


def test_types_are_equal_up_to_the_names_of_their_quantifiers():
    assert ForAll("X", Lolli(X, X)) == ForAll("Y", Lolli(Y, Y)) != ForAll("Y", Lolli(Y, X))
    assert hash(ForAll("X", Lolli(X, X))) == hash(ForAll("Y", Lolli(Y, Y)))
    assert ForAll("X", ForAll("Y", Lolli(X, Y))) == ForAll("Y", ForAll("X", Lolli(Y, X)))
    assert ForAll("X", ForAll("Y", Lolli(X, Y))) != ForAll("X", ForAll("Y", Lolli(Y, X)))
    assert ForAll("X", ForAll("X", X)) == ForAll("X", ForAll("Y", Y))  # the inner one binds
    assert ForAll("X", Lolli(X, Y)).variables() == {"Y"}


def test_no_quantifier_captures_what_is_put_in_its_scope():
    of = ForAll("X", Lolli(X, Y))
    captured = substitute(of, {"Y": X})
    assert captured == ForAll("Z", Lolli(TypeVariable("Z"), X))
    assert str(captured) == "forall X1. X1 -o X"
    assert parse_type("forall X1. X1 -o Y[2]") == substitute(of, {"Y": Atom("Y", 2)})
    assert ForAll("X", ForAll("Y", Lolli(X, Y))).instantiate(Y) == ForAll("Z", Lolli(Y, TypeVariable("Z")))
    assert str(ForAll("A", Tensor(TypeVariable("A"), A))) == "forall A1. A1 (x) A"
    term = with_types(TypeLam("X", lam(Tensor(X, Y), lambda p: p)), {"Y": X})
    assert term.type == ForAll("Z", Lolli(Tensor(TypeVariable("Z"), X), Tensor(TypeVariable("Z"), X)))


def test_instances_of_a_quantified_type():
    twice = ForAll("X", Tensor(X, X))
    assert twice.matches(Tensor(E, E))
    assert not twice.matches(Tensor(E, A))
    assert not twice.matches(With(E, E))
    assert ForAll("X", A).matches(A)
    assert not ForAll("X", ForAll("Y", Lolli(X, Y))).matches(ForAll("Y", Lolli(Y, Y)))
    assert ForAll("X", ForAll("Y", Lolli(X, Y))).matches(ForAll("Z", Lolli(INTEGER, TypeVariable("Z"))))
    assert ForAll("X", ForAll("Y", ForAll("Z", Lolli(X, Y)))).matches(ForAll("Y", ForAll("Z", Lolli(A, Y))))


@pytest.mark.parametrize(
    "wrong",
    [lambda: ForAll("", A), lambda: TypeVariable(""), lambda: ForAll("X", 3)],  # pyrefly: ignore
)
def test_what_is_no_quantified_type_is_refused(wrong):
    with pytest.raises(ValueError, match=r"expected a (non-empty string|type as part of ForAll)"):
        wrong()


def test_terms_are_equal_up_to_the_names_of_type_variables():
    other = parse(r"/\Y. \x:Y. x")
    assert other == SAME
    assert hash(other) == hash(SAME)
    assert parse(r"/\X. /\Y. \x:X. \y:Y. x + 0:X") != parse(r"/\X. /\Y. \x:Y. \y:X. x + 0:Y")
    pair = parse(r"/\X. /\Y. \x:X (x) Y. x")
    assert pair == parse(r"/\Y. /\X. \x:Y (x) X. x")
    assert pair != parse(r"/\Y. /\X. \x:X (x) Y. x")
    star = Var("s", ForAll("Y", ForAll("Z", One)))  # at any two types of type 1
    assert star[A][B] != star[B][B]
    assert star[A][B] == star[A][B]
    assert TypeLam("Y", star[X][Y]) == TypeLam("Z", star[X][TypeVariable("Z")])
    assert TypeLam("Y", star[X][Y]) != TypeLam("Z", star[TypeVariable("Z")][TypeVariable("Z")])
    outer = Var("x", X)
    assert TypeLam("Y", lam(Y, lambda y: outer)) != TypeLam("X", lam(X, lambda y: outer))
    assert str(SAME) == r"/\X. \x. x"
    assert show(SAME[A], types=True) == r"(/\X. \x:X. x) @A[3]"
    assert parse(r"(/\X. \x:X. x) @(A[3] -o A[3])") == SAME[E]


def test_a_type_variable_does_not_leave_its_scope():
    assert check(SAME) == ForAll("X", Lolli(X, X))
    outside = lam(X, lambda x: TypeLam("X", lam(X, lambda y: x)))
    message = r"type variable X of `/\\X. \\y. x`: got the variable x : X from outside, expected no X"
    with pytest.raises(IllTyped, match=message):
        check(outside)
    with pytest.raises(IllTyped, match=r"function of `t @A`: got `x` : A, expected type forall X. A"):
        Var("x", A)[B]
    with pytest.raises(ValueError, match=r"of: got 3, expected a type for"):
        TypeApp(SAME, 3)  # pyrefly: ignore
    with pytest.raises(ValueError, match=r"got a function of 2 parameters \['X', 'Y'\], expected 1"):
        polymorphic(lambda X, Y: SAME)  # pyrefly: ignore
    with pytest.raises(ValueError, match="expected one that returns a term"):
        polymorphic(lambda X: X)  # pyrefly: ignore


def test_instantiating_is_a_cut_which_captures_nothing():
    assert normalize(SAME[E](Var("f", E))) == Var("f", E)
    assert [step.rule for step in cut_elimination(SAME[A]).steps] == ["all"]
    # A term with the outer Y in its types is put under a quantifier that is called Y, too.
    name = TypeLam("Y", lam(Tensor(Y, Y), lambda y: Var("x", E)))
    found = normalize(Lam("x", E, name)(lam(A, lambda a: Var("k", Lolli(Y, E))(Var("u", Y))(a))))
    assert found.type == name.type
    assert isinstance(found, TypeLam)
    assert found.variable != "Y"


def test_a_quantifier_of_a_term_captures_no_type_of_what_is_put_under_it():
    star, Z = Var("s", ForAll("X", One)), TypeVariable("Z")
    function = Lam("u", One, TypeLam("X", Var("u", One)))
    want = TypeLam("Z", star[X])
    assert normalize(function(star[X])) == cut_elimination(function(star[X])).steps[0].term == want
    assert want != TypeLam("X", star[X])
    twice = TypeLam("X", TypeLam("Y", Pair(star[X], star[Y])))
    assert normalize(twice[Y]) == TypeLam("Z", Pair(star[Y], star[Z]))
    vector = Var("v", ForAll("Z", A))[X]
    opened = LetBang(Ket(Var("p", A), (vector,)), "x", TypeLam("X", Var("x", A)))
    assert normalize(opened) == TypeLam("Z", vector)


def test_eta_of_a_quantifier():
    n = Var("n", INTEGER)
    assert equivalent(polymorphic(lambda X: n[X]), n)
    assert not equivalent(polymorphic(lambda X: n[A]), polymorphic(lambda X: n[B]))
    pair = Var("p", ForAll("X", ForAll("Y", Lolli(X, Y))))
    twice = polymorphic(lambda X: pair[X][X])
    assert normalize(twice) == twice
    assert equivalent(twice, twice)


def test_the_value_is_a_family(rng):
    (m,) = matrices(rng, 1)
    three = denote(numeral(3))
    close(matrix(three[A](m)), m @ m @ m)
    assert repr(three) == "<family : forall X. !(X -o X) -o X -o X>"
    total = denote(parse(r"\n:N. n + n", {"N": INTEGER}))
    close(matrix(total(three)[A](m)), 2 * m @ m @ m)
    half = logic.superpose(np.array([0.5]), [three])
    close(matrix(half[A](m)), 0.5 * m @ m @ m)
    close(matrix(denote(parse("0:N", {"N": INTEGER}))[A](m)), 0 * m)
    at = denote(lam(INTEGER, lambda n: n[A]))
    close(matrix(at(three)(m)), m @ m @ m)
    with pytest.raises(ValueError, match=r"value: got .*, expected a family of type forall X"):
        at(m)
    with pytest.raises(ValueError, match=r"value: got .*, expected a family of type forall X"):
        at(denote(SAME))


def test_programs_at_every_type_are_differentiated(rng):
    m, v = matrices(rng, 2)
    square = banged(E, lambda f: polymorphic(lambda X: lam(X, A, lambda x, a: Pair(x, f(f(a))))))
    slope = denote(derivative(square))(m, v)
    x, a = rng.normal(size=2), rng.normal(size=3)
    close(slope[B](x)(a), np.outer(x, v @ m @ a + m @ v @ a))
    assert check(derivative(square)) == Lolli(
        logic.Bang(E), Lolli(E, ForAll("X", Lolli(X, Lolli(A, Tensor(X, A)))))
    )


def test_programs_iterate_what_they_compute():
    n = numeral
    assert check(second_order.predecessor()) == Lolli(INTEGER, INTEGER)
    assert check(second_order.power()) == Lolli(logic.Bang(INTEGER), Lolli(INTEGER, INTEGER))
    assert [normalize(second_order.predecessor()(n(k))) == n(max(k - 1, 0)) for k in (0, 1, 4)] == [True] * 3
    assert normalize(second_order.multiply()(bang(n(3)), n(4))) == n(12)
    assert [normalize(second_order.power()(bang(n(2)), n(k))) == n(2**k) for k in (0, 1, 4)] == [True] * 3
    pairs = ((5, 2, 3), (2, 2, 0), (1, 3, 0))
    assert all(normalize(second_order.subtract()(n(a), n(b))) == n(c) for a, b, c in pairs)
    # 2^(2^(2^1)): exponentiation, iterated by a numeral.
    base = bang(lam(INTEGER, lambda k: second_order.power()(bang(n(2)), k)))
    assert normalize(n(3)[INTEGER](base, n(1))) == n(16)


def test_values_of_iterated_programs(rng):
    (m,) = matrices(rng, 1)
    value = denote(second_order.predecessor()(second_order.power()(bang(numeral(2)), numeral(2))))
    close(matrix(value[A](m)), m @ m @ m)


def test_words_at_every_type(rng):
    x, y = matrices(rng, 2)
    word = second_order.binary_integer("011")
    assert check(word) == BINARY
    close(matrix(denote(word)[A](x)(y)), y @ y @ x)
    with pytest.raises(ValueError, match="word: got '02'"):
        second_order.binary_integer("02")


@pytest.mark.parametrize("program", [second_order.power, second_order.predecessor, second_order.subtract])
def test_derivations_with_quantifiers(program):
    tree = derivation(program())
    validate(tree)
    assert {"forallR", "forallL"} <= {node.rule for node in tree.instances()}
