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

from kernels import implementations, plans
from kernels.trilinear import reference, shapes, tpu, tpu_plan
from kernels.trilinear.api import trilinear_attention
from kernels.trilinear.shapes import Shape
from tests.kernels import tpu_launches
from tests.kernels.trilinear import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

STRICT = pltpu.InterpretParams(
    detect_races=True, uninitialized_memory="nan", out_of_bounds_reads="raise", random_seed=0
)
SMALL_BLOCKS = {"queries": 128, "heads": 1, "second": 128}
CHIP = tpu_launches.CHIPS[1]  # of the least vector memory


def compare(shape, dtype="float32", kind="normal", factor=1.0, interpret=True, **options):
    arrays, dout = cases.make(shape, dtype, kind=kind)
    got = cases.run(tpu, shape.config, arrays, dout, interpret=interpret, **options)
    cases.assert_close(got, cases.answers(shape.config, arrays, dout), dtype, factor=factor)


# Those that differ most.
OFTEN = ("one position", "windows the other way")


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
    Shape("a window and all the past", 1, 260, 4, 2, 4, window2=2),
    Shape("all pairs", 1, 130, 2, 2, 4, causal=False),
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


def segmented(shape, blocks=SMALL_BLOCKS):
    """The plan of a call, which must have several segments."""
    arrays, _ = cases.make(shape)
    plan = tpu.plan("forward", shape.config, *arrays, chip=CHIP, blocks=blocks).sizes
    assert plan.segments > 1
    return plan


ONE_BLOCK = Shape("one block before", 1, 700, 2, 1, 4, window1=3, window2=20)
TWO_BLOCKS = Shape("two blocks before", 2, 520, 2, 2, 4, window1=5, window2=130)


@pytest.mark.usefixtures("small_vector_memory")
def test_segments():
    """Keys that two segments see get gradients from both."""
    segmented(TWO_BLOCKS)
    compare(TWO_BLOCKS, blocks=SMALL_BLOCKS)


@pytest.mark.slow
@pytest.mark.usefixtures("small_vector_memory")
def test_segments_strictly():
    compare(ONE_BLOCK, blocks=SMALL_BLOCKS)
    for shape in (ONE_BLOCK, TWO_BLOCKS):
        shape = dataclasses.replace(shape, length=segmented(shape).segment + 20, batch=1)
        compare(shape, blocks=SMALL_BLOCKS, interpret=STRICT)


@pytest.mark.usefixtures("small_vector_memory")
@pytest.mark.parametrize("shape", [ONE_BLOCK, TWO_BLOCKS], ids=str)
def test_what_segments_have_for_a_position_is_summed(shape):
    """`joined` is the transpose of `segmented`: <segmented(x), y> = <x, joined(y)> for every x and y."""
    plan = segmented(shape)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(-3, 4, shape.key), jnp.float32)
    cut = plan.segmented(x)
    assert cut.shape == (shape.batch, shape.groups, plan.segments, plan.rows, 4)
    y = jnp.asarray(rng.integers(-3, 4, cut.shape), jnp.float32)
    assert float((cut * y).sum()) == float((x * plan.joined(y)).sum())
    for s in range(plan.segments):
        low = s * plan.segment
        own = np.asarray(x[:, low : low + plan.segment]).swapaxes(1, 2)
        np.testing.assert_array_equal(cut[:, :, s, plan.front : plan.front + own.shape[2]], own)


# Two blocks of second keys, and two chunks of first ones, for each of two tiles.
STREAMED = (
    Shape("windows wider than the tile", 1, 180, 1, 1, 4, window1=140, window2=None),
    Shape("all pairs", 1, 130, 2, 2, 4, causal=False),
)


