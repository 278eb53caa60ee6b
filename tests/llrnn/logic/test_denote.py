"""Tests denotations against matrix algebra in NumPy."""

import inspect
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    Bang,
    Both,
    Ket,
    Lolli,
    One,
    Pair,
    Snd,
    Star,
    Tensor,
    With,
    Zero,
    bang,
    banged,
    denote,
    ket_value,
    lam,
    let_bang,
    let_pair,
    let_star,
    nonlinear,
)
from llrnn.logic.values import PureTensors, ket, superpose
from tests.llrnn.logic.matrices import A, B, D, E, close, compare, matrices, matrix

power = np.linalg.matrix_power


def word_matrix(word, x, y):
    total = np.eye(D)
    for digit in word:
        total = (x if digit == "0" else y) @ total
    return total


def poly(c, m):
    """Returns the polynomial sum_i c_i m^i of a matrix."""
    return np.einsum("i,ijk->jk", c, np.stack([power(m, i) for i in range(len(c))]))


# Programs (section "Programs" of the notes; Examples 2.6 and 2.7)


@pytest.mark.parametrize("n", range(6))
def test_a_numeral_is_a_power(n, rng):
    (x,) = matrices(rng, 1)
    close(matrix(denote(logic.numeral(n, A))(x)), power(x, n))
    close(matrix(nonlinear(logic.numeral(n, A))(x)), power(x, n))


@pytest.mark.parametrize("word", ["", "0", "1", "01", "01101", "110", "001011"])
def test_a_word_applies_its_digits_from_left_to_right(word, rng):
    x, y = matrices(rng, 2)
    value = denote(logic.binary_integer(word, A))
    close(matrix(value(x)(y)), word_matrix(word, x, y))
    close(matrix(value(x, y)), word_matrix(word, x, y))
    if word == "01101":
        close(matrix(value(x, y)), y @ x @ y @ y @ x)


def test_plus_adds_and_mult_multiplies_exponents(rng):
    (x,) = matrices(rng, 1)
    two, three = (denote(logic.numeral(n, A)) for n in (2, 3))
    close(matrix(denote(logic.plus(A))(two, three, x)), power(x, 5))
    close(matrix(denote(logic.mult(A))(two, three, x)), power(x, 6))
    close(matrix(denote(logic.square(A))(three, x)), power(x, 9))


def test_plus_and_mult_on_superpositions(rng):
    """Addition is bilinear; multiplication is linear in the first numeral and a composition in the second."""
    (x,) = matrices(rng, 1)
    p, q = rng.normal(size=3), rng.normal(size=3)

    span = logic.numeral_span(2, A)
    close(matrix(denote(logic.plus(A))(span.denote(p), span.denote(q), x)), poly(p, x) @ poly(q, x))
    close(matrix(denote(logic.mult(A))(span.denote(p), span.denote(q), x)), poly(p, poly(q, x)))


def test_concat_is_the_word_st_and_repeat_runs_a_word_twice(rng):
    x, y = matrices(rng, 2)
    s, t = (denote(logic.binary_integer(word, A)) for word in ("01", "110"))
    close(matrix(denote(logic.concat(A))(s, t, x, y)), word_matrix("01110", x, y))
    close(matrix(denote(logic.repeat(A))(t, x, y)), word_matrix("110110", x, y))


def test_compose_and_dereliction(rng):
    x, y = matrices(rng, 2)
    close(matrix(denote(logic.compose(A))(x, y)), x @ y)
    close(matrix(denote(logic.dereliction(E))(x)), x)
    close(denote(logic.dereliction(A))(x[0]), x[0])


def test_evaluate_is_linear_in_the_command(rng):
    (x,) = matrices(rng, 1)
    p = rng.normal(size=4)
    command = superpose(p, [denote(logic.numeral(i, A)) for i in range(4)])
    close(matrix(denote(logic.evaluate(A))(command, x)), poly(p, x))


