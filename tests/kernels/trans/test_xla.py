"""The path in plain JAX against float64 answers, and what it must do besides: memory, extremes, no leaks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.trans import shapes, xla
from kernels.trans.reference import Config
from tests.kernels.trans import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def compare(shape, dtype="float32", mask="none", **options):
    arrays, dout = cases.make(shape, dtype, mask)
    got = cases.run(xla, shape.config, arrays, dout, **options)
    cases.assert_close(got, cases.answers(shape.config, arrays, dout), dtype)


@pytest.mark.parametrize("shape", [shapes.SMALL[i] for i in (0, 3, 4, 6)], ids=lambda shape: shape.name)
def test_values_and_gradients(shape):
    compare(shape)


@pytest.mark.parametrize(("mask", "causal"), [("rows", True), ("heads", False), ("nothing allowed", True)])
def test_masks(mask, causal):
    compare(shapes.square("", 2, 3, 13, causal=causal), mask=mask)


@pytest.mark.parametrize(("dtype", "mask"), [("bfloat16", "full"), ("float16", "none"), ("float64", "full")])
def test_other_types(dtype, mask):
    with jax.enable_x64(dtype == "float64"):
        compare(shapes.square("", 2, 3, 17, causal=True), dtype, mask)


@pytest.mark.parametrize(
    ("rows", "mask", "offset"),
    [(13, "padding", 5), (3, "full", 5), (4, "tokens", -4), (64, "rows", -4)],
)
def test_tiles_of_any_size_tell_the_same(rows, mask, offset):
    shape = shapes.Shape("", 1, 2, rows=13, columns=15, outputs=6, causal=True, row_offset=offset)
    compare(shape, mask=mask, blocks={"rows": rows})


@settings(max_examples=3, deadline=None, derandomize=True)
@given(
    batch=st.integers(1, 2),
    heads=st.integers(1, 3),
    rows=st.integers(1, 20),
    columns=st.integers(1, 20),
    outputs=st.integers(1, 9),
    causal=st.booleans(),
    offset=st.integers(-3, 20),
    mask=st.sampled_from(tuple(cases.MASKS)),
    tile=st.integers(1, 24),
)
def test_any_shape(batch, heads, rows, columns, outputs, causal, offset, mask, tile):
    shape = shapes.Shape("", batch, heads, rows, columns, outputs, causal, offset)
    compare(shape, mask=mask, blocks={"rows": tile})


@pytest.mark.parametrize("causal", [False, True])
def test_a_premise_alike_for_all_columns_gives_the_logits_no_gradient(causal):
    """Delta is summed in float32: in 16 bits 257 products of 1 would add up to 256."""
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(1, 2, 5, 5)), jnp.bfloat16)
    ones = jnp.ones((1, 2, 5, 257), jnp.bfloat16)
    got = cases.run(xla, Config(causal), (logits, ones, None), ones)
    np.testing.assert_array_equal(got["out"], ones)
    np.testing.assert_allclose(got["dkernel_logits"], 0, atol=1e-3)


def test_sums_over_outputs_are_those_of_float32():
    """Delta of 16-bit numbers, whose products have more bits, is not computed from the rounded result."""
    shape = shapes.Shape("", 2, 3, rows=4, columns=5, outputs=67)
    arrays, dout = cases.make(shape, "bfloat16")
    out, lse = xla.forward(shape.config, *map(jnp.asarray, arrays[:2]), None)
    dkernel, _ = xla.backward(shape.config, *map(jnp.asarray, arrays[:2]), None, out, lse, jnp.asarray(dout))
    logits, premise, dout, lse = (np.asarray(x, np.float64) for x in (*arrays[:2], dout, lse))
    softmax, rise = np.exp(logits - lse[..., None]), dout @ premise.swapaxes(-1, -2)
    want = softmax * (rise - (softmax * rise).sum(-1, keepdims=True))
    np.testing.assert_allclose(np.asarray(dkernel, np.float64), want, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_large_logits_and_infinite_ones(causal):
    """The exponential overflows without the row's maximum; -inf says not allowed, as some write masks."""
    shape = shapes.square("", 1, 2, 12, causal=causal)
    (kernel_logits, premise, _), dout = cases.make(shape, spread=60)
    where = cases.make_mask(shape, "full")
    want = cases.answers(shape.config, (kernel_logits, premise, where), dout)
    infinite = jnp.where(where, kernel_logits, -jnp.inf)
    got = cases.run(xla, shape.config, (infinite, jnp.asarray(premise), None), dout)
    cases.assert_close(got, want, "float32")


def test_masked_values_do_not_matter():
    """Not even when they are not numbers: padding may hold anything."""
    shape = shapes.square("", 2, 2, 9)
    (kernel_logits, premise, mask), dout = cases.make(shape, mask="tokens")
    want = cases.answers(shape.config, (kernel_logits, premise, mask), dout)
    spoilt = np.where(mask, kernel_logits, np.nan)
    got = cases.run(xla, shape.config, (spoilt, premise, mask), dout)
    cases.assert_close(got, want, "float32")


def test_a_row_with_nothing_allowed_is_zero():
    shape = shapes.square("", 1, 1, 5)
    arrays, dout = cases.make(shape)
    mask = np.ones((1, 1, 5, 1), bool)
    mask[0, 0, 3] = False
    got = cases.run(xla, shape.config, (*arrays[:2], mask), dout)
    for name in ("out", "lse", "dkernel_logits"):
        assert not np.any(got[name][0, 0, 3]), name
        assert np.all(np.any(np.asarray(got[name][0, 0, [0, 1, 2, 4]]).reshape(4, -1), axis=1)), name


def test_candidates_are_fit_to_run():
    shape = shapes.square("", 1, 1, 150, causal=True)
    arrays, _ = cases.make(shape)
    candidates = xla.block_candidates(shape.config, *arrays)
    assert candidates["forward"][0] == {"rows": 128}
    assert [blocks["rows"] for blocks in candidates["forward"]] == [128, 32, 64, 256]
    compare(shape, blocks=candidates["forward"][1])
    assert xla.block_candidates(Config(), *arrays)["backward"] == [{"rows": 150}]
    assert xla.unsupported(shape.config, *arrays) is None
