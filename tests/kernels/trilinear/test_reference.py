"""The definition against loops in NumPy, and what must hold of it whoever computes it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.trilinear import reference, shapes
from kernels.two_simplicial import reference as two_simplicial
from tests.kernels.trilinear import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def by_autodiff(config, arrays, dout):
    """Values and gradients of the reference in float64."""
    with jax.enable_x64(True):

        @jax.jit
        def both(arrays, dout):
            (out, lse), pull = jax.vjp(lambda *a: reference.trilinear_attention(config, *a), *arrays)
            return out, lse, *pull((dout, jnp.zeros_like(lse)))

        return dict(zip(cases.NAMES, both(tuple(map(jnp.asarray, arrays)), jnp.asarray(dout)), strict=True))


# All pairs, all the past, and windows of which one is wider than the sequence.
@pytest.mark.parametrize("shape", [shapes.SMALL[i] for i in (1, 2, 7, 8)], ids=str)
def test_values_and_gradients_are_those_of_the_loops(shape):
    arrays, dout = cases.make(shape, "float64")
    want = cases.answers(shape.config, arrays, dout)
    cases.assert_close(by_autodiff(shape.config, arrays, dout), want, "float64")


@pytest.mark.parametrize("kind", [kind for kind in cases.KINDS if kind != "normal"])
def test_degenerate_inputs_have_the_right_finite_gradients(kind):
    shape = shapes.SMALL[3]
    arrays, dout = cases.make(shape, "float64", kind=kind)
    want = cases.answers(shape.config, arrays, dout)
    # Logits of a hundred lose two digits in the exponential.
    cases.assert_close(by_autodiff(shape.config, arrays, dout), want, "float64", factor=100)


def test_a_window_of_one_is_the_query_itself():
    shape = shapes.Shape("", 2, 9, 4, 2, 5, window1=1, window2=1)
    arrays, _ = cases.make(shape)
    out, _ = reference.trilinear_attention(shape.config, *map(jnp.asarray, arrays))
    want = np.repeat(arrays[3] * arrays[4], 2, axis=2)  # a softmax of one pair is 1, whatever its logit
    np.testing.assert_allclose(out, want, rtol=1e-6)


def test_the_two_keys_change_places():
    shape = shapes.SMALL[3]
    query, key1, key2, value1, value2 = map(jnp.asarray, cases.make(shape)[0])
    attention = jax.jit(reference.trilinear_attention, static_argnums=0)
    out, lse = attention(shape.config, query, key1, key2, value1, value2)
    windows = {"window1": shape.window2, "window2": shape.window1}
    config = dataclasses.replace(shape.config, **windows)
    other = attention(config, query, key2, key1, value2, value1)
    np.testing.assert_allclose(out, other[0], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(lse, other[1], rtol=2e-5, atol=1e-6)


def test_all_pairs_are_two_simplicial_attention_with_a_diagonal_tensor():
    shape = dataclasses.replace(shapes.SMALL[1], groups=4)
    with jax.enable_x64(True):
        query, key1, key2, value, _ = map(jnp.asarray, cases.make(shape, "float64")[0])
        d = shape.features
        diagonal = np.zeros((shape.heads, d, d, d))
        diagonal[:, range(d), range(d), range(d)] = 1  # bilinear(v, w) = v * w
        config = two_simplicial.Config("trilinear", scale=shape.config.scale)
        other = jax.jit(two_simplicial.two_simplicial_attention, static_argnums=0)
        want = other(config, query, key1, key2, value, jnp.asarray(diagonal))
        got = jax.jit(reference.trilinear_attention, static_argnums=0)(
            shape.config, query, key1, key2, value, value
        )
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-12)


@pytest.mark.parametrize("shape", shapes.SMALL, ids=str)
def test_triples_are_counted_as_the_masks_allow_them(shape):
    seen = [
        np.asarray(reference.visible(shape.length, w, shape.causal)) for w in (shape.window1, shape.window2)
    ]
    pairs = sum(int(a.sum()) * int(b.sum()) for a, b in zip(*seen, strict=True))
    assert shape.triples == pairs * shape.batch * shape.heads
