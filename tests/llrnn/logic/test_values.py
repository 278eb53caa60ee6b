"""The values that denotations take and return: arrays, callables, kets and their superpositions."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import (
    Bang,
    Both,
    Fst,
    Ket,
    Pair,
    Snd,
    Tensor,
    Var,
    With,
    Zero,
    bang,
    banged,
    denote,
    ket_value,
    lam,
    let_bang,
    let_pair,
    nonlinear,
)
from llrnn.logic.values import PureTensors, add, coerce, dense, flatten, ket, scale, superpose, unflatten
from tests.llrnn.logic.matrices import A, B, D, E, close, matrices, matrix


def test_an_operator_is_a_matrix_or_any_callable(rng):
    m, n = matrices(rng, 2)
    value = denote(logic.binary_integer("01", A))
    want = n @ m
    for first, second in itertools.product((m, lambda z: m @ z, coerce(m, E)), (n, lambda z: n @ z)):
        close(matrix(value(first, second)), want)


def test_a_callable_program_is_extended_to_kets(rng):
    """A Python function given for a numeral is differentiated where the master opens it on a ket."""
    x, v = matrices(rng, 2)

    def cube(operator):
        return lambda z: operator(operator(operator(z)))

    want = v @ x @ x + x @ v @ x + x @ x @ v
    close(matrix(denote(logic.evaluate(A))(cube)(ket(x, v))), want)
    close(matrix(coerce(cube, logic.integer(A))(ket(x, v))), want)
    apply = lam(logic.integer(A), E, lambda n, f: n(Ket(Zero(E), (f,))))
    close(matrix(denote(apply)(lambda operator: operator, v)), v)
    close(matrix(denote(apply)(cube, v)), np.zeros((D, D)))


def test_integers_have_derivatives(rng):
    """The coefficients of kets within a derivative, and what they are of."""
    kept = denote(logic.parse(r"\!x:!A. \y:!A. y (x) x", {"A": A}))
    opened = denote(logic.parse(r"\q:!A (x) A. let y (x) b = q in let !z = y in z (x) b", {"A": A}))
    x, v = rng.normal(size=(2, D))
    p, q = np.arange(D), np.arange(D)[::-1]
    kets = add(scale(2, ket(p)), scale(-1, ket(q)))
    close(opened(kept(ket(x, v))(kets)), np.outer(2 * p - q, v))


def test_a_functional_is_a_vector_and_one_a_scalar(rng):
    w, a = rng.normal(size=(2, D))
    close(denote(lam(logic.dual(A), A, lambda f, x: f(x)))(w, a), w @ a)
    close(denote(lam(logic.dual(A), A, lambda f, x: f(x)))(w[None, :], a), w @ a)
    close(dense(denote(lam(logic.dual(A), lambda f: f))(w)), w)


def test_dense_turns_linear_maps_into_arrays_and_back(rng):
    (m,) = matrices(rng, 1)
    state = With(A, With(logic.dual(A), E))
    a, w = rng.normal(size=(2, D))
    same = denote(lam(state, lambda s: s))((a, (w, m)))
    arrays = dense(same)
    close(arrays[0], a)
    close(arrays[1][0], w)
    close(arrays[1][1], m)
    flat = flatten(same, state)
    close(flat, np.concatenate([a, w, m.ravel()]))
    close(flatten(unflatten(flat, state), state), flat)


def test_linear_maps_between_composite_types_have_matrices(rng):
    swap = denote(lam(With(A, B), lambda p: Both(Snd(p), Fst(p))))
    got = np.asarray(logic.matrix(swap, 5))
    close(got, np.roll(np.eye(5), 2, axis=0))
    operator = rng.normal(size=(5, 5))
    total = lam(logic.endo(With(A, B)), With(A, B), lambda f, p: f(p))
    first, second = denote(total)(operator, (np.arange(3.0), np.arange(2.0)))
    close(np.concatenate([first, second]), operator @ np.array([0, 1, 2, 0, 1.0]))


def test_superpositions_of_values_are_values(rng):
    m, n = matrices(rng, 2)
    a = rng.normal(size=D)
    pair = add((a, coerce(m, E)), (a, coerce(n, E)))
    close(pair[0], 2 * a)
    close(matrix(pair[1]), m + n)
    close(scale(3.0, (a, a))[1], 3 * a)
    close(add(lambda z: m @ z, coerce(n, E))(a), (m + n) @ a)
    close(add(coerce(n, E), lambda z: m @ z)(a), (m + n) @ a)
    close(scale(2.0, lambda z: m @ z)(a), 2 * m @ a)
    close(matrix(superpose(np.array([2.0, -1.0]), [coerce(m, E), coerce(n, E)])), 2 * m - n)
    kets = superpose(np.array([2.0, -1.0]), [ket(m), ket(n, m)])  # formal: not a ket at the sum of the points
    close(matrix(denote(logic.numeral(2, A))(kets)), 2 * m @ m - (n @ m + m @ n))
    close(matrix(denote(logic.numeral(2, A))(scale(3, ket(m)))), 3 * m @ m)
    ((left, right),) = scale(3.0, PureTensors(((ket(m), a),))).terms
    close(matrix(denote(logic.numeral(2, A))(left)), 3 * m @ m)
    close(right, a)


def test_kets_of_kets_are_values_that_can_be_given_again(rng):
    """The point of an outer ket is itself a value of !A, and not always that of a point."""
    p, v = rng.normal(size=(2, D))
    same = denote(lam(Bang(Bang(A)), lambda x: x))
    uses = "(let !y = x in *)"
    count = denote(logic.parse(rf"\!x:!!A. {uses} (x) {uses}", {"A": A}))
    for inner, want in (
        (ket(p), 1),
        (ket(p, v), 0),  # the derivative of 1
        (superpose(np.array([2.0, 3.0]), [ket(p), ket(v)]), 25),
    ):
        close(count(ket(inner)), [[want]])
        close(count(same(ket(inner))), [[want]])
    close(same(ket(ket(p))), p)


def test_the_matrix_of_a_callable_has_the_axes_of_its_values_first(rng):
    m, w = rng.normal(size=(2, D)), rng.normal(size=4)
    close(logic.matrix(lambda x: m @ x, D), m)
    close(logic.matrix(lambda x: jnp.outer(w, m @ x), D), w[:, None, None] * m)


def test_an_integer_array_becomes_one_of_floats():
    assert coerce(np.arange(D), A).dtype == np.float64
    assert coerce(np.ones(D, np.float32), A).dtype == np.float32


def test_kets_and_pure_tensors_are_differentiated_part_by_part(rng):
    """The vectors f x and g x of one ket, and the sides of one pair, are multiplied afterwards."""
    f, g = matrices(rng, 2)
    p, v = rng.normal(size=(2, D))
    kets = banged(E, E, A, lambda f, g, x: Ket(Zero(A), (f(x), g(x))))
    square = lam(Bang(A), lambda k: let_bang(k, lambda z: Pair(z, z)))
    slope = np.outer(f @ v, g @ p) + np.outer(f @ p, g @ v)
    close(denote(square)(denote(kets)(f, g)(ket(p, v))), slope + slope.T)
    pairs = banged(E, E, A, lambda f, g, x: Pair(f(x), bang(g(x))))
    product = lam(Tensor(A, Bang(A)), lambda t: let_pair(t, lambda a, k: let_bang(k, lambda z: Pair(a, z))))
    close(denote(product)(denote(pairs)(f, g)(ket(p, v))), slope)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda n: n(np.zeros((2, 2))), r"value: got shape \(2, 2\), expected \(3, 3\) for type A -o A"),
        (lambda n: n(np.eye(3))(np.zeros(2)), r"value: got shape \(2,\), expected \(3,\) for type A"),
        (lambda n: n(np.eye(3), np.zeros(3), 1), "more: got 3 arguments, expected fewer for type"),
        (lambda n: n("x"), "value: got str 'x', expected an array of shape"),
        (lambda n: n(logic.numeral(1, A)), r"value: got the term `.*`, expected a value of type !\(A -o A\)"),
        (lambda n: nonlinear(logic.numeral(2, A))(Var("x", A)), "got the term `x`"),
        (lambda n: logic.matrix(n, 3), "function: got .*, expected types without !"),
        (
            lambda n: logic.matrix(n(np.eye(3)), 4),
            "dimension: got 4, expected 3, the dimension of the domain",
        ),
        (
            lambda n: logic.matrix(None, 4),  # pyrefly: ignore
            "function: got None, expected a linear callable",
        ),
        (lambda n: superpose(np.ones(2), [n]), r"coefficients: got shape \(2,\) with 1 values"),
        (lambda n: superpose(np.ones((1, 1)), [n]), r"coefficients: got shape \(1, 1\) with 1 values"),
        (lambda n: superpose(np.ones(0), []), r"coefficients: got shape \(0,\) with 0 values"),
        (
            lambda n: denote(lam(Tensor(A, Bang(A)), lambda t: t))(np.ones(D)),
            "value: got .*, expected a pair of values or PureTensors for type",
        ),
        (lambda n: denote(logic.evaluate(A))(np.eye(3)), "value: got .*, expected a callable for type"),
        (
            lambda n: denote(logic.evaluate(A))(denote(logic.compose(A))),
            r"got <linear map : \(A -o A\) -o .*>, expected a linear map of type !\(A -o A\) -o",
        ),
        (lambda n: denote(lam(With(A, A), lambda p: Fst(p)))(np.zeros(3)), "expected a pair of values"),
        (lambda n: denote(Var("x", A)), "variable x : A: got no binder"),
        (lambda n: ket_value(logic.compose(A), 0, []), "term: got .*, expected a type !A -o B"),
        (
            lambda n: nonlinear(logic.numeral(2, A))(np.eye(3), np.zeros(3)),
            "more: got 2 points, expected at most one per banged argument",
        ),
        (lambda n: denote(lam(A, lambda x: lam(A, lambda y: x))), "y : A: got no use"),
    ],
)
def test_bad_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(denote(logic.numeral(2, A)))
