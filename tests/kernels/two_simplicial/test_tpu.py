"""The TPU kernels of 2-simplicial attention on a CPU: interpreted, and lowered for TPUs.

That they compile for TPUs is shown by `make aot`, which needs a compiler that is not among the dependencies.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental.pallas import tpu as pltpu

from kernels import plans
from kernels.two_simplicial import api, reference, shapes, tpu, tpu_layout, tpu_pieces, tpu_tiles
from kernels.two_simplicial.reference import LOGITS, Config
from kernels.two_simplicial.shapes import Shape
from tests.kernels import tpu_launches
from tests.kernels.two_simplicial import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

UNSIGNED, TRILINEAR, SIGNED = cases.CONFIGS

# A tile smaller than the shape in both directions: several steps of every loop, and none of them whole.
TILED = Shape("tiled", batch=2, heads=3, queries=133, keys=17, features=6, value_features=5, out_features=4)
SMALL_BLOCKS = (("keys", 8), ("queries", 128))
NARROW_BLOCKS = (("keys", 2), ("queries", 128))


@pytest.fixture
def narrow_tiles(monkeypatch):
    """Tiles of 2 x 16 pairs, fewer than a chip can load: a program writes out the loop over first keys."""
    monkeypatch.setattr(tpu, "_suiting", lambda blocks, arrays: dict(blocks))
    monkeypatch.setattr(tpu, "_partners", lambda arrays: 16)


# Compiling an interpreted kernel takes seconds, running it none: the compiler need not do its best.
UNOPTIMISED = {"xla_backend_optimization_level": 0}


def both_passes(config, arrays, dout, blocks=None, interpret=True):
    blocks = None if blocks is None else dict(blocks)
    out, lse = tpu.forward(config, *arrays, blocks=blocks, interpret=interpret)
    return out, lse, tpu.backward(config, *arrays, out, lse, dout, blocks=blocks, interpret=interpret)


run = jax.jit(both_passes, static_argnames=("config", "blocks", "interpret"), compiler_options=UNOPTIMISED)


def check(config, arrays, tolerance, **options):
    dout = cases.cotangent(arrays)
    got = run(config, arrays, dout, **options)
    assert got[0].dtype == arrays[3].dtype
    assert got[1].dtype == jnp.float32
    assert [g.dtype for g in got[2]] == [a.dtype for a in arrays[:5]]
    cases.check_answer(got, cases.expected(config, arrays, dout), tolerance)


@pytest.mark.usefixtures("narrow_tiles")
def test_unsigned_values_and_gradients_with_a_mask_of_triples_and_degenerate_vectors():
    """In one program."""
    for kind in ("normal", *cases.DEGENERATE):
        check(UNSIGNED, cases.arrays(TILED, kind=kind, mask="some rows"), 1e-5, blocks=NARROW_BLOCKS)
    query, *others = cases.arrays(TILED, kind="large", mask="some rows")
    # Powers of less than the largest logit of a row would overflow.
    check(UNSIGNED, (60 * query, *others), 1e-3, blocks=NARROW_BLOCKS)


@pytest.mark.usefixtures("narrow_tiles")
def test_signed_values_and_gradients_of_16_bits_with_one_mask_for_all_examples():
    check(SIGNED, cases.arrays(TILED, mask="causal", dtype=jnp.bfloat16), 8e-3, blocks=NARROW_BLOCKS)


@pytest.mark.usefixtures("narrow_tiles")
def test_signed_values_and_gradients_with_products_of_one_first_key_at_a_time(monkeypatch):
    monkeypatch.setattr(tpu_tiles, "PRODUCT_ROWS", 8)
    arrays = cases.arrays(Shape("products", 1, 1, 3, 17, 3, 2, 2), mask="triangle")
    plan = tpu.plan("forward", SIGNED, *arrays, chip=tpu_launches.CHIPS[0], blocks=dict(NARROW_BLOCKS))
    assert plan.launches[0].grid == (1, 1, 9, 2)
    check(SIGNED, arrays, 1e-5, blocks=NARROW_BLOCKS)


@pytest.mark.usefixtures("narrow_tiles")
def test_trilinear_keys_of_16_bits_and_values_of_32_in_pieces_of_the_batch_and_of_the_heads(monkeypatch):
    """Products of keys are not rounded to 16 bits, or logits would be wrong in the third digit.

    Three examples in pieces of two fill the last piece with zeros; gradients of bilinear are summed.
    """
    monkeypatch.setattr(tpu_pieces, "ROOM", 0)
    monkeypatch.setattr(tpu_pieces, "FEWEST", 6)
    *keys, value, bilinear, mask = cases.arrays(Shape("pieces", 3, 9, 3, 3, 3, 2, 2), mask="padding")
    keys = (jnp.asarray(a, jnp.bfloat16) for a in keys)
    arrays = (*keys, value, bilinear, mask)
    cut = tpu_pieces.cut_to(TRILINEAR, arrays)
    assert (cut.examples, cut.piece_heads) == (2, 3)
    plan = tpu.plan("backward", TRILINEAR, *arrays, chip=tpu_launches.CHIPS[0], blocks=dict(NARROW_BLOCKS))
    assert plan.launches[0].grid == (6, 1, 2, 1)
    dout = cases.cotangent(arrays)
    out, lse, gradients = run(TRILINEAR, arrays, dout, blocks=NARROW_BLOCKS)
    want = cases.expected(TRILINEAR, arrays, dout)
    cases.check(out, want.out, 1e-5)
    cases.check(lse, want.lse, 1e-5)
    for gradient, array, expected in zip(gradients, arrays, want.gradients, strict=False):
        assert gradient.dtype == array.dtype
        cases.check(gradient, expected, 1e-5 if array.dtype == np.float32 else 4e-3)


def test_many_second_keys_are_cut_into_tiles(monkeypatch):
    monkeypatch.setattr(tpu, "PARTNERS", 128)
    arrays = _shaped(Shape("", 1, 1, 3, 130, 3, 2, 2))
    plan = tpu.plan("forward", SIGNED, *arrays, chip=tpu_launches.CHIPS[0]).spec.plan
    assert (plan.partners, plan.second) == (128, 256)


def test_pieces_are_as_large_as_there_is_room_for():
    def groups(shape, **sizes):
        cut = tpu_pieces.cut_to(UNSIGNED, cases.arrays(dataclasses.replace(shape, **sizes)))
        assert cut.examples * -(-cut.batch // cut.examples) < cut.batch + cut.examples
        return cut.examples * cut.piece_heads

    # A group has the maps of its keys, [M, E, F], and for unsigned logits also [M, N] and [M, M], twice.
    numbers = 200 * 8 * 128 + 2 * 200 * (1024 + 256)
    examples = 3 * tpu_pieces.ROOM // (4 * numbers)
    cut = tpu_pieces.cut_to(UNSIGNED, _shaped(Shape("", examples, 1, 1000, 200, 8, 8, 8)))
    assert -(-cut.batch // cut.examples) == 4
    assert groups(shapes.FULL) == tpu_pieces.FEWEST
    assert groups(shapes.FULL, batch=1, heads=1) == 1
    assert groups(shapes.AGENT, batch=337) == 169  # not pieces of one: 337 is a prime
    assert groups(shapes.VIRTUAL) == 8
    assert groups(shapes.TINY) == shapes.TINY.batch * shapes.TINY.heads


@pytest.mark.slow  # the blockwise path's are a default test
@pytest.mark.parametrize("logit", ["unsigned", "trilinear", "signed"])
def test_gradients_of_16_bits_are_as_exact_as_those_of_the_plain_path(logit):
    """Relative errors at most twice those of autodiff, which rounds only its results; logits up to 9,000."""
    config, shape = Config(logit), Shape("", 1, 1, 128, 12, 48)
    plain = jax.jit(
        lambda inputs, dout: jax.vjp(functools.partial(reference.plain, config), *inputs)[1](dout),
        compiler_options=UNOPTIMISED,
    )
    *inputs, _ = cases.arrays(shape, dtype=jnp.bfloat16)
    for deviation in (0.5, 1.0, 1.6, 3.0):
        arrays = [
            jnp.asarray(deviation * x.astype(jnp.float32) / jnp.std(x.astype(jnp.float32)), jnp.bfloat16)
            for x in inputs[:4]
        ]
        arrays = (*arrays, inputs[4], None)
        dout = cases.cotangent(arrays)
        got = run(config, arrays, dout)[2]
        want = cases.expected(config, arrays, dout).gradients
        for name, one, other, exact in zip(cases.NAMES, got, plain(arrays[:5], dout), want, strict=True):
            allowed = 2 * cases.error(other, exact, floor=1e-9)
            cases.check(one, exact, allowed, f"gradient of {name} at {deviation}", floor=1e-9)


@pytest.mark.slow
def test_neither_races_nor_reads_out_of_bounds_nor_uses_what_was_not_written(capfd):
    """Several tiles both ways, with every check of the TPU interpreter, parallel steps in random order."""
    careful = pltpu.InterpretParams(
        detect_races=True, out_of_bounds_reads="raise", uninitialized_memory="nan", random_seed=0
    )
    shape = dataclasses.replace(TILED, batch=1, heads=2)
    for config, mask in ((UNSIGNED, "some rows"), (TRILINEAR, "none")):
        check(config, cases.arrays(shape, mask=mask), 1e-5, blocks=SMALL_BLOCKS, interpret=careful)
    assert "RACE DETECTED" not in capfd.readouterr().out


@pytest.mark.slow
@given(
    n=st.integers(1, 140),
    m=st.integers(1, 20),
    d=st.integers(1, 4),
    e=st.integers(1, 9),
    f=st.integers(1, 9),
    config=st.sampled_from(cases.CONFIGS),
    mask=st.sampled_from(cases.MASKS),
)
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
def test_drawn_shapes(n, m, d, e, f, config, mask):
    shape = Shape("drawn", 2, 1, n, m, 3 * d, e, f)
    check(config, cases.arrays(shape, mask=mask), 1e-5)


@pytest.mark.slow
def test_every_small_shape_logit_and_mask_in_pairs():
    """Every mask with every logit, and with some shape; every shape with every logit."""
    shape = itertools.cycle((*shapes.SMALL, shapes.DEEP))  # seven shapes and eight masks: no pair comes twice
    for mask, config in itertools.product(cases.MASKS, cases.CONFIGS):
        check(config, cases.arrays(next(shape), mask=mask), 1e-5)


# ---- through the public function
# --------------------------------------------------------------


def test_public_function_with_batch_dimensions_and_vmap():
    """Of the values; `tests/kernels/test_dispatch.py` has gradients."""
    query, key1, key2, value, bilinear = (jnp.asarray(a) for a in cases.arrays(shapes.TINY)[:5])

    options: Any = {"scale": cases.SOFT.scale, "eps": cases.SOFT.eps, "implementation": "tpu_interpret"}

    def one(q, a, b, v):
        return api.two_simplicial_attention(q, a, b, v, bilinear, **options)

    mapped = jax.jit(jax.vmap(one), compiler_options=UNOPTIMISED)
    arrays = query, key1, key2, value, bilinear, None
    want = cases.expected(cases.SOFT, arrays, cases.cotangent(arrays)).out
    cases.check(mapped(query, key1, key2, value), want, 1e-5)


@pytest.mark.parametrize(
    ("config", "dtype"), [(UNSIGNED, jnp.float32), (SIGNED, jnp.bfloat16)], ids=["unsigned", "signed"]
)
def test_lowers_for_tpus_where_there_is_none(config, dtype):
    """Which runs Mosaic's checks of blocks and operations; every kind of mask. Others: `test_envelope`."""
    masks = ("none", "padding", "random") if dtype == jnp.float32 else ("random",)

    def function(*cases_of_masks):
        return [
            both_passes(config, (*arrays, mask), dout, interpret=False)
            for *arrays, mask, dout in cases_of_masks
        ]

    given_arrays = []
    for mask in masks:
        arrays = cases.arrays(TILED, mask=mask, dtype=dtype)
        given_arrays.append((*arrays, cases.cotangent(arrays)))
    exported = jax.export.export(jax.jit(function), platforms=["tpu"])(*given_arrays)
    kernels = exported.mlir_module().count("tpu_custom_call")
    assert kernels == (3 if dtype == jnp.float32 else 4) * len(masks)


