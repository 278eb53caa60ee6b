"""Trilinear attention on Hopper GPUs: Pallas, Mosaic GPU, for compute capability 9.0.

The kernels are in `gpu_forward` and `gpu_backward`; how a call lies in memory is in `gpu_layout`, what the
kernels have in common, which is most of them, in `gpu_sweep`, and the pipeline in `kernels.hopper`.

Products of two keys, or of a query and a key, go to the tensor cores in two 16-bit halves, which is exact, so
logits and dP are float32, as are the softmax and the sums. Rounded to 16 bits are the softmax's weights and
the gradients of the logits, where they are factors of a product, and the results.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernels import plans
from kernels.arrays import Described
from kernels.chips import HOPPER, Chip
from kernels.hopper import ROWS, Kernel
from kernels.plans import Planned, Refused
from kernels.softmax import LOG2E
from kernels.tables import Direction
from kernels.trilinear import gpu_backward, gpu_forward
from kernels.trilinear.gpu_backward import COLUMNS
from kernels.trilinear.gpu_layout import (
    FEATURES,
    Geometry,
    arranged,
    as_keys,
    as_rows,
    as_windows,
    from_keys,
    from_row_scalars,
    from_rows,
    geometry,
    row_scalars,
)
from kernels.trilinear.gpu_sweep import COMPUTE
from kernels.trilinear.reference import Config, in_order

DTYPES = ("bfloat16", "float16")
CANDIDATES = tuple({"columns": columns, "stages": stages} for columns, stages in ((128, 2), (64, 4), (64, 3)))
BACKWARD_CANDIDATES = ({"stages": 3}, {"stages": 2})
LEAST_STAGES = 2


@dataclasses.dataclass(frozen=True)
class Plan(Planned):
    """How a direction of a call is computed.

    Attributes:
        kernels: the forward kernel; or those of Delta, dquery, of the keys and of the values.
        geometry: how it lies in memory.
        columns: second keys of a tile of the first kernel.
    """

    geometry: Geometry
    columns: int


def plan(
    direction: Direction,
    config: Config,
    query: Described,
    *keys: Described,
    chip: Chip,
    blocks: Mapping[str, int] | None = None,
) -> Plan:
    """Decides how a call is computed.

    Args:
        direction: of the call.
        config: its static settings.
        query: [B, N, H, D].
        *keys: key1, key2, value1 and value2, [B, N, G, D].
        chip: where it runs.
        blocks: forward "columns" (64 or 128), second keys of a tile, and "stages", tiles in flight; backward
            "stages", "splits" (blocks that share the j of a tile of second keys) and "groups" (at a time).
            What does not fit gives way to the default.

    Raises:
        Refused: for other dtypes, symbolic sizes, empty arrays, more than 128 features, and for a call with
            more tiles than a grid may have programs.
    """
    _check(query, *keys)
    layout, blocks, dtype = geometry(config, query, keys[0]), blocks or {}, query.dtype
    backward = direction == "backward"
    wanted = [] if backward or blocks.get("columns") not in (64, 128) else [{**CANDIDATES[0], **blocks}]
    sizes = [(size["columns"], max(size["stages"], LEAST_STAGES)) for size in (*wanted, *CANDIDATES)]
    first = _fitting(chip, (gpu_forward.kernel(layout, dtype, *size, delta=backward) for size in sizes))
    columns = first.scratch[3][0][0].shape[1]
    if not backward:
        return Plan((first,), layout, columns)
    most = max(blocks.get("stages", BACKWARD_CANDIDATES[0]["stages"]), LEAST_STAGES)

    def fitting(kernel: Callable[[int], Kernel]) -> Kernel:
        return _fitting(chip, map(kernel, range(most, LEAST_STAGES - 1, -1)))

    tiles = -(-layout.length // ROWS)
    # Short of tiles, the chip is filled by sharing out the j of each, eight pairs of them at least.
    pairs = -(-gpu_backward.most_partners(layout) // COMPUTE)
    splits = blocks.get("splits") or max(1, min(-(-chip.cores // (layout.batch * tiles)), pairs // 8))
    # As many groups at a time as fill the chip twice, and no more, for the sake of the memory for their
    # shares.
    enough = min(blocks.get("groups") or -(-2 * chip.cores // (tiles * splits)), layout.batch)
    at_once = next(n for n in range(enough, layout.batch + 1) if layout.batch % n == 0)
    grid = (at_once, splits, tiles)
    kernels = (
        first,
        fitting(lambda stages: gpu_backward.query_kernel(layout, dtype, stages)),
        fitting(lambda stages: gpu_backward.key_kernel(layout, dtype, grid, stages, of_values=False)),
        fitting(lambda stages: gpu_backward.key_kernel(layout, dtype, grid, stages, of_values=True)),
    )
    return Plan(kernels, layout, columns)


def _fitting(chip: Chip, kernels: Iterable[Kernel]) -> Kernel:
    """Returns the first kernel that fits; raises `Refused` for the last if none does."""
    kernel = None
    for kernel in kernels:
        if plans.fits(chip, kernel.launch) is None:
            return kernel
    assert kernel is not None
    plans.check(chip, (kernel.launch,))
    return kernel


def _check(query: Described, *keys: Described) -> None:
    arrays = (query, *keys)
    if not all(isinstance(size, int) for array in arrays for size in array.shape):
        raise Refused(
            f"query: got symbolic sizes {query.shape}, expected numbers (a kernel is planned for one size)"
        )
    dtypes = {jnp.dtype(a.dtype).name for a in arrays}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        found = ", ".join(sorted(dtypes))
        raise Refused(f"arrays: got dtypes {found}, expected {' or '.join(DTYPES)} for all of them")
    if query.shape[-1] > max(FEATURES):
        raise Refused(
            f"registers: D = {query.shape[-1]} needs as many sums for each row, a warpgroup has room for "
            f"{max(FEATURES)}"
        )
    if 0 in query.shape:
        raise Refused(f"query: got shape {query.shape}, expected at least one position, head and feature")


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Block sizes to try; the first is the default."""
    del config, arrays
    return {"forward": list(CANDIDATES), "backward": list(BACKWARD_CANDIDATES)}


