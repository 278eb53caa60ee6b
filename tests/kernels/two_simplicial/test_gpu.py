"""The Hopper kernels in Pallas' GPU interpret mode against the float64 reference, and what needs no GPU.

Interpreted are tile loops, indices, pipelines, copies, masks and the arithmetic; data races are errors.
Replaced by plain products and functions are matrix instructions with an operand in registers and the special
functions. That the kernels compile to machine code is shown by `make aot`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental.mosaic.gpu import core as mosaic

from kernels import chips, plans
from kernels.two_simplicial import gpu, gpu_plan, gpu_tiles, pairwise, reference, shapes
from kernels.two_simplicial.reference import Config
from kernels.two_simplicial.shapes import Shape
from tests import jaxprs
from tests.kernels.two_simplicial import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

UNSIGNED, TRILINEAR, SIGNED = cases.CONFIGS
NARROW = {"k": 16, "j": 4, "stages": 3}
# With one multiprocessor a program has several pieces of work.
INTERPRETED: Any = {"interpret": True, "chip": dataclasses.replace(chips.HOPPER, cores=1)}
# Two tiles of queries, two of k and five steps of j, each with a tail; no two sizes are equal.
TILES = Shape("tiles", batch=1, heads=1, queries=65, keys=17, features=6, value_features=4, out_features=7)
# Two examples of three heads, for masks.
EXAMPLES = Shape(
    "examples", batch=2, heads=3, queries=9, keys=10, features=6, value_features=5, out_features=7
)
TOLERANCE = {np.float32: 1e-5, jnp.bfloat16: 8e-3}


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def both_passes(config, blocks, version, arrays, dout):
    """Output, log-sum-exp and gradients; `version` separates programs that differ in a patched global."""
    del version
    blocks = dict(blocks)
    out, lse = gpu.forward(config, *arrays, blocks=blocks, **INTERPRETED)
    saved: Any = (*arrays, out, lse, dout)
    return out, lse, gpu.backward(config, *saved, blocks=blocks, **INTERPRETED)


def check(config, arrays, blocks=None, version=0, *, tolerance=None):
    """Values and gradients against the reference."""
    dout = cases.cotangent(arrays)
    got = both_passes(config, tuple((blocks or {}).items()), version, arrays, dout)
    out, lse, gradients = got
    assert out.dtype == arrays[3].dtype
    assert lse.dtype == jnp.float32
    assert [g.dtype for g in gradients] == [a.dtype for a in arrays[:5]]
    tolerance = tolerance or (1e-5 if out.dtype == jnp.float32 else TOLERANCE[jnp.bfloat16])
    cases.check_answer(got, cases.expected(config, arrays, dout), tolerance)
    return got


def test_unsigned_values_and_gradients_over_several_tiles():
    """Of keys; the signed logit has two of queries, too."""
    check(cases.SOFT, cases.arrays(dataclasses.replace(TILES, queries=33)), NARROW)


def test_signed_values_and_gradients_over_several_tiles_of_16_bits():
    """Of queries."""
    shape = dataclasses.replace(TILES, keys=8)
    check(SIGNED, cases.arrays(shape, mask="queries", dtype=jnp.bfloat16), NARROW)


def test_trilinear_values_and_gradients_with_a_mask_of_padding():
    shape = dataclasses.replace(EXAMPLES, batch=1, heads=2, keys=8)
    check(TRILINEAR, cases.arrays(shape, mask="padding"), NARROW)


def test_logits_of_whole_tiles_without_a_mask():
    """Whose scale is a factor of the softmax's arguments, where a restricted logit is scaled before.

    Powers of less than the largest logit of a row would overflow.
    """
    query, *others = cases.arrays(dataclasses.replace(TILES, queries=9, keys=32), kind="large")
    arrays = 60 * query, *others
    out, lse = gpu.forward(UNSIGNED, *arrays, blocks={"k": 16, "j": 16}, **INTERPRETED)
    want = cases.expected(UNSIGNED, arrays, cases.cotangent(arrays))
    cases.check(out, want.out, 1e-3)
    cases.check(lse, want.lse, 1e-5)


def test_the_softmaxes_of_slices_together_are_that_of_all():
    """The second slice has the largest logits, and to some queries nothing before it is allowed."""
    rng = np.random.default_rng(0)
    logits, values = rng.normal(size=(2, 3, 12)) * 4, rng.normal(size=(2, 12, 5))
    logits[:, :2, 4:8] += 9
    logits[:, 2, 4:8] += 200  # whose exponentials overflow
    logits[0, 1, :4] = gpu.MASKED
    sums = jnp.zeros((2, 3, 5)), jnp.full((2, 3), gpu.MASKED), jnp.zeros((2, 3))
    for part in (slice(4), slice(4, 8), slice(8, 12)):
        weights = np.exp2(logits[:, :, part] - logits[:, :, part].max(-1, keepdims=True))
        total = weights.sum(-1)
        out = weights / total[..., None] @ values[:, part]
        top = logits[:, :, part].max(-1) + np.log2(total)
        sums = gpu._joined(sums, jnp.asarray(out, jnp.float32), jnp.asarray(top, jnp.float32))
    accumulator, top, total = sums
    weights = np.exp2(logits)  # in float64
    expected = weights / weights.sum(-1, keepdims=True) @ values
    np.testing.assert_allclose(accumulator / total[..., None], expected, rtol=5e-5, atol=1e-6)
    np.testing.assert_allclose(top + jnp.log2(total), np.log2(weights.sum(-1)), rtol=1e-6)


@pytest.fixture
def _short_slices(monkeypatch):
    """Slices of keys as short as they may be."""
    monkeypatch.setattr(gpu_plan, "SLICE_BYTES", {"forward": 1, "backward": 1})
    monkeypatch.setattr(gpu_plan, "PROGRAMS", 0)
    gpu_plan._plan.cache_clear()
    yield
    gpu_plan._plan.cache_clear()


@pytest.mark.usefixtures("_short_slices")
def test_output_with_keys_in_slices():
    """Some allow nothing to a query, and some queries nothing at all."""
    arrays = cases.arrays(EXAMPLES, mask="some rows", dtype=jnp.bfloat16)
    assert gpu.plan("forward", UNSIGNED, *arrays, chip=chips.HOPPER).slices == 3
    out, lse = gpu.forward(UNSIGNED, *arrays, blocks=NARROW, **INTERPRETED)
    want = cases.expected(UNSIGNED, arrays, cases.cotangent(arrays))
    cases.check(out, want.out, 8e-3)
    cases.check(lse, want.lse, 1e-5)


@pytest.mark.usefixtures("_short_slices")
@pytest.mark.slow
def test_gradients_with_keys_in_slices():
    """Some allow nothing to a query, and some queries nothing at all."""
    arrays = cases.arrays(EXAMPLES, mask="some rows", dtype=jnp.bfloat16)
    plan = gpu.plan("backward", UNSIGNED, *arrays, chip=chips.HOPPER)
    assert (plan.chunks, plan.examples, plan.slices, plan.tiling.first) == (2, 1, 2, 8)
    out, lse, (dquery, *_) = check(UNSIGNED, arrays, NARROW, version=1)
    for row in (out[:, ::3], lse[:, :, ::3], dquery[:, ::3]):
        np.testing.assert_array_equal(row, 0)


@pytest.mark.slow
def test_every_mask_degenerate_vectors_and_default_blocks():
    """Masks and vectors change no program but by the kind of mask: three logits are compiled once a kind."""
    arrays = [cases.arrays(TILES, mask=mask, dtype=jnp.bfloat16) for mask in cases.MASKS]
    arrays += [cases.arrays(TILES, kind=kind, dtype=jnp.bfloat16) for kind in cases.DEGENERATE]
    for config in cases.CONFIGS:
        for each in arrays:
            check(config, each, tolerance=2e-2)


def test_64_keys_are_tried_at_once_where_they_are_whole():
    for keys, tried in ((64, True), (72, False), (96, False), (128, True)):
        found = gpu.block_candidates(UNSIGNED, *cases.arrays(Shape("", 1, 1, 2, keys, 3)))["forward"]
        assert ({"k": 64, "j": 2, "stages": 2} in found) == tried


@pytest.mark.slow
def test_all_block_sizes():
    shape = Shape("blocks", batch=1, heads=1, queries=70, keys=64, features=6)
    arrays = cases.arrays(shape, dtype=jnp.bfloat16)
    candidates = gpu.block_candidates(UNSIGNED, *arrays)
    for blocks in candidates["backward"]:
        check(UNSIGNED, arrays, blocks)
    want = cases.expected(UNSIGNED, arrays, cases.cotangent(arrays))
    for blocks in candidates["forward"]:
        out, lse = gpu.forward(UNSIGNED, *arrays, blocks=blocks, **INTERPRETED)
        cases.check(out, want.out, 8e-3)
        cases.check(lse, want.lse, 1e-5)


def test_dot_products_and_their_pullback_are_those_of_the_reference():
    config = Config(scale=0.7, eps=0.3)
    query, key1, key2, *_ = cases.arrays(shapes.TINY)
    with jax.enable_x64(True):
        query, key1, key2 = (jnp.asarray(np.asarray(a, np.float64)) for a in (query, key1, key2))
        query = query.at[0, 1].set(0)

        @jax.jit
        def both(query, key1, key2, dlogit):
            found = pairwise.products(config, query, key1, key2)
            x, z, y = found.x.swapaxes(2, 3)[..., None], found.z[:, :, :, None], found.y[:, :, None]
            bb, cc = found.bb[:, :, None, :, None], found.cc[:, :, None, None]
            s, e = found.s[..., None, None], found.e[..., None, None]
            t = jnp.sqrt((y - x * z) ** 2 + x * x * cc + z * z * (bb - x * x) + e)
            g = dlogit * s / t
            gradients = pairwise.Gradients(
                x=(g * (x * cc - y * z)).sum(-1).swapaxes(2, 3),
                z=(g * (z * bb - x * y)).sum(3),
                y=(g * (y - x * z)).sum(2),
                aa=(g * y * y).sum((3, 4)),
                bb=(g * z * z).sum((2, 4)),
                cc=(g * x * x).sum((2, 3)),
            )
            want, pull = jax.vjp(lambda *a: reference.logits(config, *a), query, key1, key2)
            return (s * t, *pairwise.pullback(query, key1, key2, gradients)), (want, *pull(dlogit))

        b, h, n, m = shapes.TINY.batch, shapes.TINY.heads, shapes.TINY.queries, shapes.TINY.keys
        dlogit = jnp.asarray(np.random.default_rng(0).standard_normal((b, h, n, m, m)))
        for got, wanted in zip(*both(query, key1, key2, dlogit), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11)


def test_operands_of_each_group_of_each_example_and_of_all():
    """Groups are batch times heads: here two examples of three heads, and two keys in first place."""
    plan = gpu.plan("forward", UNSIGNED, *structs(EXAMPLES), chip=chips.HOPPER).tiling
    tiling = dataclasses.replace(plan, groups=6, heads=3, first=2)
    for name, count, want in (("x", 6, 4), ("bias", 2, 1), ("bias", 1, 0)):
        found = tiling.of_group(name, np.zeros(count).view(Indexed), jnp.int32(4))
        assert int(found) == want, (name, count)
    for count, start in ((6 * 2, 4 * 2), (2 * 2, 2), (2, 0)):
        found = tiling.of_group("mask", np.zeros(count).view(Indexed), jnp.int32(4))
        assert (int(found.start), found.size) == (start, 2)


class Indexed(np.ndarray):
    """An array whose `at` gives the index back."""

    class At:
        def __getitem__(self, index):
            return index

    at = At()


def test_parts_of_a_number_add_up_to_it():
    numbers = jnp.asarray(np.random.default_rng(0).standard_normal(1000), jnp.float32)
    for parts, bits in ((1, 8), (2, 16), (3, 24)):
        total = sum(part.astype(jnp.float32) for part in gpu_tiles.split(numbers, parts))
        assert float(jnp.max(jnp.abs(total - numbers) / jnp.abs(numbers))) <= 2.0**-bits
    assert gpu_tiles.cross("ab", "xyz") == [("a", "x"), ("a", "y"), ("a", "z"), ("b", "x"), ("b", "y")]


def structs(shape: Shape, dtype=jnp.float32, mask: tuple[int, ...] | None = None) -> list:
    """Arguments of `forward` as shapes."""
    b, n, m, h, d = shape.batch, shape.queries, shape.keys, shape.heads, shape.features
    sizes = (b, n, h, d), (b, m, h, d), (b, m, h, d), (b, m, h, shape.e), (h, shape.f, shape.e, shape.e)
    arrays = [jax.ShapeDtypeStruct(size, dtype) for size in sizes]
    return [*arrays, None if mask is None else jax.ShapeDtypeStruct(mask, jnp.bool_)]


@pytest.mark.parametrize(
    ("reason", "shape", "dtype", "config"),
    [
        ("query: got dtype float16", TILES, jnp.float16, UNSIGNED),
        ("M: got 7 keys, expected at least 8", Shape("", 1, 1, 1, 7, 6), jnp.float32, UNSIGNED),
        ("M: got 4097", Shape("", 1, 1, 1, 4097, 6), jnp.float32, UNSIGNED),
        ("F: got 129", Shape("", 1, 1, 1, 8, 6, 4, 129), jnp.float32, UNSIGNED),
        ("E: got 129", Shape("", 1, 1, 1, 8, 6, 129, 4), jnp.float32, UNSIGNED),
        ("D: got 129", Shape("", 1, 1, 1, 8, 129, 4, 4), jnp.float32, SIGNED),
        ("scale: got 0", TILES, jnp.float32, Config(scale=0)),
    ],
)
def test_what_is_not_supported_is_said(reason, shape, dtype, config):
    arrays = structs(shape, dtype)
    with pytest.raises(plans.Refused, match=reason):
        gpu.plan("forward", config, *arrays, chip=chips.HOPPER)
    with pytest.raises(NotImplementedError, match=reason):
        jax.eval_shape(functools.partial(gpu.forward, config), *arrays)


def test_symbolic_sizes_and_chips_without_memory_are_refused():
    (batch,) = export.symbolic_shape("b")
    arrays = structs(TILES)
    arrays[0] = jax.ShapeDtypeStruct((batch, *arrays[0].shape[1:]), jnp.float32)
    with pytest.raises(plans.Refused, match="query: got the symbolic size b"):
        gpu.plan("forward", UNSIGNED, *arrays, chip=chips.HOPPER)
    small = dataclasses.replace(chips.HOPPER, memory=8 << 10)
    with pytest.raises(
        plans.Refused, match=r"shared memory: two_simplicial_forward needs [\d,]+ bytes, .* has 8,192"
    ):
        gpu.plan("forward", UNSIGNED, *structs(TILES), chip=small)


def drawn(rng):
    """A call inside the envelope: config, shapes and types."""
    config = cases.CONFIGS[rng.integers(3)]
    m = int(rng.choice([8, 16, 17, 64, 257, 300, 1024, 4096]))
    n = int(rng.choice([1, 63, 64, 1000, 100_000]))
    b, h = (int(rng.choice(sizes)) for sizes in ((1, 3, 64, 81_920), (1, 2, 16)))
    d, e, f = (int(rng.choice([1, 7, 48, 64, 128])) for _ in range(3))
    d = max(3, d // 3 * 3) if config is SIGNED else d
    dtype = (jnp.float32, jnp.bfloat16)[rng.integers(2)]
    mask = tuple(int(rng.choice([1, size])) for size in (b, n, m, m)) if rng.random() < 0.6 else None
    return config, structs(Shape("", b, h, n, m, d, e, f), dtype, mask)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_every_call_of_the_envelope_has_a_plan_that_fits(direction):
    rng = np.random.default_rng(0)
    for _ in range(200):
        config, arrays = drawn(rng)
        blocks = {name: int(rng.choice([1, 2, 3, 5, 8, 16, 64, 128])) for name in ("k", "j", "stages")}
        for wish in (None, blocks):
            plan = gpu.plan(direction, config, *arrays, chip=chips.HOPPER, blocks=wish)
            plans.check(chips.HOPPER, plan.launches)
            batch, m = arrays[0].shape[0], arrays[1].shape[1]
            assert 0 <= plan.chunks * plan.examples - batch < plan.examples
            assert plan.slices * plan.tiling.first >= m > (plan.slices - 1) * plan.tiling.first
            for tiling in plan.tilings.values():
                assert tiling.first % tiling.j_block == 0
                assert tiling.second % tiling.k_block == 0
                assert 32 <= tiling.pairs <= 256
                alike = {"j_block": 1, "stages": 1, "ahead": 1, "warpgroups": 1}
                assert dataclasses.replace(tiling, **alike) == dataclasses.replace(plan.tiling, **alike)
            if direction == "backward":
                assert plan.tilings["pair_side"].pairs == gpu_tiles.PAIRS
                wide = any(array.dtype == jnp.float32 for array in arrays[:5])
                assert plan.tilings["pair_side"].ahead == 1 or not wide  # no registers are left for more
                assert (plan.output is None) == (arrays[3].dtype == jnp.float32)


def lowered_memory(monkeypatch, config, arrays) -> list[tuple[Any, str]]:
    """Both passes lower, and ask for the shared memory that was planned: returns their programs."""
    programs, asked, count = [], [], mosaic._smem_tree_size
    monkeypatch.setattr(mosaic, "_smem_tree_size", lambda buffers: asked.append(count(buffers)) or asked[-1])
    b, n, h, _ = arrays[0].shape
    out = jax.ShapeDtypeStruct((b, n, h, arrays[4].shape[1]), arrays[3].dtype)
    lse = jax.ShapeDtypeStruct((b, h, n), jnp.float32)
    for direction, more in (("forward", []), ("backward", [out, lse, out])):
        asked.clear()
        function = functools.partial(getattr(gpu, direction), config)
        traced = jax.jit(function).trace(*arrays, *more)
        programs.append((traced.jaxpr.jaxpr, traced.lower(lowering_platforms=("cuda",)).as_text()))
        plan = gpu.plan(direction, config, *arrays, chip=chips.HOPPER)
        assert set(asked) == {launch.memory for launch in plan.launches}
    return programs


def test_shared_memory_is_what_was_planned(monkeypatch):
    """A case that once took too much."""
    lowered_memory(monkeypatch, TRILINEAR, structs(Shape("", 2, 2, 70, 40, 128), np.float32, (2, 70, 40, 40)))


@pytest.mark.slow
def test_shared_memory_of_many_calls_is_what_was_planned(monkeypatch):
    rng = np.random.default_rng(1)
    for _ in range(40):
        with monkeypatch.context() as patch:
            lowered_memory(patch, *drawn(rng))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda t: t.__name__)
@pytest.mark.parametrize("shape", [shapes.VIRTUAL, shapes.VIRTUAL_64, shapes.FULL], ids=str)
def test_real_shapes_are_cut_by_their_memory_only(shape, dtype):
    """Default blocks fit, slices are long enough for a pipeline, and chunks fill the chip."""
    for direction in ("forward", "backward"):
        plan = gpu.plan(direction, UNSIGNED, *structs(shape, dtype), chip=chips.HOPPER)
        default = gpu.block_candidates(UNSIGNED, *structs(shape, dtype))[direction][0]
        for tiling in plan.tilings.values():
            assert (tiling.k_block, tiling.j_block, tiling.stages) == tuple(
                default[x] for x in ("k", "j", "stages")
            )
        assert plan.chunks * plan.examples == shape.batch
        assert plan.launches[-1].grid[0] * tiling.warpgroups >= 256


def test_blocks_of_64_keys_are_taken():
    arrays = structs(Shape("", 1, 2, 900, 64, 48), jnp.bfloat16)
    plan = gpu.plan("forward", UNSIGNED, *arrays, chip=chips.HOPPER, blocks={"k": 64, "j": 2, "stages": 2})
    assert {(tiling.k_block, tiling.j_block) for tiling in plan.tilings.values()} == {(64, 2)}


def test_a_chunk_of_a_large_batch_is_cut_by_its_memory():
    """Its sums and products take at most the bytes that a chunk has, and its slices fill a pipeline."""
    shape = Shape("", 512, 2, 900, 64, 48)
    for direction, products in (("forward", 1), ("backward", 2)):
        plan = gpu.plan(direction, UNSIGNED, *structs(shape, jnp.float32), chip=chips.HOPPER)
        numbers = plan.tiling.queries * (products * plan.tiling.second + plan.tiling.features)
        assert 4 * numbers * plan.examples * shape.heads <= gpu_plan.CHUNK_BYTES[direction]
        assert plan.tiling.first >= gpu_plan.SLICE_KEYS


@pytest.mark.slow  # the blockwise path's are a default test
@pytest.mark.parametrize("config", [Config("unsigned"), Config("trilinear"), Config("signed")], ids=str)
def test_gradients_of_16_bits_are_as_accurate_as_those_of_the_plain_path(config):
    """Softmaxes are sharp at a deviation of 1.6 and more."""
    for deviation in (0.5, 1.0, 1.6, 3.0):
        accurate(config, deviation)


def accurate(config, deviation):
    rng = np.random.default_rng(0)
    sizes = [(1, 12, 2, 48), *[(1, 10, 2, 48)] * 3]
    inputs = [jnp.asarray(rng.standard_normal(size) * deviation, jnp.bfloat16) for size in sizes]
    inputs.append(jnp.asarray(rng.standard_normal((2, 48, 48, 48)) / 48, jnp.bfloat16))
    dout = jnp.asarray(rng.standard_normal(sizes[0]), jnp.bfloat16)
    want = cases.expected(config, (*inputs, None), dout).gradients
    plain = jax.vjp(functools.partial(reference.plain, config), *inputs)[1](dout)
    got = both_passes(config, (), 0, (*inputs, None), dout)[2]
    for name, ours, theirs, exact in zip(cases.NAMES, got, plain, want, strict=True):
        assert cases.error(ours, exact) <= 2 * cases.error(theirs, exact), name


def test_both_passes_lower_for_cuda_and_keep_no_array_over_triples(monkeypatch):
    """Of 257 keys, of which copies did not lower once."""
    shape = Shape("", 2, 4, 1000, 257, 48)
    programs = lowered_memory(monkeypatch, UNSIGNED, structs(shape, jnp.bfloat16))
    for (traced, text), kernels in zip(programs, (1, 3), strict=True):
        assert text.count("stablehlo.custom_call @mosaic_gpu") == kernels
        outside = jaxprs.equations(traced, closed=("mpmd_map", "core_map", "pallas_call", "run_state"))
        assert max(v.aval.size for equation in outside for v in equation.outvars) < shape.triples / 4
