"""The Hopper kernels of trans, interpreted on a CPU and lowered for a GPU that is not here."""

import functools
import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.sharding import PartitionSpec

from kernels.trans import gpu
from kernels.trans.gpu_pipeline import Work
from kernels.trans.reference import Config
from kernels.trans.shapes import REAL, SMALL, Shape
from tests.kernels.trans import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# More than one block of rows, sweep and tile, and none of them full.
RECTANGULAR = Shape("rectangular, several tiles", 1, 1, rows=200, columns=136, outputs=172)
# The last block of columns is seen by no row.
CAUSAL = Shape("shard of rows, causal", 1, 1, rows=136, columns=270, outputs=72, causal=True, row_offset=40)
UNSEEN = Shape("rows that see nothing", 1, 1, rows=150, columns=80, outputs=66, causal=True, row_offset=-70)


# Several pieces of work for each program, so that rings wrap around and positions continue between pieces.
TWO = dataclasses.replace(HOPPER, cores=2)
# With room for so few tiles that the logits, du and the logits of columns are read again in every sweep.
LITTLE = dataclasses.replace(TWO, memory=51 * 1024)
LONG = Shape("long", 1, 1, rows=130, columns=200, outputs=130)
LONG_CAUSAL = Shape("long, causal", 1, 1, 130, 200, 130, causal=True, row_offset=30)


@pytest.fixture
def _few_slots(monkeypatch):
    monkeypatch.setattr(gpu, "STREAMED_SLOTS", 2)


def check(shape: Shape, dtype: str = "bfloat16", mask: str = "none", chip=TWO, **options) -> dict:
    """Values and gradients, interpreted, against the float64 answers for the same 16-bit inputs."""
    arrays, dout = cases.make(shape, dtype, mask)
    got = cases.run(gpu, shape.config, arrays, dout, interpret=True, chip=chip, **options)
    cases.assert_close(got, cases.answers(shape.config, arrays, dout), dtype)
    # Only weights and results are rounded to 16 bits: the log-sum-exp has float32's digits.
    assert cases.error(got["lse"], cases.answers(shape.config, arrays, dout)["lse"]) < 1e-6
    return got


