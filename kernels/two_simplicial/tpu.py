"""2-simplicial attention by hand-written TPU kernels (Pallas Mosaic TPU), a backend of `kernels/dispatch.py`.

`tpu_layout.py` brings the arguments into the shape of tiles, `tpu_forward.py` and `tpu_backward.py` are the
kernels, `tpu_tiles.py` and `tpu_weights.py` what they share. What the kernels read is [N, M], [M, M] and
[M, E, F] a group, so a call goes over its batch and heads in pieces (`tpu_pieces.py`): memory is that of the
arguments and of one piece, and nothing has an entry a triple.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kernels import tpu_shared
from kernels.arrays import bfloat16_parts, round_up
from kernels.chips import DEFAULT, Chip
from kernels.plans import Planned, Refused, check, fits
from kernels.tables import Direction
from kernels.two_simplicial import tpu_backward, tpu_forward, tpu_layout, tpu_pieces, tpu_tiles
from kernels.two_simplicial.reference import Config
from kernels.two_simplicial.tpu_layout import LANES, Plan
from kernels.two_simplicial.tpu_tiles import Spec

ROWS = 1024  # pairs of a tile, where the keys allow it
TRIPLES = 1 << 19  # triples of a tile: enough work for a step of the grid, and 2 MiB in float32
QUERIES = 512
PARTNERS = 512  # second keys of a tile at most
MOST_KEYS = 4096
MOST_FEATURES = 128
DTYPES = ("float32", "bfloat16")
NAMES = ("query", "key1", "key2", "value", "bilinear")


@dataclasses.dataclass(frozen=True)
class Program(Planned):
    """The plan of a call in one direction, with what is static in it."""

    spec: Spec


def plan(
    direction: Direction,
    config: Config,
    *arrays: Any,
    chip: Chip,
    blocks: Mapping[str, int] | None = None,
) -> Program:
    """Plans a piece of a call for a chip, with tiles that fit into its vector memory.

    Args:
        direction: "forward" or "backward".
        config: logit, scale and eps.
        *arrays: `reference.two_simplicial_attention`'s, or their shapes and dtypes.
        chip: a TPU.
        blocks: wishes for "queries" and "keys" of a tile, made to suit the call; None for the default.

    Raises:
        Refused: what the kernels do not compute, and what fits with no tiles.
    """
    _check(config, arrays)
    arrays = tpu_pieces.cut_to(config, arrays).shapes(arrays)
    wishes = [] if blocks is None else [_suiting(blocks, arrays)]
    *first, smallest = *wishes, *_shrinking(arrays)
    for tried in first:
        program = _program(direction, config, arrays, tried)
        if not any(fits(chip, launch) for launch in program.launches):
            return program
    program = _program(direction, config, arrays, smallest)
    check(chip, program.launches)
    return program


def _check(config: Config, arrays: Any) -> None:
    *inputs, _ = arrays
    tpu_shared.check_arrays(DTYPES, **dict(zip(NAMES, inputs, strict=True)))
    query, key1, _, value, bilinear = inputs
    if config.logit == "unsigned" and config.scale < 0:
        raise Refused(f"scale: got {config.scale}, expected a number of at least 0 with logit='unsigned'")
    sizes = ("M", key1.shape[1], MOST_KEYS), ("D", query.shape[3], MOST_FEATURES)
    for name, size, most in (
        *sizes,
        ("E", value.shape[3], MOST_FEATURES),
        ("F", bilinear.shape[1], MOST_FEATURES),
    ):
        if size > most:
            raise Refused(f"{name}: got {size:,}, expected at most {most:,}")


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Tiles to try when tuning, the default first, the smallest last."""
    del config
    ordered = list(_shrinking(arrays))
    return {"forward": ordered, "backward": ordered}


