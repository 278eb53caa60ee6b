"""trans for TPUs (Pallas, Mosaic): softmax in the prologue of the product, forward and backward.

A step of the grid holds a tile of the kernel [X, A] in vector memory, rows in sublanes and the reduced index
in lanes, of several heads when the tiles are small. The forward pass, here, walks along A with a running
maximum and sum. The backward pass, in `tpu_backward`, computes the softmax again from the log-sum-exp.

Tiles that overhang the end of an array are cut off by masks, not by padded copies. With a causal mask the
tiles after the diagonal are neither computed nor fetched.

Letters: B batch, H heads, X rows, A the reduced index, Y columns of the premise.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from kernels.chips import DEFAULT, Chip
from kernels.plans import Planned
from kernels.tables import Direction
from kernels.trans import tpu_backward, tpu_tiles
from kernels.trans.reference import Config
from kernels.trans.tpu_tiles import Here, Kernel, Tiles

LOWEST = float(jnp.finfo(jnp.float32).min)


def plan(
    direction: Direction,
    config: Config,
    *arrays: Any,
    chip: Chip,
    blocks: Mapping[str, int] | None = None,
) -> Planned:
    """Plans a call for a chip: `tpu_tiles.planned` with the kernels of a direction."""
    kernels = _kernels if direction == "forward" else tpu_backward.kernels
    return Planned(tpu_tiles.planned(direction, config, arrays, chip, blocks, kernels))


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Block sizes worth a try, the default first: heads a step, and the sides of a tile along X, A and Y."""
    return {way: tpu_tiles.candidates(config, arrays[0], arrays[1], way) for way in ("forward", "backward")}


def forward(
    config: Config,
    *arrays: Any,
    chip: Chip = DEFAULT["tpu"],
    blocks: Mapping[str, int] | None = None,
    interpret: Any = False,
) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """`reference.trans`, its arrays and results.

    Args:
        config: static settings.
        *arrays: kernel_logits, premise and mask or None.
        chip: the TPU that it is planned for.
        blocks: "heads" (divides H), and "rows", "columns", "outputs", the sides of a tile, multiples of 128.
        interpret: run on a CPU; True, or `pltpu.InterpretParams`.
    """
    (kernel,) = plan("forward", config, *arrays, chip=chip, blocks=blocks).kernels
    out, lse = tpu_tiles.run(kernel, arrays[:2], arrays[2], interpret)
    return out, lse[:, :, 0]


def backward(
    config: Config,
    *operands: Any,
    chip: Chip = DEFAULT["tpu"],
    blocks: Mapping[str, int] | None = None,
    interpret: Any = False,
) -> tuple[Float[Array, "B H X A"], Float[Array, "B H A Y"]]:
    """Gradients of kernel_logits and premise from `forward`'s arrays, its results and the cotangent."""
    program = plan("backward", config, *operands[:3], chip=chip, blocks=blocks)
    return tpu_backward.gradients(program.kernels, *operands, interpret=interpret)


def _kernels(tiles: Tiles, kernel_logits: Any, premise: Any, mask: Any) -> tuple[Kernel, ...]:
    return (
        Kernel(
            "trans_forward",
            _forward,
            tiles,
            "XYA",
            (("XA", kernel_logits.dtype), ("AY", premise.dtype)),
            None if mask is None else mask.shape,
            # The log-sum-exp lies in lanes: a column a row would be padded to 128 of them.
            (("XY", premise.dtype), ("1X", jnp.float32)),
            running=("X1", "X1", "XY"),  # maximum, sum and product so far
        ),
    )


def _forward(tiles: Tiles, here: Here, inputs, mask, outputs, running):
    kernel, premise = inputs
    out, lse = outputs

    def step(before):
        """The maximum, sum and product over the columns so far, given those `before` (None at the start)."""
        logits = tiles.logits(here, kernel, mask)
        maximum = jnp.maximum(jnp.max(logits, axis=2, keepdims=True), LOWEST if before is None else before[0])
        powers = jnp.exp(logits - maximum)
        total = jnp.sum(powers, axis=2, keepdims=True)
        product = tpu_tiles.product(powers, tiles.inside(here, "AY", premise), 2, 1)
        if before is None:
            return maximum, total, product
        shrink = jnp.exp(before[0] - maximum)
        return maximum, total + shrink * before[1], product + shrink * before[2]

    def finish(maximum, total, product):
        # The greatest power is 1: only the sum of a row with nothing allowed is below, and its product is 0.
        out[...] = (product / jnp.maximum(total, 1.0)).astype(out.dtype)
        ends = jnp.where(total > 0, maximum + jnp.log(jnp.maximum(total, 1.0)), 0.0)
        lse[...] = jnp.swapaxes(ends, 1, 2)

    if not running:
        finish(*step(None))
        return

    @pl.when(here.begins)
    def _():
        for ref, value in zip(running, (LOWEST, 0.0, 0.0), strict=True):
            ref[...] = jnp.full(ref.shape, value, ref.dtype)

    @pl.when(tiles.computed(here))
    def _():
        for ref, value in zip(running, step([ref[...] for ref in running]), strict=True):
            ref[...] = value

    @pl.when(here.ends)
    def _():
        finish(*(ref[...] for ref in running))
