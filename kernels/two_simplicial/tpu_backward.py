"""2-simplicial attention on TPUs, backward: kernels that compute the weights again, without atomics.

`over_queries` walks the tiles of pairs for each tile of queries and sums what belongs to queries, and to keys
by query (x, z); `over_keys` walks the tiles of queries for each tile of pairs and sums what belongs to pairs
and values. With P the softmax, dP = W dout and Delta = sum(P dP) = sum(dout * out),

    dlogit = P (dP - Delta)

and for the unsigned logit, the root of T = norms * inner + eps^2, inner = x^2 + z^2 + |q|^2 y^2 - 2 x y z,

    h = dlogit / (2 logit)     (dT)
    dx = 2 norms h (x - y z)   dz = 2 norms h (z - x y)   d|q|^2 = norms h y^2
    dy = 2 norms h (|q|^2 y - x z)                        dnorms = h inner

The way from these to the arguments is `jax.vjp` of `tpu_layout.pairwise`. For the other logits it is a
product rule: dq = sum c dlogit, dc = sum q dlogit, where c = k1 * k2.

Delta from an output that was saved in 16 bits would be wrong by a 500th of dP, which is much of dP - Delta
where a softmax is of one pair or of pairs with like values. A third kernel, `deltas`, then sums P dP first,
in float32. For the same reason bfloat16 products take W, P, k1 * k2 and, for dq, dlogit as sums of two
numbers each.
"""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array

from kernels.softmax import LOG2E
from kernels.two_simplicial import tpu_tiles as tiles
from kernels.two_simplicial import tpu_weights as weights
from kernels.two_simplicial.tpu_forward import (
    LN2,
    in_order,
    query_grid,
    tile_inputs,
    tile_scratch,
    value_inputs,
)
from kernels.two_simplicial.tpu_layout import LANES, query_rows, scalar_rows
from kernels.two_simplicial.tpu_tiles import SUBLANES, Kernel, Operand, Spec


def residuals(spec: Spec, out: Array, lse: Array, dout: Array) -> dict[str, Array]:
    """What the forward pass left, as the kernels want it: dout [G, F, N], lse and Delta [G, 8, N].

    Delta is left out where `deltas` computes it.
    """
    left = {
        "dout": query_rows(dout, spec.plan).astype(spec.dtype),
        "lse": scalar_rows(lse.astype(jnp.float32) * LOG2E, spec.plan),
    }
    if not spec.rounded:
        delta = jnp.sum(dout.astype(jnp.float32) * out.astype(jnp.float32), axis=-1)
        left["delta"] = scalar_rows(jnp.swapaxes(delta, 1, 2), spec.plan)
    return left


def deltas(spec: Spec) -> Kernel:
    """The kernel that computes Delta [G, 8, N], by name "delta"."""
    plan = spec.plan
    rows = ((SUBLANES, plan.queries), jnp.float32)
    there = {"there_column": ((plan.rows, LANES), jnp.float32)} if spec.unsigned and spec.biased else {}
    return Kernel(
        name="two_simplicial_deltas",
        body=_delta_kernel,
        grid=query_grid(plan),
        inputs=_inputs(spec, in_order, "lse"),
        outputs={
            "delta": Operand(
                jnp.float32,
                (1, SUBLANES, plan.queries),
                lambda g, i, j, k: (g, 0, i),
                (plan.groups, SUBLANES, plan.padded_queries),
            )
        },
        scratch={**_scratch(spec), **there, "total": rows, "change_sum": rows},
    )


def over_queries(spec: Spec) -> Kernel:
    """Gradients summed over pairs: of x, z and |q|^2 by name, or of q for a scale of 1.

    That of q has 2 D rows where c is split, of which the halves are to be added.
    """
    plan = spec.plan

    def output(rows, block, index):
        shape = plan.groups, rows, plan.padded_queries
        return Operand(jnp.float32, (1, block, plan.queries), index, shape)

    if spec.unsigned:
        outputs = {
            "x": output(plan.first, plan.keys, lambda g, i, j, k: (g, j, i)),
            "z": output(plan.second, plan.second, lambda g, i, j, k: (g, 0, i)),
            "aa": output(SUBLANES, SUBLANES, lambda g, i, j, k: (g, 0, i)),
        }
        extra = {}
    else:
        length, _ = spec.products
        outputs = {"q": output(length, length, lambda g, i, j, k: (g, 0, i))}
        extra = {"change": ((spec.copies, plan.rows, plan.queries), spec.dtype)}
    return Kernel(
        name="two_simplicial_over_queries",
        body=_query_kernel,
        grid=query_grid(plan),
        inputs=_inputs(spec, in_order, "lse", "delta"),
        outputs=_derivatives(outputs),
        scratch={**_scratch(spec), **extra},
    )


