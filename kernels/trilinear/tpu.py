"""Trilinear attention on TPUs (Pallas Mosaic TPU): what is supported, and the two passes.

The grid goes over batch, groups, segments of positions, heads and tiles of positions, one after the other. A
segment's keys and values (and in the backward pass the sums of their gradients) stay in vector memory while
all its query tiles pass, so keys are read once, and the backward pass is one sweep of six products in which
nothing is computed twice and nothing needs atomics. `tpu_plan` says how positions are cut, `tpu_forward` and
`tpu_backward` hold the kernels.

The loop over first keys goes by distance, as that of the blockwise path does (see `xla`), so that a tile of
128 positions wastes nothing on a window of 32.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.chips import DEFAULT, Chip
from kernels.plans import Launch
from kernels.softmax import LOG2E
from kernels.tables import Direction
from kernels.trilinear import tpu_backward, tpu_forward, tpu_plan
from kernels.trilinear.reference import Config, in_order
from kernels.trilinear.tpu_plan import LANES, Plan


@dataclasses.dataclass(frozen=True)
class Program:
    """The plan of a call in one direction."""

    sizes: Plan
    launches: tuple[Launch, ...]


def plan(
    direction: Direction,
    config: Config,
    *arrays: Any,
    chip: Chip,
    blocks: Mapping[str, int] | None = None,
) -> Program:
    """Plans a call for a chip: `tpu_plan.plan`, with the windows in either order."""
    config, arrays = config.smaller_window_first(arrays)
    sizes = tpu_plan.plan(direction, config, *arrays, chip=chip, blocks=blocks)
    return Program(sizes, (sizes.launch(direction),))


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Tiles worth trying: positions and heads of a tile, second keys of a block."""

    def tried(direction):
        wishes = [None] + [
            {"queries": queries, "heads": heads, "second": second}
            for queries in (LANES, 2 * LANES, 4 * LANES)
            for heads in (1, 2, 4, 8)
            for second in (2 * LANES, 5 * LANES, 9 * LANES)
        ]
        plans = [plan(direction, config, *arrays, chip=DEFAULT["tpu"], blocks=blocks) for blocks in wishes]
        return list({tuple(p.sizes.blocks.items()): p.sizes.blocks for p in plans}.values())

    return {"forward": tried("forward"), "backward": tried("backward")}


def forward(
    config: Config,
    *arrays: Array,
    chip: Chip = DEFAULT["tpu"],
    blocks: Mapping[str, int] | None = None,
    interpret: Any = False,
) -> tuple[Float[Array, "B N H D"], Float[Array, "B H N"]]:
    """`reference.trilinear_attention` by the forward kernel: its arrays and its results.

    Args:
        config: windows, causality and scale.
        *arrays: query, key1, key2, value1, value2.
        chip: the TPU that it is planned for.
        blocks: "queries", "heads" and "second", see `Plan`; None for sizes that suit the shape.
        interpret: True to run on a CPU, or Pallas' parameters of its TPU interpreter.
    """
    sizes = plan("forward", config, *arrays, chip=chip, blocks=blocks).sizes
    _, (query, *keys) = config.smaller_window_first(arrays)
    out, lse = tpu_forward.attend(sizes, sizes.heads_of(query), *_resident(sizes, keys), interpret=interpret)
    batch, length, heads, _ = query.shape
    return sizes.positions_of(out), lse[..., 0, :length].reshape(batch, heads, length)


def backward(
    config: Config,
    *operands: Array,
    chip: Chip = DEFAULT["tpu"],
    blocks: Mapping[str, int] | None = None,
    interpret: Any = False,
) -> tuple[Array, ...]:
    """Gradients of `forward`'s arrays; `operands` are these, its output, log-sum-exp and the cotangent."""
    *arrays, out, lse, dout = operands
    sizes = plan("backward", config, *arrays, chip=chip, blocks=blocks).sizes
    swapped, (query, *keys) = config.smaller_window_first(arrays)
    delta = None
    if not sizes.narrow:
        delta = jnp.sum(out.astype(jnp.float32) * dout.astype(jnp.float32), axis=-1)
        delta = sizes.rows_of(jnp.swapaxes(delta, 1, 2))
    dquery, *sums = tpu_backward.sweep(
        sizes,
        sizes.heads_of(query),
        sizes.heads_of(dout.astype(query.dtype)),
        sizes.rows_of(lse * LOG2E),
        delta,
        *_resident(sizes, keys),
        interpret=interpret,
    )
    dkey1, dvalue1, dkey2, dvalue2 = (sizes.joined(a) for a in sums)
    return in_order(
        swapped is not config, (sizes.positions_of(dquery), dkey1, dkey2, dvalue1, dvalue2), arrays
    )


def _resident(plan: Plan, keys: list[Array]) -> tuple[Array, ...]:
    """key1, value1, key2, value2 in segments.

    The first two meet queries row by row, from rows that start anywhere: in 32 bits, of which a sublane holds
    one, a slice may do so. The second two are operands of matrix products in their own type.
    """
    key1, key2, value1, value2 = keys
    return (
        plan.segmented(key1.astype(jnp.float32)),
        plan.segmented(value1.astype(jnp.float32)),
        plan.segmented(key2),
        plan.segmented(value2),
    )