def test_slip_2_a_superposition_is_resampled_at_every_use_of_a_digit(rng):
    (x,) = matrices(rng, 1)
    c, e = rng.normal(size=3), rng.normal(size=3)
    span, fed = logic.numeral_span(2, A), denote(logic.feed(A))
    p, q = poly(c, x), poly(e, x)
    zero_one, zero_zero = (denote(logic.binary_integer(word, A)) for word in ("01", "00"))
    close(matrix(fed(zero_one, span.denote(c), span.denote(e), x)), q @ p)
    close(matrix(fed(zero_zero, span.denote(c), span.denote(e), x)), p @ p)
    assert np.abs(p @ p - sum(c[i] * power(x, 2 * i) for i in range(3))).max() > 0.1
    # On numerals it is X^(k m + l n) for k zeros and l ones.
    two, one = (denote(logic.numeral(n, A)) for n in (2, 1))
    close(matrix(fed(denote(logic.binary_integer("0010", A)), two, one, x)), power(x, 7))


def test_slip_3_squaring_a_superposition_composes_it_with_itself(rng):
    (x,) = matrices(rng, 1)
    c = rng.normal(size=3)

    got = matrix(denote(logic.square(A))(logic.numeral_span(2, A).denote(c), x))
    close(got, poly(c, poly(c, x)))
    assert np.abs(got - sum(c[i] * power(x, i * i) for i in range(3))).max() > 0.1


# Kets


def test_the_derivative_of_a_power_is_the_sum_over_places(rng):
    x, v = matrices(rng, 2)
    want = sum(power(x, i) @ v @ power(x, 4 - i) for i in range(5))
    close(matrix(ket_value(logic.numeral(5, A), x, [v])), want)


def test_the_derivative_of_repeat_is_st_plus_ts(rng):
    x, y = matrices(rng, 2)
    s, t = (denote(logic.binary_integer(word, A)) for word in ("01", "110"))
    got = matrix(ket_value(logic.repeat(A), s, [t])(x, y))
    close(got, word_matrix("01110", x, y) + word_matrix("11001", x, y))


def test_a_ket_in_one_of_two_banged_arguments(rng):
    x, y, u, v = matrices(rng, 4)
    value = denote(logic.binary_integer("010", A))
    compare(
        lambda: [
            (matrix(value(ket(x, u))(ket(y, v))), u @ v @ x + x @ v @ u),
            (matrix(value(ket(x, u, v))(y)), u @ y @ v + v @ y @ u),
        ]
    )


def test_kets_of_kets(rng):
    """Promotes and opens a ket twice: !A -o !!A -o A is the identity on |>_P and |v>_P."""
    p, v = rng.normal(size=(2, D))
    twice = banged(A, lambda x: bang(bang(x)))
    once = lam(Bang(Bang(A)), lambda y: let_bang(y, lambda z: let_bang(z, lambda x: x)))
    close(denote(once)(denote(twice)(p)), p)
    close(denote(once)(denote(twice)(ket(p, v))), v)
    square = banged(A, lambda x: Pair(x, x))
    squared = lam(Bang(Bang(A)), lambda y: let_bang(y, lambda z: square(z)))
    close(denote(squared)(denote(twice)(ket(p, v))), np.outer(v, p) + np.outer(p, v))


def test_a_tangent_is_linear_and_commutes(rng):
    x, u, v, w = matrices(rng, 4)
    n = logic.numeral(3, A)

    def pairs():
        both, first, second = (
            matrix(ket_value(n, x, vectors)) for vectors in ([u, 2.0 * v - w], [v, u], [w, u])
        )
        return (both, 2 * first - second), (matrix(ket_value(n, x, [u, v, w, u])), np.zeros((D, D)))

    compare(pairs)


# One construct at a time


def test_each_construct_has_its_linear_algebra(rng):
    (m,) = matrices(rng, 1)
    a, b = rng.normal(size=D), rng.normal(size=2)
    swap = lam(Tensor(A, B), lambda t: let_pair(t, lambda x, y: Pair(y, x)))
    dense_tensor = rng.normal(size=(D, 2))

    def pairs():
        diagonal = denote(lam(A, lambda x: Both(x, x)))(a)
        return [
            (denote(lam(A, E, lambda x, f: f(x)))(a, m), m @ a),
            (denote(lam(One, A, lambda c, x: let_star(c, x)))(2.0, a), 2 * a),
            (denote(Star()), 1.0),
            (denote(swap)(dense_tensor), dense_tensor.T),
            (denote(swap)((a, b)), np.outer(b, a)),
            (denote(lam(With(A, B), lambda p: Snd(p)))((a, b)), b),
            (diagonal[0], a),
            (diagonal[1], a),
            (matrix(denote(banged(E, lambda f: f + lam(A, lambda z: f(f(z)))))(m)), m + m @ m),
            (matrix(denote(Zero(E))), np.zeros((D, D))),
            (denote(lam(Tensor(E, A), lambda t: let_pair(t, lambda f, x: f(x))))((m, a)), m @ a),
        ]

    compare(pairs)