def over_keys(spec: Spec) -> Kernel:
    """Gradients summed over queries: of y and norms or a and r by name, and of v and g of the values."""
    plan = spec.plan
    scratch = {
        **_scratch(spec),
        "weights": ((spec.copies, plan.rows, plan.queries), spec.dtype),
        "dw": ((plan.rows, plan.f), jnp.float32),
    }

    def output(shape, block, index):
        return Operand(jnp.float32, (1, *block), index, (plan.groups, *shape))

    if spec.unsigned:
        pairs, block = (plan.first, plan.second), (plan.keys, plan.partners)
        outputs = {name: output(pairs, block, lambda g, j, k, i: (g, j, k)) for name in ("y", "norms")}
        sums = ((plan.rows, LANES), jnp.float32)
        scratch |= {"y_sum": sums, "norm_sum": sums}
    else:
        first, second = (plan.first, spec.depth), (plan.second, spec.depth)
        outputs = {
            "a": output(first, (plan.keys, spec.depth), lambda g, j, k, i: (g, j, 0)),
            "r": output(second, second, lambda g, j, k, i: (g, 0, 0)),
        }
        scratch |= {
            "change": ((1, plan.rows, plan.queries), spec.dtype),
            "dc": ((plan.rows, spec.depth), jnp.float32),
        }
    maps = spec.e, plan.f
    outputs["v"] = output((plan.second, spec.e), (plan.second, spec.e), lambda g, j, k, i: (g, 0, 0))
    outputs["g"] = output((plan.first, *maps), (plan.keys, *maps), lambda g, j, k, i: (g, j, 0, 0))
    groups, queries, *pairs = query_grid(plan)
    return Kernel(
        name="two_simplicial_over_keys",
        body=_key_kernel,
        grid=(groups, *pairs, queries),
        inputs=_inputs(spec, lambda g, j, k, i: (g, i, j, k), "lse", "delta"),
        outputs=_derivatives(outputs),
        scratch=scratch,
        order=("parallel", "arbitrary", "arbitrary", "arbitrary"),
    )


def _derivatives(outputs: dict[str, Operand]) -> dict[str, Operand]:
    return {f"d{name}": output for name, output in outputs.items()}


def _inputs(spec: Spec, order: Any, *scalars: str) -> dict[str, Operand]:
    plan = spec.plan

    def by_query(rows, dtype):
        def index(*step):
            g, i, _, _ = order(*step)
            return g, 0, i

        return Operand(dtype, (1, rows, plan.queries), index)

    return {
        **tile_inputs(spec, order),
        **value_inputs(spec, order, halves=spec.copies),
        "dout": by_query(plan.f, spec.dtype),
        **{name: by_query(SUBLANES, jnp.float32) for name in scalars},
    }


def _scratch(spec: Spec) -> dict[str, tuple[tuple[int, ...], Any]]:
    plan = spec.plan
    scratch = {**tile_scratch(spec), "w_tile": ((plan.rows, spec.copies * plan.f), spec.dtype)}
    dp = {"dp": scratch["tile"]}
    if spec.unsigned:  # whose logits are used where they are made; products fill a tile of them first
        del scratch["tile"]
    return {**scratch, **dp}


# ---- Delta, for a tile of queries
# --------------------------------------------------------------------


def _dweights(spec: Spec, r: SimpleNamespace) -> None:
    """r.dp[pairs, queries] = dP."""
    tiles.product(spec, r.dp, r.w_tile, jnp.concatenate([r.dout[...]] * spec.copies, axis=0))


