"""Terms and types deeper than Python's stack: lets that open tensors and kets, and long products."""

import inspect
import sys

import jax
import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    Bang,
    ForAll,
    Ket,
    Lam,
    LetBang,
    LetPair,
    LetStar,
    Lolli,
    One,
    Pair,
    Plus,
    Star,
    Sum,
    Tensor,
    TypeApp,
    TypeLam,
    TypeVariable,
    Var,
    With,
    Zero,
    banged,
    denote,
)
from llrnn.logic.types import dimension, finite_dimensional
from llrnn.logic.values import PureTensors, coerce, dense, flatten, ket, unflatten

DEEP = 600
A = Atom("A", 2)
PAIR, SCALAR = Tensor(A, A), Lolli(A, One)


def chain(depth):
    """`let a (x) b = f (b' (x) a') in ..`, which opens what f makes of the last pair."""

    def body(f, p):
        made = Pair(Var(f"a{depth}", A), Var(f"b{depth}", A))
        for k in range(depth, 0, -1):
            before = Pair(Var(f"b{k - 1}", A), Var(f"a{k - 1}", A))
            made = LetPair(f(before) if k > 1 else p, f"a{k}", f"b{k}", made)
        return made

    m = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0.0]])
    start = np.arange(1.0, 5).reshape(2, 2)
    want = start
    for _ in range(depth - 1):
        want = (m @ want.T.ravel()).reshape(2, 2)
    return banged(Lolli(PAIR, PAIR), PAIR, body), (m, start), want


def scalars(of, left, point, value):
    """`let a (x) b = q * in f a (h b ..)`, each of which multiplies the rest by a number."""

    def make(depth):
        def body(q, f, h):
            made = Star()
            for k in range(depth, 0, -1):
                a, b = Var(f"a{k}", of), Var(f"b{k}", A)
                made = LetPair(q(Star()), f"a{k}", f"b{k}", LetStar(f(a), LetStar(h(b), made)))
            return made

        program = banged(Lolli(One, Tensor(of, A)), Lolli(of, One), SCALAR, body)
        return program, (lambda _: point, left, np.ones(2)), value**depth

    return make


TENSORS = scalars(A, np.ones(2), np.array([[0.5, 0.25], [0.25, 0.001]]), 1.001)
FORMAL = scalars(
    Bang(A),
    lambda x: x[0] * x[1],
    PureTensors(((ket(np.array([0.5, 2.0])), np.array([0.5, 0.25])), (ket(np.zeros(2)), np.ones(2)))),
    0.75,
)


def derivatives(depth):
    """`let !x = |v>_p in f x ..`, each of which multiplies the rest by f v."""

    def body(f, p, v):
        made = Star()
        for k in range(depth, 0, -1):
            made = LetBang(Ket(p, (v,)), f"x{k}", LetStar(f(Var(f"x{k}", A)), made))
        return made

    point, v = np.array([3.0, 4.0]), np.array([1.0, 0.001])
    return banged(SCALAR, A, A, body), (np.ones(2), point, v), 1.001**depth


@pytest.mark.unchecked  # the checks make frames of their own
@pytest.mark.parametrize("make", [chain, TENSORS, FORMAL, derivatives])
def test_lets_nested_deeper_than_pythons_stack_have_values(make):
    """With 900 frames, fewer than two for each let."""
    program, arguments, want = make(DEEP)
    value, usual = denote(program), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 900)
    try:
        got = value(*arguments)
    finally:
        sys.setrecursionlimit(usual)
    np.testing.assert_allclose(got, want, rtol=1e-9)


def test_a_body_that_uses_its_variables_again_and_again_is_summed_over_both(rng):
    """Not split at the let inside: a and b are in its body too."""
    text = r"\p:A (x) A. \q:A (x) A. let a (x) b = p in let c (x) d = q in (a (x) c) (x) (b (x) d)"
    p, q = rng.normal(size=(2, 2, 2))
    found = denote(logic.parse(text, {"A": A}))(p)(q)
    np.testing.assert_allclose(found, np.einsum("ab,cd->acbd", p, q).reshape(4, 4), atol=1e-12)


