"""2-simplicial attention on TPUs, backward: two kernels that compute the weights again, without atomics.

`over_queries` walks the tiles of pairs for each tile of queries and sums what belongs to queries, and to keys
by query (x, z); `over_keys` walks the tiles of queries for each tile of pairs and sums what belongs to pairs
and values. With P the softmax, dP = W dout and Delta = sum(dout * out),

    dlogit = P (dP - Delta)

and for the unsigned logit, the root of T = norms * inner + eps^2, inner = x^2 + z^2 + |q|^2 y^2 - 2 x y z,

    h = dlogit / (2 logit)     (dT)
    dx = 2 norms h (x - y z)   dz = 2 norms h (z - x y)   d|q|^2 = norms h y^2
    dy = 2 norms h (|q|^2 y - x z)                        dnorms = h inner

The way from these to the arguments is `jax.vjp` of `tpu_layout.pairwise`. For the other logits it is a
product rule: dq = sum c dlogit, dc = sum q dlogit, where c = k1 * k2.
"""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from kernels.softmax import LOG2E
from kernels.two_simplicial import tpu_tiles as tiles
from kernels.two_simplicial.tpu_forward import LN2, tile_inputs, tile_scratch, value_inputs
from kernels.two_simplicial.tpu_layout import LANES, query_rows, scalar_rows
from kernels.two_simplicial.tpu_tiles import SUBLANES, Operand, Spec


