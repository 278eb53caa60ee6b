import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import (
    Atom,
    One,
    Span,
    With,
    denote,
    ket,
    numeral,
    numeral_span,
    superpose,
    word_products,
    word_span,
)
from tests.llrnn.logic.matrices import A, D, close, compare, matrix


def word_matrix(word, x, y):
    total = np.eye(D)
    for digit in word:
        total = (x if digit == "0" else y) @ total
    return total


def test_a_span_of_any_programs_is_their_combination(rng):
    x, y = rng.normal(size=(2, D, D))
    p = rng.normal(size=3)
    words = ("01", "", "110")
    span = Span(tuple(logic.binary_integer(word, A) for word in words))
    assert (span.dimension, span.type) == (3, logic.binary(A))
    want = sum(c * word_matrix(word, x, y) for c, word in zip(p, words, strict=True))
    close(matrix(span.denote(p)(x, y)), want)
    assert span == Span(tuple(logic.binary_integer(word, A) for word in words))
    assert hash(span) == hash(Span(span.programs))


@pytest.mark.parametrize("largest", [0, 1, 3])
def test_horner_is_the_span_of_the_numerals(largest, rng):
    x, v, w = rng.normal(size=(3, D, D))
    span = numeral_span(largest, A)
    generic = Span(span.programs)
    assert (span.dimension, span.type) == (generic.dimension, generic.type) == (largest + 1, logic.integer(A))
    p = rng.normal(size=largest + 1)
    want = sum(p[i] * np.linalg.matrix_power(x, i) for i in range(largest + 1))

    def pairs():
        fast, slow = span.denote(p), generic.denote(p)
        kets = ket(x), ket(x, v), ket(x, v, w), superpose(p[:1], [ket(v, x)])
        return [(matrix(fast(x)), want), *((matrix(fast(k)), matrix(slow(k))) for k in kets)]

    compare(pairs)


def test_horner_never_forms_a_power():
    """One matrix-vector product per step, and no array of the size of a matrix except the operator."""
    d, largest = 16, 8
    span = numeral_span(largest, Atom("H", d))
    run = jax.make_jaxpr(lambda p, x, h: span.denote(p)(x)(h))
    closed = run(jnp.ones(largest + 1), jnp.ones((d, d)), jnp.ones(d))
    scans = [e for e in closed.jaxpr.eqns if e.primitive.name == "scan"]
    assert len(scans) == 1
    assert scans[0].params["length"] == largest
    equations = [*closed.jaxpr.eqns, *scans[0].params["jaxpr"].jaxpr.eqns]
    produced = [getattr(v.aval, "shape", None) for e in equations for v in e.outvars]
    assert (d, d) not in produced
    assert sum(e.primitive.name == "dot_general" for e in scans[0].params["jaxpr"].jaxpr.eqns) == 1


@pytest.mark.parametrize("length", [0, 1, 2])
def test_the_tree_of_prefixes_is_the_span_of_the_words(length, rng):
    x, y, u, v = rng.normal(size=(4, D, D))
    span = word_span(length, A)
    generic = Span(span.programs)
    assert (span.dimension, span.type) == (generic.dimension, generic.type) == (2**length, logic.binary(A))
    p = rng.normal(size=2**length)
    words = [format(i, f"0{length}b") if length else "" for i in range(2**length)]
    want = sum(c * word_matrix(word, x, y) for c, word in zip(p, words, strict=True))

    def pairs():
        fast, slow = span.denote(p), generic.denote(p)
        kets = (ket(x, u), y), (ket(x, u), ket(y, v))
        return [(matrix(fast(x, y)), want), *((matrix(fast(*k)), matrix(slow(*k))) for k in kets)]

    compare(pairs)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_products_of_digits_are_words_with_product_coefficients(length, rng):
    x, y, u = rng.normal(size=(3, D, D))
    p = rng.normal(size=(length, 2))
    coefficients = np.ones(1)
    for digit in p:
        coefficients = np.outer(coefficients, digit).ravel()
    family = word_products(length, A)
    assert family.type == logic.binary(A)
    want = np.eye(D)
    for zero, one in p:
        want = (zero * x + one * y) @ want

    def pairs():
        same, found = word_span(length, A).denote(coefficients), family.denote(p)
        tangent = (matrix(value(x)(ket(y, u))) for value in (found, same))
        return (matrix(found(x, y)), want), tuple(tangent)

    compare(pairs)


def test_commands_are_values_for_a_master_program(rng):
    (x,) = rng.normal(size=(1, D, D))
    p = rng.normal(size=5)
    run = denote(logic.evaluate(A))
    close(
        matrix(run(numeral_span(4, A).denote(p), x)),
        matrix(run(Span(numeral_span(4, A).programs).denote(p), x)),
    )


def test_fast_paths_jit_batch_differentiate_and_keep_the_precision(rng):
    p, x, h = (rng.normal(size=s) for s in ((4, 5), (4, D, D), (4, D)))
    span = numeral_span(4, A)
    generic = Span(span.programs)

    def loss(s, p, x, h):
        return jnp.sum(jax.vmap(lambda p, x, h: s.denote(p)(x)(h))(p, x, h) ** 2)

    def pairs():
        return zip(*(jax.grad(loss, argnums=(1, 2, 3))(s, p, x, h) for s in (span, generic)), strict=True)

    compare(lambda: list(pairs()))
    single = [jnp.asarray(a[0], jnp.float32) for a in (p, x, h)]

    def values():
        word = word_products(3, A).denote(jnp.ones((3, 2), jnp.float32))
        both = span.denote(single[0])(single[1])(single[2]), word(single[1], single[1])(single[2])
        return both, span.denote(single[0])(x[0])(single[2])  # the operator's dtype counts too

    both, double = jax.eval_shape(values)
    assert {value.dtype for value in both} == {jnp.dtype("float32")}
    assert double.dtype == jnp.float64


def test_states_may_be_products(rng):
    state = With(A, One)
    m, h, c, p = rng.normal(size=(4, 4)), rng.normal(size=D), rng.normal(), rng.normal(size=3)
    want = sum(p[i] * np.linalg.matrix_power(m, i) for i in range(3)) @ np.append(h, c)

    def pairs():
        by_numerals = numeral_span(2, state).denote(p)(m)((h, c))
        by_words = word_span(1, state).denote(np.array([2.0, 0.0]))(m, m)((h, c))
        return [(jnp.append(*by_numerals), want), (jnp.append(*by_words), 2 * m @ np.append(h, c))]

    compare(pairs)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Span(()), r"programs: got \(\), expected a non-empty tuple"),
        (
            lambda: Span((numeral(1, A), logic.compose(A))),
            r"programs: got .* : \(A -o A\) .*, expected the type of .* : !\(A -o A\)",
        ),
        (lambda: Span((logic.lam(A, lambda x: logic.Star()),)), "x : A: got no use"),
        (lambda: numeral_span(-1, A), "largest: got -1, expected an integer of at least 0"),
        (lambda: word_span(True, A), "length: got True, expected an integer"),
        (lambda: numeral_span(1, logic.Bang(A)), "over: got !A, expected a type without !"),
        (
            lambda: numeral_span(2, A).denote(np.ones(2)),
            r"coordinates: got shape \(2,\), expected \(3,\)",
        ),
        (
            lambda: word_products(2, A).denote(np.ones(2)),
            r"coordinates: got shape \(2,\), expected \(2, 2\)",
        ),
        (
            lambda: Span((numeral(1, A),)).denote(np.ones((1, 1))),
            r"coordinates: got shape \(1, 1\), expected \(1,\)",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
