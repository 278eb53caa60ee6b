"""The Hopper kernels: what can be shown of them without one.

Values and gradients come from Pallas' interpreter, where a data race or a read outside of an array is an
error.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import plans
from kernels.chips import HOPPER
from kernels.hopper import ALIGNMENT, ROWS
from kernels.trilinear import gpu, gpu_backward, gpu_layout
from kernels.trilinear.gpu_sweep import Band
from kernels.trilinear.reference import Config, trilinear_attention
from kernels.trilinear.shapes import ACCELERATOR, Shape
from tests import jaxprs
from tests.kernels import gpu_launches
from tests.kernels.trilinear import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL_TILES = {"columns": 64, "stages": 2}
# Name: shape, dtype, scale or None for the paper's, blocks.
INTERPRETED = {
    "exchanged, padded heads, negative scale": (
        Shape("", 1, 11, 3, 1, 20, 5, 2), "bfloat16", -0.2, SMALL_TILES | {"splits": 2},
    ),
}  # fmt: skip
SLOW = {
    "all pairs, a group at a time": (
        Shape("", 1, 9, 4, 2, 16, causal=False),
        "float16",
        None,
        SMALL_TILES | {"groups": 1, "stages": 3},
    ),
    "a tile is one position": (Shape("", 1, 5, 64, 1, 32, 3, 5), "bfloat16", None, None),
    "a tile is many positions": (Shape("", 2, 12, 4, 2, 16, 3, 6), "bfloat16", None, SMALL_TILES),
    "a position is two tiles": (Shape("", 1, 4, 96, 1, 128, 2, 3), "bfloat16", None, None),
    "windows of several tiles": (Shape("", 1, 150, 2, 1, 16, 4, 140), "bfloat16", None, None),
    "all the past": (Shape("", 1, 70, 1, 1, 64), "bfloat16", None, SMALL_TILES),
    "no scale": (Shape("", 1, 7, 8, 1, 16, 2, 4), "bfloat16", 0.0, SMALL_TILES),
}
SHAPES = st.builds(
    lambda length, window1, window2, causal, heads, groups: Shape(
        "", 1, length, heads * groups, groups, 8, window1 if causal else None, window2 if causal else None,
        causal
    ),
    st.integers(1, 150), st.integers(1, 160), st.integers(1, 160), st.booleans(), st.integers(1, 130),
    st.integers(1, 3),
)  # fmt: skip


@pytest.mark.parametrize(
    "name", [*INTERPRETED, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_values_and_gradients(name):
    shape, dtype, scale, blocks = (INTERPRETED | SLOW)[name]
    config = shape.config if scale is None else dataclasses.replace(shape.config, scale=scale)
    arrays, dout = cases.make(shape, dtype)
    found = cases.run(gpu, config, arrays, dout, blocks=blocks, interpret=True)
    # float16 has three more bits.
    cases.assert_close(
        found, cases.answers(config, arrays, dout), dtype, factor=2 if dtype == "float16" else 1
    )


DEVIATIONS = (0.5, 1.0, 2.0, 3.0)


@pytest.mark.slow  # the blockwise path's are a default test
@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_gradients_are_as_accurate_as_those_of_the_definition(deviation):
    """At most twice the error of its derivative by JAX, which rounds nothing but the results.

    With logits or dP of rounded products, or with Delta from the rounded output, this fails.
    """
    shape = Shape("", 1, 9, 2, 2, 16, causal=False)
    generator = np.random.default_rng(0)
    arrays = tuple(
        jnp.asarray(deviation * generator.normal(size=size), jnp.bfloat16)
        for size in (shape.query, *[shape.key] * 4)
    )
    dout = jnp.asarray(generator.normal(size=shape.query), jnp.bfloat16)
    want = cases.answers(shape.config, arrays, dout)
    blocks = SMALL_TILES | {"groups": 1}
    got = cases.run(gpu, shape.config, arrays, dout, blocks=blocks, interpret=True)
    _, pullback = jax.vjp(lambda *x: trilinear_attention(shape.config, *x)[0], *arrays)
    for name, plain in zip(cases.NAMES[2:], pullback(dout), strict=True):
        assert cases.error(got[name], want[name], 0) <= 2 * cases.error(plain, want[name], 0), name


def described(shape, dtype="bfloat16"):
    query, key = (jax.ShapeDtypeStruct(size, jnp.dtype(dtype)) for size in (shape.query, shape.key))
    return query, key, key, key, key


def planned(direction, shape, chip=HOPPER, dtype="bfloat16", **options):
    return gpu.plan(direction, shape.config, *described(shape, dtype), chip=chip, **options)


@pytest.mark.parametrize(
    "sizes",
    [
        (2, 256, 64, 1, 128),
        (1, 77, 6, 2, 48),
        (1, 1, 1, 1, 1),
        (2, 300, 3, 1, 65),
        (1, 1000, 128, 1, 128),
        (100_000, 16, 2, 2, 32),
        (1, 100, 192, 1, 128),
    ],
    ids=str,
)
@pytest.mark.slow  # drawn calls are lowered by default
def test_lowers_for_cuda_as_planned(sizes):
    """Down to Mosaic's own code, with the shared memory that the plan says."""
    for window1, window2, causal in ((None, None, False), (7, 5000, True)):
        lower_as_planned(Shape("", *sizes, window1=window1, window2=window2, causal=causal))


