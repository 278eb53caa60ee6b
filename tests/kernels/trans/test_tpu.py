"""The TPU kernels, interpreted on a CPU as a TPU would run them, against float64 answers.

Memory that nothing was written to holds NaN, a read out of bounds or a race between steps of the grid raises.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import export
from jax.experimental.pallas import tpu as pltpu

from kernels import plans
from kernels.trans import shapes, tpu, tpu_tiles
from kernels.trans.api import trans
from kernels.trans.reference import Config, plain_head_major
from tests.kernels import tpu_launches
from tests.kernels.trans import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

STRICT = pltpu.InterpretParams(detect_races=True, uninitialized_memory="nan", out_of_bounds_reads="raise")
SMALL_TILES = {"heads": 1, "rows": 128, "columns": 128, "outputs": 128}


def compare(shape, dtype="float32", mask="none", interpret=STRICT, spread=3.0, **options):
    arrays, dout = cases.make(shape, dtype, mask, spread=spread)
    got = cases.run(tpu, shape.config, arrays, dout, interpret=interpret, **options)
    cases.assert_close(got, cases.answers(shape.config, arrays, dout), dtype)


@pytest.mark.parametrize(
    ("shape", "mask"),
    [
        (shapes.SMALL[0], "nothing allowed"),
        (shapes.SMALL[1], "heads"),
        (shapes.SMALL[2], "rows"),
        (shapes.SMALL[4], "full"),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_values_and_gradients(shape, mask):
    compare(shape, mask=mask)


@pytest.mark.parametrize(
    ("shape", "mask"),
    [
        (shapes.square("", 1, 1, 200), "none"),
        (shapes.Shape("", 1, 1, rows=130, columns=257, outputs=140, causal=True, row_offset=127), "padding"),
        (shapes.Shape("", 1, 1, rows=257, columns=130, outputs=9, causal=True, row_offset=-130), "none"),
    ],
    ids=["whole", "shard", "rows that see nothing"],
)
def test_many_tiles(shape, mask):
    """Running sums along every axis, tiles that are skipped and tiles that overhang; large logits, too."""
    compare(shape, mask=mask, blocks=SMALL_TILES, spread=3.0 if shape.causal else 60.0)


def test_bfloat16():
    compare(shapes.square("", 1, 1, 140), "bfloat16", "tokens", interpret=True, blocks=SMALL_TILES)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    heads=st.integers(1, 4),
    rows=st.integers(1, 140),
    columns=st.integers(1, 140),
    outputs=st.integers(1, 140),
    causal=st.booleans(),
    mask=st.sampled_from(tuple(cases.MASKS)),
)
def test_any_shape(heads, rows, columns, outputs, causal, mask):
    compare(shapes.Shape("", 1, heads, rows, columns, outputs, causal), mask=mask, blocks=SMALL_TILES)


def test_one_backward_kernel_for_many_rows():
    """Tiles that span A and Y: dP is kept while the rows go by, the last of which overhang."""
    whole = {"heads": 2, "rows": 128, "columns": 256, "outputs": 256}
    compare(shapes.Shape("", 1, 2, 200, 210, 220, True), mask="heads", blocks=whole)


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        (shapes.Shape("", 1, 2, rows=60, columns=70, outputs=50), None),
        (shapes.Shape("", 1, 2, rows=140, columns=150, outputs=130, causal=True), SMALL_TILES),
    ],
    ids=["one kernel", "three kernels"],
)
def test_gradients_of_16_bits_are_as_exact_as_those_of_the_plain_path(shape, blocks):
    """Relative errors at most twice those of autodiff, which rounds only its results."""
    rng = np.random.default_rng(0)

    @jax.jit
    def both(arrays, dout):
        out, lse = tpu.forward(shape.config, *arrays, None, blocks=blocks, interpret=True)
        got = tpu.backward(shape.config, *arrays, None, out, lse, dout, blocks=blocks, interpret=True)
        plain = functools.partial(plain_head_major, causal=shape.causal)
        # In float32 between 16-bit arguments and results.
        _, pull = jax.vjp(lambda *x: plain(*(a.astype(jnp.float32) for a in x)), *arrays)
        return got, pull(dout.astype(jnp.float32))

    for deviation in (0.5, 1.0, 1.6, 3.0):
        arrays = [
            jnp.asarray(deviation * rng.normal(size=x), jnp.bfloat16)
            for x in (shape.kernel_logits, shape.premise)
        ]
        dout = jnp.asarray(rng.normal(size=(1, 2, shape.rows, shape.outputs)), jnp.bfloat16)
        want = cases.answers(shape.config, (*map(np.asarray, arrays), None), np.asarray(dout))
        for name, *found in zip(("dkernel_logits", "dpremise"), *both(arrays, dout), strict=True):
            ours, plain = (np.linalg.norm(np.asarray(x, np.float64) - want[name]) for x in found)
            assert ours <= 2 * plain, (name, deviation, ours / plain)


def test_a_premise_alike_for_all_columns_gives_the_logits_no_gradient():
    """Delta is summed in float32: in 16 bits 257 products of 1 would add up to 256."""
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(1, 1, 3, 5)), jnp.bfloat16)
    ones = [jnp.ones((1, 1, n, 257), jnp.bfloat16) for n in (5, 3)]
    got = cases.run(tpu, Config(), (logits, ones[0], None), ones[1], interpret=True)
    np.testing.assert_array_equal(got["out"], ones[1])
    np.testing.assert_allclose(got["dkernel_logits"], 0, atol=1e-3)


def test_by_its_name_on_a_cpu():
    """Through the public function: values, gradients, vmap, in one program with checkpoint."""
    kernel_logits, premise = (jnp.asarray(x) for x in cases.make(shapes.square("", 2, 2, 9))[0][:2])

    def gradients(implementation):
        function = functools.partial(trans, causal=True, implementation=implementation)
        loss = jax.checkpoint(lambda *pair: (function(*pair) ** 2).sum())
        return jax.jit(jax.vmap(jax.value_and_grad(loss, (0, 1))))(kernel_logits, premise)

    for got, want in zip(
        jax.tree.leaves(gradients("tpu_interpret")), jax.tree.leaves(gradients("reference")), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        (shapes.REAL[0], "float32"),
        (shapes.REAL[2], "bfloat16"),
        (shapes.REAL[6], "float32"),
        (shapes.REAL[6], "bfloat16"),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_real_shapes_lower(shape, dtype):
    """To Mosaic, without a TPU. That the compiler takes it from there is for `make aot` to say."""
    arrays = [jax.ShapeDtypeStruct(x, jnp.dtype(dtype)) for x in (shape.kernel_logits, shape.premise)]

    def loss(kernel_logits, premise):
        return trans(kernel_logits, premise, causal=shape.causal, implementation="tpu").sum()

    exported = export.export(jax.jit(jax.grad(loss, (0, 1))), platforms=["tpu"])(*arrays)
    names = ["trans_forward", "trans_backward"]
    if shape.causal and shape.columns > 256 and dtype == "float32":
        names[1:] = ["trans_dkernel", "trans_dpremise"]
    for name in names:
        assert name in exported.mlir_module()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_default_tiles(direction, causal):
    """Divide the heads and are worth a step; candidates differ from each other."""
    for shape in shapes.REAL:
        config = Config(causal)
        kernel_logits = jax.ShapeDtypeStruct(shape.kernel_logits, jnp.float32)
        premise = jax.ShapeDtypeStruct(shape.premise, jnp.float32)
        blocks = tpu_tiles.default(config, kernel_logits, premise, direction)
        sides = [blocks[name] for name in ("rows", "columns", "outputs")]
        assert shape.heads % blocks["heads"] == 0
        assert all(side % 128 == 0 for side in sides)
        assert 4 * blocks["heads"] * sides[0] * max(sides[1:]) >= 2**16
        candidates = tpu.block_candidates(config, kernel_logits, premise)[direction]
        assert candidates[0] == blocks
        assert len({tuple(c.values()) for c in candidates}) == len(candidates)


@pytest.mark.parametrize(("shape", "mask"), [(shapes.REAL[2], (8, 1, 384, 1)), (shapes.REAL[6], None)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_real_shapes_run_as_planned(shape, dtype, mask):
    """Also when the columns are cut in two."""
    arrays = [jax.ShapeDtypeStruct(x, jnp.dtype(dtype)) for x in (shape.kernel_logits, shape.premise)]
    arrays = [*arrays, None if mask is None else jax.ShapeDtypeStruct(mask, bool)]
    outputs = jax.eval_shape(lambda *x: tpu.forward(shape.config, *x), *arrays)
    for blocks in (None, {"columns": 256}):
        tpu_launches.assert_planned(tpu, shape.config, arrays, outputs, blocks=blocks)


def test_every_call_inside_the_envelope_has_a_plan():
    rng = np.random.default_rng(0)
    for _ in range(25):
        batch, heads, rows, columns, outputs = (int(2 ** rng.uniform(0, 12)) for _ in range(5))
        mask = [size if rng.random() < 0.5 else 1 for size in (batch, heads, rows, columns)]
        arrays = [
            jax.ShapeDtypeStruct(size, jnp.dtype(rng.choice(["float32", "bfloat16"])))
            for size in ((batch, heads, rows, columns), (batch, heads, columns, outputs))
        ]
        arrays = [*arrays, jax.ShapeDtypeStruct(tuple(mask), bool) if rng.random() < 0.7 else None]
        for chip in tpu_launches.CHIPS:
            for direction in ("forward", "backward"):
                program = tpu.plan(direction, Config(bool(rng.random() < 0.5)), *arrays, chip=chip)
                tpu_launches.assert_within(chip, program.launches)
                for kernel in program.kernels:
                    assert heads % kernel.tiles.heads == 0
                    assert all(side % 128 == 0 for side in kernel.tiles.sides.values())


def test_given_blocks_are_made_to_suit_the_call():
    arrays = [jax.ShapeDtypeStruct((1, 6, 200, 200), jnp.float32)] * 2
    given = {"heads": 4, "rows": 4096, "columns": 100, "outputs": 1}
    (kernel,) = tpu.plan("forward", Config(), *arrays, None, chip=tpu_launches.CHIPS[0], blocks=given).kernels
    assert (kernel.tiles.heads, *kernel.tiles.sides.values()) == (3, 256, 128, 128)
    # A table's line for other sizes, whose tiles do not fit: the default is taken.
    arrays = [jax.ShapeDtypeStruct((1, 64, 2048, 2048), jnp.float32)] * 2
    huge = {"heads": 64, "rows": 2048, "columns": 2048, "outputs": 2048}
    found, default = (
        tpu.plan("forward", Config(), *arrays, None, chip=tpu_launches.CHIPS[0], blocks=blocks)
        for blocks in (huge, None)
    )
    assert found == default


@pytest.mark.parametrize(
    ("size", "longest", "side"),
    [(13, 512, 128), (384, 512, 384), (384, 256, 128), (600, 512, 384), (1000, 512, 512), (2000, 256, 256)],
)
def test_a_side_that_overhangs_little(size, longest, side):
    assert tpu_tiles.side(size, longest) == side


def fetched(tiles, order, axes):
    """How many tiles of an array a walk over the grid copies: one whenever the index changes."""
    indices = [tiles.spec(order, axes).index_map(*step) for step in np.ndindex(*tiles.grid(order))]
    indices = [tuple(map(int, index)) for index in indices]
    return 1 + sum(now != before for before, now in itertools.pairwise(indices))


def test_a_causal_mask_saves_fetches():
    """Of 16 tiles of the kernel 10 are on or below the diagonal; only they are copied in, whichever way."""
    kernel_logits = jax.ShapeDtypeStruct((1, 1, 512, 512), jnp.float32)
    blocks = {"heads": 1, "rows": 128, "columns": 128, "outputs": 512}
    whole, causal = (
        tpu_tiles.tiles(Config(causal), kernel_logits, kernel_logits, "forward", blocks)
        for causal in (False, True)
    )
    for order in ("XYA", "XAY", "AYX"):
        assert fetched(whole, order, "XA") == 16
        assert fetched(causal, order, "XA") == 10, order
    assert fetched(causal, "XYA", "AY") <= 10


@pytest.mark.parametrize(
    ("kernel_logits", "premise", "reason"),
    [
        (((1, 2, 4, 4), "float16"), ((1, 2, 4, 4), "float32"), "kernel_logits: got dtype float16"),
        (((1, 2, 4, 4), "float32"), ((1, 2, 4, 4), "float16"), "premise: got dtype float16"),
        (((1, 2, 4, 0), "float32"), ((1, 2, 0, 4), "float32"), "expected no empty axis"),
    ],
)
def test_what_it_does_not_do(kernel_logits, premise, reason):
    arrays = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in (kernel_logits, premise)]
    with pytest.raises(plans.Refused, match=reason):
        tpu.plan("forward", Config(), *arrays, None, chip=tpu_launches.CHIPS[0])


def test_refuses_what_fits_with_no_tiles_and_symbols():
    arrays = [jax.ShapeDtypeStruct((1, 2, 30, 30), jnp.float32)] * 2
    chip = dataclasses.replace(tpu_launches.CHIPS[0], memory=1 << 20)
    with pytest.raises(plans.Refused, match=r"VMEM: trans_backward needs [\d,]+ bytes, TPU v5e has 1,048,5"):
        tpu.plan("backward", Config(), *arrays, None, chip=chip)
    (x,) = export.symbolic_shape("x")
    arrays[0] = jax.ShapeDtypeStruct((1, 2, x, 30), jnp.float32)
    with pytest.raises(plans.Refused, match=r"kernel_logits: got shape \(1, 2, x, 30\), expected numbers"):
        tpu.plan("forward", Config(), *arrays, None, chip=tpu_launches.CHIPS[0])


def test_one_program_serves_any_batch():
    """A symbol of `jax.export`, of which nothing is computed; lowered forward and backward."""
    (batch,) = export.symbolic_shape("batch")
    arrays = [jax.ShapeDtypeStruct((batch, 2, 30, 30), jnp.float32)] * 2

    def gradients(*arrays):
        out, lse = tpu.forward(Config(), *arrays, None)
        return tpu.backward(Config(), *arrays, None, out, lse, out)

    exported = export.export(jax.jit(gradients), platforms=["tpu"])(*arrays)
    assert exported.mlir_module().count("tpu_custom_call") == 2
