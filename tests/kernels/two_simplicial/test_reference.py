"""The definition against loops over the paper's formulas, and what the paper says of them."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.two_simplicial import reference, shapes
from kernels.two_simplicial.reference import Config, plain, two_simplicial_attention
from tests.kernels.two_simplicial import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

UNSIGNED, TRILINEAR, SIGNED = cases.CONFIGS
compiled = jax.jit(two_simplicial_attention, static_argnums=0)


def logit_by_hand(config: Config, a: np.ndarray, b: np.ndarray, c: np.ndarray):
    match config.logit:
        case "unsigned":  # the vector of equation (7)
            vector = (a @ b) * c - (a @ c) * b + (b @ c) * a
            return config.scale * np.sqrt(vector @ vector + config.eps**2)
        case "trilinear":
            return config.scale * sum(a * b * c)
        case "signed":
            pieces = zip(*(v.reshape(-1, 3) for v in (a, b, c)), strict=True)
            return config.scale * sum(np.linalg.det(np.stack(piece)) for piece in pieces)
    raise AssertionError(config)


def by_hand(config, query, key1, key2, value, bilinear, allowed):
    """Equation (10), one output vector at a time, in NumPy."""
    query, key1, key2, value, bilinear = map(np.asarray, (query, key1, key2, value, bilinear))
    batch, n, heads, _ = query.shape
    m = key1.shape[1]
    out = np.zeros((batch, n, heads, bilinear.shape[1]))
    lse = np.zeros((batch, heads, n))
    allowed = np.broadcast_to(True if allowed is None else allowed, (batch, n, m, m))
    for x, i, h in itertools.product(range(batch), range(n), range(heads)):
        total, weighted = 0.0, np.zeros(bilinear.shape[1])
        for j, k in itertools.product(range(m), range(m)):
            if allowed[x, i, j, k]:
                weight = np.exp(logit_by_hand(config, query[x, i, h], key1[x, j, h], key2[x, k, h]))
                total += weight
                weighted += weight * np.array(
                    [value[x, j, h] @ form @ value[x, k, h] for form in bilinear[h]]
                )
        if total:
            out[x, i, h], lse[x, h, i] = weighted / total, np.log(total)
    return out, lse


@pytest.mark.parametrize(
    ("config", "mask"),
    [
        (UNSIGNED, "none"),
        (cases.SOFT, "some rows"),
        (TRILINEAR, "padding"),
        (SIGNED, "some rows"),
        (SIGNED, "nothing"),
    ],
    ids=lambda x: getattr(x, "logit", x),
)
def test_is_the_loop_over_triples(config, mask):
    arrays = cases.arrays(shapes.TINY, mask=mask, dtype=np.float64)
    with jax.enable_x64(True):
        out, lse = compiled(config, *arrays)
        assert out.dtype == lse.dtype == jnp.float64
    want_out, want_lse = by_hand(config, *arrays)
    cases.check(out, want_out, 1e-12, "out")
    cases.check(lse, want_lse, 1e-12, "lse")


@pytest.mark.parametrize(
    ("config", "mask"),
    [(cases.SOFT, "some rows"), (TRILINEAR, "random"), (SIGNED, "padding")],
    ids=lambda x: getattr(x, "logit", x),
)
def test_gradients_are_those_that_other_paths_are_compared_with(config, mask):
    """Autodiff against derivatives by hand."""
    *inputs, allowed = arrays = cases.arrays(shapes.TINY, mask=mask, dtype=np.float64)
    dout = cases.cotangent(arrays)

    @jax.jit
    def both(inputs, dout):
        function = functools.partial(two_simplicial_attention, config, mask=allowed)
        out, pullback, lse = jax.vjp(function, *inputs, has_aux=True)
        return out, lse, pullback(dout)

    with jax.enable_x64(True):
        got = both(inputs, dout)
    cases.check_answer(got, cases.expected(config, arrays, dout), 1e-12)


def test_gradients_are_finite_where_the_product_is_zero():
    @jax.jit
    def gradients(*inputs, mask):
        def loss(*inputs):
            return jnp.sum(two_simplicial_attention(UNSIGNED, *inputs, mask=mask)[0] ** 2)

        return jax.grad(loss, range(5))(*inputs)

    for kind in cases.DEGENERATE:
        *inputs, mask = cases.arrays(shapes.TINY, kind=kind, mask="some rows")
        for name, gradient in zip(cases.NAMES, gradients(*inputs, mask=mask), strict=True):
            assert np.all(np.isfinite(gradient)), (kind, name)


def test_unsigned_is_0_for_orthogonal_and_largest_for_dependent_vectors():
    """Lemma C.10: between 0 (pairwise orthogonal) and the product of the norms (linearly dependent)."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 6))
    basis = np.linalg.qr(rng.standard_normal((6, 6)))[0] * [[1], [2], [3], [4], [5], [6]]
    triples = {
        "orthogonal": (basis[0], basis[1], basis[2]),
        "dependent": (a, b, 0.3 * a - 2 * b),
        "parallel": (a, -2 * a, 0.5 * a),
        "any": tuple(rng.standard_normal((3, 6))),
    }
    with jax.enable_x64(True):
        found = {
            name: float(
                reference.logits(
                    Config(eps=1e-9), *(jnp.asarray(v[None, None, None]) for v in vectors)
                ).item()
            )
            for name, vectors in triples.items()
        }
    norms = {name: np.prod([np.linalg.norm(v) for v in vectors]) for name, vectors in triples.items()}
    assert found["orthogonal"] < 1e-8
    np.testing.assert_allclose(found["dependent"], norms["dependent"], rtol=1e-12)
    np.testing.assert_allclose(found["parallel"], norms["parallel"], rtol=1e-12)
    assert 0.01 * norms["any"] < found["any"] < 0.99 * norms["any"]


