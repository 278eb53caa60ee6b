"""The blockwise path against float64 answers, and what it costs in memory."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from kernels.trilinear import reference, shapes, xla
from kernels.trilinear.api import trilinear_attention
from kernels.trilinear.shapes import Shape
from tests.kernels.trilinear import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# Tiles, chunks and blocks that divide nothing, several of each in a sequence of twenty.
ODD_BLOCKS = {"queries": 7, "first": 2, "second": 5}


def compare(shape, dtype="float32", kind="normal", factor=1.0, **options):
    arrays, dout = cases.make(shape, dtype, kind=kind)
    got = cases.run(xla, shape.config, arrays, dout, **options)
    cases.assert_close(got, cases.answers(shape.config, arrays, dout), dtype, factor=factor)


# One position, all pairs, windows wider than the sequence, several tiles.
@pytest.mark.parametrize("shape", [shapes.SMALL[i] for i in (0, 1, 7, 9)], ids=str)
def test_values_and_gradients(shape):
    compare(shape)


@pytest.mark.parametrize("shape", [shapes.SMALL[4], shapes.SMALL[6], shapes.SMALL[10]], ids=str)
def test_tiles_that_divide_nothing(shape):
    compare(shape, blocks=ODD_BLOCKS)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        (shapes.SMALL[3], "zeros"),
        (shapes.SMALL[3], "one-hot"),
        (shapes.SMALL[3], "large"),
    ],
    ids=str,
)
def test_degenerate_inputs(shape, kind):
    """Equal logits, ties, one pair that takes all; finite gradients everywhere."""
    # Logits of hundreds have errors of 1e-5 themselves.
    compare(shape, kind=kind, factor=10 if kind == "large" else 1, blocks=ODD_BLOCKS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cotangent_of_the_log_sum_exp(dtype):
    """Which only second derivatives have."""
    config = shapes.SMALL[1].config
    arrays, dout = cases.make(shapes.SMALL[1], dtype)
    out, lse = jax.jit(functools.partial(xla.forward, config))(*arrays)
    dlse = np.asarray(np.random.default_rng(1).normal(size=lse.shape), "float32")
    got = jax.jit(functools.partial(xla.backward, config))(*arrays, out, lse, dout, dresidual=dlse)

    @jax.jit
    def definition(*arrays):
        both = functools.partial(reference.trilinear_attention, config)
        return jax.vjp(both, *arrays)[1]((dout.astype("float32"), dlse))

    for one, expected in zip(got, definition(*(x.astype("float32") for x in arrays)), strict=True):
        assert one.dtype == dtype
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            np.asarray(one, "float32"), expected, rtol=0, atol=scale * cases.TOLERANCE[dtype]
        )


# Not where there is one pair only: its logit's gradient is 0, the difference of two rounded numbers.
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [(shapes.SMALL[1], "bfloat16"), (shapes.SMALL[3], "float64")],
    ids=str,
)
def test_other_types(shape, dtype):
    with jax.enable_x64(dtype == "float64"):
        compare(shape, dtype)


@given(
    batch=st.integers(1, 2),
    length=st.integers(1, 24),
    groups=st.integers(1, 2),
    per_group=st.integers(1, 3),
    features=st.integers(1, 9),
    windows=st.tuples(*[st.one_of(st.none(), st.integers(1, 30))] * 2),
    causal=st.booleans(),
    tiles=st.tuples(st.integers(1, 30), st.integers(1, 5), st.integers(1, 40)),
)
@settings(max_examples=20, deadline=None, derandomize=True)
@pytest.mark.slow
def test_any_sizes(batch, length, groups, per_group, features, windows, causal, tiles):
    shape = Shape("drawn", batch, length, groups * per_group, groups, features, *windows, causal=True)
    if not causal:
        shape = dataclasses.replace(shape, window1=None, window2=None, causal=False)
    compare(shape, blocks=dict(zip(("queries", "first", "second"), tiles, strict=True)))


@pytest.mark.slow
def test_all_candidates_of_block_sizes_agree():
    shape = shapes.SMALL[9]
    arrays, dout = cases.make(shape)
    want = cases.answers(shape.config, arrays, dout)
    candidates = xla.block_candidates(shape.config, *arrays)
    assert candidates["forward"][0] == xla.default_blocks(shape.config, *arrays[:2])
    assert len(candidates["forward"]) > 10
    for blocks in candidates["forward"][1::3]:
        cases.assert_close(cases.run(xla, shape.config, arrays, dout, blocks=blocks), want, "float32")


def test_numerical_derivatives():
    """Of the function that users call, by differences: nothing of the backward pass is taken on trust."""
    shape = Shape("", 1, 6, 2, 1, 3, window1=2, window2=4)
    with jax.enable_x64(True):
        arrays = [jnp.asarray(a) for a in cases.make(shape, "float64")[0]]
        check_grads(
            jax.jit(lambda *x: trilinear_attention(*x, window1=2, window2=4, causal=True)),
            arrays,
            order=1,
            modes=["rev"],
        )


def test_the_future_and_what_is_outside_a_window_change_nothing():
    shape = shapes.SMALL[3]
    (query, *keys), _ = cases.make(shape)
    forward = jax.jit(functools.partial(xla.forward, shape.config))
    before, _ = forward(query, *keys)
    at = shape.length // 2
    windows = shape.config.reach(shape.length)
    for index, window in enumerate((*windows, *windows)):
        changed = [k.copy() for k in keys]
        changed[index][:, at] += 1
        after, _ = forward(query, *changed)
        moved = np.any(np.asarray(before) != np.asarray(after), axis=(0, 2, 3))
        np.testing.assert_array_equal(np.flatnonzero(moved), np.arange(at, min(at + window, shape.length)))
