"""Gradients of trans on a TPU: the softmax S is computed again from the log-sum-exp.

    dS = dU P^T                 summed over y
    dK = S * (dS - Delta)       Delta = sum_a S * dS = sum_y dU * U
    dP = S^T dU                 summed over x

Where a tile of the kernel spans all of A, and one of the result all of Y (most calls with 512 tokens and
less), one kernel walks along the rows, writes dK on its way and keeps dP: every array is read or written
once. Otherwise there are two kernels, one that owns tiles of dK and one that owns tiles of dP, each with a
softmax of its own, so that nothing is added to from two places. Delta from a result that was saved in 16 bits
would be wrong by much of dS - Delta; in that case a third kernel sums S * dS first.

Letters: B batch, H heads, X rows, A the reduced index, Y columns of the premise.
"""

from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from kernels.trans import tpu_tiles
from kernels.trans.tpu_tiles import Here, Kernel, Tiles


def kernels(tiles: Tiles, kernel_logits: Any, premise: Any, mask: Any) -> tuple[Kernel, ...]:
    """The kernels of the backward pass: one, or those of Delta (if needed), dK and dP."""
    kernel, given = ("XA", kernel_logits.dtype), ("AY", premise.dtype)
    gradient, row = ("XY", premise.dtype), ("1X", jnp.float32)
    shape = None if mask is None else mask.shape
    inputs = kernel, given, gradient, row
    if tiles.count("A") == tiles.count("Y") == 1:
        return (
            Kernel("trans_backward", _both, tiles, "AYX", inputs, shape, (kernel, given), running=("AY",)),
        )
    deltas = Kernel("trans_deltas", _deltas, tiles, "XAY", inputs, shape, (row,), summed=2)
    return (
        *((deltas,) if premise.dtype == jnp.bfloat16 else ()),
        Kernel("trans_dkernel", _dkernel, tiles, "XAY", (*inputs, row), shape, (kernel,), running=("XA",)),
        Kernel(
            "trans_dpremise",
            _dpremise,
            tiles,
            "AYX",
            (kernel, gradient, row),
            shape,
            (given,),
            running=("AY",),
        ),
    )


def gradients(
    kernels: tuple[Kernel, ...],
    kernel_logits: Array,
    premise: Array,
    mask: Array | None,
    out: Array,
    lse: Array,
    dout: Array,
    *,
    interpret: Any,
) -> tuple[Float[Array, "B H X A"], Float[Array, "B H A Y"]]:
    """Runs them: gradients of kernel_logits and premise."""
    dout, ends = dout.astype(premise.dtype), lse[:, :, None]
    arrays = [kernel_logits, premise, dout, ends]
    if len(kernels) == 1:
        dkernel_logits, dpremise = tpu_tiles.run(kernels[0], arrays, mask, interpret)
        return dkernel_logits, dpremise
    *deltas, dkernel, dpremise = kernels
    delta = jnp.sum(dout.astype(jnp.float32) * out.astype(jnp.float32), axis=3)[:, :, None]
    for kernel in deltas:
        (delta,) = tpu_tiles.run(kernel, arrays, mask, interpret)
    (dkernel_logits,) = tpu_tiles.run(dkernel, [*arrays, delta], mask, interpret)
    (dpremise_found,) = tpu_tiles.run(dpremise, [kernel_logits, dout, ends], mask, interpret)
    return dkernel_logits, dpremise_found


def _both(tiles: Tiles, here: Here, inputs, mask, outputs, running):
    kernel, premise, dout, ends = inputs
    dkernel, dpremise = outputs
    softmax = _softmax(tiles, here, kernel, mask, ends)
    dsoftmax = _dsoftmax(tiles, here, premise, dout)
    delta = jnp.sum(softmax * dsoftmax, axis=2, keepdims=True)
    dkernel[...] = (softmax * (dsoftmax - delta)).astype(dkernel.dtype)
    _add_up(here, dpremise, running, lambda: _dpremise_part(tiles, here, softmax, dout))


def _deltas(tiles: Tiles, here: Here, inputs, mask, outputs, running):
    del running
    kernel, premise, dout, ends = inputs
    (delta,) = outputs

    @pl.when((here.tile["A"] == 0) & (here.tile["Y"] == 0))
    def _():
        delta[...] = jnp.zeros_like(delta)

    @pl.when(tiles.computed(here))
    def _():
        part = _softmax(tiles, here, kernel, mask, ends) * _dsoftmax(tiles, here, premise, dout)
        delta[...] += jnp.swapaxes(jnp.sum(part, axis=2, keepdims=True), 1, 2)


def _dkernel(tiles: Tiles, here: Here, inputs, mask, outputs, running):
    kernel, premise, dout, ends, delta = inputs
    (dkernel,) = outputs

    def finish(dsoftmax):
        softmax = _softmax(tiles, here, kernel, mask, ends)
        dkernel[...] = (softmax * (dsoftmax - _column(tiles, here, delta))).astype(dkernel.dtype)

    if not running:

        @pl.when(tiles.computed(here))
        def _():
            finish(_dsoftmax(tiles, here, premise, dout))

        @pl.when(jnp.logical_not(tiles.computed(here)))
        def _():
            dkernel[...] = jnp.zeros_like(dkernel)

        return

    (total,) = running

    @pl.when(here.begins)
    def _():
        total[...] = jnp.zeros_like(total)

    @pl.when(tiles.computed(here))
    def _():
        total[...] += _dsoftmax(tiles, here, premise, dout)

    @pl.when(here.ends)
    def _():
        finish(total[...])  # where nothing was computed the softmax is 0, and so is dK


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


def _column(tiles: Tiles, here: Here, row):
    """A number a row, which lies in lanes, turned into sublanes."""
    return jnp.swapaxes(tiles.inside(here, "1X", row), 1, 2)


def _softmax(tiles: Tiles, here: Here, kernel, mask, ends):
    """S on a tile from its rows' log-sum-exp."""
    return jnp.exp(tiles.logits(here, kernel, mask) - _column(tiles, here, ends))


def _dsoftmax(tiles: Tiles, here: Here, premise, dout):
    """What the tile's columns y add to dS; 0 where it overhangs."""
    return tpu_tiles.product(tiles.inside(here, "1Y", dout), tiles.inside(here, "AY", premise), 2, 2)


def _dpremise_part(tiles: Tiles, here: Here, softmax, dout):
    """What the tile's rows x add to dP."""
    return tpu_tiles.product(softmax, tiles.inside(here, "X1", dout), 1, 1)