@pytest.mark.parametrize("config", [UNSIGNED, TRILINEAR], ids=lambda config: config.logit)
def test_vectors_of_one_number_lower_for_tpus(config):
    """Of 16 bits, of which Mosaic refuses some products of vectors."""
    arrays = _shaped(Shape("", 1, 1, 5, 9, 1, 1, 1), jnp.bfloat16)
    dout = jax.ShapeDtypeStruct((1, 5, 1, 1), jnp.bfloat16)
    function = functools.partial(both_passes, config, interpret=False)
    exported = jax.export.export(jax.jit(function), platforms=["tpu"])(arrays, dout)
    assert exported.mlir_module().count("tpu_custom_call") == 4


def test_a_mask_differs_between_queries_if_it_has_an_axis_of_them():
    plan = tpu.plan("forward", UNSIGNED, *_shaped(shapes.TINY), chip=tpu_launches.CHIPS[0]).spec.plan
    m = shapes.TINY.keys
    assert tpu_layout.triple_mask(jnp.ones((1, 1, m, m), bool), plan) is None
    two = jax.eval_shape(lambda mask: tpu_layout.triple_mask(mask, plan), jnp.ones((1, 2, m, m), bool))
    assert (two.shape[:3], two.dtype) == ((1, plan.first, plan.second), jnp.int8)


