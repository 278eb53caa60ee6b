"""How addresses move over a ring: rotations, words, polynomials and sharpening, in float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import memory
from llrnn.memory import rings
from tests.llrnn.memory_equations import rotation, softmax, word_matrix

pytestmark = pytest.mark.usefixtures("compiled_quickly", "x64")


@pytest.mark.parametrize("n", [1, 2, 5, 9, 12])
def test_rotate_is_a_circular_convolution(n):
    rng = np.random.default_rng(n)
    address, weights = rng.normal(size=(3, n)), rng.normal(size=(3, n))
    want = sum(weights[:, i, None] * np.roll(address, i, axis=1) for i in range(n))
    got = rings.rotate(jnp.asarray(address), jnp.asarray(weights), tuple(range(n)))
    np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("count", [3, 12])
def test_rotate_sums_sixteen_bit_addresses_in_their_dtype(count):
    """Few rotations are summed one by one, more by a Fourier transform, which has no bfloat16."""
    rng = np.random.default_rng(count)
    address, weights = rng.random((2, 12)), rng.random((2, count))
    want = sum(weights[:, i, None] * np.roll(address, i, axis=1) for i in range(count))
    address, weights = (jnp.asarray(part, jnp.bfloat16) for part in (address, weights))
    got = rings.rotate(address, weights, tuple(range(count)))
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), want, rtol=0.03)


def test_rotation_moves_the_read_address_forward_and_its_dual_the_write_address_back():
    """R maps location a to a + 1, and (R* w)(j) = w(R j), so that w(R r) = (R* w)(r)."""
    rng = np.random.default_rng(3)
    r, w = jnp.asarray(rng.normal(size=7)), jnp.asarray(rng.normal(size=7))
    one = jnp.ones((1,))
    powers, words = range(-3, 9), ("0", "1", "01", "0010", "1101")

    @jax.jit
    def moved():
        rotated = [(rings.rotate(r, one, (n,)), rings.rotate(w, one, (-n,))) for n in powers]
        # the dual of a word reverses it: w([[S]](R, R') r) = ([[S reversed]](R*, R'*) w)(r)
        by_words = [
            (
                rings.move_by_symmetries(r, one, (word,)),
                rings.move_by_symmetries(w, one, (word[::-1],), step=-1),
            )
            for word in words
        ]
        return rings.rotate(jnp.eye(7)[2], one, (1,)), rotated + by_words

    forward, pairs = jax.device_get(moved())
    np.testing.assert_array_equal(forward, np.eye(7)[3])
    for read, dual in pairs:
        np.testing.assert_allclose(np.asarray(w) @ read, dual @ np.asarray(r), rtol=1e-12)


def test_superposed_words_are_products_and_prefixes_are_shared():
    rng = np.random.default_rng(4)
    x, y, v = rng.normal(size=(4, 4)), rng.normal(size=(4, 4)), rng.normal(size=4)
    words = tuple("".join(w) for length in range(4) for w in itertools.product("01", repeat=length))
    weights = rng.normal(size=len(words))
    calls = []

    def counted(matrix):
        def call(vector):
            calls.append(1)
            return jnp.asarray(matrix) @ vector

        return call

    got = rings.move_by_words(jnp.asarray(v), jnp.asarray(weights), words, counted(x), counted(y))
    want = sum(c * word_matrix(word, x, y) @ v for c, word in zip(weights, words, strict=True))
    np.testing.assert_allclose(got, want, rtol=1e-9)
    assert (
        len(calls) == 2 + 4 + 8
    )  # one application for every non-empty word: each extends another by a digit


def test_multiple_pattern_agrees_with_the_draft_exactly_where_digits_do_not_repeat():
    """The later draft's sum l_i m_j k_k R^(a_k i + b_k j) holds for 0, 1, 01, but not for 00 (slip 2)."""
    rng = np.random.default_rng(5)
    r, powers = rng.random(9), (0, 1, 2)
    lam, mu = softmax(rng.normal(size=3)), softmax(rng.normal(size=3))
    cell = memory.MultiplePatternNTMCell(3, words=("0",), program_powers=powers)
    for word in ("0", "1", "01", "10", "00", "010"):
        got = cell.copy(words=(word,)).follow(
            jnp.asarray(r), [jnp.asarray(lam), jnp.asarray(mu), jnp.ones(1)]
        )
        draft = sum(
            lam[i] * mu[j] * np.roll(r, word.count("0") * powers[i] + word.count("1") * powers[j])
            for i in range(3)
            for j in range(3)
        )
        agrees = np.allclose(got, draft, atol=1e-9)
        assert agrees == (max(word.count("0"), word.count("1")) < 2), word


def test_a_squared_step_is_composition():
    """x^2 moves by s^2 for a single numeral s, and is p(p(R)) on a superposition (slip 3)."""
    rng = np.random.default_rng(6)
    r = jnp.asarray(rng.random(11))
    square = ((0, 0, 1),)
    for s in range(4):
        moved = rings.move_by_polynomials(r, jnp.ones(1), square, jnp.asarray(np.eye(4)[s]))
        np.testing.assert_allclose(moved, np.roll(r, s * s), atol=1e-12)
    half = jnp.asarray([0.0, 0.5, 0.5])  # p(X) = (X + X^2) / 2
    rot = rotation(11)
    p = (rot + rot @ rot) / 2
    np.testing.assert_allclose(
        rings.move_by_polynomials(r, jnp.ones(1), square, half), (p + p @ p) / 2 @ np.asarray(r), atol=1e-12
    )
    naive = (np.roll(r, 1) + np.roll(r, 4)) / 2  # steps of s^2, which the program does not take
    assert not np.allclose(rings.move_by_polynomials(r, jnp.ones(1), square, half), naive, atol=1e-3)


def test_sharpening_is_finite_at_one_hot_addresses_and_large_gamma():
    address = jnp.asarray(np.eye(5)[1])
    differentiated = jax.jit(jax.value_and_grad(lambda a, g: rings.sharpen(a, g)[1], argnums=(0, 1)))
    value, grad = jax.device_get(differentiated(address, jnp.asarray([50.0])))
    assert float(value) == pytest.approx(1.0)
    assert all(np.isfinite(leaf).all() for leaf in grad)
    even = jnp.asarray([0.25] * 4)
    np.testing.assert_allclose(jax.jit(rings.sharpen)(even, jnp.asarray([3.0])), even, atol=1e-12)


def test_bad_shapes_are_shown():
    with pytest.raises(ValueError, match=r"coefficients: got shape \(2,\), expected \[\*B, 3\]"):
        rings.rotate(jnp.ones(4), jnp.ones(2), (0, 1, 2))