@pytest.mark.parametrize(
    ("shape", "dtype", "mask"),
    [
        (RECTANGULAR, "bfloat16", "none"),
        pytest.param(CAUSAL, "float16", "tokens", marks=pytest.mark.slow),
        (UNSEEN, "bfloat16", "none"),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_values_and_gradients(shape, dtype, mask):
    got = check(shape, dtype, mask)
    if shape is UNSEEN:  # the first 70 rows have no column behind them
        for name in ("out", "lse", "dkernel_logits"):
            assert not np.any(np.asarray(got[name])[:, :, :70])


@pytest.mark.usefixtures("_few_slots")
@pytest.mark.parametrize(
    "shape", [LONG_CAUSAL, pytest.param(LONG, marks=pytest.mark.slow)], ids=lambda x: x.name
)
def test_what_does_not_fit_is_streamed(shape):
    plans = [planned(direction, shape, LITTLE) for direction in ("forward", "backward")]
    assert [plan.sizes["held"] for plan in plans] == [2, 2]
    assert not plans[0].holds
    check(shape, mask="tokens", chip=LITTLE)


@pytest.mark.usefixtures("_few_slots")
@pytest.mark.slow
def test_one_kind_of_work_is_held_and_the_other_is_not():
    """The ring has room for du of the rows but not for the logits of the columns."""
    check(Shape("many rows", 1, 1, 200, 70, 70), chip=LITTLE)
    check(Shape("many outputs", 1, 1, 70, 70, 200), chip=LITTLE)


DEVIATIONS = (0.5, 1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    "deviation", [*(pytest.param(x, marks=pytest.mark.slow) for x in DEVIATIONS[:-1]), DEVIATIONS[-1]]
)
def test_gradients_are_as_accurate_as_those_of_the_definition(deviation):
    """At most twice the error of its derivative by JAX, which rounds nothing but the results.

    Large logits make weights of almost 1. With Delta from the rounded output this fails.
    """
    shape = Shape("deviation", 1, 1, 64, 130, 70)
    arrays, dout = cases.make(shape, "bfloat16", spread=4 * deviation)
    arrays = (arrays[0], (arrays[1] * deviation).astype(arrays[1].dtype), None)
    want = cases.answers(shape.config, arrays, dout)
    got = cases.run(gpu, shape.config, arrays, dout, interpret=True)
    _, pullback = jax.vjp(lambda *x: trans(Config(), *x)[0], *map(jnp.asarray, arrays[:2]))
    for name, plain in zip(("dkernel_logits", "dpremise"), pullback(jnp.asarray(dout)), strict=True):
        assert cases.error(got[name], want[name]) <= 2 * cases.error(plain, want[name])


@pytest.mark.slow
def test_a_mask_of_batch_heads_rows_and_columns():
    check(SMALL[1], mask="full")


@pytest.mark.slow
def test_one_warpgroup_and_narrow_products():
    check(SMALL[4], blocks={"warpgroups": 1, "width": 64})


@pytest.mark.slow
def test_a_ring_too_small_for_a_whole_product():
    """Then the tiles of gradients leave one by one."""
    shape, blocks = Shape("wide", 1, 1, 70, 130, 200), {"warpgroups": 1, "width": 256}
    small = dataclasses.replace(TWO, memory=115 * 1024)
    assert planned("backward", shape, small, blocks=blocks).sizes["passing"] == 2
    check(shape, blocks=blocks, chip=small)


def test_logits_far_apart_and_minus_infinity():
    """The maximum is the row's own, and a logit of -inf is a masked one."""
    arrays, dout = cases.make(SMALL[1], "bfloat16", spread=200.0)
    arrays[0][0, 0, 0, 1:] = -np.inf
    mask = np.isfinite(arrays[0].astype(np.float32))
    got = cases.run(gpu, Config(), (*arrays[:2], None), dout, interpret=True, chip=TWO)
    finite = np.where(mask, arrays[0], np.zeros_like(arrays[0]))
    cases.assert_close(got, cases.answers(Config(), (finite, arrays[1], mask), dout), "bfloat16")


@pytest.mark.slow
def test_small_shapes_and_every_mask():
    for shape, mask in zip(SMALL, cases.MASKS, strict=True):
        check(shape, mask=mask)


@pytest.mark.slow
@hypothesis.settings(deadline=None, derandomize=True, max_examples=8)
@hypothesis.given(
    rows=st.integers(1, 300),
    columns=st.integers(1, 300),
    outputs=st.integers(1, 300),
    row_offset=st.none() | st.integers(-150, 150),
    warpgroups=st.sampled_from([1, 2]),
    width=st.sampled_from([64, 128, 256]),
)
def test_drawn_sizes(rows, columns, outputs, row_offset, warpgroups, width):
    shape = Shape("drawn", 2, 1, rows, columns, outputs, row_offset is not None, row_offset or 0)
    blocks = {"warpgroups": warpgroups, "width": width}
    check(shape, blocks=blocks)


@pytest.mark.slow
def test_one_program_does_all_the_work():
    """Every ring goes around many times and the kinds of work of the backward pass follow each other."""
    check(Shape("six heads", 2, 3, 130, 130, 130, causal=True), chip=ONE)


@pytest.mark.slow
def test_no_races(monkeypatch):
    """Every read of shared memory is ordered with the copies before and after it, fences included.

    The interpreter takes a union of buffers for one piece of memory, whatever slots they are used by, and
    would report tiles of different slots; so the two have memory of their own here.
    """
    monkeypatch.setattr(gpu_backward, "union", lambda *refs: refs)
    shape = Shape("causal", 1, 1, 130, 130, 70, causal=True)
    for warpgroups in (1, 2):
        check(shape, blocks={"warpgroups": warpgroups, "width": 64}, chip=ONE)
    monkeypatch.setattr(gpu, "STREAMED_SLOTS", 2)
    check(LONG_CAUSAL, chip=dataclasses.replace(LITTLE, memory=68 * 1024))


# ---- without running it
# -------------------------------------------------------------------------------------------


def described(shape: Shape, dtype="bfloat16"):
    """kernel_logits, premise, out, lse of a shape, as shapes."""
    out = (*shape.kernel_logits[:3], shape.outputs)
    sizes = [(shape.kernel_logits, dtype), (shape.premise, dtype), (out, dtype), (out[:3], "float32")]
    return [jax.ShapeDtypeStruct(size, jnp.dtype(kind)) for size, kind in sizes]


def _both(config, kernel_logits, premise, out, lse):
    forward = gpu.forward(config, kernel_logits, premise, None)
    return forward, gpu.backward(config, kernel_logits, premise, None, out, lse, out)


def lowered(function, *arguments):
    """The function for a GPU."""
    safe = [export.DisabledSafetyCheck.custom_call("mosaic_gpu_v2")]
    return export.export(jax.jit(function), platforms=["cuda"], disabled_checks=safe)(*arguments)


@pytest.mark.parametrize("shape", [REAL[6], RECTANGULAR], ids=lambda shape: shape.name)
def test_lowers_for_cuda(shape):
    """Down to Mosaic's own code; `make aot` compiles it to machine code."""
    kernel_logits, premise, out, lse = described(shape)

    exported = lowered(functools.partial(_both, shape.config), kernel_logits, premise, out, lse)
    assert exported.mlir_module().count("custom_call @mosaic_gpu_v2") == 2
    shapes = [output.shape for output in exported.out_avals]
    assert shapes == [out.shape, lse.shape, kernel_logits.shape, premise.shape]


def test_lowers_inside_shard_map():
    """Results vary over the axes that the arguments vary over, which `check_vma` requires."""
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    function = functools.partial(_both, RECTANGULAR.config)
    specs = {"in_specs": PartitionSpec("data"), "out_specs": PartitionSpec("data")}
    exported = lowered(jax.shard_map(function, mesh=mesh, **specs), *described(RECTANGULAR))
    assert exported.mlir_module().count("custom_call @mosaic_gpu_v2") == 2


@pytest.mark.parametrize("shape", [*SMALL, *REAL, RECTANGULAR, UNSEEN], ids=lambda shape: shape.name)
def test_candidates_fit_into_shared_memory(shape):
    kernel_logits, premise, _, _ = described(shape)
    candidates = gpu.block_candidates(shape.config, kernel_logits, premise)
    rows, columns, outputs = shape.rows, shape.columns, shape.outputs
    plans = {
        "forward": functools.partial(gpu._plan, "out", held=columns, streamed=outputs, rows=rows),
        "backward": functools.partial(gpu._plan, "passing", **gpu._backward_sizes(rows, columns, outputs)),
    }
    for direction, plan in plans.items():
        assert candidates[direction], direction
        assert all(plan(blocks).items() >= blocks.items() for blocks in candidates[direction])
        assert plan(None) == plan(candidates[direction][0])
    for blocks in candidates["forward"]:
        slots = plans["forward"](blocks)
        tile = 64 * 64 * 2
        used = tile * slots["warpgroups"] * (slots["held"] + slots["out"])
        used += tile * slots["width"] // 64 * slots["streamed"]
        assert used <= gpu.SHARED_BYTES
        assert slots["held"] >= -(-columns // 64)
        assert slots["streamed"] >= 2


def test_blocks_of_a_smaller_shape_give_way():
    """A table's line may come from a call of half the size, whose blocks do not fit this one."""
    sizes = {"held": 1280, "streamed": 1280, "rows": 1280}
    plan = gpu._plan("out", {"warpgroups": 2, "width": 256}, **sizes)
    assert plan == gpu._plan("out", None, **sizes)
    assert plan["warpgroups"] == 1


def test_every_piece_of_work_is_dealt_out_once():
    """The turn of blocks from head to head is a permutation, whatever the number of programs."""
    for batch, blocks, programs in itertools.product((1, 5, 40), (1, 3, 4), (1, 7, 12)):
        work = Work(batch, blocks, 2, programs)
        pieces = {tuple(map(int, work.piece(jnp.int32(item)))) for item in range(batch * blocks)}
        assert pieces == set(itertools.product(range(batch), range(blocks)))


def test_programs_meet_every_block():
    """Or under a causal mask one would have all the heavy ones."""
    work = Work(64, 4, 2, programs=132)
    for program in (0, 1, 131):
        items = range(program, 64 * 4, work.launched)
        assert len({int(work.piece(jnp.int32(item))[1]) for item in items}) == len(items)


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        (SMALL[1], "float32", "float16"),
        (Shape("long", 1, 1, 64, 1281, 64), "bfloat16", "1280"),
        (Shape("many rows", 1, 1, 1281, 64, 64), "bfloat16", "1280"),
        (Shape("many outputs", 1, 1, 64, 64, 1281), "bfloat16", "1280"),
        (Shape("empty", 0, 1, 64, 64, 64), "bfloat16", "empty"),
    ],
)
def test_says_what_it_does_not_support(shape, dtype, reason):
    kernel_logits, premise, _, _ = described(shape, dtype)
    assert reason in str(gpu.unsupported(shape.config, kernel_logits, premise, None))


LONGEST = Shape("longest", 1, 1, 1280, 1280, 1280)


@pytest.mark.parametrize("shape", [*SMALL, *REAL, LONGEST], ids=lambda shape: shape.name)
def test_supports_all_named_shapes(shape):
    kernel_logits, premise, _, _ = described(shape)
    assert gpu.unsupported(shape.config, kernel_logits, premise, None) is None