def test_a_let_of_a_function_is_a_function_that_sums(rng):
    """The let's value is a map, or pairs of maps; a quantifier in its body stays where it is."""
    p, x = rng.normal(size=(2, 2)), rng.normal(size=2)
    text = r"\p:A (x) A. let a (x) b = p in \z:A -o 1. let * = z a in b"
    np.testing.assert_allclose(denote(logic.parse(text, {"A": A}))(p)(x), x @ p, atol=1e-12)
    pair = r"\p:A (x) A. let a (x) b = p in <\z:A -o 1. let * = z a in b, b (x) a>"
    first, second = denote(logic.parse(pair, {"A": A}))(p)
    np.testing.assert_allclose(first(x), x @ p, atol=1e-12)
    np.testing.assert_allclose(second, p.T, atol=1e-12)
    text = r"\!w:!(A -o 1). \p:A (x) A. let a (x) b = p in /\X. \z:X. let * = w a in let * = w b in z"
    family = denote(logic.parse(text, {"A": A}))(x)(p)
    np.testing.assert_allclose(family[PAIR](p), (x @ p @ x) * p, atol=1e-12)


@pytest.mark.parametrize("wrapped", [lambda f: Sum((f, Zero(f.type))), lambda f: LetStar(Star(), f)])
def test_a_program_at_every_type_under_hundreds_of_sums_or_scalars(wrapped):
    program = TypeLam("X", Lam("x", A, Var("x", A)))
    for _ in range(1500):
        program = wrapped(program)
    np.testing.assert_array_equal(denote(TypeApp(program, A))(np.arange(2.0)), np.arange(2.0))


def nested(kind, left, depth=DEEP):
    """A type of so many factors and one, and its dimension."""
    of = A
    for _ in range(depth):
        of = kind(of, A) if left else kind(A, of)
    return of, 2 * (depth + 1)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("kind", [With, Plus])
def test_types_of_hundreds_of_factors(kind, left):
    of, size = nested(kind, left)
    again, _ = nested(kind, left)
    other, _ = nested(kind, not left)
    assert (of == again, of == other, hash(of) == hash(again)) == (True, False, True)
    assert finite_dimensional(of)
    assert not finite_dimensional(kind(of, Bang(A)))
    assert dimension(of) == size
    quantified = ForAll("X", kind(TypeVariable("X"), of))
    assert quantified.instantiate(A) == kind(A, of)
    assert quantified.matches(kind(One, again))
    assert not quantified.matches(kind(One, other))
    assert ForAll("Y", quantified).nameless() == ForAll("Y", quantified)
    assert str(of) == str(again)


@pytest.mark.parametrize("left", [False, True])
def test_values_of_hundreds_of_factors(left):
    of, size = nested(With, left)

    def values():
        zero = denote(Zero(of))
        numbers = unflatten(np.arange(float(size)), of)
        double = denote(logic.lam(of, lambda x: x + x))(numbers)
        slope = logic.ket_value(banged(of, lambda x: x), numbers, [numbers])
        return [flatten(coerce(dense(value), of), of) for value in (zero, double, slope)]

    zero, double, slope = jax.jit(values)()
    np.testing.assert_array_equal(zero, np.zeros(size))
    np.testing.assert_array_equal(double, 2 * np.arange(size))
    np.testing.assert_array_equal(slope, np.arange(size))


def test_a_let_of_a_product_of_hundreds_of_factors():
    def found(depth):
        of, size = nested(With, left=False, depth=depth)
        text = r"\p:A (x) F. let a (x) b = p in \y:A -o 1. let * = y a in b"
        value = denote(logic.parse(text, {"A": A, "F": of}))
        p = np.stack([np.arange(float(size)), np.ones(size)])
        return lambda: flatten(value(p)(np.array([2.0, 1.0])), of)

    np.testing.assert_allclose(jax.jit(found(2))(), 2 * np.arange(6) + 1)
    assert jax.eval_shape(found(DEEP)).shape == (2 * (DEEP + 1),)  # compiling so many sums takes long
