"""Memory cells against plain float64 NumPy in which rotations are matrices and words are matrix products."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import cells, memory
from llrnn.memory import rings
from tests.llrnn.memory_equations import (
    one_ring_step,
    programmed_step,
    rotation,
    softmax,
    word_matrix,
)

BATCH, TIME, INPUTS, FEATURES, LOCATIONS, WIDTH = 2, 4, 3, 5, 6, 4


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def quickly(function: Any) -> Any:
    """Compiles a function without optimisation, since compilation dominates the time of these tests."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def apply(module: Any, variables: Any, *args: Any, **options: Any) -> Any:
    return quickly(lambda v, *a: module.apply(v, *a, **options))(variables, *args)


ONE_RING = {
    "paper": memory.NTMCell(FEATURES, memory_size=LOCATIONS, memory_width=WIDTH),
    "authors": memory.NTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        powers=(0, -1, 1),
        erase=True,
        sharpen=True,
        activation=nn.tanh,
        read="previous",
    ),
    "many powers": memory.NTMCell(
        FEATURES, memory_size=LOCATIONS, memory_width=WIDTH, powers=(0, 7, -2, 3, 3, 11, -6, 5, 4, 1)
    ),
    "eleven locations": memory.NTMCell(FEATURES, memory_size=11, memory_width=WIDTH),
    "one location": memory.NTMCell(FEATURES, memory_size=1, memory_width=WIDTH, powers=(0, 1)),
    "dihedral": memory.DihedralNTMCell(FEATURES, memory_size=LOCATIONS, memory_width=WIDTH),
    "dihedral words": memory.DihedralNTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        words=("", "0", "1", "001", "0101", "110", "10", "00010", "01", "011"),
        erase=True,
    ),
    "operators": memory.OperatorNTMCell(FEATURES, memory_size=3),
    "operators from the input": memory.OperatorNTMCell(
        FEATURES, memory_size=3, source="input", max_power=3, erase=True, sharpen=True, powers=(-1, 1)
    ),
}
PROGRAMMED = {
    "pattern": memory.PatternNTMCell(FEATURES, memory_size=LOCATIONS, memory_width=WIDTH, program_size=3),
    "pattern, the draft": memory.PatternNTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        program_size=3,
        direct=False,
        squash=False,
        program_powers=(0, 2),
        read="previous",
    ),
    "multiple": memory.MultiplePatternNTMCell(
        FEATURES, memory_size=LOCATIONS, memory_width=WIDTH, program_size=3, sharpen=True, erase=True
    ),
    "multiple, words": memory.MultiplePatternNTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        program_size=3,
        words=("", "00", "01", "010", "1"),
        program_powers=(0, 1, -1),
    ),
    "polynomial": memory.PolynomialStepNTMCell(
        FEATURES, memory_size=LOCATIONS, memory_width=WIDTH, program_size=3, sharpen=True
    ),
    "polynomials": memory.PolynomialStepNTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        program_size=2,
        polynomials=((2,), (1, 2), (0, 0, 1), (0, 1, 0, 1)),
    ),
}


