"""trans for TPUs (Pallas, Mosaic): softmax in the prologue of the product, forward and backward.

A step of the grid holds a tile of the kernel [X, A] in vector memory, rows in sublanes and the reduced index
in lanes, of several heads when the tiles are small. The forward pass walks along A with a running maximum and
sum; the backward pass is two kernels that compute the softmax again from the log-sum-exp, one that owns tiles
of dK and one that owns tiles of dP, so that nothing is added to from two places:

    forward   U  = S P              summed over a
    dK        dS = dU P^T           summed over y, then dK = S * (dS - Delta), Delta = sum_y dU * U
    dP        dP = S^T dU           summed over x

Tiles that overhang the end of an array are cut off by masks, not by padded copies. With a causal mask the
tiles after the diagonal are neither computed nor fetched.

Letters: B batch, H heads, X rows, A the reduced index, Y columns of the premise.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float

from kernels.trans import tpu_tiles
from kernels.trans.reference import Config
from kernels.trans.tpu_tiles import Tiles

LOWEST = float(jnp.finfo(jnp.float32).min)
# Tiles are independent of each other but along the innermost axis, which a sum walks along.
SEMANTICS = ("parallel", "parallel", "parallel", "parallel", "arbitrary")


def unsupported(config: Config, *arrays: Any) -> str | None:
    """Why these arguments need another implementation, or None."""
    del config
    kernel_logits, premise = arrays[:2]
    if not {str(kernel_logits.dtype), str(premise.dtype)} <= {"float32", "bfloat16"}:
        return f"kernel_logits is {kernel_logits.dtype} and premise {premise.dtype}, not float32 or bfloat16"
    if 0 in (*kernel_logits.shape, *premise.shape):
        return f"an axis is empty: kernel_logits {kernel_logits.shape}, premise {premise.shape}"
    return None


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Block sizes worth a try, the default first: heads a step, and the sides of a tile along X, A and Y."""
    return {
        direction: tpu_tiles.candidates(config, arrays[0], arrays[1], direction)
        for direction in ("forward", "backward")
    }


def forward(
    config: Config,
    kernel_logits: Float[Array, "B H X A"],
    premise: Float[Array, "B H A Y"],
    mask: Bool[Array, "b h x a"] | None = None,
    *,
    blocks: Mapping[str, int] | None = None,
    interpret: Any = False,
) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """The result and the log of the softmax's denominator; see `reference.trans`.

    Args:
        config: static settings.
        kernel_logits: the kernel before its softmax.
        premise: what it is applied to.
        mask: True where allowed; each size is full or 1.
        blocks: "heads" (divides H), and "rows", "columns", "outputs", the sides of a tile, multiples of 128.
        interpret: run on a CPU; True, or `pltpu.InterpretParams`.
    """
    tiles = tpu_tiles.tiles(config, kernel_logits, premise, "forward", blocks)
    order = "XYA"
    inputs, specs = _with_mask(tiles, order, [(kernel_logits, "XA"), (premise, "AY")], mask)
    *lead, rows, _ = kernel_logits.shape
    row = (tiles.heads, tiles.sides["X"])
    out, lse = _call(
        functools.partial(_forward_kernel, tiles, order, mask is not None),
        name="trans_forward",
        grid=tiles.grid(order),
        in_specs=specs,
        out_specs=[tiles.spec(order, "XY"), tiles.spec(order, "1X")],
        out_shape=[
            _like(inputs, (*lead, rows, premise.shape[3]), premise.dtype),
            _like(inputs, (*lead, 1, rows), jnp.float32),
        ],
        # The running maximum and sum, one number a row, and the running product.
        scratch=[(*row, 1), (*row, 1), (*row, tiles.sides["Y"])] if tiles.count("A") > 1 else [],
        interpret=interpret,
    )(*inputs)
    return out, lse[:, :, 0]


