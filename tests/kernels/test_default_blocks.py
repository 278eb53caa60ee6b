"""Recorded block sizes of the plain path for the shapes of real models, and the sizes of those shapes.

They change no value, so no other test notices a slip in the arithmetic that chooses them. They are what the
code chooses today, not what a machine was measured to prefer. Plans of hand-written kernels have tests of
their own.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from kernels.trans import shapes as trans_shapes
from kernels.trans import xla as trans_xla
from kernels.trilinear import shapes as trilinear_shapes
from kernels.trilinear import xla as trilinear_xla
from kernels.two_simplicial import shapes as two_shapes
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


# (batch, heads, queries, first keys) of a tile on a CPU, on an accelerator, and how many tilings are tried.
TWO_SIMPLICIAL = {
    "agent": ((1280, 1, 40, 2, 48), (80, 1, 40, 2), (1280, 1, 40, 2), 5),
    "virtual": ((8, 8, 1024, 32, 48), (2, 8, 64, 8), (8, 8, 256, 32), 19),
    "virtual-64": ((8, 8, 1024, 32, 64), (2, 8, 64, 8), (8, 8, 256, 32), 19),
    "full": ((8, 8, 256, 256, 64), (2, 8, 64, 1), (8, 8, 256, 4), 25),
    "virtual-small": ((2, 4, 1024, 32, 48), (2, 4, 128, 8), (2, 4, 1024, 32), 13),
    "full-128": ((2, 4, 128, 128, 32), (2, 4, 128, 2), (2, 4, 128, 8), 13),
    "full-small": ((2, 1, 256, 256, 32), (2, 1, 256, 1), (2, 1, 256, 4), 10),
}


@pytest.mark.parametrize("shape", dict.fromkeys((*two_shapes.ACCELERATOR, *two_shapes.CPU)), ids=str)
def test_two_simplicial_attention(shape):
    sizes, on_cpu, elsewhere, tilings = TWO_SIMPLICIAL[shape.name]
    assert named(shape) == (*sizes, None, None)
    b, h, n, m, d = sizes
    arrays: list[Any] = [
        *described((b, n, h, d), (b, m, h, d), (b, m, h, d), (b, m, h, d), (h, d, d, d)),
        None,
    ]
    for budget, want in ((two_xla.CPU, on_cpu), (two_xla.ACCELERATOR, elsewhere)):
        *blocks, strided = vars(xla_tiling.tiling(b, h, n, m, budget)).values()
        assert tuple(blocks) == want
        # On a CPU neighbours, which are not copied; elsewhere such that every device has a part of each.
        assert strided == (budget == two_xla.ACCELERATOR and want[:2] != (b, h))
    assert len(two_xla.block_candidates(Config(), *arrays)["forward"]) == tilings


# Sizes, and rows of a tile.
TRANS = {
    "pre-training": ((8, 64, 128), 128),
    "pre-training, few heads": ((32, 12, 128), 128),
    "SQuAD": ((8, 64, 384), 384),
    "FOLIO": ((8, 64, 512), 512),
    "FOLIO, few heads": ((8, 12, 512), 512),
    "decoder": ((8, 64, 128), 128),
    "decoder, long": ((8, 12, 512), 128),
}


@pytest.mark.parametrize("shape", trans_shapes.REAL, ids=lambda shape: shape.name)
def test_trans(shape):
    (batch, heads, tokens), rows = TRANS[shape.name]
    causal = shape.name.startswith("decoder")
    assert named(shape) == (batch, heads, tokens, tokens, tokens, causal, 0)
    arrays = described(shape.kernel_logits, shape.premise)
    assert trans_xla.block_candidates(shape.config, *arrays)["backward"][0] == {"rows": rows}


# B, N, H, G, D, windows: (positions, first keys, second keys) and how many are tried.
TRILINEAR = {
    (4, 1024, 64, 1, 128, 32, 512): ((7, 1, 519), 25),
    (4, 4096, 64, 1, 128, 32, 256): ((8, 1, 263), 24),
    (4, 4096, 64, 1, 128, 32, 512): ((7, 1, 519), 25),
    (4, 4096, 64, 1, 128, 32, 1024): ((4, 1, 1024), 25),
    (4, 4096, 128, 1, 128, 32, 512): ((3, 1, 519), 25),
    (4, 16384, 64, 1, 128, 32, 512): ((7, 1, 519), 25),
    (2, 2048, 16, 16, 64, 32, 256): ((64, 4, 319), 24),
    (1, 512, 8, 1, 64, 16, 128): ((16, 1, 143), 24),
    (1, 512, 4, 4, 64, 32, 128): ((64, 4, 191), 24),
    (1, 128, 4, 2, 32, None, None): ((64, 1, 128), 20),
    (1, 128, 4, 4, 32, None, None): ((64, 4, 128), 20),
}


@pytest.mark.parametrize("shape", [*trilinear_shapes.ACCELERATOR, *trilinear_shapes.CPU], ids=str)
def test_trilinear_attention(shape):
    *sizes, causal = named(shape)
    blocks, tried = TRILINEAR[tuple(sizes)]
    assert causal == (shape.name != "cpu, all pairs")
    query, key = described(shape.query, shape.key)
    arrays = query, *[key] * 4
    assert values(trilinear_xla.default_blocks(shape.config, query, key)) == blocks
    assert len(trilinear_xla.block_candidates(shape.config, *arrays)["forward"]) == tried


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