# ---- what it takes and refuses
# ----------------------------------------------------------------


def _shaped(shape: Shape, dtype: Any = jnp.float32, mask: bool = False) -> tuple[Any, ...]:
    b, h, n, m, d = shape.batch, shape.heads, shape.queries, shape.keys, shape.features
    sizes = ((b, n, h, d), (b, m, h, d), (b, m, h, d), (b, m, h, shape.e), (h, shape.f, shape.e, shape.e))
    arrays = [jax.ShapeDtypeStruct(size, dtype) for size in sizes]
    return *arrays, jax.ShapeDtypeStruct((b, n, m, m), jnp.bool_) if mask else None


@pytest.mark.parametrize(
    ("config", "dtype"),
    [(UNSIGNED, jnp.bfloat16), (TRILINEAR, jnp.float32), (SIGNED, jnp.bfloat16)],
    ids=["unsigned", "trilinear", "signed"],
)
def test_real_shapes_run_as_planned(config, dtype):
    for shape in shapes.ACCELERATOR[:1] if config.logit == "trilinear" else shapes.ACCELERATOR[1:2]:
        arrays = _shaped(shape, dtype, mask=config.logit == "signed")
        outputs = jax.eval_shape(lambda *x: tpu.forward(config, *x), *arrays)
        tpu_launches.assert_planned(tpu, config, arrays, outputs)