def _forward_kernel(tiles: Tiles, order, masked, kernel, premise, *refs):
    mask, out, lse, *running = refs if masked else (None, *refs)
    here = tiles.here(order)

    def step(before):
        """The maximum, sum and product over the columns so far, given those `before` (None at the start)."""
        logits = tiles.logits(here, kernel[...], None if mask is None else mask[...])
        maximum = jnp.maximum(jnp.max(logits, axis=2, keepdims=True), LOWEST if before is None else before[0])
        powers = jnp.exp(logits - maximum)
        total = jnp.sum(powers, axis=2, keepdims=True)
        product = _product(powers, tiles.inside(here, "AY", premise[...]), 2, 1)
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

    @pl.when(here[order[-1]] == 0)
    def _():
        for ref, value in zip(running, (LOWEST, 0.0, 0.0), strict=True):
            ref[...] = jnp.full(ref.shape, value, ref.dtype)

    @pl.when(tiles.computed(here))
    def _():
        for ref, value in zip(running, step([ref[...] for ref in running]), strict=True):
            ref[...] = value

    @pl.when(tiles.is_last(here, order[-1]))
    def _():
        finish(*(ref[...] for ref in running))


def backward(
    config: Config,
    kernel_logits: Float[Array, "B H X A"],
    premise: Float[Array, "B H A Y"],
    mask: Bool[Array, "b h x a"] | None,
    out: Float[Array, "B H X Y"],
    lse: Float[Array, "B H X"],
    dout: Float[Array, "B H X Y"],
    *,
    blocks: Mapping[str, int] | None = None,
    interpret: Any = False,
) -> tuple[Float[Array, "B H X A"], Float[Array, "B H A Y"]]:
    """Gradients of kernel_logits and premise; formulas as in `xla.backward`, arguments as in `forward`."""
    tiles = tpu_tiles.tiles(config, kernel_logits, premise, "backward", blocks)
    lse = lse[:, :, None]
    tile = (tiles.heads, tiles.sides["X"])

    order = "XAY"
    named = [(kernel_logits, "XA"), (premise, "AY"), (out, "XY"), (dout, "XY"), (lse, "1X")]
    inputs, specs = _with_mask(tiles, order, named, mask)
    (dkernel_logits,) = _call(
        functools.partial(_dkernel_kernel, tiles, order, mask is not None),
        name="trans_dkernel",
        grid=tiles.grid(order),
        in_specs=specs,
        out_specs=[pl.BlockSpec((None, *tile, tiles.sides["A"]), lambda b, h, x, a, y: (b, h, x, a))],
        out_shape=[_like(inputs, kernel_logits.shape, kernel_logits.dtype)],
        scratch=[(*tile, tiles.sides["A"]), (*tile, 1)] if tiles.count("Y") > 1 else [],
        interpret=interpret,
    )(*inputs)

    order = "AYX"
    inputs, specs = _with_mask(tiles, order, [(kernel_logits, "XA"), (dout, "XY"), (lse, "1X")], mask)
    (dpremise,) = _call(
        functools.partial(_dpremise_kernel, tiles, order, mask is not None),
        name="trans_dpremise",
        grid=tiles.grid(order),
        in_specs=specs,
        out_specs=[tiles.spec(order, "AY")],
        out_shape=[_like(inputs, premise.shape, premise.dtype)],
        scratch=[(tiles.heads, tiles.sides["A"], tiles.sides["Y"])] if tiles.count("X") > 1 else [],
        interpret=interpret,
    )(*inputs)
    return dkernel_logits, dpremise


