"""Recorded block sizes, candidates and memory for the shapes of real models, and the sizes of those shapes.

They change no value, so no other test notices a slip in the arithmetic that chooses them. They are what the
code chooses today, not what a chip was measured to prefer.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from kernels.chips import HOPPER
from kernels.trans import gpu as trans_gpu
from kernels.trans import shapes as trans_shapes
from kernels.trans import tpu as trans_tpu
from kernels.trans import xla as trans_xla
from kernels.trilinear import gpu as trilinear_gpu
from kernels.trilinear import shapes as trilinear_shapes
from kernels.trilinear import tpu as trilinear_tpu
from kernels.trilinear import tpu_plan
from kernels.trilinear import xla as trilinear_xla
from kernels.two_simplicial import gpu as two_gpu
from kernels.two_simplicial import shapes as two_shapes
from kernels.two_simplicial import tpu as two_tpu
from kernels.two_simplicial import xla as two_xla
from kernels.two_simplicial import xla_tiling
from kernels.two_simplicial.reference import Config


def described(*sizes, dtype=jnp.bfloat16) -> list[Any]:
    return [jax.ShapeDtypeStruct(size, dtype) for size in sizes]


def values(blocks):
    return tuple(blocks.values())


def named(shape):
    """The sizes of a shape, without its name."""
    return dataclasses.astuple(shape)[1:]


# B, H, N, M, D: (batch, heads, queries, first keys) of a tile on a CPU, on an accelerator, and how many
# tilings are worth a try; (queries, keys) on a TPU with the bytes of its three kernels; (k, j, stages) on a
# GPU, forward and backward.
TWO_SIMPLICIAL = {
    "agent": (
        (1280, 1, 40, 2, 48), (40, 1, 40, 2), (1280, 1, 40, 2), 5,
        [(128, 16), (128, 2)], (1212416, 1163264, 2547712), (16, 4, 2), (16, 4, 2), 6,
    ),
    "virtual": (
        (8, 8, 1024, 32, 48), (2, 8, 64, 8), (8, 8, 256, 32), 19,
        [(1024, 16), (512, 32), (1024, 8), (512, 16), (256, 32), (512, 8), (256, 16), (128, 32), (256, 8),
         (128, 16), (1024, 32), (128, 8)],
        (5373952, 4587520, 6946816), (32, 4, 2), (32, 2, 2), 6,
    ),
    "virtual-64": (
        (8, 8, 1024, 32, 64), (2, 8, 64, 8), (8, 8, 256, 32), 19,
        None, (5636096, 4784128, 7405568), (32, 4, 2), (32, 2, 2), 6,
    ),
    "full": (
        (8, 8, 256, 256, 64), (2, 8, 64, 1), (8, 8, 256, 4), 25,
        [(256, 8), (128, 8)], (6995968, 6438912, 10960896), (32, 4, 2), (32, 2, 2), 7,
    ),
    "virtual-small": (
        (2, 4, 1024, 32, 48), (2, 4, 128, 8), (2, 4, 1024, 32), 13,
        None, (5373952, 4587520, 6946816), (32, 4, 2), (32, 2, 2), 6,
    ),
    "full-128": (
        (2, 4, 128, 128, 32), (2, 4, 128, 2), (2, 4, 128, 8), 13,
        [(128, 8), (128, 16)], (2580480, 2449408, 4612096), (32, 4, 2), (32, 2, 2), 7,
    ),
    "full-small": (
        (2, 1, 256, 256, 32), (2, 1, 256, 1), (2, 1, 256, 4), 10,
        [(256, 8), (128, 8)], (6799360, 6275072, 10534912), (32, 4, 2), (32, 2, 2), 7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", dict.fromkeys((*two_shapes.ACCELERATOR, *two_shapes.CPU)), ids=str)
def test_two_simplicial_attention(shape):
    sizes, on_cpu, elsewhere, tilings, tiles, memory, forward, backward, tried = TWO_SIMPLICIAL[shape.name]
    assert named(shape) == (*sizes, None, None)
    b, h, n, m, d = sizes
    arrays: list[Any] = [
        *described((b, n, h, d), (b, m, h, d), (b, m, h, d), (b, m, h, d), (h, d, d, d)),
        None,
    ]
    for budget, want in ((two_xla.CPU, on_cpu), (two_xla.ACCELERATOR, elsewhere)):
        assert values(vars(xla_tiling.tiling(b, h, n, m, budget))) == want
    assert len(two_xla.block_candidates(Config(), *arrays)["forward"]) == tilings
    of_tpu = two_tpu.block_candidates(Config(), *arrays)["forward"]
    if tiles is not None:
        assert list(map(values, of_tpu)) == tiles
    assert values(two_tpu.vmem_bytes(Config(), *arrays, blocks=of_tpu[0])) == memory
    of_gpu = two_gpu.block_candidates(Config(), *arrays)
    assert [values(of_gpu[way][0]) for way in ("forward", "backward")] == [forward, backward]
    assert len(of_gpu["forward"]) == tried
    assert len(of_gpu["backward"]) == 2


# The sizes; rows of a tile of the plain path; (heads, X, A, Y) on a TPU and how many are tried, forward and
# backward; the slots of the three rings on a GPU with two warpgroups of products 128 wide.
TRANS = {
    "pre-training": ((8, 64, 128), 128, (8, 128, 128, 128), 2, (4, 128, 128, 128), 2, (6, 6, 2)),
    "pre-training, few heads": ((32, 12, 128), 128, (6, 128, 128, 128), 2, (4, 128, 128, 128), 2, (6, 6, 2)),
    "SQuAD": ((8, 64, 384), 384, (1, 384, 384, 384), 12, (1, 128, 384, 384), 9, (6, 6, 2)),
    "FOLIO": ((8, 64, 512), 512, (1, 512, 512, 512), 12, (1, 256, 512, 512), 9, (8, 4, 2)),
    "FOLIO, few heads": ((8, 12, 512), 512, (1, 512, 512, 512), 12, (1, 256, 512, 512), 9, (8, 4, 2)),
    "decoder": ((8, 64, 128), 128, (8, 128, 128, 128), 2, (4, 128, 128, 128), 2, (6, 6, 2)),
    "decoder, long": ((8, 12, 512), 128, (1, 512, 512, 512), 12, (1, 256, 512, 512), 9, (8, 4, 2)),
}


@pytest.mark.parametrize("shape", trans_shapes.REAL, ids=lambda shape: shape.name)
def test_trans(shape):
    (batch, heads, tokens), rows, forward, tried, backward, tried_back, slots = TRANS[shape.name]
    causal = shape.name.startswith("decoder")
    assert named(shape) == (batch, heads, tokens, tokens, tokens, causal, 0)
    arrays = described(shape.kernel_logits, shape.premise)
    assert trans_xla.block_candidates(shape.config, *arrays)["backward"][0] == {"rows": rows}
    of_tpu = trans_tpu.block_candidates(shape.config, *arrays)
    assert [values(of_tpu[way][0]) for way in ("forward", "backward")] == [forward, backward]
    assert [len(of_tpu[way]) for way in ("forward", "backward")] == [tried, tried_back]
    for direction, third in (("forward", "out"), ("backward", "passing")):
        plan = trans_gpu.plan(direction, shape.config, *arrays, chip=HOPPER)
        held, streamed, rest = slots
        assert plan.sizes == {"warpgroups": 2, "width": 128, "held": held, "streamed": streamed, third: rest}
    widths = [128, 64] if tokens == 128 else [128, 256, 64]
    of_gpu = trans_gpu.block_candidates(shape.config, *arrays)
    for way in ("forward", "backward"):
        want = [(warpgroups, width) for warpgroups in (2, 1) for width in widths]
        assert list(map(values, of_gpu[way])) == want


# B, N, H, G, D, windows: (positions, first keys, second keys) in plain JAX and how many are tried; (queries,
# heads, second keys) on a TPU and how many are tried, its segments with the rows before a segment, and all.
TRILINEAR = {
    (4, 1024, 64, 1, 128, 32, 512): ((7, 1, 519), 25, (128, 4, 640), 32, (1024, 1, 128, 1792)),
    (4, 4096, 64, 1, 128, 32, 256): ((8, 1, 263), 24, (128, 4, 384), 28, (4096, 1, 128, 4608)),
    (4, 4096, 64, 1, 128, 32, 512): ((7, 1, 519), 25, (128, 4, 640), 32, (2048, 2, 512, 3200)),
    (4, 4096, 64, 1, 128, 32, 1024): ((4, 1, 1024), 25, (128, 4, 384), 32, (4096, 1, 128, 4608)),
    (4, 4096, 128, 1, 128, 32, 512): ((3, 1, 519), 25, (128, 4, 640), 32, (2048, 2, 512, 3200)),
    (4, 16384, 64, 1, 128, 32, 512): ((7, 1, 519), 25, (128, 4, 640), 32, (3328, 5, 512, 4480)),
    (2, 2048, 16, 16, 64, 32, 256): ((64, 4, 319), 24, (256, 1, 512), 7, (2048, 1, 256, 2816)),
    (1, 512, 8, 1, 64, 16, 128): ((16, 1, 143), 24, (128, 4, 256), 20, (512, 1, 128, 896)),
    (1, 512, 4, 4, 64, 32, 128): ((64, 4, 191), 24, (256, 1, 384), 5, (512, 1, 256, 1152)),
    (1, 128, 4, 2, 32, None, None): ((64, 1, 128), 20, (128, 2, 128), 2, (128, 1, 128, 384)),
    (1, 128, 4, 4, 32, None, None): ((64, 4, 128), 20, (128, 1, 128), 1, (128, 1, 0, 256)),
}


@pytest.mark.parametrize("shape", [*trilinear_shapes.ACCELERATOR, *trilinear_shapes.CPU], ids=str)
def test_trilinear_attention(shape):
    *sizes, causal = named(shape)
    blocks, tried, tile, tried_tiles, segments = TRILINEAR[tuple(sizes)]
    assert causal == (shape.name != "cpu, all pairs")
    query, key = described(shape.query, shape.key)
    arrays = query, *[key] * 4
    assert values(trilinear_xla.default_blocks(shape.config, query, key)) == blocks
    assert len(trilinear_xla.block_candidates(shape.config, *arrays)["forward"]) == tried
    candidates = trilinear_tpu.block_candidates(shape.config, *arrays)["forward"]
    assert values(candidates[0]) == tile
    assert len(candidates) == tried_tiles
    plan = tpu_plan.make_plan(shape.config, query, key)
    assert plan is not None
    assert (plan.segment, plan.segments, plan.front, plan.rows) == segments


def test_blocks_of_the_trilinear_backward_kernels_on_a_gpu():
    assert trilinear_gpu.BACKWARD_CANDIDATES == ({"stages": 3}, {"stages": 2})


# What records of checks call by name (`results/kernels`), so that a name means the same sizes in all of them.
CHECKED = {
    "two_simplicial, tiny": (2, 2, 5, 3, 6, 4, 7),
    "two_simplicial, one": (1, 1, 1, 1, 3, 1, 1),
    "two_simplicial, odd": (1, 3, 37, 11, 9, 5, 3),
    "two_simplicial, wide": (1, 1, 130, 18, 48, None, None),
    "two_simplicial, pair": (6, 1, 40, 2, 48, None, None),
    "two_simplicial, deep": (1, 1, 20, 35, 12, 8, 10),
    "trans, one token": (2, 3, 1, 1, 1, False, 0),
    "trans, odd": (2, 2, 13, 13, 13, False, 0),
    "trans, odd, causal": (2, 2, 13, 13, 13, True, 0),
    "trans, two tiles and a bit, causal": (1, 2, 33, 33, 33, True, 0),
    "trans, rectangular": (1, 2, 5, 18, 11, False, 0),
    "trans, second shard of rows, causal": (1, 2, 9, 18, 10, True, 9),
    "trans, rows before the first column, causal": (1, 1, 8, 6, 7, True, -3),
    "trilinear, one position": (2, 1, 2, 1, 4, 1, 1, True),
    "trilinear, tiny, all pairs": (2, 5, 4, 2, 6, None, None, False),
    "trilinear, tiny, all the past": (1, 7, 2, 2, 5, None, None, True),
    "trilinear, windows": (2, 37, 4, 2, 8, 3, 9, True),
    "trilinear, windows the other way": (1, 37, 3, 3, 8, 9, 3, True),
    "trilinear, itself and a window": (1, 20, 2, 1, 4, 1, 6, True),
    "trilinear, a window and all the past": (1, 33, 2, 1, 7, 4, None, True),
    "trilinear, wider than the sequence": (1, 19, 2, 2, 3, 30, 100, True),
    "trilinear, many heads a group": (1, 18, 12, 1, 16, 4, 8, True),
    "trilinear, several tiles": (1, 150, 2, 1, 8, 5, 40, True),
    "trilinear, several tiles, all pairs": (1, 41, 1, 1, 4, None, None, False),
}


def test_shapes_of_checks_keep_their_sizes():
    folders = {"two_simplicial": two_shapes, "trans": trans_shapes, "trilinear": trilinear_shapes}
    found = {
        f"{name}, {shape.name}": named(shape) for name, folder in folders.items() for shape in folder.SMALL
    }
    assert found == CHECKED