def test_a_tensor_of_operators_is_flattened_row_by_row(rng):
    m, n = matrices(rng, 2)
    pair = denote(lam(E, E, lambda f, g: Pair(f, g)))(m, n)
    assert pair.shape == (D * D, D * D)
    close(pair, np.outer(m.ravel(), n.ravel()))
    compose = lam(Tensor(E, E), lambda t: let_pair(t, lambda f, g: lam(A, lambda z: f(g(z)))))
    close(matrix(denote(compose)(pair)), m @ n)
    # A superposition of tensors that is not a pure tensor.
    close(matrix(denote(compose)(pair + np.outer(n.ravel(), n.ravel()))), m @ n + n @ n)


@pytest.mark.parametrize(("left", "right"), [(2, 4), (4, 2)])
def test_opening_a_tensor_gives_every_type_of_result(left, right, rng):
    """Let x (x) y = t in u, for u of a function type, of a product, and of a banged one."""
    p, q = Atom("P", left), Atom("Q", right)
    t = rng.normal(size=(left, right))
    form = Lolli(p, Lolli(q, One))
    body = lam(
        Tensor(p, q),
        lambda t: let_pair(t, lambda x, y: lam(form, lambda f: f(x)(y))),
    )
    g = rng.normal(size=(left, right))
    both = lam(Tensor(p, q), lambda t: let_pair(t, lambda x, y: Both(Pair(y, x), Pair(x, y))))
    kets = lam(Tensor(p, q), lambda t: let_pair(t, lambda x, y: Pair(Ket(Zero(p), (x,)), y)))
    read = lam(Tensor(Bang(p), q), lambda t: let_pair(t, lambda x, y: let_bang(x, lambda x: Pair(x, y))))

    def pairs():
        first, second = denote(both)(t)
        value = denote(kets)(t)
        assert isinstance(value, PureTensors)
        applied = denote(body)(t)(lambda x: lambda y: x @ g @ y)
        return (applied, np.sum(t * g)), (first, t.T), (second, t), (denote(read)(value), t)

    compare(pairs)


def test_differentiating_into_tensors_products_and_kets(rng):
    """Leibniz' rule for (x), componentwise for &, the chain rule for !."""
    p, v, w = rng.normal(size=(3, D))
    tensor = banged(A, lambda x: Pair(bang(x), x))
    opened = lam(
        Tensor(Bang(A), A), lambda t: let_pair(t, lambda k, y: let_bang(k, lambda x: Pair(Pair(x, x), y)))
    )
    got = denote(opened)(denote(tensor)(ket(p, v, w)))

    def outer(*vectors):
        return np.einsum("i,j,k->ijk", *vectors).reshape(D * D, D)

    # d^2 of x (x) x (x) x has v and w in two different positions.
    want = sum(outer(*vectors) for vectors in itertools.permutations((p, v, w)))
    close(got, want)
    product = banged(A, lambda x: Both(Pair(x, x), x))
    first, second = ket_value(product, p, [v])
    close(first, np.outer(p, v) + np.outer(v, p))
    close(second, v)


def test_differentiating_into_products_and_tensors_of_operators(rng):
    x, y, v = matrices(rng, 3)
    powers = banged(E, lambda f: Both(f, Both(lam(A, lambda z: f(f(z))), bang(lam(A, lambda z: f(f(z)))))))
    first, (second, third) = ket_value(powers, x, [v])
    close(matrix(first), v)
    close(matrix(second), v @ x + x @ v)
    cube = logic.numeral(3, A)  # of the ket |vx + xv>_(xx)
    close(matrix(denote(cube)(third)), sum(power(x, i) @ v @ power(x, 5 - i) for i in range(6)))
    # f (x) !f, and f !f again: both sides of the tensor are differentiated, the function when it is applied.
    tensor = banged(E, lambda f: Pair(f, bang(f)))
    open_both = lam(
        Tensor(E, Bang(E)), E, lambda t, g: let_pair(t, lambda f, k: lam(A, lambda z: f(g(cube(k)(z)))))
    )
    got = denote(open_both)(denote(tensor)(ket(x, v)), y)
    derived = sum(power(x, i) @ v @ power(x, 2 - i) for i in range(3))
    close(matrix(got), v @ y @ power(x, 3) + x @ y @ derived)


