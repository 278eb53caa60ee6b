"""2-simplicial attention on TPUs, forward: an online softmax over tiles of pairs, queries in the lanes."""

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from kernels.softmax import MASKED
from kernels.two_simplicial import tpu_tiles as tiles
from kernels.two_simplicial.tpu_layout import LANES
from kernels.two_simplicial.tpu_tiles import SUBLANES, Operand, Spec

LN2 = math.log(2.0)


def attend(spec: Spec, parts: dict[str, Any], interpret: Any) -> tuple[Array, Array]:
    """The kernel over all groups and tiles.

    Args:
      spec: what is static.
      parts: the arrays of `tpu_layout` by name: x, z, aa, y, norms or q, a, r; v and g with a feature of
        ones; allowed; mask or None.
      interpret: what `pallas_call` takes.

    Returns:
      The output [G, F, N] in the type of the values, and the log-sum-exp [G, 1, N].
    """
    plan = spec.plan
    grid = (plan.groups, plan.padded_queries // plan.queries, plan.first // plan.keys)
    out, lse = tiles.call(spec, _kernel, "forward", grid, operands(spec, parts), interpret)
    return out, lse


def operands(spec: Spec, parts: dict[str, Any]) -> tuple[dict, dict, dict]:
    """What the kernel reads, writes and keeps, by name."""
    plan = spec.plan
    inputs = {
        **tile_inputs(spec, parts, lambda step: step),
        **value_inputs(spec, parts, lambda step: step),
    }
    outputs = {
        "out": Operand(
            jax.ShapeDtypeStruct((plan.groups, plan.f, plan.padded_queries), spec.dtype),
            (1, plan.f, plan.queries),
            lambda g, i, j: (g, 0, i),
        ),
        "lse": Operand(
            jax.ShapeDtypeStruct((plan.groups, 1, plan.padded_queries), jnp.float32),
            (1, 1, plan.queries),
            lambda g, i, j: (g, 0, i),
        ),
    }
    scratch = {
        **tile_scratch(spec, parts),
        "weights": ((plan.rows, plan.queries), spec.dtype),
        "w_tile": ((plan.rows, plan.f + 1), spec.dtype),
        "sums": ((plan.f + 1, plan.queries), jnp.float32),
        "top": ((SUBLANES, plan.queries), jnp.float32),
    }
    return inputs, outputs, scratch


def tile_inputs(spec: Spec, parts: dict[str, Any], order: Any) -> dict[str, Operand]:
    """What a tile's logits are made of; `order` turns the grid's step into (group, query tile, key tile)."""
    plan = spec.plan
    first, second, queries = plan.keys, plan.second, plan.queries

    def at(*place: str | int) -> Any:
        """A block's place from the names of the three steps, 0 for a whole axis."""

        def index(*step):
            g, i, j = order(step)
            # Not //: that lowers through the sign, which only a machine with a TPU can lower.
            named = {"g": g, "i": i, "j": j, "b": jax.lax.div(g, jnp.int32(plan.heads))}
            return tuple(named[name] if isinstance(name, str) else name for name in place)

        return index

    if spec.unsigned:
        inputs = {
            "x": Operand(parts["x"], (1, first, queries), at("g", "j", "i")),
            "z": Operand(parts["z"], (1, second, queries), at("g", 0, "i")),
            "aa": Operand(parts["aa"], (1, SUBLANES, queries), at("g", 0, "i")),
            "y": Operand(parts["y"], (1, first, second), at("g", "j", 0)),
            "norms": Operand(parts["norms"], (1, first, second), at("g", "j", 0)),
        }
    else:
        depth = parts["a"].shape[2]
        inputs = {
            "q": Operand(parts["q"], (1, depth, queries), at("g", 0, "i")),
            "a": Operand(parts["a"], (1, first, depth), at("g", "j", 0)),
            "r": Operand(parts["r"], (1, second, depth), at("g", 0, 0)),
        }
    allowed = parts["allowed"]
    alike = allowed.shape[0] == 1
    inputs["allowed"] = Operand(allowed, (1, first, second), at(0 if alike else "b", "j", 0))
    if spec.masked:
        mask = parts["mask"]
        whole = [size > 1 for size in mask.shape[:3]]
        inputs["mask"] = Operand(
            mask,
            (1, first if whole[1] else 1, second if whole[2] else 1, queries),
            at("b" if whole[0] else 0, "j" if whole[1] else 0, 0, "i"),
        )
    return inputs


def value_inputs(spec: Spec, parts: dict[str, Any], order: Any) -> dict[str, Operand]:
    """What the values of a tile's pairs are made of."""
    v, g = parts["v"], parts["g"]
    return {
        "v": Operand(v, (1, spec.plan.second, v.shape[2]), lambda *step: (order(step)[0], 0, 0)),
        "g": Operand(
            g, (1, spec.plan.keys, *g.shape[2:]), lambda *step: (order(step)[0], order(step)[2], 0, 0)
        ),
    }


def tile_scratch(spec: Spec, parts: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Room for a tile's logits and for the numbers of its pairs."""
    plan = spec.plan
    scratch = {"tile": ((plan.rows, plan.queries), jnp.float32)}
    column = ((plan.rows, LANES), jnp.float32)
    if spec.unsigned:
        return {**scratch, "y_column": column, "norm_column": column}
    depth = parts["a"].shape[2]
    products = ((plan.rows, 2 * depth), jnp.bfloat16) if spec.split else ((plan.rows, depth), jnp.float32)
    return {**scratch, "c_tile": products, **({"bias_column": column} if spec.biased else {})}


def _kernel(spec: Spec, r: SimpleNamespace) -> None:
    step, f = pl.program_id(2), spec.plan.f

    @pl.when(step == 0)
    def _():
        # An unsigned logit is never below 0.
        r.top[...] = jnp.full(r.top.shape, 0.0 if spec.unsigned else MASKED, jnp.float32)
        r.sums[...] = jnp.zeros(r.sums.shape, jnp.float32)

    tiles.values(spec, r)
    before = r.top[...]
    top = jnp.maximum(before, _unsigned_logits(spec, r) if spec.unsigned else _product_logits(spec, r))
    r.top[...] = top
    _weights(spec, r, top)
    r.sums[...] *= jnp.exp2(before - top)[:1]

    def add(rows):
        r.sums[...] += tiles.dot(r.w_tile[rows, :], r.weights[rows, :], (0, 0))

    tiles.over_products(spec, add)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        total = r.sums[f:, :]
        some = total > 0
        total = jnp.where(some, total, 1.0)
        r.out[...] = jnp.where(some, r.sums[:f, :] / total, 0.0).astype(r.out.dtype)
        r.lse[...] = jnp.where(some, r.top[:1, :] * LN2 + jnp.log(total), 0.0)


def _unsigned_logits(spec: Spec, r: SimpleNamespace) -> Array:
    """Squared logits into the tile, -1 where masked; the largest logit of each query."""
    tiles.columns(spec, r.y_column, r.y[...])
    tiles.columns(spec, r.norm_column, r.norms[...])

    def fold(j, top):
        for rows, second in tiles.strips(spec, j):
            square = tiles.squares(spec, r, j, rows, second).square
            if spec.masked:
                square = jnp.where(tiles.is_allowed(spec, r, j, second), square, -1.0)
            r.tile[rows, :] = tiles.flat(square)
            top = jnp.maximum(top, jnp.max(square, axis=0))
        return top

    top = tiles.over_first(spec, fold, jnp.zeros((SUBLANES, spec.plan.queries), jnp.float32))
    # The maximum before the root: one root a query instead of one a triple.
    return jnp.sqrt(_in_all_rows(jnp.max(top, axis=0, keepdims=True)))


def _product_logits(spec: Spec, r: SimpleNamespace) -> Array:
    """Logits into the tile, MASKED where masked; the largest of each query."""
    tiles.bias_columns(spec, r)
    tiles.product_logits(spec, r)

    def fold(j, top):
        for rows, second in tiles.strips(spec, j):
            logit = tiles.scaled(spec, r, rows)
            if spec.masked:
                logit = jnp.where(tiles.is_allowed(spec, r, j, second), logit, MASKED)
            r.tile[rows, :] = tiles.flat(logit)
            top = jnp.maximum(top, jnp.max(logit, axis=0))
        return top

    lowest = jnp.full((SUBLANES, spec.plan.queries), MASKED, jnp.float32)
    return _in_all_rows(jnp.max(tiles.over_first(spec, fold, lowest), axis=0, keepdims=True))


def _in_all_rows(row: Array) -> Array:
    return jnp.broadcast_to(row, (SUBLANES, row.shape[1]))


def _weights(spec: Spec, r: SimpleNamespace, top: Array) -> None:
    """Exponentials of the logits; something finite for pairs that are not there: their values are 0."""

    def fold(j, carry):
        for rows, _ in tiles.strips(spec, j):
            tile = tiles.registers(r.tile[rows, :])
            logit = tile * jax.lax.rsqrt(tile) if spec.unsigned else tile
            weight = jnp.exp2(logit - top[None])
            if spec.masked:
                weight = jnp.where(tile >= 0 if spec.unsigned else tile > 0.5 * MASKED, weight, 0.0)
            r.weights[rows, :] = tiles.flat(weight).astype(spec.dtype)
        return carry

    tiles.over_first(spec, fold)