def residuals(spec: Spec, out: Array, lse: Array, dout: Array) -> dict[str, Array]:
    """What the forward pass left, as the kernels want it: dout [G, F, N], lse and Delta [G, 8, N]."""
    delta = jnp.sum(dout.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
    return {
        "dout": query_rows(dout, spec.plan).astype(spec.dtype),
        "lse": scalar_rows(lse.astype(jnp.float32) * LOG2E, spec.plan),
        "delta": scalar_rows(jnp.swapaxes(delta, 1, 2), spec.plan),
    }


def over_queries(spec: Spec, parts: dict[str, Any], interpret: Any) -> dict[str, Array]:
    """Gradients summed over pairs: of x, z and |q|^2 by name, or of q for a scale of 1."""
    plan = spec.plan
    grid = (plan.groups, plan.padded_queries // plan.queries, plan.first // plan.keys)
    operands = query_operands(spec, parts)
    results = tiles.call(spec, _query_kernel, "over_queries", grid, operands, interpret)
    return dict(zip((name[1:] for name in operands[1]), results, strict=True))


def over_keys(spec: Spec, parts: dict[str, Any], interpret: Any) -> tuple[dict[str, Array], Array, Array]:
    """Gradients summed over queries: of y and norms or a and r by name, and of v and g of the values."""
    plan = spec.plan
    grid = (plan.groups, plan.first // plan.keys, plan.padded_queries // plan.queries)
    operands, order = key_operands(spec, parts), ("parallel", "arbitrary", "arbitrary")
    *results, dv, dg = tiles.call(spec, _key_kernel, "over_keys", grid, operands, interpret, order=order)
    return dict(zip((name[1:] for name in operands[1]), results, strict=False)), dv, dg


def query_operands(spec: Spec, parts: dict[str, Any]) -> tuple[dict, dict, dict]:
    """What `over_queries` reads, writes and keeps."""
    plan = spec.plan
    inputs = _inputs(spec, parts, lambda g, i, j: (g, i, j))
    if spec.unsigned:
        outputs = {
            "dx": _output(parts["x"], (1, plan.keys, plan.queries), lambda g, i, j: (g, j, i)),
            "dz": _output(parts["z"], (1, plan.second, plan.queries), lambda g, i, j: (g, 0, i)),
            "daa": _output(parts["aa"], (1, SUBLANES, plan.queries), lambda g, i, j: (g, 0, i)),
        }
        extra = {}
    else:
        depth = parts["q"].shape[1]
        outputs = {"dq": _output(parts["q"], (1, depth, plan.queries), lambda g, i, j: (g, 0, i))}
        extra = {"change": ((plan.rows, plan.queries), spec.dtype)}
    return inputs, outputs, {**_scratch(spec, parts), **extra}


def key_operands(spec: Spec, parts: dict[str, Any]) -> tuple[dict, dict, dict]:
    """What `over_keys` reads, writes and keeps."""
    plan = spec.plan
    inputs = _inputs(spec, parts, lambda g, j, i: (g, i, j))
    scratch = {
        **_scratch(spec, parts),
        "weights": ((plan.rows, plan.queries), spec.dtype),
        "dw": ((plan.rows, plan.f), jnp.float32),
    }
    if spec.unsigned:
        pairs = (1, plan.keys, plan.second)
        outputs = {
            "dy": _output(parts["y"], pairs, lambda g, j, i: (g, j, 0)),
            "dnorms": _output(parts["norms"], pairs, lambda g, j, i: (g, j, 0)),
        }
        sums = ((plan.rows, LANES), jnp.float32)
        scratch |= {"y_sum": sums, "norm_sum": sums}
    else:
        depth = parts["a"].shape[2]
        outputs = {
            "da": _output(parts["a"], (1, plan.keys, depth), lambda g, j, i: (g, j, 0)),
            "dr": _output(parts["r"], (1, plan.second, depth), lambda g, j, i: (g, 0, 0)),
        }
        scratch |= {
            "change": ((plan.rows, plan.queries), spec.dtype),
            "dc": ((plan.rows, depth), jnp.float32),
        }
    v, g = parts["v"], parts["g"]
    outputs["dv"] = _output(v, (1, *v.shape[1:]), lambda g, j, i: (g, 0, 0))
    outputs["dg"] = _output(g, (1, plan.keys, *g.shape[2:]), lambda g, j, i: (g, j, 0, 0))
    return inputs, outputs, scratch


def _inputs(spec: Spec, parts: dict[str, Any], order: Any) -> dict[str, Operand]:
    plan = spec.plan

    def by_query(name, rows):
        return Operand(
            parts[name], (1, rows, plan.queries), lambda *step: (order(*step)[0], 0, order(*step)[1])
        )

    return {
        **tile_inputs(spec, parts, lambda step: order(*step)),
        **value_inputs(spec, parts, lambda step: order(*step)),
        "dout": by_query("dout", plan.f),
        "lse": by_query("lse", SUBLANES),
        "delta": by_query("delta", SUBLANES),
    }


def _output(like: Any, block: tuple[int, ...], index: Any) -> Operand:
    return Operand(jax.ShapeDtypeStruct(like.shape, jnp.float32), block, index)


def _scratch(spec: Spec, parts: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], Any]]:
    plan = spec.plan
    scratch = {**tile_scratch(spec, parts), "w_tile": ((plan.rows, plan.f), spec.dtype)}
    dp = {"dp": scratch["tile"]}
    if spec.unsigned:  # whose logits are used where they are made; products fill a tile of them first
        del scratch["tile"]
    return {**scratch, **dp}


# ---- sums over pairs, for a tile of queries
# ----------------------------------------------------------


def _query_kernel(spec: Spec, r: SimpleNamespace) -> None:
    _pairs(spec, r)
    start = pl.program_id(2) == 0
    tiles.product(spec, r.dp, r.w_tile, r.dout[...])
    if not spec.unsigned:

        @pl.when(start)
        def _():
            r.dq[...] = jnp.zeros(r.dq.shape, jnp.float32)

        tiles.product_logits(spec, r)
        _changes(spec, r)
        depth = r.dq.shape[0]

        def add(rows):
            r.dq[...] += tiles.dot(r.c_tile[rows, :depth].astype(spec.dtype), r.change[rows, :], (0, 0))

        tiles.over_products(spec, add)
        return

    @pl.when(start)
    def _():
        r.dz[...] = jnp.zeros(r.dz.shape, jnp.float32)
        r.daa[...] = jnp.zeros(r.daa.shape, jnp.float32)

    lse, delta = r.lse[...][None], r.delta[...][None]

    def fold(j, carry):
        dx = jnp.zeros((SUBLANES, spec.plan.queries), jnp.float32)
        daa = dx
        for rows, second in tiles.strips(spec, j):
            s = tiles.squares(spec, r, j, rows, second)
            _, h = _unsigned_change(spec, r, s, j, rows, second, lse, delta)
            h = h * tiles.across(spec, s.norms * LN2)  # 2 norms h: dT has a factor ln(2) / 2
            hy = h * tiles.across(spec, s.y)
            r.dz[second, :] += tiles.flat(h * s.z - hy * s.x)
            dx += jnp.sum(h * s.x - hy * s.z, axis=0)
            daa += jnp.sum(hy * tiles.across(spec, 0.5 * s.y), axis=0)
        r.dx[pl.ds(j, 1), :] = jnp.sum(dx, axis=0, keepdims=True)
        r.daa[...] += daa
        return carry

    tiles.over_first(spec, fold)


# ---- sums over queries, for a tile of pairs
# ----------------------------------------------------------


def _key_kernel(spec: Spec, r: SimpleNamespace) -> None:
    tile, step = pl.program_id(1), pl.program_id(2)
    sums = (r.y_sum, r.norm_sum) if spec.unsigned else (r.dc,)

    @pl.when(step == 0)
    def _():
        _pairs(spec, r)
        for ref in (r.dw, *sums):
            ref[...] = jnp.zeros(ref.shape, jnp.float32)

    tiles.product(spec, r.dp, r.w_tile, r.dout[...])
    if spec.unsigned:
        _unsigned_sums(spec, r)
    else:
        tiles.product_logits(spec, r)
        _changes(spec, r, r.weights)
        q = r.q[...].astype(spec.dtype)

        def add(rows):
            r.dc[rows, :] += tiles.dot(r.change[rows, :], q, (1, 1))

        tiles.over_products(spec, add)

    dout = r.dout[...]

    def add_values(rows):
        r.dw[rows, :] += tiles.dot(r.weights[rows, :], dout, (1, 1))

    tiles.over_products(spec, add_values)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        @pl.when(tile == 0)
        def _():
            for ref in (r.dv,) if spec.unsigned else (r.dv, r.dr):
                ref[...] = jnp.zeros(ref.shape, jnp.float32)

        _value_gradients(spec, r)
        if spec.unsigned:
            _pair_gradients(spec, r)
        else:
            _factor_gradients(spec, r)


def _unsigned_sums(spec: Spec, r: SimpleNamespace) -> None:
    lse, delta, aa = r.lse[...][None], r.delta[...][None], r.aa[...][None]

    def fold(j, carry):
        for rows, second in tiles.strips(spec, j):
            s = tiles.squares(spec, r, j, rows, second)
            weight, h = _unsigned_change(spec, r, s, j, rows, second, lse, delta)
            r.weights[rows, :] = tiles.flat(weight).astype(spec.dtype)
            r.norm_sum[rows, :] += _lanes_of(tiles.flat(h * s.inner))
            r.y_sum[rows, :] += _lanes_of(tiles.flat(h * (aa * tiles.across(spec, s.y) - s.x * s.z)))
        return carry

    tiles.over_first(spec, fold)


def _pair_gradients(spec: Spec, r: SimpleNamespace) -> None:
    """Sums over lanes, as rows of second keys: a product with ones turns columns into rows."""
    second = spec.plan.second
    ones = jnp.ones((SUBLANES, LANES), jnp.float32)
    for j in range(spec.plan.keys):
        rows = slice(j * second, (j + 1) * second)
        r.dy[j : j + 1, :] = (
            tiles.dot(ones, r.y_sum[rows, :], (1, 1))[:1] * r.norms[j : j + 1, :] * LN2  # 2 norms, ln(2) / 2
        )
        r.dnorms[j : j + 1, :] = tiles.dot(ones, r.norm_sum[rows, :], (1, 1))[:1] * (0.5 * LN2)


def _factor_gradients(spec: Spec, r: SimpleNamespace) -> None:
    """From c_jk = a_j * r_k to its factors."""
    second, scale = spec.plan.second, spec.config.scale
    right = r.r[...].astype(jnp.float32)
    for j in range(spec.plan.keys):
        dc = r.dc[j * second : (j + 1) * second, :] * scale
        r.da[j : j + 1, :] = jnp.sum(dc * right, axis=0, keepdims=True)
        r.dr[...] += dc * r.a[j : j + 1, :].astype(jnp.float32)


def _value_gradients(spec: Spec, r: SimpleNamespace) -> None:
    """From W_jk = v_k g_j to its factors, in products of their type: float32 takes six times as long."""
    second = spec.plan.second
    v, allowed = r.v[...], r.allowed[...].T
    for j in range(spec.plan.keys):
        dw = r.dw[j * second : (j + 1) * second, :]
        if spec.biased:
            dw = dw * allowed[:, j : j + 1]
        dw = dw.astype(spec.dtype)
        r.dg[j] = tiles.dot(v, dw, (0, 0))
        r.dv[...] += tiles.dot(dw, r.g[j], (1, 1))


# ---- weights and gradients of logits
# -----------------------------------------------------------------


def _pairs(spec: Spec, r: SimpleNamespace) -> None:
    """Values and numbers of a tile's pairs."""
    tiles.values(spec, r)
    if spec.unsigned:
        tiles.columns(spec, r.y_column, r.y[...])
        tiles.columns(spec, r.norm_column, r.norms[...])
    else:
        tiles.bias_columns(spec, r)


def _unsigned_change(spec, r, s, j, rows, second, lse, delta) -> tuple[Array, Array]:
    """The weights of a strip, and the gradient of the squared logits without its factor ln(2) / 2."""
    inverse = jax.lax.rsqrt(s.square)
    weight = jnp.exp2(s.square * inverse - lse)
    if spec.masked:
        weight = jnp.where(tiles.is_allowed(spec, r, j, second), weight, 0.0)
    return weight, weight * inverse * (tiles.registers(r.dp[rows, :]) - delta)


def _changes(spec: Spec, r: SimpleNamespace, weights: Any = None) -> None:
    """Gradients of logits (times their scale later), where logits are products; the weights too if wanted."""
    lse, delta = r.lse[...][None], r.delta[...][None]

    def fold(j, carry):
        for rows, second in tiles.strips(spec, j):
            weight = jnp.exp2(tiles.scaled(spec, r, rows) - lse)
            if spec.masked:
                weight = jnp.where(tiles.is_allowed(spec, r, j, second), weight, 0.0)
            if weights is not None:
                weights[rows, :] = tiles.flat(weight).astype(spec.dtype)
            change = weight * (tiles.registers(r.dp[rows, :]) - delta)
            r.change[rows, :] = tiles.flat(change).astype(spec.dtype)
        return carry

    tiles.over_first(spec, fold)


def _lanes_of(x: Array) -> Array:
    """Sums the queries of a tile to the lanes of a register, without crossing them."""
    return functools.reduce(jnp.add, jnp.split(x, x.shape[1] // LANES, axis=1))