def drawn(rng: np.random.Generator) -> tuple[Config, tuple[Any, ...]]:
    """A call inside the envelope: logit, sizes, dtypes and the shape of a mask."""
    config = Config(LOGITS[rng.integers(3)])
    d, e, f = (int(rng.integers(1, 129)) for _ in range(3))
    d = max(3, d // 3 * 3) if config.logit == "signed" else d
    b, n, h = int(rng.integers(1, 2000)), int(rng.integers(1, 5000)), int(rng.integers(1, 65))
    low, high = ((1, 17), (8, 600), (512, 4097), (4096, 4097))[rng.integers(4)]
    m = int(rng.integers(low, high))
    keys, values = (jnp.dtype(rng.choice(["float32", "bfloat16"])) for _ in range(2))
    sizes = ((b, n, h, d), (b, m, h, d), (b, m, h, d), (b, m, h, e), (h, f, e, e))
    arrays = [jax.ShapeDtypeStruct(s, t) for s, t in zip(sizes, [keys] * 3 + [values] * 2, strict=True)]
    mask = [size if rng.random() < 0.5 else 1 for size in (b, n, m, m)]
    return config, (*arrays, jax.ShapeDtypeStruct(tuple(mask), bool) if rng.random() < 0.7 else None)


def test_every_call_inside_the_envelope_has_a_plan():
    rng = np.random.default_rng(0)
    for _ in range(60):
        config, arrays = drawn(rng)
        for chip in tpu_launches.CHIPS:
            for direction in ("forward", "backward"):
                program = tpu.plan(direction, config, *arrays, chip=chip)
                tpu_launches.assert_within(chip, program.launches)
                sizes, m = program.spec.plan, arrays[1].shape[1]
                assert sizes.padded_queries - arrays[0].shape[1] < sizes.queries
                assert sizes.first >= m <= sizes.second
                assert sizes.queries % 128 == sizes.first % sizes.keys == sizes.second % sizes.partners == 0
                assert sizes.keys % 8 == 0 or sizes.keys == m
                assert sizes.partners % 128 == 0 or sizes.partners == sizes.second


def test_given_blocks_are_made_to_suit_the_call():
    arrays = _shaped(dataclasses.replace(TILED, keys=11))
    for blocks, want in (
        ({"queries": 512, "keys": 64}, (256, 16)),
        ({"queries": 100, "keys": 3}, (128, 8)),
        ({}, (128, 8)),
    ):
        sizes = tpu.plan("backward", UNSIGNED, *arrays, chip=tpu_launches.CHIPS[0], blocks=blocks).spec.plan
        assert (sizes.queries, sizes.keys) == want
    # A table's line for other sizes, of which no tile fits: the default is taken.
    arrays = _shaped(Shape("", 1, 1, 8192, 512, 128))
    huge = {"queries": 8192, "keys": 512}
    for direction in ("forward", "backward"):
        found, default = (
            tpu.plan(direction, TRILINEAR, *arrays, chip=tpu_launches.CHIPS[1], blocks=b).spec.plan
            for b in (huge, None)
        )
        assert found == default


@pytest.mark.parametrize(("second", "sizes"), [(8, [8]), (24, [8] * 3), (48, [16] * 3), (64, [32] * 2)])
def test_strips_of_at_most_32_pairs_stay_in_registers(second, sizes):
    arrays = _shaped(TILED)
    spec = tpu._spec(UNSIGNED, arrays, {"queries": 128, "keys": 8})
    spec = dataclasses.replace(spec, plan=dataclasses.replace(spec.plan, partners=second))
    strips = tpu_tiles.strips(spec, jnp.int32(3))
    assert [rows.size for rows, _ in strips] == [keys.size for _, keys in strips] == sizes
    assert [int(rows.start) for rows, _ in strips] == [3 * second + n * sizes[0] for n in range(len(sizes))]
    assert [keys.start for _, keys in strips] == [n * sizes[0] for n in range(len(sizes))]


@pytest.mark.parametrize(
    ("config", "shape", "dtype", "reason"),
    [
        (UNSIGNED, shapes.TINY, jnp.float16, "query: got dtype float16, expected float32 or bfloat16"),
        (UNSIGNED, shapes.TINY, jnp.float64, "query: got dtype float64"),
        (Config(scale=-1.0), shapes.TINY, jnp.float32, "scale: got -1.0"),
        (UNSIGNED, Shape("", 1, 1, 128, 4097, 48), jnp.float32, "M: got 4,097, expected at most 4,096"),
        (UNSIGNED, Shape("", 1, 1, 128, 8, 129, 4, 4), jnp.float32, "D: got 129, expected at most 128"),
        (UNSIGNED, Shape("", 1, 1, 128, 8, 4, 129, 4), jnp.float32, "E: got 129"),
        (UNSIGNED, Shape("", 1, 1, 128, 8, 4, 4, 129), jnp.float32, "F: got 129"),
    ],
)
def test_says_what_it_cannot_do(config, shape, dtype, reason):
    with jax.enable_x64(True), pytest.raises(plans.Refused, match=reason):
        tpu.plan("forward", config, *_shaped(shape, dtype), chip=tpu_launches.CHIPS[0])


def test_any_scale_that_is_not_negative_is_planned():
    assert tpu.plan("forward", Config(scale=0.0), *_shaped(TILED), chip=tpu_launches.CHIPS[0]).launches


def test_refuses_what_fits_with_no_tiles_and_symbols():
    chip = dataclasses.replace(tpu_launches.CHIPS[0], memory=1 << 20)
    with pytest.raises(
        plans.Refused, match=r"two_simplicial_forward needs [\d,]+ bytes, TPU v5e has 1,048,5"
    ):
        tpu.plan("forward", UNSIGNED, *_shaped(TILED), chip=chip)
    (n,) = jax.export.symbolic_shape("n")
    query, *others = _shaped(TILED)
    query = jax.ShapeDtypeStruct((2, n, 3, 6), query.dtype)
    with pytest.raises(plans.Refused, match=r"query: got shape \(2, n, 3, 6\), expected numbers"):
        tpu.plan("forward", UNSIGNED, query, *others, chip=tpu_launches.CHIPS[0])


def test_a_named_kernel_that_cannot_run_here_fails_loudly():
    *arrays, _ = cases.arrays(shapes.TINY)
    with pytest.raises(NotImplementedError, match="platform: got 'cpu', expected 'tpu'"):
        api.two_simplicial_attention(*arrays, implementation="tpu")
    *arrays, _ = cases.arrays(shapes.TINY, dtype=np.float16)
    with pytest.raises(NotImplementedError, match="float16"):
        api.two_simplicial_attention(*arrays, implementation="tpu_interpret")