def test_a_ket_may_carry_a_scalar_that_varies(rng):
    """The ket c |>_(c x), opened into x (x) x, is c^3 x (x) x, with the derivatives of that polynomial."""
    p = rng.normal(size=D)
    program = banged(One, A, lambda c, x: let_star(c, bang(let_star(c, x))))
    read = denote(lam(Bang(A), lambda y: let_bang(y, lambda x: Pair(x, x))))
    value = denote(program)
    close(read(value(2.0)(p)), 8 * np.outer(p, p))
    close(read(value(ket(2.0, 3.0))(p)), 12 * 3 * np.outer(p, p))
    close(read(value(ket(2.0, 3.0, 5.0))(p)), 12 * 3 * 5 * np.outer(p, p))


# The boundary


# Transformations


def test_denotations_jit_vmap_and_differentiate(rng):
    p = jnp.asarray(rng.normal(size=4))
    x, z = jnp.asarray(rng.normal(size=(5, D, D))), jnp.asarray(rng.normal(size=(5, D)))
    master = denote(logic.evaluate(A))
    programs = [denote(logic.numeral(i, A)) for i in range(4)]

    def run(p, x, z):
        return master(superpose(p, programs), x)(z)

    def plain(p, x, z):
        return sum(p[i] * jnp.linalg.matrix_power(x, i) @ z for i in range(4))

    def second(v):
        def first(m):
            return jax.jvp(lambda k: plain(jnp.eye(4)[3], k, z[0]), (m,), (v,))[1]

        return jnp.sum(jax.jvp(first, (x[0],), (v,))[1])

    def pairs():
        got, want = (
            jax.grad(lambda *a, of=of: jnp.sum(of(*a) ** 2), argnums=(0, 1, 2))(p, x[0], z[0])
            for of in (run, plain)
        )
        # Also through a ket, whose value is itself a derivative.
        through = jax.grad(lambda v: jnp.sum(ket_value(logic.numeral(3, A), x[0], [v, v])(z[0])))(x[1])
        both = (jax.vmap(of, in_axes=(None, 0, 0))(p, x, z) for of in (run, plain))
        return [tuple(both), *zip(got, want, strict=True), (through, jax.grad(second)(x[1]))]

    compare(pairs)


def test_the_precision_is_that_of_the_arguments(rng):
    x = jnp.asarray(rng.normal(size=(D, D)), jnp.float32)
    swap = lam(Tensor(A, B), lambda t: let_pair(t, lambda x, y: Pair(y, x)))

    def values():
        z = x[0]
        single = (
            logic.matrix(denote(logic.numeral(3, A))(x), D),
            ket_value(logic.numeral(3, A), x, [x, x])(z),
            denote(lam(One, A, lambda c, x: let_star(c, x)))(2.0, z),
            denote(banged(A, lambda x: x + Zero(A)))(z),
            denote(swap)(x[:, :2]),
        )
        return single, denote(logic.numeral(2, A))(np.eye(D, dtype=int), np.arange(D))

    single, double = jax.eval_shape(values)
    assert {value.dtype for value in single} == {jnp.dtype("float32")}
    assert double.dtype == jnp.float64


def test_a_numeral_of_hundreds_is_evaluated(rng):
    rotation = np.roll(np.eye(D), 1, axis=0)
    close(
        jax.jit(lambda m: logic.matrix(denote(logic.numeral(200, A))(m), D))(rotation), power(rotation, 200)
    )


@pytest.mark.parametrize("left", [False, True])
def test_programs_nested_deeper_than_pythons_stack_have_values(left):
    """1 + (1 + (1 + ..)) and ((.. + 1) + 1) + 1 as programs, and as sums of proofs."""
    line, one = logic.Atom("line", 1), logic.numeral(1, logic.Atom("line", 1))
    program, total, depth = one, one, 200
    for _ in range(depth):
        program = logic.plus(line)(*((program, one) if left else (one, program)))
        total = total + one if left else one + total
    x, usual = np.array([[1.001]]), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + depth)
    try:
        found = [logic.denote(proof)(x)(np.ones(1)) for proof in (program, total)]
    finally:
        sys.setrecursionlimit(usual)
    np.testing.assert_allclose(found, [[1.001 ** (depth + 1)], [1.001 * (depth + 1)]])