@pytest.mark.parametrize("case", [*ONE_RING, *PROGRAMMED])
def test_against_the_equations(case):
    cell = {**ONE_RING, **PROGRAMMED}[case].copy(param_dtype=jnp.float64, initial_memory=0.2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, TIME, INPUTS))
    rnn = nn.RNN(cell, variable_axes={"intermediates": 0})
    params = jax.eval_shape(rnn.init, jax.random.key(0), x)["params"]
    params = jax.tree.map(lambda leaf: 0.6 * rng.normal(size=leaf.shape), params)
    carry, got = apply(rnn, {"params": params}, x, return_carry=True)
    want = np.zeros(got.shape)
    for b in range(BATCH):
        start = jax.tree.map(np.asarray, cell.initialize_carry(jax.random.key(0), (INPUTS,)))
        if case in ONE_RING:
            state, step = (start.controller, *dataclasses.astuple(start.ring)), one_ring_step
        else:
            state = (start.controller, *(dataclasses.astuple(ring) for ring in start.rings))
            step = programmed_step
        for t in range(TIME):
            state = step(cell, params["cell"], state, x[b, t])
            want[b, t] = state[0]
        final = [leaf[b] for leaf in jax.tree.leaves(carry)]
        for ours, theirs in zip(final, jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    assert np.abs(want).max() > 0.1


@pytest.mark.parametrize("n", [1, 2, 5, 9, 12])
def test_rotate_is_a_circular_convolution(n):
    rng = np.random.default_rng(n)
    address, weights = rng.normal(size=(3, n)), rng.normal(size=(3, n))
    want = sum(weights[:, i, None] * np.roll(address, i, axis=1) for i in range(n))
    got = rings.rotate(jnp.asarray(address), jnp.asarray(weights), tuple(range(n)))
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_rotation_moves_the_read_address_forward_and_its_dual_the_write_address_back():
    """R maps location a to a + 1, and (R* w)(j) = w(R j), so that w(R r) = (R* w)(r)."""
    rng = np.random.default_rng(3)
    r, w = jnp.asarray(rng.normal(size=7)), jnp.asarray(rng.normal(size=7))
    one = jnp.ones((1,))
    np.testing.assert_array_equal(rings.rotate(jnp.eye(7)[2], one, (1,)), np.eye(7)[3])
    for n in range(-3, 9):
        np.testing.assert_allclose(
            w @ rings.rotate(r, one, (n,)), rings.rotate(w, one, (-n,)) @ r, rtol=1e-12
        )
    for word in ("0", "1", "01", "0010", "1101"):
        # the dual of a word reverses it: w([[S]](R, R') r) = ([[S reversed]](R*, R'*) w)(r)
        moved = rings.move_by_symmetries(r, one, (word,))
        dual = rings.move_by_symmetries(w, one, (word[::-1],), step=-1)
        np.testing.assert_allclose(w @ moved, dual @ r, rtol=1e-12)


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
    value, grad = jax.value_and_grad(lambda a, g: rings.sharpen(a, g)[1], argnums=(0, 1))(
        address, jnp.full((1,), 50.0)
    )
    assert float(value) == pytest.approx(1.0)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(grad))
    even = jnp.full((4,), 0.25)
    np.testing.assert_allclose(rings.sharpen(even, jnp.full((1,), 3.0)), even, atol=1e-12)


def test_addresses_stay_distributions():
    cell = memory.NTMCell(
        8, memory_size=16, memory_width=4, powers=(-1, 0, 1), sharpen=True, param_dtype=jnp.float64
    )
    x = jax.random.normal(jax.random.key(0), (2, 30, 3), jnp.float64)
    rnn = nn.RNN(cell, variable_axes={"intermediates": 0})
    variables = quickly(rnn.init)(jax.random.key(1), x)
    assert set(variables) == {"params"}
    _, state = apply(rnn, variables, x, mutable=["intermediates"])
    for name in ("read_address", "write_address"):
        (address,) = state["intermediates"]["cell"][name]  # the call that the cell's docstring gives
        assert address.shape == (30, 2, 16)
        np.testing.assert_allclose(address.sum(-1), 1, rtol=1e-9)
        assert float(address.min()) >= 0
        assert np.abs(np.diff(address, axis=0)).max() > 1e-3  # and they move