@pytest.fixture
def no_vector_memory(monkeypatch):
    """No room for the keys of a segment, so that they are streamed."""
    monkeypatch.setattr(tpu_plan, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(tpu_plan, "CHUNK", 128)


@pytest.mark.usefixtures("no_vector_memory")
@pytest.mark.parametrize("shape", STREAMED, ids=str)
def test_streamed_keys(shape):
    (query, *keys), _ = cases.make(shape)
    plan = tpu.plan("forward", shape.config, query, *keys, chip=CHIP, blocks=SMALL_BLOCKS).sizes
    assert plan.streamed
    assert (plan.second, plan.chunk) == (128, 128)
    compare(shape, blocks=SMALL_BLOCKS)


@pytest.mark.slow
@pytest.mark.usefixtures("no_vector_memory")
def test_streamed_keys_strictly_and_in_16_bits():
    shape = dataclasses.replace(STREAMED[0], length=140, heads=1, window1=130)
    compare(shape, blocks=SMALL_BLOCKS, interpret=STRICT)
    compare(STREAMED[0], "bfloat16", blocks=SMALL_BLOCKS)


@pytest.mark.slow  # the blockwise path's are a default test
def test_gradients_of_16_bits_are_as_exact_as_those_of_the_plain_path():
    compare_with_plain(Shape("windows", 1, 150, 2, 1, 48, window1=4, window2=40))
    compare_with_plain(Shape("all pairs", 1, 24, 2, 2, 48, causal=False))


def compare_with_plain(shape):
    """Relative errors at most twice those of autodiff of the definition, which rounds only its results."""
    rng = np.random.default_rng(0)

    @jax.jit
    def both(arrays, dout):
        out, lse = tpu.forward(shape.config, *arrays, interpret=True)
        _, pull = jax.vjp(lambda *x: reference.trilinear_attention(shape.config, *x)[0], *arrays)
        return tpu.backward(shape.config, *arrays, out, lse, dout, interpret=True), pull(dout)

    for deviation in (0.5, 1.0, 1.6, 3.0):
        arrays = [
            jnp.asarray(deviation * rng.normal(size=x), jnp.bfloat16) for x in (shape.query, *[shape.key] * 4)
        ]
        dout = jnp.asarray(rng.normal(size=shape.query), jnp.bfloat16)
        want = cases.answers(shape.config, tuple(arrays), dout)
        for name, *found in zip(cases.NAMES[2:], *both(arrays, dout), strict=True):
            ours, plain = (np.linalg.norm(np.asarray(x, np.float64) - want[name]) for x in found)
            assert ours <= 2 * plain, (name, deviation, ours / plain)


@pytest.mark.parametrize("kind", ["normal", "one-hot", "large"])
def test_several_heads_of_a_group_and_degenerate_inputs(kind):
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
@settings(max_examples=8, deadline=None, derandomize=True)
@pytest.mark.slow
def test_any_sizes(length, groups, per_group, features, windows, causal, heads):
    shape = Shape("drawn", 1, length, groups * per_group, groups, features, *windows, causal=True)
    if not causal:
        shape = dataclasses.replace(shape, window1=None, window2=None, causal=False)
    compare(shape, blocks={"queries": 128, "heads": heads, "second": 256})


def shaped(shape, dtype="float32"):
    return [jax.ShapeDtypeStruct(s, dtype) for s in (shape.query, *[shape.key] * 4)]


def assert_sound(plan):
    """Nothing outside of a segment's rows is read, and all queries have tiles."""
    assert plan.per_group % plan.heads == 0
    assert plan.segment % plan.queries == plan.queries % 128 == plan.second % 128 == 0
    assert plan.padded >= plan.length
    back = -(-(max(plan.reach) - 1) // 128) * 128
    assert plan.segments == 1 or not plan.streamed
    if plan.config.causal:
        assert plan.front >= (back if plan.segments > 1 else plan.queries)
    if plan.streamed:
        assert plan.width % 128 == plan.chunk % 128 == plan.front % 128 == 0
        assert plan.rows >= plan.front + plan.segment + plan.chunk


@pytest.mark.parametrize("shape", shapes.ACCELERATOR[2:], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_block_candidates_are_what_is_run(shape, dtype):
    arrays = shaped(shape, dtype)
    candidates = tpu.block_candidates(shape.config, *arrays)
    assert all(len(tried) > 3 for tried in candidates.values())
    for direction in implementations.DIRECTIONS:
        for blocks in candidates[direction]:
            program = tpu.plan(direction, shape.config, *arrays, chip=CHIP, blocks=blocks)
            assert program.sizes.blocks == blocks
            assert_sound(program.sizes)
            assert plans.fits(CHIP, *program.launches) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shapes_run_as_planned(dtype):
    """Keys in vector memory, in segments, and streamed."""
    for shape in (shapes.FBGEMM[1], shapes.LONG, Shape("", 1, 9000, 3, 3, 100, 300, None)):
        arrays = shaped(shape, dtype)
        outputs = jax.eval_shape(lambda *x, c=shape.config: tpu.forward(c, *x), *arrays)
        for blocks in (None, {"queries": 128, "second": 128})[: 1 + (shape is shapes.FBGEMM[1])]:
            tpu_launches.assert_planned(tpu, shape.config, arrays, outputs, blocks=blocks)


def test_every_call_inside_the_envelope_has_a_plan():
    rng = np.random.default_rng(0)
    for _ in range(100):
        batch, length, groups, each = (int(2 ** rng.uniform(0, most)) for most in (8, 16, 6, 6))
        windows = [None if rng.random() < 0.3 else int(2 ** rng.uniform(0, 16)) for _ in range(2)]
        causal = bool(rng.random() < 0.7)
        features = int(rng.integers(1, 129))
        windows = windows if causal else [None, None]
        shape = Shape("", batch, length, groups * each, groups, features, *windows, causal=causal)
        arrays = shaped(shape, str(rng.choice(["float32", "bfloat16"])))
        for chip in tpu_launches.CHIPS:
            for direction in ("forward", "backward"):
                program = tpu.plan(direction, shape.config, *arrays, chip=chip)
                assert_sound(program.sizes)
                tpu_launches.assert_within(chip, program.launches)


def test_what_is_not_supported_is_refused():
    def refused(match, *changed, chip=CHIP, shape=shapes.SMALL[0], dtype="float32"):
        arrays = [*shaped(shape, dtype)[: 5 - len(changed)], *changed]
        with pytest.raises(plans.Refused, match=match):
            tpu.plan("backward", shape.config, *arrays, chip=chip)

    refused("query: got dtype float16, expected float32 or bfloat16", dtype="float16")
    refused("arrays: got dtypes bfloat16, float32", shaped(shapes.SMALL[0], "bfloat16")[1])
    refused("D: got 129, expected at most 128", shape=dataclasses.replace(shapes.SMALL[0], features=129))
    (n,) = export.symbolic_shape("n")
    refused(r"value2: got shape \(2, n, 1, 6\)", jax.ShapeDtypeStruct((2, n, 1, 6), jnp.float32))
    small = dataclasses.replace(CHIP, memory=1 << 20)
    refused(r"VMEM: trilinear_backward needs [\d,]+ bytes, TPU v5p has 1,048,576", chip=small)


@pytest.mark.parametrize("shape", [shapes.SMALL[1], shapes.SMALL[8], shapes.FBGEMM[1]], ids=str)
def test_lowers_for_tpus(shape):
    arrays = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in (shape.query, *[shape.key] * 4)]
    options = {"window1": shape.window1, "window2": shape.window2, "causal": shape.causal}

    def loss(*x):
        return trilinear_attention(*x, **options, implementation="tpu").astype(jnp.float32).sum()

    exported = export.export(jax.jit(jax.grad(loss, argnums=range(5))), platforms=["tpu"])(*arrays)
    assert exported.mlir_module().count("tpu_custom_call") == 2
