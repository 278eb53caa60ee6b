"""trans in plain JAX: runs on any platform and under any partitioning, and is the fast path on CPUs.

Without a causal mask this is a softmax and a product, and XLA fuses one into the other (on CPUs completely).
Two things are added: the backward pass gets the log of the softmax's denominator instead of the softmax, and
with a causal mask the rows are cut into a few tiles, each of which stops at its own last column, which saves
almost half of the work.

Letters: B batch, H heads, X rows, A the reduced index, Y columns of the premise.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels.arrays import accumulator, filled, narrow
from kernels.trans.reference import Config, allowed

# With n tiles (n + 1) / 2n of the products remain: beyond eight there is little left to gain, and every tile
# is a few more operations for the compiler. Below 128 rows the copies of slices cost more than they save.
MOST_TILES = 8
FEWEST_ROWS = 128


def unsupported(config: Config, *arrays: Any) -> str | None:
    """None: this path takes every size and every floating dtype."""
    del config, arrays


def forward(
    config: Config, *arrays: Any, blocks: Mapping[str, int] | None = None
) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """`reference.trans`, its arrays and results. `blocks` has the "rows" of a tile under a causal mask."""
    kernel_logits, premise, mask = arrays
    tiles = row_tiles(config, kernel_logits, blocks)
    if config.causal and mask is None and tiles == [(0, *kernel_logits.shape[2:])]:
        return jax.lax.platform_dependent(
            kernel_logits,
            premise,
            cpu=functools.partial(_causal_on_cpus, config),
            default=functools.partial(_forward_tile, config, mask=None),
        )
    parts = [
        _forward_tile(
            config_of(config, start),
            kernel_logits[:, :, start:stop, :end],
            premise[:, :, :end],
            cut(mask, start, stop, 0, end),
        )
        for start, stop, end in tiles
    ]
    out, lse = (jnp.concatenate(part, axis=2) for part in zip(*parts, strict=True))
    return out, lse


def _forward_tile(config, kernel_logits, premise, mask):
    logits = _masked(config, kernel_logits.astype(accumulator(kernel_logits, premise)), mask)
    return _softmax_product(logits, premise)


def _causal_on_cpus(config, kernel_logits, premise):
    """One tile without a mask: the bound of a minimum takes the place of the select.

    XLA fuses a minimum with softmax and product on CPUs, but no select: 1.4 times as fast. NaN in the future
    spreads through a minimum or does not, whichever instruction XLA takes; where it did, a select follows.
    """
    dtype = accumulator(kernel_logits, premise)
    rows, columns = kernel_logits.shape[2:]
    allow: Any = allowed(config, rows, columns, None)
    bound = jnp.where(allow, jnp.inf, -jnp.inf).astype(dtype)
    results = _softmax_product(jnp.minimum(kernel_logits.astype(dtype), bound), premise)
    # NaN in a row's weights is in all of its outputs. Each result has its own test: a forward pass, whose
    # log-sum-exp nobody uses, does not compute it.
    tests = results[0][..., :1], results[1]

    def select(position):
        return lambda *arrays: _forward_tile(config, *arrays, mask=None)[position]

    out, lse = (
        jax.lax.cond(
            jnp.isnan(test).any(), select(position), lambda *_, result=result: result, kernel_logits, premise
        )
        for position, (test, result) in enumerate(zip(tests, results, strict=True))
    )
    return out, lse


def _softmax_product(logits, premise):
    """The softmax of masked logits by the premise, and the log-sum-exp."""
    dtype = logits.dtype
    # A row without an allowed entry is all -inf: with a finite maximum its powers are 0, and nothing is nan.
    lowest = jnp.finfo(dtype).min
    maximum = jnp.max(logits, axis=-1, keepdims=True, initial=lowest)
    powers = jnp.exp(logits - maximum)
    total = powers.sum(axis=-1, keepdims=True)
    # The greatest power is 1, so the maximum changes nothing but an empty row. (A select here would keep XLA
    # from fusing softmax and product on CPUs, a third of the time.)
    out = product(powers / jnp.maximum(total, 1), premise, 3, 2, dtype)
    lse = jnp.where(total == 0, 0, maximum + jnp.log(total))
    return out.astype(premise.dtype), lse[..., 0]


def tangent(config: Config, *operands: Any) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """Tangents of `forward`'s results; `operands` are its arrays, its results, and tangents or None.

    dU = (S * (dK - mean)) P + S dP, where mean = sum_a S dK is the tangent of the log-sum-exp.
    """
    kernel_logits, premise, mask, out, lse, dkernel, dpremise = operands
    dtype = lse.dtype
    parts = []
    for start, stop, end in row_tiles(config, kernel_logits, None):
        here = config_of(config, start)
        allow = allowed(here, stop - start, end, cut(mask, start, stop, 0, end))
        softmax = _softmax(config, kernel_logits, mask, lse, start, stop, 0, end)
        dout, mean = jnp.zeros((), dtype), jnp.zeros_like(lse[:, :, start:stop])
        if dkernel is not None:
            change = dkernel[:, :, start:stop, :end].astype(dtype)
            change = softmax * (change if allow is None else jnp.where(allow, change, 0))
            mean = jnp.sum(change, axis=-1)
            change -= softmax * mean[..., None]
            dout += product(change, premise[:, :, :end], 3, 2, dtype)
        if dpremise is not None:
            dout += product(softmax, dpremise[:, :, :end], 3, 2, dtype)
        parts.append((dout, mean))
    dout, dlse = (jnp.concatenate(part, axis=2) for part in zip(*parts, strict=True))
    return dout.astype(out.dtype), dlse


def backward(
    config: Config,
    *operands: Any,
    blocks: Mapping[str, int] | None = None,
    dresidual: Float[Array, "B H X"] | None = None,
) -> tuple[Float[Array, "B H X A"], Float[Array, "B H A Y"]]:
    """Gradients of kernel_logits and premise from `forward`'s arrays, its results and the cotangent dU.

    dS = dU P^T, dK = S * (dS - Delta) with Delta = sum_y dU * U, dP = S^T dU, where S is computed again from
    the log-sum-exp. `dresidual` is the cotangent of the log-sum-exp.
    """
    kernel_logits, premise, mask, out, lse, dout = operands
    dtype = lse.dtype
    # In 16 bits the output is too coarse: where a row's weights are concentrated, Delta almost cancels dS.
    exact = narrow(kernel_logits, premise)
    delta = jnp.zeros_like(lse) if exact else jnp.sum(dout.astype(dtype) * out.astype(dtype), axis=-1)
    if dresidual is not None:
        delta -= dresidual
    delta = delta[..., None]
    tiles = row_tiles(config, kernel_logits, blocks)
    rows, columns = kernel_logits.shape[2:]
    softmax = functools.partial(_softmax, config, kernel_logits, mask, lse)

    dkernel, dpremise = [], []
    first = 0
    for start, stop, end in tiles:
        dsoftmax = product(dout[:, :, start:stop], premise[:, :, :end], 3, 3, dtype)
        part, own = softmax(start, stop, 0, end), delta[:, :, start:stop]
        if exact:
            total = jnp.sum(part, axis=-1, keepdims=True)  # 1 but for rounding, 0 where nothing is allowed
            mean = jnp.sum(part * dsoftmax, axis=-1, keepdims=True) / jnp.where(total > 0, total, 1)
            own += mean
        part *= dsoftmax - own
        dkernel.append(filled(part.astype(kernel_logits.dtype), 3, columns))
        # What this tile is the first to see is seen by every later row: one product for all of them.
        part = product(softmax(start, rows, first, end), dout[:, :, start:], 2, 2, dtype)
        dpremise.append(part.astype(premise.dtype))
        first = end
    # Columns that no row sees are there with a row_offset only.
    return jnp.concatenate(dkernel, axis=2), filled(jnp.concatenate(dpremise, axis=2), 2, columns)


def _softmax(config, kernel_logits, mask, lse, start, stop, first, end):
    """S at the rows start..stop and the columns first..end, from the log-sum-exp."""
    part = kernel_logits[:, :, start:stop, first:end]
    part = _masked(config_of(config, start - first), part, cut(mask, start, stop, first, end))
    return jnp.exp(part - lse[:, :, start:stop, None])


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Block sizes worth a try, the default first."""
    rows = arrays[0].shape[2]
    default = default_rows(config, rows)
    sizes = [default]
    if config.causal:
        sizes += [size for size in (32, 64, 128, 256, 512) if size != default and size < 2 * rows]
    return {direction: [{"rows": size} for size in sizes] for direction in ("forward", "backward")}