def _delta_kernel(spec: Spec, r: SimpleNamespace) -> None:
    begins, ends = tiles.walk(2, 3)

    @pl.when(begins)
    def _():
        for ref in (r.total, r.change_sum):
            ref[...] = jnp.zeros(ref.shape, jnp.float32)

    weights.pairs(spec, r)
    _dweights(spec, r)
    if not spec.unsigned:
        tiles.product_logits(spec, r)
    elif spec.biased:
        tiles.columns(spec, r.there_column, r.allowed[...])
    lse = r.lse[...][None]

    def fold(j, sums):
        total, change = sums
        for rows, second in tiles.strips(spec, j):
            if spec.unsigned:
                s = tiles.squares(spec, r, j, rows, second)
                weight, _ = weights.unsigned_weight_of(spec, r, s, j, second, lse)
                if spec.biased:
                    weight = weight * tiles.across(spec, r.there_column[rows, :])
            else:
                weight = weights.weight_of(spec, r, j, rows, second, lse)
            total += jnp.sum(weight, axis=0)
            change += jnp.sum(weight * tiles.registers(r.dp[rows, :]), axis=0)
        return total, change

    total, change = tiles.over_first(spec, fold, (r.total[...], r.change_sum[...]))
    r.total[...], r.change_sum[...] = total, change

    @pl.when(ends)
    def _():
        # The weights' sum is 1 but for the rounding of the log-sum-exp, which counts where that is large.
        total, change = (jnp.sum(ref[...], axis=0, keepdims=True) for ref in (r.total, r.change_sum))
        delta = change / jnp.where(total > 0, total, 1.0)
        r.delta[...] = jnp.broadcast_to(delta, r.delta.shape)


# ---- sums over pairs, for a tile of queries
# ----------------------------------------------------------


def _query_kernel(spec: Spec, r: SimpleNamespace) -> None:
    start, _ = tiles.walk(2, 3)
    row_starts, _ = tiles.walk(3)
    offset = pl.program_id(3) * spec.plan.partners
    weights.pairs(spec, r)
    _dweights(spec, r)
    if not spec.unsigned:

        @pl.when(start)
        def _():
            r.dq[...] = jnp.zeros(r.dq.shape, jnp.float32)

        tiles.product_logits(spec, r)
        weights.changes(spec, r)

        def add(rows):
            for n in range(spec.copies):
                r.dq[...] += tiles.dot(r.c_tile[rows, :].astype(spec.dtype), r.change[n, rows, :], (0, 0))

        tiles.over_products(spec, add)
        return

    @pl.when(start)
    def _():
        r.dz[...] = jnp.zeros(r.dz.shape, jnp.float32)
        r.daa[...] = jnp.zeros(r.daa.shape, jnp.float32)

    @pl.when(row_starts)
    def _():
        r.dx[...] = jnp.zeros(r.dx.shape, jnp.float32)

    lse, delta = r.lse[...][None], r.delta[...][None]

    def fold(j, carry):
        dx = jnp.zeros((SUBLANES, spec.plan.queries), jnp.float32)
        daa = dx
        for rows, second in tiles.strips(spec, j):
            s = tiles.squares(spec, r, j, rows, second)
            _, h = weights.unsigned_change_of(spec, r, s, j, rows, second, lse, delta)
            h = h * tiles.across(spec, s.norms * LN2)  # 2 norms h: dT has a factor ln(2) / 2
            hy = h * tiles.across(spec, s.y)
            of_all = pl.ds(pl.multiple_of(offset + second.start, SUBLANES), second.size)
            r.dz[of_all, :] += tiles.flat(h * s.z - hy * s.x)
            dx += jnp.sum(h * s.x - hy * s.z, axis=0)
            daa += jnp.sum(hy * tiles.across(spec, 0.5 * s.y), axis=0)
        r.dx[pl.ds(j, 1), :] += jnp.sum(dx, axis=0, keepdims=True)
        r.daa[...] += daa
        return carry

    tiles.over_first(spec, fold)


# ---- sums over queries, for a tile of pairs
# ----------------------------------------------------------


