"""The Hopper kernels of trans, interpreted on a CPU and lowered for a GPU that is not here."""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import PartitionSpec

from kernels import plans
from kernels.chips import HOPPER
from kernels.hopper import Kernel
from kernels.trans import gpu, gpu_backward
from kernels.trans.gpu_work import Work
from kernels.trans.reference import Config, trans
from kernels.trans.shapes import REAL, SMALL, Shape
from tests.kernels import gpu_launches
from tests.kernels.trans import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")

# More than one block of columns, sweep and tile, and none of them full.
RECTANGULAR = Shape("rectangular, several tiles", 1, 1, rows=70, columns=136, outputs=136)
# The last block of columns is seen by no row.
CAUSAL = Shape("shard of rows, causal", 1, 1, rows=136, columns=270, outputs=72, causal=True, row_offset=40)
UNSEEN = Shape("rows that see nothing", 1, 1, rows=130, columns=50, outputs=60, causal=True, row_offset=-70)


# Several pieces of work for each program, so that rings wrap around and positions continue between pieces.
TWO = dataclasses.replace(HOPPER, cores=2)
ONE = dataclasses.replace(HOPPER, cores=1)
# With room for so few tiles that the logits, du and the logits of columns are read again in every sweep.
LITTLE = dataclasses.replace(TWO, memory=51 * 1024)
LONG = Shape("long", 1, 1, rows=130, columns=200, outputs=130)
# The first row of a tile does not see its last column.
LONG_CAUSAL = Shape("long, causal", 1, 1, 130, 200, 66, causal=True, row_offset=62)
DIRECTIONS = ("forward", "backward")


def planned(direction, shape: Shape, chip=HOPPER, dtype="bfloat16", **options) -> gpu.Plan:
    return gpu.plan(direction, shape.config, *described(shape, dtype)[:2], chip=chip, **options)


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
        (UNSEEN, "bfloat16", "none"),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_values_and_gradients(shape, dtype, mask):
    got = check(shape, dtype, mask)
    if shape is UNSEEN:  # the first 70 rows have no column behind them
        for name in ("out", "lse", "dkernel_logits"):
            assert not np.any(np.asarray(got[name])[:, :, :70])


def stream(shape):
    plans = [planned(direction, shape, LITTLE) for direction in DIRECTIONS]
    assert [plan.sizes["held"] for plan in plans] == [2, 2]
    assert not plans[0].holds
    check(shape, mask="tokens", chip=LITTLE)


@pytest.mark.usefixtures("_few_slots")
def test_what_does_not_fit_is_streamed():
    stream(LONG_CAUSAL)


@pytest.mark.usefixtures("_few_slots")
@pytest.mark.slow
def test_everything_is_streamed_or_one_kind_of_work():
    """The ring may have room for du of the rows but not for the logits of the columns, or for neither."""
    stream(LONG)
    check(Shape("many rows", 1, 1, 200, 70, 70), chip=LITTLE)
    check(Shape("many outputs", 1, 1, 70, 70, 200), chip=LITTLE)


def test_gradients_are_as_accurate_as_those_of_the_definition():
    accurate(3.0)


@pytest.mark.slow
def test_gradients_of_smaller_arguments_are_as_accurate_as_those_of_the_definition():
    for deviation in (0.5, 1.0, 2.0):
        accurate(deviation)


def accurate(deviation):
    """At most twice the error of its derivative by JAX, which rounds nothing but the results.

    Large logits make weights of almost 1. With Delta from the rounded output this fails.
    """
    shape = Shape("deviation", 1, 1, 30, 64, 64)
    arrays, dout = cases.make(shape, "bfloat16", spread=4 * deviation)
    arrays = (arrays[0], (arrays[1] * deviation).astype(arrays[1].dtype), None)
    want = cases.answers(shape.config, arrays, dout)
    got = cases.run(gpu, shape.config, arrays, dout, interpret=True, chip=ONE)
    plain_gradients = jax.jit(lambda dout, *x: jax.vjp(lambda *x: trans(Config(), *x)[0], *x)[1](dout))
    plain_found = plain_gradients(dout, *arrays[:2])
    for name, plain in zip(("dkernel_logits", "dpremise"), plain_found, strict=True):
        assert cases.error(got[name], want[name]) <= 2 * cases.error(plain, want[name])


@pytest.mark.slow
def test_one_warpgroup_with_narrow_products_or_a_ring_too_small_for_a_whole_one():
    """Then the tiles of gradients leave one by one."""
    check(SMALL[4], blocks={"warpgroups": 1, "width": 64})
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
def test_small_shapes_and_every_mask_and_dtype():
    for shape, mask in zip(SMALL, cases.MASKS, strict=True):
        check(shape, mask=mask)
    check(SMALL[1], mask="full")
    check(CAUSAL, "float16", "tokens")


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