def test_lengths_factor_out():
    """Equation (9), in float32, over lengths that the agents' vectors may have."""
    query, key1, key2, *_ = cases.arrays(shapes.ODD)
    config = Config(eps=1e-15)
    logits = jax.jit(reference.logits, static_argnums=0)
    once = logits(config, query, key1, key2)
    scaled = logits(config, 30 * query, -0.5 * key1, 1e-3 * key2)
    np.testing.assert_allclose(scaled, 0.015 * once, rtol=1e-5)


def test_signed_changes_its_sign_with_the_keys_and_is_kept_by_rotations():
    query, key1, key2, *_ = cases.arrays(shapes.ODD)
    config = Config("signed")
    logits: Any = jax.jit(lambda *vectors: reference.logits(config, *vectors))
    once = np.asarray(logits(query, key1, key2))
    swapped = logits(query, key2, key1)
    np.testing.assert_allclose(np.swapaxes(swapped, 3, 4), -once, atol=1e-5)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    turned = ((a.reshape(*a.shape[:-1], 3, 3) @ rotation).reshape(a.shape) for a in (query, key1, key2))
    turned = (a.astype(np.float32) for a in turned)
    np.testing.assert_allclose(logits(*turned), once, atol=1e-5)


def test_16_bit_inputs_are_computed_in_float32():
    arrays = cases.arrays(shapes.TINY, dtype=jnp.bfloat16)
    out, lse = compiled(UNSIGNED, *arrays)
    assert (out.dtype, lse.dtype) == (jnp.bfloat16, jnp.float32)
    want = cases.expected(UNSIGNED, arrays, cases.cotangent(arrays))
    cases.check(lse, want.lse, 1e-6, "lse")
    cases.check(out, want.out, 4e-3, "out")


def test_unknown_logit_is_reported():
    with pytest.raises(ValueError, match="logit: got 'cosine', expected one of 'unsigned', 'trilinear'"):
        Config("cosine")  # pyrefly: ignore[bad-argument-type]


@pytest.mark.parametrize(
    ("config", "mask"),
    [(cases.SOFT, "none"), (SIGNED, "random")],
    ids=lambda x: getattr(x, "logit", x),
)
def test_the_baseline_is_the_same_function(config, mask):
    """A benchmark against something else would be worth nothing."""
    arrays = cases.arrays(shapes.ODD, mask=mask)
    want = cases.expected(config, arrays, cases.cotangent(arrays))
    cases.check(jax.jit(plain, static_argnums=0)(config, *arrays), want.out, 3e-6)


def test_shapes_are_named_once_and_can_be_signed():
    every = (*shapes.ACCELERATOR, *shapes.CPU, *shapes.SMALL)
    assert len({shape.name for shape in every}) == len(set(every))
    assert all(shape.features % 3 == 0 for shape in shapes.SMALL)
    assert shapes.VIRTUAL.triples == 64 * 1024 * 32 * 32