def _shrinking(arrays: Any) -> Iterator[dict[str, int]]:
    n, m, partners = arrays[0].shape[1], arrays[1].shape[1], _partners(arrays)
    most_queries = min(QUERIES * 2, round_up(n, LANES))
    queries = [q for q in (1024, 512, 256, 128) if q <= most_queries]
    least = m if m <= 8 else 8
    keys = [least] + [j for j in (16, 32, 64) if j < m + 16 and j > least and j * partners <= 2 * ROWS]
    candidates = [{"queries": q, "keys": j} for q in queries for j in keys]

    def unlike(blocks):
        """How far from the default: as many pairs as wanted, then as many queries as there is room for."""
        pairs = blocks["keys"] * partners
        triples = pairs * blocks["queries"]
        return (triples > TRIPLES and pairs * LANES < triples, pairs > ROWS, -triples, -blocks["queries"])

    first, *rest = sorted(candidates, key=unlike)
    smallest = {"queries": LANES, "keys": least}
    yield first
    yield from (blocks for blocks in rest if blocks != smallest)
    if first != smallest:
        yield smallest


def _suiting(blocks: Mapping[str, int], arrays: Any) -> dict[str, int]:
    """Sizes near those wished for that the chip can load and that are not larger than the arrays."""
    n, m = arrays[0].shape[1], arrays[1].shape[1]
    keys = m if m <= 8 else round_up(min(blocks.get("keys", 8), m), 8)
    return {"queries": round_up(min(blocks.get("queries", LANES), n), LANES), "keys": keys}


def forward(
    config: Config,
    *arrays: Any,
    chip: Chip = DEFAULT["tpu"],
    blocks: Mapping[str, int] | None = None,
    interpret: Any = False,
) -> tuple[Array, Array]:
    """Output [B, N, H, F] and log-sum-exp [B, H, N] of `reference.two_simplicial_attention`'s arrays.

    `chip` and `blocks` are those of `plan`, `interpret` is True or Pallas' own parameters, on a CPU.
    """
    program = plan("forward", config, *arrays, chip=chip, blocks=blocks)
    spec, (attend,) = program.spec, program.kernels

    def piece(query, key1, key2, value, bilinear, mask):
        parts = _parts(spec, query, key1, key2, mask)
        v, g = tpu_layout.value_factors(spec.plan, value, bilinear, with_ones=True)
        parts |= {"v": v.astype(spec.dtype), "g": g.astype(spec.dtype)}
        results = tpu_tiles.run(spec, attend, parts, interpret)
        out = tpu_layout.from_query_rows(results["out"], spec.plan).astype(value.dtype)
        return out, tpu_layout.from_scalar_rows(results["lse"], spec.plan)

    cut = tpu_pieces.cut_to(config, arrays)
    out, lse = cut.run(piece, arrays, tpu_pieces.ARRAYS, tpu_pieces.RESULTS)
    return out, lse


def backward(
    config: Config,
    *arrays: Any,
    chip: Chip = DEFAULT["tpu"],
    blocks: Mapping[str, int] | None = None,
    interpret: Any = False,
) -> tuple[Array, ...]:
    """Gradients of query, key1, key2, value and bilinear.

    `arrays` are those of `forward`, its two results and the cotangent of the first.
    """
    inputs = arrays[:6]
    program = plan("backward", config, *inputs, chip=chip, blocks=blocks)
    cut = tpu_pieces.cut_to(config, inputs)
    axes = (*tpu_pieces.ARRAYS, *tpu_pieces.RESULTS, tpu_pieces.RESULTS[0])
    piece = functools.partial(_gradients, program, interpret)
    *gradients, dbilinear = cut.run(piece, arrays, axes, tpu_pieces.GRADIENTS)
    return *gradients, dbilinear.astype(inputs[4].dtype)


def _gradients(program: Program, interpret: Any, *arrays: Any) -> tuple[Array, ...]:
    """Those of a piece, that of bilinear in float32, as it is summed over pieces."""
    query, key1, key2, value, bilinear, mask, out, lse, dout = arrays
    spec, (*deltas, over_queries, over_keys) = program.spec, program.kernels
    parts = _parts(spec, query, key1, key2, mask)
    exact = bilinear.astype(jnp.float32)
    (v, g), pull_values = jax.vjp(lambda *a: tpu_layout.value_factors(spec.plan, *a), value, exact)
    if spec.narrow:  # g to 16 bits of its digits, in two halves that both meet v
        v, g = (
            jnp.concatenate([v, v], axis=2).astype(spec.dtype),
            jnp.concatenate(bfloat16_parts(g, 2), axis=2),
        )
    parts |= {"v": v, "g": g, **tpu_backward.residuals(spec, out, lse, dout)}
    for kernel in deltas:
        parts |= tpu_tiles.run(spec, kernel, parts, interpret)
    found = tpu_tiles.run(spec, over_queries, parts, interpret) | tpu_tiles.run(
        spec, over_keys, parts, interpret
    )
    dvalues = found.pop("dv"), found.pop("dg")
    if not spec.unsigned:
        dq = found["dq"]
        dq = dq[:, : spec.depth] + dq[:, spec.depth :] if spec.split else dq
        found["dq"] = spec.config.scale * dq
    _, pull = jax.vjp(lambda *a: _logit_parts(spec, parts["allowed"], *a), query, key1, key2)
    return (
        *pull({name[1:]: d for name, d in found.items()}),
        *pull_values(dvalues),
    )


