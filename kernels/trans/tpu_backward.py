"""Gradients of trans on a TPU: the softmax S is computed again from the log-sum-exp.

    dS = dU P^T                 summed over y
    dK = S * (dS - Delta)       Delta = sum_y dU * U
    dP = S^T dU                 summed over x

Where a tile of the kernel spans all of A, and one of the result all of Y (most calls with 512 tokens and
less), one kernel walks along the rows, writes dK on its way and keeps dP: every array is read or written
once. Otherwise there are two kernels, one that owns tiles of dK and one that owns tiles of dP, each with a
softmax of its own, so that nothing is added to from two places.

Letters: B batch, H heads, X rows, A the reduced index, Y columns of the premise.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from kernels.trans import tpu_tiles
from kernels.trans.reference import Config
from kernels.trans.tpu_tiles import Here, Tiles


def backward(
    config: Config, *operands: Any, blocks: Mapping[str, int] | None = None, interpret: Any = False
) -> tuple[Float[Array, "B H X A"], Float[Array, "B H A Y"]]:
    """Gradients of kernel_logits and premise from `tpu.forward`'s arrays, its results and the cotangent."""
    kernel_logits, premise, mask, out, lse, dout = operands
    tiles = tpu_tiles.tiles(config, kernel_logits, premise, "backward", blocks)
    kernel, result, gradient = (kernel_logits, "XA"), (out, "XY"), (dout, "XY")
    ends = (lse[:, :, None], "1X")
    dkernel, dpremise = ("XA", kernel_logits.dtype), ("AY", premise.dtype)
    if tiles.count("A") == tiles.count("Y") == 1:
        dkernel_logits, dpremise = tpu_tiles.run(
            _both,
            tiles,
            "AYX",
            [kernel, (premise, "AY"), result, gradient, ends],
            mask,
            [dkernel, dpremise],
            running=("AY",),
            name="trans_backward",
            interpret=interpret,
        )
        return dkernel_logits, dpremise
    (dkernel_logits,) = tpu_tiles.run(
        _dkernel,
        tiles,
        "XAY",
        [kernel, (premise, "AY"), result, gradient, ends],
        mask,
        [dkernel],
        running=("XA", "X1"),  # dS and Delta so far
        name="trans_dkernel",
        interpret=interpret,
    )
    (dpremise,) = tpu_tiles.run(
        _dpremise,
        tiles,
        "AYX",
        [kernel, gradient, ends],
        mask,
        [dpremise],
        running=("AY",),
        name="trans_dpremise",
        interpret=interpret,
    )
    return dkernel_logits, dpremise


def _both(tiles: Tiles, here: Here, inputs, mask, outputs, running):
    kernel, premise, out, dout, ends = inputs
    dkernel, dpremise = outputs
    softmax = _softmax(tiles, here, kernel, mask, ends)
    dsoftmax, delta = _dsoftmax(tiles, here, premise, out, dout)
    dkernel[...] = (softmax * (dsoftmax - delta)).astype(dkernel.dtype)
    _add_up(here, dpremise, running, lambda: _dpremise_part(tiles, here, softmax, dout))


def _dkernel(tiles: Tiles, here: Here, inputs, mask, outputs, running):
    kernel, premise, out, dout, ends = inputs
    (dkernel,) = outputs

    def finish(dsoftmax, delta):
        softmax = _softmax(tiles, here, kernel, mask, ends)
        dkernel[...] = (softmax * (dsoftmax - delta)).astype(dkernel.dtype)

    if not running:

        @pl.when(tiles.computed(here))
        def _():
            finish(*_dsoftmax(tiles, here, premise, out, dout))

        @pl.when(jnp.logical_not(tiles.computed(here)))
        def _():
            dkernel[...] = jnp.zeros_like(dkernel)

        return

    @pl.when(here.begins)
    def _():
        for ref in running:
            ref[...] = jnp.zeros_like(ref)

    @pl.when(tiles.computed(here))
    def _():
        for ref, part in zip(running, _dsoftmax(tiles, here, premise, out, dout), strict=True):
            ref[...] += part

    @pl.when(here.ends)
    def _():
        finish(*(ref[...] for ref in running))  # where nothing was computed the softmax is 0, and so is dK


def _dpremise(tiles: Tiles, here: Here, inputs, mask, outputs, running):
    kernel, dout, ends = inputs

    def part():
        return _dpremise_part(tiles, here, _softmax(tiles, here, kernel, mask, ends), dout)

    _add_up(here, outputs[0], running, part, tiles.computed(here))


def _add_up(here: Here, output, running, part, wanted: Any = True):
    """Writes the sum of part() along the innermost axis; a step not `wanted` has nothing to add."""
    if not running:
        output[...] = part().astype(output.dtype)
        return
    (total,) = running

    @pl.when(here.begins)
    def _():
        total[...] = jnp.zeros_like(total)

    @pl.when(wanted)
    def _():
        total[...] += part()

    @pl.when(here.ends)
    def _():
        output[...] = total[...].astype(output.dtype)


def _softmax(tiles: Tiles, here: Here, kernel, mask, ends):
    """S on a tile from its rows' log-sum-exp, which lies in lanes and is turned into sublanes."""
    return jnp.exp(tiles.logits(here, kernel, mask) - jnp.swapaxes(tiles.inside(here, "1X", ends), 1, 2))


def _dsoftmax(tiles: Tiles, here: Here, premise, out, dout):
    """What the tile's columns y add to dS and to Delta."""
    gradient = tiles.inside(here, "1Y", dout)
    dsoftmax = tpu_tiles.product(gradient, tiles.inside(here, "1Y", premise), 2, 2)
    both = gradient.astype(jnp.float32) * tiles.inside(here, "1Y", out).astype(jnp.float32)
    return dsoftmax, jnp.sum(both, axis=2, keepdims=True)


def _dpremise_part(tiles: Tiles, here: Here, softmax, dout):
    """What the tile's rows x add to dP."""
    return tpu_tiles.product(softmax, tiles.inside(here, "X1", dout), 1, 1)
