"""2-simplicial attention by hand-written TPU kernels (Pallas Mosaic TPU), a backend of `kernels/dispatch.py`.

`tpu_layout.py` brings the arguments into the shape of tiles, `tpu_forward.py` and `tpu_backward.py` are the
kernels, `tpu_tiles.py` what they share. Memory is that of the arguments, and of [N, M], [M, M] and [M, E, F]
a group; nothing has an entry a triple.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kernels.arrays import round_up
from kernels.two_simplicial import tpu_backward, tpu_forward, tpu_layout, tpu_tiles
from kernels.two_simplicial.reference import Config
from kernels.two_simplicial.tpu_layout import LANES, Plan
from kernels.two_simplicial.tpu_tiles import Spec

ROWS = 1024  # pairs of a tile, where the keys allow it
TRIPLES = 1 << 19  # triples of a tile: enough work for a step of the grid, and 2 MiB in float32
QUERIES = 512
VMEM = 48 << 20  # what a kernel may take of a core's on-chip memory (64 MiB on the smallest of these chips)
DTYPES = ("float32", "bfloat16")


def unsupported(config: Config, *arrays: Any) -> str | None:
    """Why these arguments cannot be served, None when they can."""
    *inputs, _ = arrays
    for name, array in zip(("query", "key1", "key2", "value", "bilinear"), inputs, strict=True):
        if str(array.dtype) not in DTYPES:
            return f"{name}: got dtype {array.dtype}, expected {' or '.join(DTYPES)}"
    if config.logit == "unsigned" and config.scale < 0:
        return f"scale: got {config.scale}, expected a number of at least 0 with logit='unsigned'"
    smallest = block_candidates(config, *arrays)["backward"][-1]
    used = max(vmem_bytes(config, *arrays, blocks=smallest).values())
    if used > VMEM:
        return (
            f"M: got {inputs[1].shape[1]} keys, which need {used >> 20} MiB of on-chip memory, "
            f"expected at most {VMEM >> 20} MiB"
        )
    return None


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Tiles to try when tuning, the default first, the smallest last."""
    del config
    *_, mask = arrays
    n, m = arrays[0].shape[1], arrays[1].shape[1]
    second = _second(m, arrays[3], arrays[4], mask)
    most_queries = min(QUERIES * 2, round_up(n, LANES))
    queries = [q for q in (1024, 512, 256, 128) if q <= most_queries]
    least = m if m <= 8 else 8
    keys = [least] + [j for j in (16, 32, 64) if j < m + 16 and j > least and j * second <= 2 * ROWS]
    candidates = [{"queries": q, "keys": j} for q in queries for j in keys]

    def unlike(blocks):
        """How far from the default: as many pairs as wanted, then as many queries as there is room for."""
        pairs = blocks["keys"] * second
        triples = pairs * blocks["queries"]
        return (triples > TRIPLES and pairs * LANES < triples, pairs > ROWS, -triples, -blocks["queries"])

    first, *rest = sorted(candidates, key=unlike)
    smallest = {"queries": LANES, "keys": least}
    rest = [blocks for blocks in rest if blocks != smallest]
    ordered = [first, *rest] + ([smallest] if first != smallest else [])
    return {"forward": ordered, "backward": ordered}


def vmem_bytes(config: Config, *arrays: Any, blocks: Mapping[str, int]) -> dict[str, int]:
    """On-chip memory that each kernel takes with these blocks, in bytes."""
    query, key1, key2, value, bilinear, mask = arrays
    spec = _spec(config, arrays, blocks)

    def parts(query, key1, key2, value, bilinear, mask):
        v, g = tpu_layout.value_factors(spec.plan, value, bilinear, with_ones=True)
        like_out = jnp.zeros((*query.shape[:3], spec.plan.f), value.dtype)
        lse = jnp.zeros((query.shape[0], spec.plan.heads, spec.plan.n), jnp.float32)
        left = tpu_backward.residuals(spec, like_out, lse, like_out)
        return {**_parts(spec, query, key1, key2, mask), **left, "v": v, "g": g}

    shapes = jax.eval_shape(parts, query, key1, key2, value, bilinear, mask)
    kernels = {
        "forward": tpu_forward.operands,
        "over_queries": tpu_backward.query_operands,
        "over_keys": tpu_backward.key_operands,
    }
    return {name: tpu_tiles.vmem_bytes(*operands(spec, shapes)) for name, operands in kernels.items()}