def _program(direction: Direction, config: Config, arrays: Any, blocks: Mapping[str, int]) -> Program:
    spec = _spec(config, arrays, blocks)
    if direction == "forward":
        return Program((tpu_forward.kernel(spec),), spec)
    deltas = (tpu_backward.deltas(spec),) if spec.rounded else ()
    return Program((*deltas, tpu_backward.over_queries(spec), tpu_backward.over_keys(spec)), spec)


def _spec(config: Config, arrays: Any, blocks: Mapping[str, int]) -> Spec:
    query, key1, key2, value, bilinear, mask = arrays
    (batch, n, heads, depth), m, partners = query.shape, key1.shape[1], _partners(arrays)
    sizes = Plan(
        groups=batch * heads,
        heads=heads,
        n=n,
        m=m,
        f=bilinear.shape[1],
        queries=blocks["queries"],
        keys=blocks["keys"],
        partners=partners,
        padded_queries=round_up(n, blocks["queries"]),
        first=round_up(m, blocks["keys"]),
        second=round_up(m, partners),
    )
    by_query = None if mask is None or mask.shape[1] == 1 else (mask.shape[0], *mask.shape[2:], n)
    return Spec(
        config=config,
        plan=sizes,
        e=value.shape[3],
        depth=2 * depth if config.logit == "signed" else depth,
        dtype=tpu_layout.value_dtype(value, bilinear),
        mask=by_query,
        alike=mask is None or by_query is not None or mask.shape[0] == 1,
        biased=(mask is not None and by_query is None) or sizes.first > m or sizes.second > m,
        split=all(a.dtype == jnp.bfloat16 for a in (query, key1, key2)),
        rounded=value.dtype == jnp.bfloat16,
    )


def _partners(arrays: Any) -> int:
    """Second keys of a tile: all if they are few, up to what the sublanes of its narrowest type want."""
    _, key1, _, value, bilinear, mask = arrays
    m = key1.shape[1]
    if m > PARTNERS:
        return tpu_shared.cut(round_up(m, LANES), PARTNERS)
    if mask is not None and mask.shape[1] > 1:
        return round_up(m, 32)
    return round_up(m, 16 if tpu_layout.value_dtype(value, bilinear) == jnp.bfloat16 else 8)


def _parts(spec: Spec, query: Any, key1: Any, key2: Any, mask: Any) -> dict[str, Any]:
    allowed = tpu_layout.pair_allowed(mask, spec.plan)
    parts = _logit_parts(spec, allowed, query, key1, key2)
    if spec.split:  # exactly what they were, or their negatives
        parts = {name: x if spec.unsigned else x.astype(jnp.bfloat16) for name, x in parts.items()}
    return {**parts, "allowed": allowed, "mask": tpu_layout.triple_mask(mask, spec.plan)}


def _logit_parts(spec: Spec, allowed: Any, query: Any, key1: Any, key2: Any) -> dict[str, Any]:
    """What logits are made of, in float32: x, z, aa, y, norms (unsigned); q, a, r (the others)."""
    query, key1, key2 = (a.astype(jnp.float32) for a in (query, key1, key2))
    if spec.unsigned:
        names = ("x", "z", "aa", "y", "norms")
        arrays = tpu_layout.pairwise(spec.config, spec.plan, allowed, query, key1, key2)
    else:
        names = ("q", "a", "r")
        arrays = tpu_layout.product_factors(spec.config, spec.plan, query, key1, key2)
    return dict(zip(names, arrays, strict=True))