def lower_as_planned(shape):
    query, *keys = described(shape)

    def both(query, key1, key2, value1, value2, dout):
        arrays = query, key1, key2, value1, value2
        out, lse = gpu.forward(shape.config, *arrays)
        return out, gpu.backward(shape.config, *arrays, out, lse, dout)

    traced = jax.jit(both).trace(query, *keys, query)
    _, memory = gpu_launches.allocated(lambda: traced.lower(lowering_platforms=("cuda",)))
    launches = [
        launch for direction in ("forward", "backward") for launch in planned(direction, shape).launches
    ]
    assert memory == {launch.name: launch.memory for launch in launches}


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    SHAPES,
    st.integers(1, 128),
    st.sampled_from(gpu.DTYPES),
    st.fixed_dictionaries(
        {}, optional={name: st.integers(1, 300) for name in ("columns", "stages", "splits")}
    ),
)
def test_every_call_has_a_plan_that_fits(shape, features, dtype, blocks):
    shape = dataclasses.replace(shape, features=features)
    for direction, count in (("forward", 1), ("backward", 4)):
        plan = planned(direction, shape, dtype=dtype, blocks=blocks)
        assert len(plan.launches) == count
        plans.check(HOPPER, plan.launches)
        assert all(kernel.scratch[3][0][0].shape[0] >= 2 for kernel in plan.kernels)  # slots
        assert shape.batch * shape.groups % plan.kernels[-1].grid[0] == 0


@pytest.mark.parametrize(
    ("shape", "of_keys", "shares"),
    [
        # Four tiles of second keys and 95 pairs of first keys, at least eight of them for each of 11 blocks.
        (Shape("", 2, 256, 64, 1, 128, 32, 96), (2, 22, 256, 128), (2, 4, 212, 128)),
        # 132 blocks are enough: 6 for each of 24 tiles.
        (Shape("", 6, 200, 64, 1, 128, 90, 96), (6, 12, 256, 128), (6, 4, 212, 128)),
        # 16 of 128 groups at a time, 17 tiles of each: 264 blocks.
        (Shape("", 8, 1050, 32, 16, 64, 32, 96), (16, 2, 1088, 64), (16, 17, 192, 64)),
    ],
    ids=["few tiles", "the chip is full", "groups in turn"],
)
def test_blocks_of_the_backward_pass_fill_the_chip(shape, of_keys, shares):
    query, key = (jax.ShapeDtypeStruct(size, jnp.bfloat16) for size in (shape.query, shape.key))
    lse = jax.ShapeDtypeStruct((shape.batch, shape.heads, shape.length), jnp.float32)
    arguments = (query, key, key, key, key, query, lse, query)
    traced = jax.make_jaxpr(lambda *x: gpu.backward(shape.config, *x))(*arguments)
    outputs = (v.aval for equation in jaxprs.equations(traced.jaxpr) for v in equation.outvars)
    found = {aval.shape for aval in outputs if hasattr(aval, "shape")}
    assert {of_keys, shares} <= found, sorted(s for s in found if len(s) == 4)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(SHAPES, st.data())
