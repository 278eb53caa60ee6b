"""trans on Hopper GPUs (Pallas Mosaic GPU): what it supports, block sizes, and the way to the kernels.

The product of two 512 x 512 matrices a head does about as many operations a byte as the chip balances at, so
the kernels must read everything once and overlap copies with products. Three decisions follow:

1. *A program holds all columns of a block of rows of the kernel.* The softmax then has its true maximum and
   denominator before the first product: no rescaling of accumulators, one exponential an element however
   many columns the premise has, and the logits cross the memory bus once. The price is a limit on sizes.
2. *The softmax is done in place.* The weights overwrite the logits in shared memory, from where the tensor
   cores read them; each warpgroup owns its 64 rows, so warpgroups never wait for each other.
3. *Programs are persistent and one warpgroup only copies.* It runs ahead through rings of tiles, into the
   next pieces of work too, so that copies do not stop while a piece ends and another begins.

`gpu_pipeline` has the rings and the dealing out of work, `gpu_forward` and `gpu_backward` the kernels. Batch
and heads are one axis Z there. Masked logits are -inf: a mask is applied before the kernel (one pass over the
logits), causality inside it, where tiles that no row sees are neither copied nor multiplied.
"""

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.arrays import filled, round_up
from kernels.trans import gpu_backward, gpu_forward
from kernels.trans.gpu_pipeline import TILE, WARPGROUP_ROWS
from kernels.trans.reference import Config

DTYPES = ("bfloat16", "float16")
LONGEST = 1280  # rows, columns and outputs: 20 tiles of 64 x 64 in shared memory, and room for the rest
SHARED_BYTES = 227 * 1024 - 2048  # of a program; less barriers, log-sum-exps and alignment
MULTIPROCESSORS = 132  # of an H100 or H200 (SXM), where the device cannot be asked


