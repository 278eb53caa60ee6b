"""The values that denotations take and return: arrays, callables, kets and their superpositions."""

import itertools

import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import (
    Both,
    Fst,
    Ket,
    Snd,
    Var,
    With,
    Zero,
    denote,
    ket_value,
    lam,
    nonlinear,
)
from llrnn.logic.values import add, coerce, dense, flatten, ket, scale, superpose, unflatten
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