def forward(
    config: Config,
    *arrays: Array,
    blocks: Mapping[str, int] | None = None,
    chip: Chip = HOPPER,
    interpret: bool = False,
) -> tuple[Float[Array, "B N H D"], Float[Array, "B H N"]]:
    """`reference.trilinear_attention` (Roy et al. 2025, Algorithm 1): its arrays and its results.

    Args:
        config: windows, causality and scale.
        *arrays: query, key1, key2, value1, value2.
        blocks: as in `plan`.
        chip: that the call is planned for.
        interpret: run on a CPU, slowly.

    Raises:
        Refused: as `plan`.
    """
    planned = plan("forward", config, *arrays, chip=chip, blocks=blocks)
    layout, (query, *keys) = arranged(config, arrays)
    laid_out = _laid_out(layout, *keys, columns=planned.columns)
    out, lse = gpu_forward.run(
        layout, planned.kernels[0], as_rows(layout, query), *laid_out, interpret=interpret
    )
    batch = query.shape[0]
    return from_rows(layout, out, batch), from_row_scalars(layout, lse, batch)


def backward(
    config: Config,
    *operands: Array,
    blocks: Mapping[str, int] | None = None,
    chip: Chip = HOPPER,
    interpret: bool = False,
) -> tuple[Array, ...]:
    """The gradients of query, key1, key2, value1 and value2.

    `operands` are the arrays of the forward pass, its output (not needed: `gpu_forward` says why) and
    log-sum-exp, and the output's gradient. The other arguments and errors are those of `forward`.
    """
    *arguments, _, lse, dout = operands
    planned = plan("backward", config, *arguments, chip=chip, blocks=blocks)
    of_delta, of_query, of_keys, of_values = planned.kernels
    layout, (query, *keys) = arranged(config, arguments)
    batch = query.shape[0]
    queries, douts = (as_rows(layout, a.astype(query.dtype)) for a in (query, dout))
    laid_out = _laid_out(layout, *keys, columns=planned.columns)
    mean = gpu_forward.run(layout, of_delta, queries, *laid_out, dout=douts, interpret=interpret)
    # Of each row the power of two that its weights are to be divided by, and the mean of its dP.
    numbers = jnp.stack([row_scalars(layout, lse * LOG2E), mean], axis=1)
    laid_out = _laid_out(layout, *keys, columns=COLUMNS)
    dquery = gpu_backward.run_query_kernel(
        layout, of_query, queries, douts, numbers, *laid_out, interpret=interpret
    )

    at_once, _, tiles = of_keys.grid
    rest = [as_keys(layout, a, tiles * ROWS - layout.length) for a in (keys[1], keys[3])]
    arrays = (queries, douts, numbers, *laid_out[:2], *rest)

    def key_gradients(arrays):
        found = []
        for kernel, of in ((of_keys, False), (of_values, True)):
            totals, shares = gpu_backward.run_key_kernel(
                layout, kernel, *arrays, of_values=of, interpret=interpret
            )
            found += [gpu_backward.sum_of_shares(layout, tiles, shares), totals.sum(1)]
        return tuple(found)

    if at_once == layout.batch:
        found = key_gradients(arrays)
    else:
        parts = [a.reshape(-1, at_once, *a.shape[1:]) for a in arrays]
        found = [a.reshape(layout.batch, *a.shape[2:]) for a in lax.map(key_gradients, parts)]
    factors = (layout.scale * layout.sign, layout.scale, 1.0, 1.0)
    found = (from_keys(layout, x * f, batch) for x, f in zip(found, factors, strict=True))
    return in_order(layout.exchanged, (from_rows(layout, dquery, batch), *found), arguments)


def _laid_out(layout: Geometry, key1: Array, key2: Array, value1: Array, value2: Array, *, columns: int):
    """First keys and values, and second ones for tiles of so many columns."""
    firsts = (as_keys(layout, a) for a in (key1, value1))
    return *firsts, *(as_windows(layout, a, columns) for a in (key2, value2))