def unsupported(config: Config, kernel_logits: Any, premise: Any, mask: Any = None) -> str | None:
    """Why these arguments cannot be computed here, None if they can."""
    del config, mask
    dtypes = {str(jnp.dtype(x.dtype)) for x in (kernel_logits, premise)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        # Float32 products would be rounded to TF32.
        found = " and ".join(sorted(dtypes))
        return f"kernel_logits, premise: got dtypes {found}, expected both bfloat16 or both float16"
    sizes = (*kernel_logits.shape[2:], premise.shape[3])
    if max(sizes) > LONGEST:
        return f"X, A, Y: got {sizes}, expected each at most {LONGEST} (the limit of shared memory)"
    if 0 in (*kernel_logits.shape, *premise.shape):
        return f"kernel_logits: got shape {kernel_logits.shape}, expected no empty axis"
    return None


def forward(
    config: Config, *arrays: Any, blocks: Mapping[str, int] | None = None, interpret: bool = False
) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """`reference.trans`, its arrays and results; `blocks` as in `block_candidates`, `interpret` on a CPU."""
    kernel_logits, premise, mask = arrays
    (batch, heads, rows, columns), outputs = kernel_logits.shape, premise.shape[3]
    out, lse = gpu_forward.run(
        _logits(kernel_logits, mask),
        _tiled(premise),
        _plan("out", blocks, held=columns, streamed=outputs, rows=rows),
        row_offset=config.row_offset if config.causal else None,
        programs=_multiprocessors(),
        interpret=interpret,
    )
    shape = (batch, heads, rows, outputs)
    return out[:, :rows, :outputs].reshape(shape), lse[:, :rows].reshape(shape[:3])


def backward(
    config: Config, *operands: Any, blocks: Mapping[str, int] | None = None, interpret: bool = False
) -> tuple[Float[Array, "B H X A"], Float[Array, "B H A Y"]]:
    """Gradients of kernel_logits and premise from `forward`'s arrays, its results and the cotangent."""
    kernel_logits, premise, mask, out, lse, dout = operands
    (_, _, rows, columns), outputs = kernel_logits.shape, premise.shape[3]
    dlogits, dpremise = gpu_backward.run(
        _logits(kernel_logits, mask),
        filled(lse.reshape(-1, rows), 1, round_up(rows, 8)),
        _tiled(premise),
        _tiled(out),
        _tiled(dout),
        _plan("passing", blocks, **_backward_sizes(rows, columns, outputs)),
        row_offset=config.row_offset if config.causal else None,
        programs=_multiprocessors(),
        interpret=interpret,
    )
    return (
        dlogits[:, :rows, :columns].reshape(kernel_logits.shape),
        dpremise[:, :columns, :outputs].reshape(premise.shape),
    )


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """What to try when tuning; the first is the default.

    "warpgroups" (1 or 2) have 64 rows each, "width" is the columns of one product. What these leave of shared
    memory, the rings of tiles take.
    """
    del config
    (rows, columns), outputs = arrays[0].shape[2:], arrays[1].shape[3]
    return {
        "forward": _candidates("out", held=columns, streamed=outputs, rows=rows),
        "backward": _candidates("passing", **_backward_sizes(rows, columns, outputs)),
    }


def _backward_sizes(rows: int, columns: int, outputs: int) -> dict[str, int]:
    """One kernel with two kinds of work: the larger of each size."""
    return {"held": max(rows, outputs), "streamed": max(columns, outputs), "rows": max(rows, columns)}


# ---- shared memory
# ------------------------------------------------------------------------------------------------


def _plan(
    third: str, blocks: Mapping[str, int] | None, *, held: int, streamed: int, rows: int
) -> dict[str, int]:
    """A kernel's sizes: those of `blocks` where they fit, the default where they do not.

    They are "warpgroups" of a program (1 or 2, of 64 rows each), "width" (the columns of one product: 64, 128
    or 256) and the slots of its rings of tiles: "held", "streamed" (at least 2) and the `third`.

    Args:
        third: "out" of the forward kernel, "passing" of the backward one.
        blocks: "warpgroups" and "width".
        held: the axis of which a program holds all tiles.
        streamed: the axis that products sweep over, `width` at a time.
        rows: the axis that is cut into blocks of 64 a warpgroup.
    """
    sizes = {"held": held, "streamed": streamed, "rows": rows}
    if blocks:
        rings = _rings(third, blocks["warpgroups"], blocks["width"], held=held, streamed=streamed)
        if rings is not None:
            return {"warpgroups": blocks["warpgroups"], "width": blocks["width"], **rings}
    best = _candidates(third, **sizes)[0]
    return _plan(third, best, **sizes)


def _candidates(third: str, *, held: int, streamed: int, rows: int) -> list[dict[str, int]]:
    most = 2 if rows > WARPGROUP_ROWS else 1  # no warpgroup without a row
    widths = [width for width in (128, 256, 64) if width < streamed + TILE] or [TILE]
    pairs = [(warpgroups, width) for warpgroups in range(most, 0, -1) for width in widths]
    return [
        {"warpgroups": warpgroups, "width": width}
        for warpgroups, width in pairs
        if _rings(third, warpgroups, width, held=held, streamed=streamed) is not None
    ]


def _rings(third: str, warpgroups: int, width: int, *, held: int, streamed: int) -> dict[str, int] | None:
    """Slots of each ring, None if they do not fit.

    All tiles of up to three pieces of work are held, as long as four streamed tiles fit too (or all of
    the pieces' tiles): a product over a tile lasts 500 to 1000 cycles and a copy takes some 1000 to arrive.
    The third ring should take a whole product, so that it leaves while the next one is computed.
    """
    tiles, sweeps, chunks = -(-held // TILE), -(-streamed // width), width // TILE
    tile_bytes = 2 * TILE * TILE
    held_bytes, streamed_bytes = warpgroups * tile_bytes, chunks * tile_bytes
    wanted, least = {"out": (min(2, chunks), 1), "passing": (max(2, chunks), 2)}[third]
    for third_slots, pieces in itertools.product((wanted, least), (3, 2, 1)):
        free = SHARED_BYTES - (pieces * tiles + third_slots) * held_bytes
        enough = max(2, pieces * tiles * sweeps)
        slots = min(enough, free // streamed_bytes)
        if slots >= min(4 if pieces > 1 else 2, enough):
            return {"held": pieces * tiles, "streamed": slots, third: third_slots}
    return None


def _multiprocessors() -> int:
    device = jax.sharding.get_abstract_mesh().abstract_device
    if device is not None and device.num_cores:  # compiled ahead of time for a chip that is not here
        return device.num_cores
    return _local_multiprocessors()


@functools.cache
def _local_multiprocessors() -> int:
    try:
        return jax.devices("cuda")[0].core_count
    except RuntimeError:
        return MULTIPROCESSORS


# ---- arrays as the kernels want them
# ------------------------------------------------------------------------------


def _logits(kernel_logits: Array, mask: Array | None) -> Array:
    """[Z, X, A], -inf where masked and in columns added to fill the last tile."""
    if mask is not None:
        kernel_logits = jnp.where(mask, kernel_logits, jnp.array(-jnp.inf, kernel_logits.dtype))
    return _tiled(kernel_logits, -jnp.inf)


def _tiled(x: Array, value: float = 0.0) -> Array:
    """[Z, ., .] of whole tiles as copies want them: 8 rows, 64 columns."""
    x = x.reshape(-1, *x.shape[2:])
    return filled(filled(x, 1, round_up(x.shape[1], 8)), 2, round_up(x.shape[2], TILE), value)
