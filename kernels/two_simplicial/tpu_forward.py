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
from kernels.two_simplicial.tpu_layout import LANES, Plan
from kernels.two_simplicial.tpu_tiles import SUBLANES, Kernel, Operand, Spec

LN2 = math.log(2.0)


def kernel(spec: Spec) -> Kernel:
    """The kernel over all groups and tiles.

    It reads the arrays of `tpu_layout` by name: x, z, aa, y, norms or q, a, r; v and g with a feature of
    ones; allowed; mask. It writes the output [G, F, N] in the type of the values, and the log-sum-exp
    [G, 1, N].
    """
    plan = spec.plan
    lanes = plan.padded_queries

    def by_query(rows, dtype):
        return Operand(
            dtype, (1, rows, plan.queries), lambda g, i, j, k: (g, 0, i), (plan.groups, rows, lanes)
        )

    return Kernel(
        name="two_simplicial_forward",
        body=_kernel,
        grid=query_grid(plan),
        inputs={**tile_inputs(spec, in_order), **value_inputs(spec, in_order, extra=1)},
        outputs={"out": by_query(plan.f, spec.dtype), "lse": by_query(1, jnp.float32)},
        scratch={
            **tile_scratch(spec),
            "weights": ((plan.rows, plan.queries), spec.dtype),
            "w_tile": ((plan.rows, plan.f + 1), spec.dtype),
            "sums": ((plan.f + 1, plan.queries), jnp.float32),
            "top": ((SUBLANES, plan.queries), jnp.float32),
        },
    )


def query_grid(plan: Plan) -> tuple[int, ...]:
    """Groups, tiles of queries, and for each of them all tiles of pairs."""
    tiles_of_pairs = plan.first // plan.keys, plan.second // plan.partners
    return plan.groups, plan.padded_queries // plan.queries, *tiles_of_pairs


def in_order(g: Any, i: Any, j: Any, k: Any) -> tuple[Any, ...]:
    """Group, tile of queries, tile of first keys and tile of second keys of a step of `query_grid`."""
    return g, i, j, k


def tile_inputs(spec: Spec, order: Any) -> dict[str, Operand]:
    """What a tile's logits are made of; `order` turns the grid's step into that of `query_grid`."""
    plan = spec.plan
    first, second, queries = plan.keys, plan.partners, plan.queries

    def at(*place: str | int) -> Any:
        """A block's place from the names of the four steps, 0 for a whole axis."""

        def index(*step):
            named: dict[str, Any] = dict(zip("gijk", order(*step), strict=True))
            # Not //: that lowers through the sign, which only a machine with a TPU can lower.
            named["b"] = jax.lax.div(named["g"], jnp.int32(plan.heads))
            return tuple(named[name] if isinstance(name, str) else name for name in place)

        return index

    if spec.unsigned:
        inputs = {
            "x": Operand(jnp.float32, (1, first, queries), at("g", "j", "i")),
            "z": Operand(jnp.float32, (1, second, queries), at("g", "k", "i")),
            "aa": Operand(jnp.float32, (1, SUBLANES, queries), at("g", 0, "i")),
            "y": Operand(jnp.float32, (1, first, second), at("g", "j", "k")),
            "norms": Operand(jnp.float32, (1, first, second), at("g", "j", "k")),
        }
    else:
        dtype = jnp.bfloat16 if spec.split else jnp.float32
        inputs = {
            "q": Operand(dtype, (1, spec.depth, queries), at("g", 0, "i")),
            "a": Operand(dtype, (1, first, spec.depth), at("g", "j", 0)),
            "r": Operand(dtype, (1, second, spec.depth), at("g", "k", 0)),
        }
    inputs["allowed"] = Operand(jnp.float32, (1, first, second), at(0 if spec.alike else "b", "j", "k"))
    if spec.mask is not None:
        whole = [size > 1 for size in spec.mask[:3]]
        inputs["mask"] = Operand(
            jnp.int8,
            (1, first if whole[1] else 1, second if whole[2] else 1, queries),
            at("b" if whole[0] else 0, "j" if whole[1] else 0, "k" if whole[2] else 0, "i"),
        )
    return inputs


def value_inputs(spec: Spec, order: Any, extra: int = 0, halves: int = 1) -> dict[str, Operand]:
    """What the values of a tile's pairs are made of; v_k is repeated where g has two `halves`."""
    plan, e = spec.plan, halves * (spec.e + extra)

    def of_second(*step):
        g, _, _, k = order(*step)
        return g, k, 0

    def of_first(*step):
        g, _, j, _ = order(*step)
        return g, j, 0, 0

    return {
        "v": Operand(spec.dtype, (1, plan.partners, e), of_second),
        "g": Operand(spec.dtype, (1, plan.keys, e, plan.f + extra), of_first),
    }


def tile_scratch(spec: Spec) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Room for a tile's logits and for the numbers of its pairs."""
    plan = spec.plan
    scratch = {"tile": ((plan.rows, plan.queries), jnp.float32)}
    column = ((plan.rows, LANES), jnp.float32)
    if spec.unsigned:
        return {**scratch, "y_column": column, "norm_column": column}
    length, dtype = spec.products
    products = ((plan.rows, length), dtype)
    return {**scratch, "c_tile": products, **({"bias_column": column} if spec.biased else {})}


def _kernel(spec: Spec, r: SimpleNamespace) -> None:
    f = spec.plan.f
    begins, ends = tiles.walk(2, 3)

    @pl.when(begins)
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

    @pl.when(ends)
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
