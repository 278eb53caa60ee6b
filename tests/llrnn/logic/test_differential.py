import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import Atom, Bang, Lolli, Pair, Zero, bang, banged, check, denote, derivative, lam, numeral

D = 3
A = Atom("A", D)
E = logic.endo(A)
power = jnp.linalg.matrix_power


def matrix(value):
    return logic.matrix(value, D)


def close(got, want):
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-11, atol=1e-11)


def test_the_derivative_of_a_numeral_puts_the_tangent_in_each_place():
    assert str(derivative(numeral(1, A))) == r"\!x. \v. \z. v z"
    assert str(derivative(numeral(2, A))) == r"(\!x. \v. \z. x (v z)) + (\!x. \v. \z. v (x z))"
    assert derivative(numeral(0, A)) == Zero(Lolli(Bang(E), Lolli(E, E)))
    assert len(derivative(numeral(5, A)).children) == 5


@pytest.mark.parametrize(
    "program",
    [*(numeral(n, A) for n in (0, 1, 3, 5)), logic.mult(A)(numeral(2, A), bang(numeral(3, A)))],
)
def test_it_is_what_jvp_computes(program, rng):
    x, v = jnp.asarray(rng.normal(size=(2, D, D)))
    d = derivative(program)
    assert check(d) == Lolli(Bang(E), Lolli(E, E))
    value = denote(program)
    _, want = jax.jvp(lambda m: matrix(value(m)), (x,), (v,))
    close(matrix(denote(d)(x, v)), want)


def test_it_can_be_iterated(rng):
    x, u, v, w = jnp.asarray(rng.normal(size=(4, D, D)))
    third = derivative(derivative(derivative(numeral(4, A))))
    assert check(third) == Lolli(Bang(E), Lolli(E, Lolli(E, Lolli(E, E))))

    def along(f, t):
        return lambda m: jax.jvp(f, (m,), (t,))[1]

    want = along(along(along(lambda m: power(m, 4), u), v), w)(x)
    close(matrix(denote(third)(x, u, v, w)), want)
    # And the derivative of the derivative in its point, on a ket.
    first = derivative(numeral(4, A))
    close(matrix(denote(first)(logic.ket(x, v), u)), along(along(lambda m: power(m, 4), u), v)(x))


def test_it_leaves_further_banged_arguments_alone(rng):
    x, y, v = jnp.asarray(rng.normal(size=(3, D, D)))
    word = logic.binary_integer("0110", A)
    d = derivative(word)
    assert check(d) == Lolli(Bang(E), Lolli(E, Lolli(Bang(E), E)))
    _, want = jax.jvp(lambda m: m @ y @ y @ m, (x,), (v,))
    close(matrix(denote(d)(x, v, y)), want)


def test_it_sees_through_programs_that_run_programs(rng):
    """d(square) has the chain rule's two terms, the inner one a ket with a tangent."""
    d = derivative(logic.square(A))
    assert str(d) == r"(\!x. \v. \!f. v !(x !f)) + (\!x. \v. \!f. x |v !f>_(x !f))"
    x, p, q = jnp.asarray(rng.normal(size=(D, D))), *jnp.asarray(rng.normal(size=(2, 3)))
    span = logic.numeral_span(2, A)

    def composed(c):
        def poly(m):
            return sum(c[i] * power(m, i) for i in range(3))

        return poly(poly(x))

    _, want = jax.jvp(composed, (p,), (q,))
    close(matrix(denote(d)(span.denote(p), span.denote(q), x)), want)


def test_the_derivative_of_repeat_is_st_plus_ts(rng):
    x, y = jnp.asarray(rng.normal(size=(2, D, D)))
    s, t = (denote(logic.binary_integer(word, A)) for word in ("01", "1"))
    d = derivative(logic.repeat(A))
    close(matrix(denote(d)(s, t, x, y)), y @ y @ x + y @ x @ y)


def test_a_bilinear_program_has_a_bilinear_derivative(rng):
    p, v = jnp.asarray(rng.normal(size=(2, D)))
    d = derivative(banged(A, lambda x: Pair(x, x)))
    close(denote(d)(p, v), jnp.outer(p, v) + jnp.outer(v, p))


def test_only_a_program_with_a_banged_argument_has_a_derivative():
    with pytest.raises(logic.IllTyped, match=r"term: got `.*` : .*, expected a type !A -o B"):
        derivative(logic.compose(A))
    with pytest.raises(logic.LinearityError):
        derivative(banged(A, lambda x: lam(A, lambda y: x)))