def default_rows(config: Config, rows: int) -> int:
    """Rows of a tile where nothing better is known."""
    return max(FEWEST_ROWS, -(-rows // MOST_TILES)) if config.causal else rows


def row_tiles(config: Config, kernel_logits: Any, blocks: Mapping[str, int] | None) -> list[tuple[int, ...]]:
    """(first row, row after the last, column after the last that any of them sees) of each tile."""
    rows, columns = kernel_logits.shape[2:]
    if not config.causal:
        return [(0, rows, columns)]
    size = blocks["rows"] if blocks else default_rows(config, rows)
    tiles = [(start, min(start + size, rows)) for start in range(0, rows, size)]
    return [(start, stop, min(max(stop + config.row_offset, 0), columns)) for start, stop in tiles]


def config_of(config: Config, start: int) -> Config:
    """The settings of the part of a call that begins at row `start`."""
    return Config(config.causal, config.row_offset + start)


def cut(
    mask: Bool[Array, "b h x a"] | None, start: int, stop: int, first: int, end: int
) -> Bool[Array, "b h rows columns"] | None:
    """The part of a mask at the rows start..stop and the columns first..end; an axis of size 1 stays."""
    if mask is None:
        return None
    rows = slice(start, stop) if mask.shape[2] > 1 else slice(None)
    columns = slice(first, end) if mask.shape[3] > 1 else slice(None)
    return mask[:, :, rows, columns]


def _masked(config, logits, mask):
    """Logits with -inf where nothing is or may be seen."""
    rows, columns = logits.shape[2:]
    where = allowed(config, rows, columns, mask)
    return logits if where is None else jnp.where(where, logits, -jnp.inf)


def product(
    left: Float[Array, "B H _ _"],
    right: Float[Array, "B H _ _"],
    left_axis: int,
    right_axis: int,
    dtype: jax.typing.DTypeLike,
) -> Float[Array, "B H _ _"]:
    """Products per batch and head over one axis a side, in the narrower of the dtypes, summed in `dtype`."""
    narrow = left.dtype if jnp.finfo(left.dtype).bits < jnp.finfo(right.dtype).bits else right.dtype
    return jax.lax.dot_general(
        left.astype(narrow),
        right.astype(narrow),
        (((left_axis,), (right_axis,)), ((0, 1), (0, 1))),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=dtype,
    )