class Apart(NamedTuple):
    """Two buffers as a union has them, each with memory of its own."""

    first: Any
    second: Any

    @property
    def refs(self) -> tuple[Any, ...]:
        return tuple(self)


@pytest.mark.slow
def test_no_races(monkeypatch):
    """Every read of shared memory is ordered with the copies before and after it, fences included.

    The interpreter takes a union of buffers for one piece of memory, whatever slots they are used by, and
    would report tiles of different slots; so the two have memory of their own here, more than a chip has.
    """
    monkeypatch.setattr(gpu_backward, "union", Apart)
    monkeypatch.setattr(plans, "check", lambda chip, launches: None)
    shape = Shape("causal", 1, 1, 130, 130, 70, causal=True)
    for warpgroups in (1, 2):
        check(shape, blocks={"warpgroups": warpgroups, "width": 64}, chip=ONE)
    monkeypatch.setattr(gpu, "STREAMED_SLOTS", 2)
    check(LONG_CAUSAL, chip=LITTLE)


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


EXTREME = (
    (1, 1, 1, 1, 1),
    (100_000, 1, 64, 64, 64),
    (2, 3, 1, 8192, 1),
    (2, 3, 8192, 1, 1),
    (2, 3, 1, 1, 8192),
    (1, 2, 1281, 1281, 1281),
    (1, 2, 4097, 100, 2000),
    (1, 2, 100, 20_000, 70),
)


@pytest.mark.parametrize(
    "shape", [RECTANGULAR, UNSEEN, Shape("one token", 2, 3, 1, 1, 1)], ids=lambda shape: shape.name
)
def test_log_sum_exps_fill_whole_blocks(shape, monkeypatch):
    """The copy of a block's numbers is cut off at the end of the array, not of its row (seen on an H200)."""
    types = []

    def run(kernel, body, out_type, *arrays, interpret):
        types.append((kernel, out_type))
        return tuple(jnp.zeros(each.shape, each.dtype) for each in out_type)

    monkeypatch.setattr(Kernel, "run", run)
    jax.eval_shape(functools.partial(gpu.forward, shape.config), *described(shape)[:2], None)
    [(kernel, (_, lse))] = types
    assert lse.dtype == jnp.float32
    assert lse.shape[1] % (kernel.warpgroups * 64) == 0
    assert lse.shape[1] >= shape.rows


@pytest.mark.slow  # drawn calls are lowered by default
def test_lowers_for_cuda_as_planned():
    """Down to Mosaic's own code; `make aot` compiles it to machine code."""
    shapes = [Shape(str(sizes), *sizes, causal=causal) for sizes in EXTREME for causal in (False, True)]
    for shape in (REAL[6], Shape("long, causal", 1, 12, 8192, 8192, 8192, causal=True), *shapes):
        lower_as_planned(shape)


def lower_as_planned(shape):
    kernel_logits, premise, out, lse = described(shape)
    exported, memory = gpu_launches.allocated(
        lambda: lowered(functools.partial(_both, shape.config), kernel_logits, premise, out, lse)
    )
    assert exported.mlir_module().count("custom_call @mosaic_gpu_v2") == 2
    shapes = [output.shape for output in exported.out_avals]
    assert shapes == [out.shape, lse.shape, kernel_logits.shape, premise.shape]
    launches = [launch for direction in DIRECTIONS for launch in planned(direction, shape).launches]
    assert memory == {launch.name: launch.memory for launch in launches}


def test_lowers_inside_shard_map():
    """Results vary over the axes that the arguments vary over, which `check_vma` requires."""
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    function = functools.partial(_both, RECTANGULAR.config)
    specs = {"in_specs": PartitionSpec("data"), "out_specs": PartitionSpec("data")}
    exported = lowered(jax.shard_map(function, mesh=mesh, **specs), *described(RECTANGULAR))
    assert exported.mlir_module().count("custom_call @mosaic_gpu_v2") == 2