def test_what_a_band_says_of_ranges_is_what_its_mask_says(shape, data):
    length = shape.length
    window1, window2 = shape.config.reach(length)
    band = Band(length, window1, window2, shape.causal)
    position = np.arange(length)
    seen = np.ones((length, length, length), bool)
    if shape.causal:
        ahead = position[:, None] - position[None, :]
        first, second = ((ahead >= 0) & (ahead < w) for w in (band.window1, band.window2))
        seen = first[:, :, None] & second[:, None, :]

    def drawn():
        low = data.draw(st.integers(0, length - 1))
        return low, data.draw(st.integers(low + 1, length))

    queries, seconds, firsts = drawn(), drawn(), drawn()
    i, j, k = (slice(*r) for r in (queries, firsts, seconds))
    mask = band.allowed(position[i, None], firsts[0], position[None, k])
    np.testing.assert_array_equal(mask, seen[i, firsts[0], k])
    assert bool(band.everywhere(queries, firsts[0], seconds)) == bool(np.all(mask))
    beyond = length + 1
    assert not band.everywhere((queries[0], beyond), firsts[0], seconds)
    assert not band.everywhere(queries, length, seconds)
    assert not band.everywhere(queries, firsts[0], (-1, seconds[1]))
    assert not band.everywhere(queries, firsts[0], (seconds[0], beyond))

    def extent(of):
        where = np.flatnonzero(of)
        return where[0], where[-1] + 1

    assert tuple(map(int, band.first(*queries))) == extent(seen[i].any((0, 2)))
    low, high = (int(x) for x in band.second(*queries, 64))
    begin, end = extent(seen[i].any((0, 1)))
    assert high == end
    assert low <= begin < low + 64
    assert tuple(map(int, band.partners(*seconds))) == extent(seen[:, :, k].any((0, 2)))
    if (met := seen[:, j, k].any((1, 2))).any():
        start, stop = (int(x) for x in band.seers(firsts, seconds))
        assert start <= extent(met)[0]
        assert stop >= extent(met)[1]


def test_no_mask_where_the_window_is_exact():
    band = Band(4096, 32, 512, True)
    for i in (511, 512, 1777, 4095):
        first, second = band.first(i, i + 1), band.second(i, i + 1, 128)
        assert [int(x) for x in (*first, *second)] == [i - 31, i + 1, i - 511, i + 1]
        assert all(
            band.everywhere((i, i + 1), j, (k, k + 128))
            for j in range(i - 31, i + 1)
            for k in range(i - 511, i + 1, 128)
        )
        assert not band.everywhere((i, i + 1), i + 1, (i - 511, i - 383))