def test_one_location_of_operators_is_the_higher_order_cell():
    """Remark 2.11: N = 1, all erased at every step (sigmoid(1000) is 1), operators from the input."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2, 5, INPUTS))
    cell = memory.OperatorNTMCell(
        FEATURES, memory_size=1, source="input", max_power=3, erase=True, param_dtype=jnp.float64
    )
    plain = cells.HigherOrderCell(FEATURES, max_power=3, param_dtype=jnp.float64)
    params = jax.eval_shape(nn.RNN(plain).init, jax.random.key(0), x)["params"]["cell"]
    params = jax.tree.map(lambda leaf: 0.5 * rng.normal(size=leaf.shape), params)
    weights = rng.normal(size=(2, 5, FEATURES))

    def as_memory(params):
        powers = params["powers"]
        # heads: one power to read, one to write (nothing to choose), the erasure, then the powers
        kernel = jnp.concatenate([jnp.zeros((FEATURES, 3)), powers["kernel"]], axis=1)
        bias = jnp.concatenate([jnp.zeros(2), jnp.full(1, 1e3), powers["bias"]])
        return {
            **{k: v for k, v in params.items() if k != "powers"},
            "heads": {"kernel": kernel, "bias": bias},
        }

    def run(cell, params):
        output: Any = nn.RNN(cell).apply({"params": {"cell": params}}, x)
        return (output * weights).sum(), output

    @quickly
    def both(params):
        of_memory = jax.value_and_grad(lambda p: run(cell, as_memory(p)), has_aux=True)(params)
        return jax.value_and_grad(lambda p: run(plain, p), has_aux=True)(params), of_memory

    ours, theirs = both(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), ours, theirs)


def test_no_square_of_the_ring():
    """No array of the batch has two axes of N, forwards and backwards, for any powers."""
    x = jnp.ones((2, 3, 4), jnp.float32)

    def program(powers):
        rnn = nn.RNN(
            memory.NTMCell(8, memory_size=37, memory_width=5, powers=powers, erase=True, sharpen=True)
        )

        def loss(variables):
            output: Any = rnn.apply(variables, x)
            return output.sum()

        return str(jax.make_jaxpr(jax.grad(loss))(jax.eval_shape(rnn.init, jax.random.key(0), x)))

    for powers in ((-1, 0, 1), None):
        text = program(powers)
        assert "2,5,37]" in text
        assert "2,37,37]" not in text


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (lambda: memory.NTMCell(0), "features: got 0, expected at least 1"),
        (lambda: memory.NTMCell(4, memory_size=0), "memory_size: got 0, expected at least 1"),
        (lambda: memory.NTMCell(4, memory_width=-1), "memory_width: got -1, expected at least 1"),
        (lambda: memory.NTMCell(4, powers=()), r"powers: got \(\), expected at least one power"),
        (
            lambda: memory.NTMCell(4, read="next"),  # pyrefly: ignore
            "read: got 'next', expected one of 'updated', 'previous'",
        ),
        (
            lambda: memory.DihedralNTMCell(4, words=()),
            r"words: got \(\), expected a non-empty tuple of words",
        ),
        (
            lambda: memory.DihedralNTMCell(4, words=("0", "2")),
            r"words: got \('0', '2'\), expected .* 0 and 1",
        ),
        (
            lambda: memory.OperatorNTMCell(4, source="x"),  # pyrefly: ignore
            "source: got 'x', expected one of 'controller', 'input'",
        ),
        (
            lambda: memory.OperatorNTMCell(4, max_power=-1),
            "max_power: got -1, expected None or at least 0",
        ),
        (
            lambda: memory.PatternNTMCell(4, program_powers=()),
            r"program_powers: got \(\), expected at least one",
        ),
        (
            lambda: memory.MultiplePatternNTMCell(4, words=("a",)),
            r"words: got \('a',\), expected a non-empty",
        ),
        (lambda: memory.PolynomialStepNTMCell(4, max_power=0), "max_power: got 0, expected at least 1"),
        (
            lambda: memory.PolynomialStepNTMCell(4, polynomials=((0, -1),)),
            r"polynomials: got \(\(0, -1\),\), expected at least one tuple",
        ),
    ],
)
def test_bad_fields_are_named(cell, message):
    with pytest.raises(ValueError, match=message):
        nn.RNN(cell()).init(jax.random.key(0), jnp.ones((1, 2, 3)))


def test_bad_shapes_are_shown():
    with pytest.raises(ValueError, match=r"coefficients: got shape \(2,\), expected \[\*B, 3\]"):
        rings.rotate(jnp.ones(4), jnp.ones(2), (0, 1, 2))
    cell = memory.NTMCell(5)
    carry = cell.initialize_carry(jax.random.key(0), (2, 3))
    with pytest.raises(
        ValueError, match=r"carry.controller: got shape \(2, 5\), expected \[\*B, 5\] = \(4, 5\) .*\(4, 3\)"
    ):
        cell.init(jax.random.key(0), carry, jnp.ones((4, 3)))