@hypothesis.settings(deadline=None, derandomize=True, max_examples=60)
@hypothesis.given(
    sizes=st.tuples(*[st.integers(1, 3000) | st.integers(1, 130) | st.integers(1, 200_000)] * 3),
    heads=st.integers(1, 100_000),
    dtype=st.sampled_from(gpu.DTYPES),
    direction=st.sampled_from(DIRECTIONS),
    warpgroups=st.integers(0, 3),
    width=st.sampled_from([0, 64, 100, 128, 256]),
    cores=st.sampled_from([78, 132]),
)
def test_every_call_has_a_plan_that_fits(sizes, heads, dtype, direction, warpgroups, width, cores):
    """With the blocks of another call, too. Rings have two slots at least, or all that are held."""
    shape, chip = Shape("", 1, heads, *sizes), dataclasses.replace(HOPPER, cores=cores)
    blocks = {"warpgroups": warpgroups, "width": width}
    for given in (None, blocks):
        plan = planned(direction, shape, chip, dtype, blocks=given)
        plans.check(chip, plan.launches)
        (launch,) = plan.launches
        assert launch.grid[0] <= cores
        least = {"out": 1}
        assert all(slots >= least.get(name, 2) for name, slots in plan.sizes.items() if name != "warpgroups")
        assert plan.holds == (-(-shape.columns // 64) <= plan.sizes["held"])
    if not blocks.items() <= plan.sizes.items():  # they did not suit the call
        assert plan == planned(direction, shape, chip, dtype)


@pytest.mark.parametrize("shape", [*SMALL, *REAL, RECTANGULAR, UNSEEN], ids=lambda shape: shape.name)
def test_candidates_are_planned_as_they_are(shape):
    candidates = gpu.block_candidates(shape.config, *described(shape)[:2])
    for direction in DIRECTIONS:
        found = [planned(direction, shape, blocks=blocks) for blocks in candidates[direction]]
        assert found[0] == planned(direction, shape)
        for plan, blocks in zip(found, candidates[direction], strict=True):
            assert blocks.items() <= plan.sizes.items()
            assert plan.sizes["held"] >= -(-shape.columns // 64)


def test_a_second_warpgroup_has_rows_of_the_larger_piece_of_work():
    wide, high = (Shape("", 1, 1, rows, columns, 64) for rows, columns in ((64, 128), (128, 64)))
    for shape in (wide, high):
        assert planned("backward", shape).sizes["warpgroups"] == 2
    assert [planned("forward", shape).sizes["warpgroups"] for shape in (wide, high)] == [1, 2]


def test_rows_are_held_as_long_as_they_fit():
    held = [planned("forward", Shape("", 1, 1, tokens, tokens, tokens)).holds for tokens in (512, 1280, 2000)]
    assert held == [True, True, False]


def test_every_piece_of_work_is_dealt_out_once():
    """The turn of blocks from head to head is a permutation, whatever the number of programs."""
    for batch, blocks, programs in itertools.product((1, 5, 40), (1, 3, 4), (1, 7, 12)):
        work = Work(Kernel("", (programs,), (), 2), batch, blocks)
        pieces = {tuple(map(int, work.piece(jnp.int32(item)))) for item in range(batch * blocks)}
        assert pieces == set(itertools.product(range(batch), range(blocks)))


def test_programs_meet_every_block():
    """Or under a causal mask one would have all the heavy ones."""
    work = Work(Kernel("", (132,), (), 2), 64, 4)
    for program in (0, 1, 131):
        items = range(program, 64 * 4, 132)
        assert len({int(work.piece(jnp.int32(item))[1]) for item in items}) == len(items)


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        (SMALL[1], "float32", "got dtypes float32, expected both bfloat16 or both float16"),
        (Shape("empty", 0, 1, 64, 64, 64), "bfloat16", "expected no empty axis"),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_says_what_it_does_not_support(shape, dtype, reason):
    for direction in DIRECTIONS:
        with pytest.raises(plans.Refused, match=reason):
            planned(direction, shape, dtype=dtype)


def test_two_types_are_refused():
    kernel_logits, premise, *_ = described(RECTANGULAR)
    other = jax.ShapeDtypeStruct(premise.shape, jnp.float16)
    with pytest.raises(plans.Refused, match="bfloat16"):
        gpu.plan("forward", RECTANGULAR.config, kernel_logits, other, chip=HOPPER)


def test_symbolic_sizes_are_refused():
    (batch,) = export.symbolic_shape("b")
    arrays = [jax.ShapeDtypeStruct((batch, 1, 8, 8), jnp.bfloat16)] * 2
    with pytest.raises(plans.Refused, match="symbolic sizes"):
        gpu.plan("forward", Config(), *arrays, chip=HOPPER)


def test_a_chip_with_too_little_memory_is_refused():
    with pytest.raises(plans.Refused, match="needs 59,392 bytes, the chip has 30,000"):
        planned("forward", SMALL[1], dataclasses.replace(HOPPER, memory=30_000))