@settings(deadline=None, derandomize=True, max_examples=3)
@given(SHAPES)
def test_layout_and_back(shape):
    query = jnp.asarray(np.random.default_rng(0).normal(size=shape.query), jnp.float32)
    key = jnp.asarray(np.random.default_rng(1).normal(size=shape.key), jnp.float32)
    plan, columns = gpu_layout.geometry(shape.config, query, key), 64
    numbers = np.asarray(query)[..., 0].swapaxes(1, 2)
    several = sorted({0, plan.rows // ROWS // 2, plan.rows // ROWS - 1})

    @jax.jit
    def both_ways(query, key, numbers, several):
        rows, keys = gpu_layout.as_rows(plan, query), gpu_layout.as_keys(plan, key)
        scalars = gpu_layout.row_scalars(plan, numbers)
        back = (
            gpu_layout.from_rows(plan, rows, shape.batch),
            gpu_layout.from_keys(plan, keys, shape.batch),
            gpu_layout.from_row_scalars(plan, scalars, shape.batch),
        )
        windows = gpu_layout.as_windows(plan, key, columns)
        return rows, keys, scalars, back, windows, [plan.window(tile, columns) for tile in several]

    rows, keys, scalars, back, windows, of_tiles = both_ways(query, key, numbers, several)
    assert rows.shape[1] % ROWS == 0
    for got, want in zip(back, (query, key, numbers), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(scalars, rows[..., 0])

    windows = np.asarray(windows)
    copies = len(plan.fronts(columns))
    for found in of_tiles:
        copy, front, low, tiles = map(int, found)
        start, size = low + front, tiles * columns
        assert start >= 0
        assert start % ALIGNMENT == 0
        assert start + size <= windows.shape[1]
        held = windows[copy::copies][:, start : start + size]
        want = np.asarray(keys)[:, max(low, 0) : low + size]
        np.testing.assert_array_equal(held[:, max(-low, 0) :][:, : want.shape[1]], want)
        assert not held[:, : max(-low, 0)].any()


@pytest.mark.parametrize(("heads", "copies"), [(4, 1), (8, 1), (16, 2), (64, 8), (128, 8)])
def test_every_window_starts_where_a_copy_of_a_tile_may(heads, copies):
    """At a multiple of eight rows, with as many shifted copies of the keys as that needs."""
    shape = Shape("", 1, 40, heads, 1, 8, 3, 21)
    plan = gpu_layout.geometry(shape.config, np.zeros(shape.query), np.zeros(shape.key))
    assert len(plan.fronts(64)) == copies
    for tile in range(plan.rows // ROWS):
        _, front, low, _ = plan.window(jnp.int32(tile), 64)
        assert int(low + front) >= 0
        assert int(low + front) % ALIGNMENT == 0


@pytest.mark.parametrize(
    "shape", [Shape("windows", 1, 300, 2, 2, 8, 30, 90), Shape("all", 1, 150, 1, 1, 8, causal=False)]
)
def test_shares_add_up_and_what_nothing_wrote_is_left_out(shape):
    query, key = np.zeros(shape.query), np.zeros(shape.key)
    plan = gpu_layout.geometry(shape.config, query, key)
    tiles = -(-shape.length // ROWS)
    most = gpu_backward.most_partners(plan) + 4
    shares = np.full((plan.batch, tiles, most, 3), np.nan, np.float32)
    want = np.zeros((plan.batch, shape.length, 3), np.float32)
    generator = np.random.default_rng(0)
    for tile in range(tiles):
        start, stop = (int(x) for x in gpu_backward.partners(plan, tile))
        share = generator.integers(-9, 9, (plan.batch, stop - start, 3))
        shares[:, tile, : stop - start] = share
        want[:, start:stop] += share
    found = gpu_backward.sum_of_shares(plan, tiles, jnp.asarray(shares))
    np.testing.assert_array_equal(found, want)


def test_says_what_it_does_not_support():
    def reason(dtype="bfloat16", features=64, key_dtype=None, length: Any = 8, chip=HOPPER):
        query = jax.ShapeDtypeStruct((1, length, 4, features), dtype)
        key = jax.ShapeDtypeStruct((1, length, 2, features), key_dtype or dtype)
        try:
            for direction in ("forward", "backward"):
                gpu.plan(direction, Config(), query, key, key, key, key, chip=chip)
        except plans.Refused as refusal:
            return str(refusal)
        return "none"

    assert reason() == reason("float16", 20) == reason(features=128) == "none"
    assert "float32" in reason("float32")
    assert "bfloat16" in reason(key_dtype="float16")
    assert reason(features=129).startswith("registers: D = 129")
    assert "position" in reason(length=0)
    assert "symbolic sizes" in reason(length=jax.export.symbolic_shape("n")[0])
    assert "shared memory" in reason(chip=dataclasses.replace(HOPPER, memory=50_000))
    few = dataclasses.replace(HOPPER, grid=(1, 65535, 65535))
    assert reason(chip=few).startswith("grid: trilinear_forward needs 2 programs along x")


def test_block_candidates_begin_with_the_default():
    shape = ACCELERATOR[0]
    candidates = gpu.block_candidates(shape.config)
    assert candidates["forward"][0] == {"columns": 128, "stages": 2}
    assert set(candidates) == {"forward", "backward"}
    assert all(candidates.values())
