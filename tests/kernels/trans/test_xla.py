"""The path in plain JAX against float64 answers, and what it must do besides: memory, extremes, no leaks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.trans import shapes, xla
from kernels.trans.reference import Config
from tests.kernels.trans import cases


def compare(shape, dtype="float32", mask="none", **options):
    arrays, dout = cases.make(shape, dtype, mask)
    got = cases.run(xla, shape.config, arrays, dout, **options)
    cases.assert_close(got, cases.answers(shape.config, arrays, dout), dtype)


@pytest.mark.parametrize("shape", shapes.SMALL, ids=lambda shape: shape.name)
def test_values_and_gradients(shape):
    compare(shape)


@pytest.mark.parametrize("mask", cases.MASKS)
@pytest.mark.parametrize("causal", [False, True])
def test_masks(mask, causal):
    compare(shapes.square("", 2, 2, 13, causal=causal), mask=mask)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize("mask", ["none", "full"])
def test_other_types(dtype, mask):
    with jax.enable_x64(dtype == "float64"):
        compare(shapes.square("", 2, 3, 17, causal=True), dtype, mask)


@pytest.mark.parametrize(
    ("rows", "mask", "offset"),
    [(4, "none", 0), (5, "full", 0), (13, "padding", 5), (3, "full", 5), (4, "tokens", -4), (64, "rows", -4)],
)
def test_tiles_of_any_size_tell_the_same(rows, mask, offset):
    shape = shapes.Shape("", 1, 2, rows=13, columns=15, outputs=6, causal=True, row_offset=offset)
    compare(shape, mask=mask, blocks={"rows": rows})


@settings(max_examples=10, deadline=None, derandomize=True)
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


def test_tiles_are_the_triangle():
    """Eight tiles at 1024 tokens do 9/16 of the products, the last row of each seeing all that it may."""
    kernel_logits = jax.ShapeDtypeStruct((1, 1, 1024, 1024), jnp.float32)
    tiles = xla.row_tiles(Config(causal=True), kernel_logits, None)
    assert [stop - start for start, stop, _ in tiles] == [128] * 8
    assert sum((stop - start) * end for start, stop, end in tiles) == 1024**2 * 9 // 16
    forward = jax.jit(lambda *arrays: xla.forward(Config(causal=True), *arrays, None)[0])
    cost: Any = forward.lower(kernel_logits, kernel_logits).compile().cost_analysis()
    assert cost["flops"] < 0.65 * 2 * 1024**3


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


def test_nothing_but_inputs_and_outputs_is_kept():
    """Forward to backward: no softmax. Its temporaries are one array of the kernel's size a direction."""
    size = jax.ShapeDtypeStruct((2, 8, 128, 128), jnp.float32)
    number = 4 * np.prod(size.shape)

    def temporary(function, *arguments):
        memory: Any = jax.jit(function).lower(*arguments).compile().memory_analysis()
        return memory.temp_size_in_bytes

    lse = jax.ShapeDtypeStruct(size.shape[:3], jnp.float32)
    assert temporary(lambda k, p: xla.forward(Config(), k, p, None), size, size) < 2.1 * number
    assert (
        temporary(lambda *a: xla.backward(Config(), a[0], a[1], None, *a[2:]), size, size, size, lse, size)
        < 2.1 * number
    )


def test_candidates_are_fit_to_run():
    shape = shapes.square("", 1, 1, 150, causal=True)
    arrays, _ = cases.make(shape)
    candidates = xla.block_candidates(shape.config, *arrays)
    assert candidates["forward"][0] == {"rows": 128}
    for blocks in candidates["forward"]:
        compare(shape, blocks=blocks)
    assert xla.block_candidates(Config(), *arrays)["backward"] == [{"rows": 150}]
    assert xla.unsupported(shape.config, *arrays) is None
