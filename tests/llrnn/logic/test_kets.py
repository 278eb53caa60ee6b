"""Tests the coalgebra laws of formal kets, exactly, and compares denotations with them."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import Atom, denote, ket_value
from llrnn.logic.kets import (
    FormalKet,
    codereliction,
    contraction,
    coordinates,
    counit,
    dereliction,
    deriving,
    formal,
    promotion,
)

D = 2


def integers(rng, n):
    return [rng.integers(-3, 4, size=D) for _ in range(n)]


def kets(rng):
    """Returns a formal sum of kets of every length up to 3 at two points, exact in integers."""
    p, q, *v = integers(rng, 6)
    total = (*formal(p, *v[:3]), *formal(q, v[0], v[3]), *formal(p, v[1]), *formal(q))
    return tuple(FormalKet(k.point, k.vectors, c) for k, c in zip(total, (2, -1, 3, 5), strict=True))


def tensor_coordinates(terms):
    """Returns the coordinates in !V (x) .. (x) !V of a sum of tuples of kets."""
    total = {}
    for term in terms:
        for keys in itertools.product(*(coordinates((k,)).items() for k in term)):
            key, value = tuple(k for k, _ in keys), np.prod([c for _, c in keys])
            total[key] = total.get(key, 0) + value
    return {key: value for key, value in total.items() if value}


def test_contraction_is_coassociative_cocommutative_and_counital(rng):
    total = kets(rng)
    left = [(*contraction((a,))[i], b) for a, b in contraction(total) for i in range(len(contraction((a,))))]
    right = [(a, *pair) for a, b in contraction(total) for pair in contraction((b,))]
    assert tensor_coordinates(left) == tensor_coordinates(right)
    assert tensor_coordinates(left) == tensor_coordinates(contraction(total, 3))
    flipped = [(b, a) for a, b in contraction(total)]
    assert tensor_coordinates(flipped) == tensor_coordinates(contraction(total))
    kept = tuple(
        FormalKet(b.point, b.vectors, counit((a,)) * b.coefficient)
        for a, b in contraction(total)
        if counit((a,))
    )
    assert coordinates(kept) == coordinates(total)


def quadratic(rng):
    """A linear map !V -> W of degree 2, by its values on kets, that depends on more than the point."""
    form, matrix = rng.integers(-2, 3, size=(3, D, D)), rng.integers(-2, 3, size=(3, D))

    def phi(point, vectors):
        match len(vectors):
            case 0:
                return np.einsum("kij,i,j->k", form, point, point) + matrix @ point
            case 1:
                (v,) = vectors
                return (
                    np.einsum("kij,i,j->k", form, v, point)
                    + np.einsum("kij,i,j->k", form, point, v)
                    + matrix @ v
                )
            case 2:
                u, v = vectors
                return np.einsum("kij,i,j->k", form, u, v) + np.einsum("kij,i,j->k", form, v, u)
        return np.zeros(3, int)

    return phi


def test_promotion_lifts_and_is_a_map_of_coalgebras(rng):
    phi, total = quadratic(rng), kets(rng)
    lifted = promotion(phi, total)
    want = sum(k.coefficient * phi(k.point, k.vectors) for k in total)
    np.testing.assert_array_equal(dereliction(lifted), want)
    assert counit(lifted) == counit(total)
    separately = [
        (x, y) for a, b in contraction(total) for x in promotion(phi, (a,)) for y in promotion(phi, (b,))
    ]
    assert tensor_coordinates(contraction(lifted)) == tensor_coordinates(separately)


def test_the_number_of_terms_of_a_promotion_is_the_bell_number(rng):
    point, *vectors = integers(rng, 6)
    phi = quadratic(rng)
    counts = [len(promotion(phi, formal(point, *vectors[:s]))) for s in range(6)]
    assert counts == [1, 1, 2, 5, 15, 52]


def test_codereliction_and_the_deriving_map(rng):
    (v, w, p) = integers(rng, 3)
    np.testing.assert_array_equal(dereliction(codereliction(v)), v)
    assert counit(codereliction(v)) == 0
    assert coordinates(deriving(formal(np.zeros_like(v)), v)) == coordinates(codereliction(v))
    # Symmetric, and a coderivation: it lands in one factor of the contraction or in the other.
    assert coordinates(deriving(deriving(formal(p), v), w)) == coordinates(
        deriving(deriving(formal(p), w), v)
    )
    total = formal(p, w)
    one = [(deriving((a,), v)[0], b) for a, b in contraction(total)]
    other = [(a, deriving((b,), v)[0]) for a, b in contraction(total)]
    assert tensor_coordinates(contraction(deriving(total, v))) == tensor_coordinates(one + other)


def test_coordinates_are_multilinear_and_symmetric(rng):
    p, u, v, w = integers(rng, 4)
    assert coordinates(formal(p, u, v)) == coordinates(formal(p, v, u))
    both = coordinates((*formal(p, u, w), *(FormalKet(p, (v, w), 2),)))
    assert coordinates(formal(p, u + 2 * v, w)) == both


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"vectors: got shapes \[\(3,\)\] with a point of shape \(2,\)"):
        formal(np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="factors: got 0, expected at least 1"):
        contraction((), 0)
    with pytest.raises(ValueError, match="kets: got an empty sum"):
        dereliction(())


# Denotations against contraction, dereliction and matrix products

A = Atom("A", D)
MATRIX = (D, D)


def oracle(digits, values):
    """A word on kets: contract each argument to its uses, derelict each use, multiply in the word's order.

    Args:
      digits: for each factor, first applied first, which argument it is.
      values: for each argument (point, vectors), matrices [D, D].
    """
    flat = [formal(p.ravel(), *(v.ravel() for v in vectors)) for p, vectors in values]
    dealt = []
    for argument, total in enumerate(flat):
        uses = digits.count(argument)
        dealt.append(contraction(total, uses) if uses else [()] * int(counit(total)))
    result = np.zeros(MATRIX)
    for choice in itertools.product(*dealt):
        hands = [iter(c) for c in choice]
        product = np.eye(D)
        for argument in digits:
            product = dereliction((next(hands[argument]),)).reshape(MATRIX) @ product
        result = result + product
    return result


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("s", range(4))
def test_a_numeral_on_a_ket(n, s, rng):
    point, *vectors = rng.normal(size=(1 + s, D, D))
    got = logic.matrix(ket_value(logic.numeral(n, A), point, vectors), D)
    np.testing.assert_allclose(got, oracle([0] * n, [(point, vectors)]), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("word", ["", "0110"])
@pytest.mark.parametrize(("s", "t"), [(0, 1), (1, 1), (2, 1), (0, 2)])
def test_a_word_on_two_kets(word, s, t, rng):
    x, y, *vectors = rng.normal(size=(2 + s + t, D, D))
    value = denote(logic.binary_integer(word, A))(logic.ket(x, *vectors[:s]), logic.ket(y, *vectors[s:]))
    want = oracle([int(digit) for digit in word], [(x, vectors[:s]), (y, vectors[s:])])
    np.testing.assert_allclose(logic.matrix(value, D), want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("n", "s"), [(2, 1), (3, 2)])
def test_a_ket_is_a_nested_jvp(n, s, rng):
    point, *vectors = jnp.asarray(rng.normal(size=(1 + s, D, D)))

    def nested(f, rest):
        if not rest:
            return f
        return nested(lambda m: jax.jvp(f, (m,), (rest[0],))[1], rest[1:])

    want = nested(lambda m: jnp.linalg.matrix_power(m, n), vectors)(point)
    got = logic.matrix(ket_value(logic.numeral(n, A), point, vectors), D)
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("s", range(4))
def test_a_promotion_on_a_ket_is_faa_di_bruno(s, rng):
    """3 * 2 is [[3]] after the promotion of [[2]]: partitions, then the oracle of a numeral."""
    point, *vectors = rng.normal(size=(1 + s, D, D))

    def two(p, vs):
        return oracle([0, 0], [(p.reshape(MATRIX), [v.reshape(MATRIX) for v in vs])]).ravel()

    want = np.zeros(MATRIX)
    for k in promotion(two, formal(point.ravel(), *(v.ravel() for v in vectors))):
        inner = [(k.point.reshape(MATRIX), [v.reshape(MATRIX) for v in k.vectors])]
        want = want + k.coefficient * oracle([0, 0, 0], inner)
    six = logic.mult(A)(logic.numeral(3, A), logic.bang(logic.numeral(2, A)))
    got = logic.matrix(denote(six)(logic.ket(point, *vectors)), D)
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)