def _dkernel_kernel(tiles: Tiles, order, masked, kernel, premise, out, dout, lse, *refs):
    mask, dkernel, *running = refs if masked else (None, *refs)
    here = tiles.here(order)

    def step():
        """What the tile adds to dS and to Delta."""
        gradient = tiles.inside(here, "1Y", dout[...])
        dsoftmax = _product(gradient, tiles.inside(here, "1Y", premise[...]), 2, 2)
        both = gradient.astype(jnp.float32) * tiles.inside(here, "1Y", out[...]).astype(jnp.float32)
        return dsoftmax, jnp.sum(both, axis=2, keepdims=True)

    def finish(dsoftmax, delta):
        softmax = _softmax(tiles, here, kernel, lse, mask)
        dkernel[...] = (softmax * (dsoftmax - delta)).astype(dkernel.dtype)

    if not running:

        @pl.when(tiles.computed(here))
        def _():
            finish(*step())

        @pl.when(jnp.logical_not(tiles.computed(here)))
        def _():
            dkernel[...] = jnp.zeros_like(dkernel)

        return

    @pl.when(here[order[-1]] == 0)
    def _():
        for ref in running:
            ref[...] = jnp.zeros_like(ref)

    @pl.when(tiles.computed(here))
    def _():
        for ref, value in zip(running, step(), strict=True):
            ref[...] += value

    @pl.when(tiles.is_last(here, order[-1]))
    def _():
        finish(*(ref[...] for ref in running))  # where nothing was computed the softmax is 0, and so is dK


def _dpremise_kernel(tiles: Tiles, order, masked, kernel, dout, lse, *refs):
    mask, dpremise, *running = refs if masked else (None, *refs)
    here = tiles.here(order)

    def step():
        softmax = _softmax(tiles, here, kernel, lse, mask)
        return _product(softmax, tiles.inside(here, "X1", dout[...]), 1, 1)

    if not running:
        dpremise[...] = step().astype(dpremise.dtype)
        return
    (total,) = running

    @pl.when(here[order[-1]] == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    @pl.when(tiles.computed(here))
    def _():
        total[...] += step()

    @pl.when(tiles.is_last(here, order[-1]))
    def _():
        dpremise[...] = total[...].astype(dpremise.dtype)


def _softmax(tiles: Tiles, here, kernel, lse, mask):
    """The softmax of a tile from its rows' log-sum-exp, which lie in lanes and are turned into sublanes."""
    logits = tiles.logits(here, kernel[...], None if mask is None else mask[...])
    return jnp.exp(logits - jnp.swapaxes(tiles.inside(here, "1X", lse[...]), 1, 2))


def _product(left, right, left_axis, right_axis):
    """Products per head over one axis a side, in the narrower of the dtypes, summed in float32."""
    narrow = jnp.bfloat16 if jnp.bfloat16 in (left.dtype, right.dtype) else jnp.float32
    return jax.lax.dot_general(
        left.astype(narrow),
        right.astype(narrow),
        (((left_axis,), (right_axis,)), ((0,), (0,))),
        # The default would round float32 to bfloat16 before it multiplies.
        precision=jax.lax.Precision.HIGHEST if narrow == jnp.float32 else jax.lax.Precision.DEFAULT,
        preferred_element_type=jnp.float32,
    )


def _with_mask(tiles: Tiles, order, named, mask):
    """The arrays of a call and their block specifications; a mask goes last, as bytes."""
    inputs = [x for x, _ in named]
    specs = [tiles.spec(order, axes) for _, axes in named]
    if mask is not None:
        inputs.append(mask.astype(jnp.int8))
        specs.append(tiles.spec(order, "XA", mask.shape))
    return inputs, specs


def _like(inputs, shape, dtype):
    """What an output is, varying over the mesh axes of `shard_map` that the inputs vary over."""
    return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=jax.typeof(inputs[0]).manual_axis_type)


def _call(kernel, *, name, grid, in_specs, out_specs, out_shape, scratch, interpret):
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=in_specs,
        out_specs=out_specs,
        out_shape=out_shape,
        scratch_shapes=[pltpu.VMEM(shape, jnp.float32) for shape in scratch],
        compiler_params=pltpu.CompilerParams(dimension_semantics=SEMANTICS),
        interpret=interpret,
        name=name,
    )
