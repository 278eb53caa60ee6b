"""Trilinear attention on TPUs (Pallas Mosaic TPU): what is supported, and the two passes.

The grid goes over batch, groups, segments of positions, heads and tiles of positions, one after the other. A
segment's keys and values (and in the backward pass the sums of their gradients) stay in vector memory while
all its query tiles pass, so keys are read once, and the backward pass is one sweep of six products in which
nothing is computed twice and nothing needs atomics. `tpu_plan` says how positions are cut, `tpu_forward` and
`tpu_backward` hold the kernels.

The loop over first keys goes by distance, as that of the blockwise path does (see `xla`), so that a tile of
128 positions wastes nothing on a window of 32.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.softmax import LOG2E
from kernels.trilinear import tpu_backward, tpu_forward
from kernels.trilinear.reference import Config, in_order
from kernels.trilinear.tpu_plan import LANES, Plan, make_plan

DTYPES = (jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16))


def unsupported(config: Config, *arrays: Any) -> str | None:
    """Why the kernels do not take these arguments; None if they do."""
    dtypes = {jnp.dtype(a.dtype) for a in arrays[:5]}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        named = ", ".join(sorted(d.name for d in dtypes))
        return f"arrays: got dtypes {named}, expected float32 or bfloat16 for all of them"
    config, (query, key, *_) = config.smaller_window_first(arrays)
    if make_plan(config, query, key) is None:
        return (
            f"query: got {query.shape[1]} positions with {query.shape[-1]} features, expected keys that fit "
            f"in vector memory (small windows for both keys allow longer sequences)"
        )
    return None


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Tiles worth trying: positions and heads of a tile, second keys of a block."""
    config, (query, key, *_) = config.smaller_window_first(arrays)
    plan = make_plan(config, query, key)
    if plan is None:
        return {"forward": [], "backward": []}
    tried = [plan.blocks]
    for queries in (LANES, 2 * LANES, 4 * LANES):
        for heads in (1, 2, 4, 8):
            for second in (2 * LANES, 5 * LANES, 9 * LANES):
                blocks = {"queries": queries, "heads": heads, "second": second}
                other = make_plan(config, query, key, blocks)
                if other is not None and other.blocks not in tried:
                    tried.append(other.blocks)
    return {"forward": tried, "backward": tried}


def forward(
    config: Config, *arrays: Array, blocks: Mapping[str, int] | None = None, interpret: Any = False
) -> tuple[Float[Array, "B N H D"], Float[Array, "B H N"]]:
    """`reference.trilinear_attention` by the forward kernel: its arrays and its results.

    Args:
        config: windows, causality and scale.
        *arrays: query, key1, key2, value1, value2.
        blocks: "queries", "heads" and "second", see `Plan`; None for sizes that suit the shape.
        interpret: True to run on a CPU, or Pallas' parameters of its TPU interpreter.
    """
    config, (query, *keys) = config.smaller_window_first(arrays)
    plan = _planned(config, query, keys[0], blocks)
    out, lse = tpu_forward.attend(plan, plan.heads_of(query), *_resident(plan, keys), interpret=interpret)
    batch, length, heads, _ = query.shape
    return plan.positions_of(out), lse[..., 0, :length].reshape(batch, heads, length)


def backward(
    config: Config, *operands: Array, blocks: Mapping[str, int] | None = None, interpret: Any = False
) -> tuple[Array, ...]:
    """Gradients of `forward`'s arrays; `operands` are these, its output, log-sum-exp and the cotangent."""
    *arrays, out, lse, dout = operands
    swapped, (query, *keys) = config.smaller_window_first(arrays)
    plan = _planned(swapped, query, keys[0], blocks)
    delta = jnp.sum(out.astype(jnp.float32) * dout.astype(jnp.float32), axis=-1)
    dquery, *sums = tpu_backward.sweep(
        plan,
        plan.heads_of(query),
        plan.heads_of(dout.astype(query.dtype)),
        plan.rows_of(lse * LOG2E),
        plan.rows_of(jnp.swapaxes(delta, 1, 2)),
        *_resident(plan, keys),
        interpret=interpret,
    )
    dkey1, dvalue1, dkey2, dvalue2 = (plan.joined(a) for a in sums)
    return in_order(
        swapped is not config, (plan.positions_of(dquery), dkey1, dkey2, dvalue1, dvalue2), arrays
    )


def _planned(config: Config, query: Array, key: Array, blocks: Mapping[str, int] | None) -> Plan:
    plan = make_plan(config, query, key, blocks)
    if plan is None:
        raise NotImplementedError(unsupported(config, query, key, key, key, key))
    return plan


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