def _key_kernel(spec: Spec, r: SimpleNamespace) -> None:
    of_pairs_begins, of_pairs_ends = tiles.walk(3)
    of_all_begins, _ = tiles.walk(1, 2)
    of_first_begins, _ = tiles.walk(2)
    offset = pl.program_id(2) * spec.plan.partners
    sums = (r.y_sum, r.norm_sum) if spec.unsigned else (r.dc,)

    @pl.when(of_pairs_begins)
    def _():
        weights.pairs(spec, r)
        for ref in (r.dw, *sums):
            ref[...] = jnp.zeros(ref.shape, jnp.float32)

    _dweights(spec, r)
    if spec.unsigned:
        _unsigned_sums(spec, r)
    else:
        tiles.product_logits(spec, r)
        weights.changes(spec, r, r.weights)
        q = r.q[...].astype(spec.dtype)

        def add(rows):
            r.dc[rows, :] += tiles.dot(r.change[0, rows, :], q, (1, 1))

        tiles.over_products(spec, add)

    dout = r.dout[...]

    def add_values(rows):
        for n in range(spec.copies):
            r.dw[rows, :] += tiles.dot(r.weights[n, rows, :], dout, (1, 1))

    tiles.over_products(spec, add_values)

    @pl.when(of_pairs_ends)
    def _():
        @pl.when(of_all_begins)
        def _():
            for ref in (r.dv,) if spec.unsigned else (r.dv, r.dr):
                ref[...] = jnp.zeros(ref.shape, jnp.float32)

        @pl.when(of_first_begins)
        def _():
            for ref in (r.dg,) if spec.unsigned else (r.dg, r.da):
                ref[...] = jnp.zeros(ref.shape, jnp.float32)

        of_all = pl.ds(pl.multiple_of(offset, SUBLANES), spec.plan.partners)
        _value_gradients(spec, r, of_all)
        if spec.unsigned:
            _pair_gradients(spec, r)
        else:
            _factor_gradients(spec, r, of_all)


def _unsigned_sums(spec: Spec, r: SimpleNamespace) -> None:
    lse, delta, aa = r.lse[...][None], r.delta[...][None], r.aa[...][None]

    def fold(j, carry):
        for rows, second in tiles.strips(spec, j):
            s = tiles.squares(spec, r, j, rows, second)
            weight, h = weights.unsigned_change_of(spec, r, s, j, rows, second, lse, delta)
            weights.keep(spec, r.weights, rows, weight)
            r.norm_sum[rows, :] += weights.lanes_of(tiles.flat(h * s.inner))
            r.y_sum[rows, :] += weights.lanes_of(tiles.flat(h * (aa * tiles.across(spec, s.y) - s.x * s.z)))
        return carry

    tiles.over_first(spec, fold)


def _pair_gradients(spec: Spec, r: SimpleNamespace) -> None:
    """Sums over lanes, as rows of second keys: a product with ones turns columns into rows."""
    second = spec.plan.partners
    ones = jnp.ones((SUBLANES, LANES), jnp.float32)
    for j in range(spec.plan.keys):
        rows = slice(j * second, (j + 1) * second)
        r.dy[j : j + 1, :] = (
            tiles.dot(ones, r.y_sum[rows, :], (1, 1))[:1] * r.norms[j : j + 1, :] * LN2  # 2 norms, ln(2) / 2
        )
        r.dnorms[j : j + 1, :] = tiles.dot(ones, r.norm_sum[rows, :], (1, 1))[:1] * (0.5 * LN2)


def _factor_gradients(spec: Spec, r: SimpleNamespace, of_all: Any) -> None:
    """From c_jk = a_j * r_k to its factors; `of_all` are the tile's second keys among all of them."""
    second, scale = spec.plan.partners, spec.config.scale
    right = r.r[...].astype(jnp.float32)
    for j in range(spec.plan.keys):
        dc = r.dc[j * second : (j + 1) * second, :] * scale
        r.da[j : j + 1, :] += jnp.sum(dc * right, axis=0, keepdims=True)
        r.dr[of_all, :] += dc * r.a[j : j + 1, :].astype(jnp.float32)


def _value_gradients(spec: Spec, r: SimpleNamespace, of_all: Any) -> None:
    """From W_jk = v_k g_j to its factors; `of_all` as above."""
    second, e = spec.plan.partners, spec.e
    v, allowed = r.v[:, :e], r.allowed[...].T
    for j in range(spec.plan.keys):
        dw = r.dw[j * second : (j + 1) * second, :]
        if spec.biased:
            dw = dw * allowed[:, j : j + 1]
        for part in spec.exact(dw):
            r.dg[j] += tiles.dot(v, part, (0, 0))
            r.dv[of_all, :] += tiles.dot(part, r.g[j, :e, :], (1, 1))
        if spec.narrow:
            r.dv[of_all, :] += tiles.dot(dw.astype(spec.dtype), r.g[j, e:, :], (1, 1))
