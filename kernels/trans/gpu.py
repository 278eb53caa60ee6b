"""trans on Hopper GPUs (Pallas Mosaic GPU): plans, and the way to the kernels.

The product of two 512 x 512 matrices a head does about as many operations a byte as the chip balances at, so
the kernels must read everything once and overlap copies with products. Three decisions follow:

1. *A program holds all columns of a block of rows of the kernel, if they fit.* The softmax then has its true
   maximum and denominator before the first product: no rescaling of accumulators, one exponential an element
   however many columns the premise has, and the logits cross the memory bus once. Of longer rows (more than
   some 1,280 columns) XLA computes the log-sum-exp, and the kernel makes the weights tile by tile.
2. *The softmax is done in place.* The weights overwrite the logits in shared memory, from where the tensor
   cores read them; each warpgroup owns its 64 rows, so warpgroups never wait for each other.
3. *Programs are persistent and one warpgroup only copies.* It runs ahead through rings of tiles, into the
   next pieces of work too, so that copies do not stop while a piece ends and another begins.

`kernels.hopper` has the rings, `gpu_work` the dealing out of work, `gpu_forward` and `gpu_backward` the
kernels. Batch and heads are one axis Z there. Masked logits are -inf: a mask is applied before the kernel
(one pass over the logits), causality inside it, where tiles that no row sees are neither copied nor
multiplied.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels import plans
from kernels.arrays import Described, filled, round_up
from kernels.chips import HOPPER, Chip
from kernels.hopper import ROWS, TILE, Kernel
from kernels.plans import Planned, Refused
from kernels.tables import Direction
from kernels.trans import gpu_backward, gpu_forward
from kernels.trans.reference import Config, allowed

DTYPES = ("bfloat16", "float16")
TILE_BYTES = 2 * ROWS * TILE
RESERVE = 2048  # bytes: log-sum-exps and barriers
STREAMED_SLOTS = 3  # of tiles that are not held
WIDTHS = (128, 256, 64)


@dataclasses.dataclass(frozen=True)
class Plan(Planned):
    """How a direction of a call is computed.

    Attributes:
        kernels: the only one.
        sizes: "warpgroups" of a program, "width" of a product, and the slots of its rings: "held",
            "streamed", and "out" (forward) or "passing" (backward).
        holds: whether the forward kernel has room for whole rows of logits.
    """

    sizes: Mapping[str, int]
    holds: bool


def plan(
    direction: Direction,
    config: Config,
    kernel_logits: Described,
    premise: Described,
    mask: Described | None = None,
    *,
    chip: Chip,
    blocks: Mapping[str, int] | None = None,
) -> Plan:
    """Decides how a call is computed.

    Args:
        direction: of the call.
        config: its static settings.
        kernel_logits: [B, H, X, A].
        premise: [B, H, A, Y].
        mask: not needed.
        chip: where it runs.
        blocks: one of `block_candidates`; others, which fit another size, give way to the default.

    Raises:
        Refused: for other dtypes, symbolic sizes and empty arrays.
    """
    del config, mask
    _check(kernel_logits, premise)
    batch, heads, rows, columns = kernel_logits.shape
    candidates = _candidates(direction, rows, columns, premise.shape[3], chip.memory)
    wanted = [c for c in candidates if blocks and blocks.items() <= c.items()]
    sizes = (wanted or candidates)[0]
    module = gpu_forward if direction == "forward" else gpu_backward
    scratch = module.scratch(**sizes, dtype=kernel_logits.dtype)
    block = sizes["warpgroups"] * ROWS
    pieces = -(-rows // block) if direction == "forward" else -(-rows // block) + -(-columns // block)
    programs = min(chip.cores, batch * heads * pieces)
    kernel = Kernel(f"trans_{direction}", (programs,), scratch, sizes["warpgroups"])
    planned = Plan((kernel,), sizes, -(-columns // TILE) <= sizes["held"])
    plans.check(chip, planned.launches)
    return planned


def _check(kernel_logits: Described, premise: Described) -> None:
    sizes = (*kernel_logits.shape, *premise.shape)
    if not all(isinstance(size, int) for size in sizes):
        raise Refused(
            f"shapes: got symbolic sizes {kernel_logits.shape} and {premise.shape}, expected numbers (a "
            "kernel is planned for one size)"
        )
    dtypes = {str(jnp.dtype(x.dtype)) for x in (kernel_logits, premise)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        # Float32 products would be rounded to TF32.
        found = " and ".join(sorted(dtypes))
        raise Refused(f"kernel_logits, premise: got dtypes {found}, expected both bfloat16 or both float16")
    if 0 in sizes:
        raise Refused(f"kernel_logits: got shape {kernel_logits.shape}, expected no empty axis")


def forward(
    config: Config,
    *arrays: Any,
    blocks: Mapping[str, int] | None = None,
    chip: Chip = HOPPER,
    interpret: bool = False,
) -> tuple[Float[Array, "B H X Y"], Float[Array, "B H X"]]:
    """`reference.trans`, its arrays and results.

    Args:
        config: static settings.
        *arrays: kernel_logits, premise and mask or None.
        blocks: as in `block_candidates`.
        chip: that the call is planned for.
        interpret: run on a CPU, slowly.

    Raises:
        Refused: as `plan`.
    """
    kernel_logits, premise, mask = arrays
    planned = plan("forward", config, *arrays, chip=chip, blocks=blocks)
    (batch, heads, rows, _), outputs = kernel_logits.shape, premise.shape[3]
    logits = _logits(kernel_logits, mask)
    out, lse = gpu_forward.run(
        logits,
        _tiled(premise),
        None if planned.holds else _of_blocks(_log_sum_exp(logits, config)),
        planned.kernels[0],
        row_offset=config.row_offset if config.causal else None,
        interpret=interpret,
    )
    shape = (batch, heads, rows, outputs)
    return out[:, :rows, :outputs].reshape(shape), lse[:, :rows].reshape(shape[:3])


def backward(
    config: Config,
    *operands: Any,
    blocks: Mapping[str, int] | None = None,
    chip: Chip = HOPPER,
    interpret: bool = False,
) -> tuple[Float[Array, "B H X A"], Float[Array, "B H A Y"]]:
    """Gradients of kernel_logits and premise from `forward`'s arrays, its results and the cotangent.

    The other arguments and errors are those of `forward`.
    """
    *arrays, _, lse, dout = operands
    kernel_logits, premise, mask = arrays
    planned = plan("backward", config, *arrays, chip=chip, blocks=blocks)
    (_, _, rows, columns), outputs = kernel_logits.shape, premise.shape[3]
    dlogits, dpremise = gpu_backward.run(
        _logits(kernel_logits, mask),
        _of_blocks(lse.reshape(-1, rows)),
        _tiled(premise),
        _tiled(dout),
        planned.kernels[0],
        row_offset=config.row_offset if config.causal else None,
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
        direction: [
            {name: candidate[name] for name in ("warpgroups", "width")}
            for candidate in _candidates(direction, rows, columns, outputs, HOPPER.memory)
        ]
        for direction in ("forward", "backward")
    }


# ---- shared memory


def _axes(direction: Direction, rows: int, columns: int, outputs: int) -> tuple[tuple[int, ...], int, int]:
    """The axes whose tiles a program walks over in every sweep, that it sweeps over, and cut into blocks.

    The backward kernel has two kinds of work: the larger of each size.
    """
    if direction == "forward":
        return (columns,), outputs, rows
    return (rows, outputs), max(columns, outputs), max(rows, columns)


def _candidates(
    direction: Direction, rows: int, columns: int, outputs: int, memory: int
) -> list[dict[str, int]]:
    """All sizes of a kernel, the default first: those that hold tiles, or where none do, that stream them."""
    walked, swept, blocked = _axes(direction, rows, columns, outputs)
    most = 2 if blocked > ROWS else 1  # no warpgroup without a row
    widths = [width for width in WIDTHS if width < swept + TILE] or [TILE]
    for slots in (_holding, _streaming):
        # A streamed tile is read in every sweep: the wider the fewer.
        ordered = widths if slots is _holding else sorted(widths, reverse=True)
        found = [
            {"warpgroups": warpgroups, "width": width, **rings}
            for warpgroups in range(most, 0, -1)
            for width in ordered
            if (rings := slots(direction, warpgroups, width, walked, swept, memory)) is not None
        ]
        if found:
            return found
    third = sum(_third(direction, TILE)[2:])
    needed = RESERVE + (2 * STREAMED_SLOTS + third) * TILE_BYTES
    raise Refused(f"shared memory: trans needs {needed:,} bytes, the chip has {memory:,}")


def _third(direction: Direction, width: int) -> tuple[str, int, int]:
    """The third ring's name and slots, wanted and at least.

    It should take a whole product, so that it leaves while the next one is computed.
    """
    chunks = width // TILE
    return ("out", min(2, chunks), 1) if direction == "forward" else ("passing", max(2, chunks), 2)


def _holding(
    direction: Direction, warpgroups: int, width: int, walked: tuple[int, ...], swept: int, memory: int
) -> dict[str, int] | None:
    """Slots of each ring that hold all tiles of a piece of work, None if they do not fit.

    All tiles of up to three pieces are held, as long as four streamed tiles fit too (or all of the pieces'
    tiles): a product over a tile lasts 500 to 1000 cycles and a copy takes some 1000 to arrive.
    """
    tiles, sweeps = -(-max(walked) // TILE), -(-swept // width)
    third, wanted, least = _third(direction, width)
    for third_slots, pieces in itertools.product((wanted, least), (3, 2, 1)):
        free = memory - RESERVE - (pieces * tiles + third_slots) * warpgroups * TILE_BYTES
        enough = max(2, pieces * tiles * sweeps)
        slots = min(enough, free // (width // TILE * TILE_BYTES))
        if slots >= min(4 if pieces > 1 else 2, enough):
            return {"held": pieces * tiles, "streamed": slots, third: third_slots}
    return None


def _streaming(
    direction: Direction, warpgroups: int, width: int, walked: tuple[int, ...], swept: int, memory: int
) -> dict[str, int] | None:
    """Slots of each ring if not all tiles can be held, but perhaps those of the shorter axis."""
    del swept
    third, wanted, least = _third(direction, width)
    shorter = max(-(-min(walked) // TILE), STREAMED_SLOTS)
    for held, third_slots in itertools.product((shorter, STREAMED_SLOTS), (wanted, least)):
        free = memory - RESERVE - (held + third_slots) * warpgroups * TILE_BYTES
        slots = free // (width // TILE * TILE_BYTES)
        if slots >= STREAMED_SLOTS:
            return {"held": held, "streamed": slots, third: third_slots}
    return None


# ---- arrays as the kernels want them


def _logits(kernel_logits: Array, mask: Array | None) -> Array:
    """[Z, X, A], -inf where masked and in columns added to fill the last tile."""
    if mask is not None:
        kernel_logits = jnp.where(mask, kernel_logits, jnp.array(-jnp.inf, kernel_logits.dtype))
    return _tiled(kernel_logits, -jnp.inf)


def _tiled(x: Array, value: float = 0.0) -> Array:
    """[Z, ., .] of whole tiles as copies want them: 8 rows, 64 columns."""
    x = x.reshape(-1, *x.shape[2:])
    return filled(filled(x, 1, round_up(x.shape[1], 8)), 2, round_up(x.shape[2], TILE), value)


def _of_blocks(lse: Float[Array, "Z X"]) -> Float[Array, "Z X2"]:
    """Log-sum-exps of all rows of all blocks, of which some are beyond the last row."""
    return filled(lse, 1, round_up(lse.shape[1], 2 * ROWS))


def _log_sum_exp(logits: Float[Array, "Z X A"], config: Config) -> Float[Array, "Z X"]:
    """Of rows that are too long for a program; 0 where nothing is allowed. XLA reads the logits once."""
    rows, columns = logits.shape[1:]
    logits = logits.astype(jnp.float32)
    past = allowed(config, rows, columns, None)
    logits = logits if past is None else jnp.where(past[0], logits, -jnp.inf)
    maximum = jnp.max(logits, axis=2, keepdims=True, initial=gpu_forward.LOWEST)
    total = jnp.exp(logits - maximum).sum(axis=2)
    some = total > 0
    return jnp.where(some, maximum[..., 0] + jnp.log(jnp.where(some, total, 1)), 0)
