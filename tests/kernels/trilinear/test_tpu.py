"""The TPU kernels, interpreted on a CPU as a TPU would run them, against float64 answers.

Memory that nothing was written to holds NaN, a read out of bounds or a race between steps of the grid raises.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export
from jax.experimental.pallas import tpu as pltpu

from kernels.trilinear import shapes, tpu, tpu_plan
from kernels.trilinear.api import trilinear_attention
from kernels.trilinear.reference import Config
from kernels.trilinear.shapes import Shape
from tests.kernels.trilinear import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

STRICT = pltpu.InterpretParams(
    detect_races=True, uninitialized_memory="nan", out_of_bounds_reads="raise", random_seed=0
)
SMALL_BLOCKS = {"queries": 128, "heads": 1, "second": 128}


def compare(shape, dtype="float32", kind="normal", factor=1.0, interpret=True, **options):
    arrays, dout = cases.make(shape, dtype, kind=kind)
    got = cases.run(tpu, shape.config, arrays, dout, interpret=interpret, **options)
    cases.assert_close(got, cases.answers(shape.config, arrays, dout), dtype, factor=factor)


# Those that differ most.
OFTEN = ("one position", "tiny, all pairs", "windows the other way", "many heads a group")


@pytest.mark.parametrize("shape", [s for s in shapes.SMALL if s.name in OFTEN], ids=str)
def test_values_and_gradients(shape):
    compare(shape)


@pytest.mark.slow
def test_the_other_small_shapes():
    for shape in shapes.SMALL:
        if shape.name not in OFTEN:
            compare(shape)


# Three tiles of 128, several blocks of second keys, several tiles of heads.
TILED = (
    Shape("windows", 2, 260, 6, 2, 4, window1=3, window2=150),
    Shape("a window and all the past", 1, 260, 1, 1, 4, window2=2),
    Shape("all pairs", 1, 150, 2, 1, 4, causal=False),
)


@pytest.mark.parametrize("shape", TILED, ids=str)
def test_several_tiles(shape):
    compare(shape, blocks=SMALL_BLOCKS)


STRICTLY = (
    Shape("windows", 1, 260, 2, 1, 4, window1=2, window2=130),
    Shape("all the past", 2, 12, 1, 1, 4),
    Shape("all pairs", 1, 9, 2, 2, 4, causal=False),
)
# Many steps, each of which the interpreter takes in Python.
WIDE = Shape("windows wider than the tile", 1, 140, 1, 1, 4, window1=130, window2=None)


@pytest.mark.slow
def test_neither_races_nor_reads_out_of_bounds_nor_uses_what_was_not_written():
    """Steps of the parallel axes in random order; the interpreter raises at what it finds."""
    for shape in (*STRICTLY, WIDE):
        compare(shape, blocks=SMALL_BLOCKS, interpret=STRICT)


@pytest.fixture
def small_vector_memory(monkeypatch):
    """Room for so few rows of keys that sequences are cut into segments of one or two tiles."""
    monkeypatch.setattr(tpu_plan, "RESIDENT_BYTES", 600 * 128 * 2 * 32)


def segmented(shape):
    """The plan of a call, which must have several segments."""
    (query, key, *_), _ = cases.make(shape)
    plan = tpu_plan.make_plan(shape.config, query, key, SMALL_BLOCKS)
    assert plan is not None
    assert plan.segments > 1
    return plan


ONE_BLOCK = Shape("one block before", 1, 700, 2, 1, 4, window1=3, window2=20)
TWO_BLOCKS = Shape("two blocks before", 2, 520, 2, 2, 4, window1=5, window2=130)


@pytest.mark.usefixtures("small_vector_memory")
@pytest.mark.parametrize("shape", [ONE_BLOCK, TWO_BLOCKS], ids=str)
def test_segments(shape):
    """Keys that two segments see get gradients from both."""
    segmented(shape)
    compare(shape, blocks=SMALL_BLOCKS)


@pytest.mark.slow
@pytest.mark.usefixtures("small_vector_memory")
def test_segments_strictly():
    for shape in (ONE_BLOCK, TWO_BLOCKS):
        shape = dataclasses.replace(shape, length=segmented(shape).segment + 20, batch=1)
        compare(shape, blocks=SMALL_BLOCKS, interpret=STRICT)


@pytest.mark.usefixtures("small_vector_memory")
def test_what_segments_have_for_a_position_is_summed():
    """`joined` is the transpose of `segmented`: <segmented(x), y> = <x, joined(y)> for every x and y."""
    plan = segmented(TWO_BLOCKS)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(-3, 4, TWO_BLOCKS.key), jnp.float32)
    cut = plan.segmented(x)
    assert cut.shape == (2, 2, plan.segments, plan.rows, 4)
    y = jnp.asarray(rng.integers(-3, 4, cut.shape), jnp.float32)
    assert float((cut * y).sum()) == float((x * plan.joined(y)).sum())
    for s in range(plan.segments):
        low = s * plan.segment
        own = np.asarray(x[:, low : low + plan.segment]).swapaxes(1, 2)
        np.testing.assert_array_equal(cut[:, :, s, plan.front : plan.front + own.shape[2]], own)


@pytest.mark.parametrize("kind", ["one-hot", "large"])
def test_degenerate_inputs(kind):
    """Logits of hundreds rise above the maximum that weights are taken against, again and again."""
    compare(shapes.SMALL[3], kind=kind, factor=10 if kind == "large" else 1)


def test_bfloat16():
    compare(shapes.SMALL[3], "bfloat16")


@given(
    length=st.integers(1, 140),
    groups=st.integers(1, 2),
    per_group=st.integers(1, 3),
    features=st.integers(1, 9),
    windows=st.tuples(*[st.one_of(st.none(), st.integers(1, 150))] * 2),
    causal=st.booleans(),
    heads=st.integers(1, 3),
)
@settings(max_examples=2, deadline=None, derandomize=True)
def test_any_sizes(length, groups, per_group, features, windows, causal, heads):
    shape = Shape("drawn", 1, length, groups * per_group, groups, features, *windows, causal=True)
    if not causal:
        shape = dataclasses.replace(shape, window1=None, window2=None, causal=False)
    compare(shape, blocks={"queries": 128, "heads": heads, "second": 256})


@pytest.mark.parametrize("shape", shapes.ACCELERATOR, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_block_candidates_fit(shape, dtype):
    """Nothing a tuner tries reads outside of a segment's rows, or exceeds vector memory."""
    arrays = [jax.ShapeDtypeStruct(s, dtype) for s in (shape.query, *[shape.key] * 4)]
    assert tpu.unsupported(shape.config, *arrays) is None
    candidates = tpu.block_candidates(shape.config, *arrays)["forward"]
    assert len(candidates) > 3
    for blocks in candidates:
        plan = tpu_plan.make_plan(shape.config, arrays[0], arrays[1], blocks)
        assert plan is not None
        assert plan.blocks == blocks
        assert plan.per_group % plan.heads == 0
        assert plan.segment % plan.queries == plan.queries % 128 == plan.second % 128 == 0
        back = -(-(max(plan.reach) - 1) // 128) * 128
        assert plan.front >= (back if plan.segments > 1 else plan.queries)
        assert plan.rows * 128 * 64 <= tpu_plan.RESIDENT_BYTES * 1.4  # float32 keys, values and their sums


def refusal(shape, dtype="float32", **changes):
    arrays = [jax.ShapeDtypeStruct(s, dtype) for s in (shape.query, *[shape.key] * 4)]
    return tpu.unsupported(dataclasses.replace(shape.config, **changes), *arrays)


def test_what_is_not_supported_is_reported():
    assert "float16" in str(refusal(shapes.SMALL[0], "float16"))
    long = dataclasses.replace(shapes.LONG, window2=None)
    assert "fit in vector memory" in str(refusal(long))
    assert "fit in vector memory" in str(refusal(shapes.LONG, causal=False, window1=None, window2=None))
    assert refusal(shapes.LONG) is None
    arrays = [
        jnp.zeros(s, t) for s, t in zip([(1, 4, 1, 2)] * 5, ["bfloat16"] * 4 + ["float32"], strict=True)
    ]
    assert "bfloat16, float32" in str(tpu.unsupported(Config(), *arrays))


@pytest.mark.parametrize("shape", [shapes.SMALL[1], shapes.SMALL[8], shapes.FBGEMM[1]], ids=str)
def test_lowers_for_tpus(shape):
    arrays = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in (shape.query, *[shape.key] * 4)]
    options = {"window1": shape.window1, "window2": shape.window2, "causal": shape.causal}

    def loss(*x):
        return trilinear_attention(*x, **options, implementation="tpu").astype(jnp.float32).sum()

    exported = export.export(jax.jit(jax.grad(loss, argnums=range(5))), platforms=["tpu"])(*arrays)
    assert exported.mlir_module().count("tpu_custom_call") == 2