def forward(
    config: Config, *arrays: Any, blocks: Mapping[str, int] | None = None, interpret: Any = False
) -> tuple[Array, Array]:
    """Output [B, N, H, F] and log-sum-exp [B, H, N] of `reference.two_simplicial_attention`'s arrays.

    `blocks` are "queries" and "keys" of a tile, `interpret` is True or Pallas' own parameters, on a CPU.
    """
    query, key1, key2, value, bilinear, mask = arrays
    spec = _spec(config, arrays, blocks or block_candidates(config, *arrays)["forward"][0])
    parts = _parts(spec, query, key1, key2, mask)
    parts["v"], parts["g"] = tpu_layout.value_factors(spec.plan, value, bilinear, with_ones=True)
    out, lse = tpu_forward.attend(spec, parts, interpret)
    out = tpu_layout.from_query_rows(out, spec.plan).astype(value.dtype)
    return out, tpu_layout.from_scalar_rows(lse, spec.plan)


def backward(
    config: Config, *arrays: Any, blocks: Mapping[str, int] | None = None, interpret: Any = False
) -> tuple[Array, ...]:
    """Gradients of query, key1, key2, value and bilinear.

    `arrays` are those of `forward`, its two results and the cotangent of the first.
    """
    *inputs, out, lse, dout = arrays
    query, key1, key2, value, bilinear, mask = inputs
    spec = _spec(config, inputs, blocks or block_candidates(config, *inputs)["backward"][0])
    parts = _parts(spec, query, key1, key2, mask)
    parts["v"], parts["g"] = tpu_layout.value_factors(spec.plan, value, bilinear)
    parts |= tpu_backward.residuals(spec, out, lse, dout)
    from_queries = tpu_backward.over_queries(spec, parts, interpret)
    from_keys, dv, dg = tpu_backward.over_keys(spec, parts, interpret)
    _, pull = jax.vjp(lambda *a: _logit_parts(spec, parts["allowed"], *a), query, key1, key2)
    if not spec.unsigned:
        from_queries = {"q": from_queries["q"] * config.scale}
    cotangents = from_queries | from_keys
    _, pull_values = jax.vjp(lambda *a: tpu_layout.value_factors(spec.plan, *a), value, bilinear)
    return (
        *pull({name: c.astype(parts[name].dtype) for name, c in cotangents.items()}),
        *pull_values((dv.astype(spec.dtype), dg.astype(spec.dtype))),
    )


def _spec(config: Config, arrays: Any, blocks: Mapping[str, int]) -> Spec:
    query, key1, key2, value, bilinear, mask = arrays
    (batch, n, heads, _), m = query.shape, key1.shape[1]
    plan = Plan(
        groups=batch * heads,
        heads=heads,
        n=n,
        m=m,
        f=bilinear.shape[1],
        queries=blocks["queries"],
        keys=blocks["keys"],
        padded_queries=round_up(n, blocks["queries"]),
        first=round_up(m, blocks["keys"]),
        second=_second(m, value, bilinear, mask),
    )
    alike = mask is None or mask.shape[1] > 1
    return Spec(
        config=config,
        plan=plan,
        dtype=tpu_layout.value_dtype(value, bilinear),
        masked=mask is not None and mask.shape[1] > 1,
        biased=not alike or plan.first > m or plan.second > m,
        split=all(a.dtype == jnp.bfloat16 for a in (query, key1, key2)),
    )


def _second(m: int, value: Any, bilinear: Any, mask: Any) -> int:
    """Second keys of a tile: as the sublanes of the narrowest type in it want."""
    if mask is not None and mask.shape[1] > 1:
        return round_up(m, 32)
    return round_up(m, 16 if tpu_layout.value_dtype(value, bilinear) == jnp.bfloat16 else 8)


def _parts(spec: Spec, query: Any, key1: Any, key2: Any, mask: Any) -> dict[str, Any]:
    allowed = tpu_layout.pair_allowed(mask, spec.plan)
    logit_parts = _logit_parts(spec, allowed, query, key1, key2)
    return {**logit_parts, "allowed": allowed, "mask": tpu_layout.triple_mask(mask, spec.plan)}


def _logit_parts(spec: Spec, allowed: Any, query: Any, key1: Any, key2: Any) -> dict[str, Any]:
    """What logits are made of, by name: x, z, aa, y, norms for the unsigned logit, q, a, r for the others."""
    if spec.unsigned:
        names = ("x", "z", "aa", "y", "norms")
        arrays = tpu_layout.pairwise(spec.config, spec.plan, allowed, query, key1, key2)
    else:
        names = ("q", "a", "r")
        if not spec.split:
            query, key1, key2 = (a.astype(jnp.float32) for a in (query, key1, key2))
        arrays = tpu_layout.product_factors(spec.config, spec.plan, query, key1, key2)
    return dict(zip(names, arrays, strict=True))
