"""The backward kernels of 2-simplicial attention on Hopper GPUs.

Two passes, both of which compute the logits again: `query_side` sums over pairs of keys for each query,
`pair_side` sums over queries for each pair. Nothing is added up across programs in memory.

With dP_ijk = dout_i . W_jk, P = exp(logit - lse) and delta_i = dout_i . out_i the gradient of a logit is
P (dP - delta). Of the triple product g = dlogit * s / t is what is summed, with the factors of
`pairwise.Gradients`.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from kernels import hopper
from kernels.hopper import BY_ROW, ROWS
from kernels.softmax import LOG2E
from kernels.two_simplicial import gpu_tiles as tiles
from kernels.two_simplicial.gpu_tiles import Layout, Tiling

REDUCTION = 2048  # bytes that sums over queries take at a time


def query_layout(plan: Tiling) -> Layout:
    """What `query_side` needs."""
    steps = [*plan.values(), *(plan.keys() if plan.linear else "xy"), *["bias"] * plan.biased]
    return Layout(
        plan,
        "query_side",
        grid=(plan.groups, plan.q_steps // plan.warpgroups, plan.k_steps),
        axis="i",
        feeds=[
            (["sums", *plan.douts(), *(plan.query() if plan.linear else ["rows", "z"])], 1),
            (steps + ["mask"] * plan.masked, plan.j_steps),
        ],
        scratch=hopper.Turns.scratch(),
        reduction=0 if plan.linear else REDUCTION,
    )


def query_side(plan: Tiling, operands: Mapping[str, Array]) -> tuple[Array, ...]:
    """Sums over pairs.

    Of the triple product x [Z, KS, J, N], z [Z, N, K], aa [Z, KS, N] and cc [Z, QS, K], else q [Z, KS, N, D].
    KS are tiles of k and QS of queries, over which the caller sums. `pairwise.Gradients` says what x, z, aa
    and cc are; q is the gradient of the query for a scale of 1.

    Args:
      plan: sizes.
      operands: those of `gpu_forward.attend`; sums [Z, 3, N]: the log-sum-exp times log2 e, delta, and that
        log-sum-exp less log2 s; d0.. [Z, N, F], the output's gradient.
    """
    z, n, steps = plan.groups, plan.queries, plan.k_steps
    shapes = [(z, steps, plan.first, n), (z, n, plan.second), (z, steps, n), (z, plan.q_steps, plan.second)]
    if plan.linear:
        shapes = [(z, steps, n, plan.depth)]
    return query_layout(plan).run(_query_side, [(shape, jnp.float32) for shape in shapes], operands)


def _query_side(plan, piece, feeds, outs, barrier):
    group, block, k = piece
    once, steps = feeds

    def copy():
        tile = block * plan.warpgroups
        once.fill(0, i=tile, k=k)
        lax.fori_loop(0, plan.j_steps, lambda j, _: steps.fill(j, i=tile, j=j, k=k), None)

    def compute(member):
        tile = block * plan.warpgroups + member
        here, keys = pl.ds(tile * ROWS, ROWS), pl.ds(k * plan.k_block, plan.k_block)
        fixed = once.wait(0, member)
        delta, shift = (tiles.load_row(plan, fixed["sums"].at[r]) for r in (1, 2))

        def opened(j):
            return once.at(0, hopper.afresh(member)) | steps.wait(j, member)

        def gradient(blocks, i, logit):
            """The gradient of a tile of logits."""
            weight = jnp.exp2(tiles.restrict(plan, logit, blocks, i) - shift)
            return weight * (tiles.against_pairs(plan, plan.douts(), blocks, plan.values(), i) - delta)

        def linear_step(j, dquery):
            blocks, factors = opened(j), []
            for i in range(plan.j_block):
                logit = tiles.against_pairs(plan, plan.query(), blocks, plan.keys(), i) * (plan.scale * LOG2E)
                parts = tiles.split(gradient(blocks, i, logit), plan.weight_parts)
                pairs = pl.ds(i * plan.k_block, plan.k_block)
                factors += tiles.cross(parts, [blocks[n].at[pairs] for n in plan.keys()[: plan.value_parts]])
            dquery = hopper.add_products(dquery, factors, interpret=plan.interpret)
            steps.release(j)
            return dquery

        if plan.linear:
            dquery = lax.fori_loop(0, plan.j_steps, linear_step, hopper.full((ROWS, plan.depth), 0))
            hopper.store_global(outs[0].at[group, k, here], dquery)
            once.release(0)
            return

        s, e = (tiles.load_row(plan, fixed["rows"].at[r]) for r in range(2))
        z = hopper.load(fixed["z"])
        zz = z * z

        def step(j, sums):
            along, across, dsquare, dcc = sums
            blocks = opened(j)
            cc = tiles.column(plan, blocks["y"].at[2, 0])
            for i in range(plan.j_block):
                x = hopper.load(blocks["x"].at[i], BY_ROW)
                y = tiles.column(plan, blocks["y"].at[0, i])
                b = blocks["y"][1, i, 0]
                square = tiles.squares(plan, x, b, z, zz, y, cc, e)
                inverse = tiles.special(plan, "rsqrt", square)
                # The shift leaves a factor of s in the weight.
                g = gradient(blocks, i, square * inverse * s) * inverse
                gy = g * y
                dx = x * jnp.sum(g * cc, axis=1) - jnp.sum(gy * z, axis=1)
                hopper.store_global(outs[0].at[group, k, j * plan.j_block + i, here], dx)
                along = along + g * b
                across = across + gy * tiles.row(plan, x)
                dsquare = dsquare + gy * y
                dcc = dcc + g * tiles.row(plan, x * x)
            steps.release(j)
            return along, across, dsquare, dcc

        empty = hopper.full(plan.tile, 0)
        along, across, dsquare, dcc = lax.fori_loop(0, plan.j_steps, step, (empty,) * 4)
        hopper.store_global(outs[1].at[group, here, keys], z * along - across)
        hopper.store_global(outs[2].at[group, k, here], jnp.sum(dsquare, axis=1))
        with tiles.alone(plan, barrier, member):
            hopper.store_global(outs[3].at[group, tile, keys], jnp.sum(dcc, axis=0))
        once.release(0)

    return copy, compute


def pair_layout(plan: Tiling) -> Layout:
    """What `pair_side` needs."""
    steps = ["sums", *plan.douts(), *(plan.query() if plan.linear else ["rows", "z", "x"])]
    fixed = [*plan.values(), *(plan.keys() if plan.linear else "y"), *["bias"] * plan.biased]
    exchange = hopper.tiles(plan.warpgroups, ROWS, plan.pairs, dtype=jnp.bfloat16, swizzle=plan.swizzle)
    return Layout(
        plan,
        "pair_side",
        grid=(plan.groups, plan.j_steps // plan.warpgroups, plan.k_steps),
        axis="j",
        feeds=[(fixed, 1), (steps + ["mask"] * plan.masked, plan.q_steps)],
        scratch=((exchange,) * plan.weight_parts, hopper.Turns.scratch()),
        reduction=0 if plan.linear else REDUCTION,
    )


def pair_side(plan: Tiling, operands: Mapping[str, Array]) -> tuple[Array, ...]:
    """Sums over queries: w0.. [Z, J*K, F], then c0.. [Z, J*K, D] for a scale of 1, or those of the product.

    w0.. are bfloat16 numbers that add up to the gradient of W, as many as those of the output's gradient, and
    c0.. to that of C. Of the triple product there are y [Z, J, K], and bb [Z, KS, J, ROWS], to be summed over
    KS and ROWS.

    Args:
      plan: sizes; j_block * k_block is 64.
      operands: those of `query_side`.
    """
    pairs = plan.groups, plan.first * plan.second
    shapes = [((*pairs, plan.features), jnp.bfloat16)] * plan.output_parts
    if plan.linear:
        shapes += [((*pairs, plan.depth), jnp.bfloat16)] * plan.key_parts
    else:
        sums = (plan.first, plan.second), (plan.k_steps, plan.first, ROWS)
        shapes += [((plan.groups, *shape), jnp.float32) for shape in sums]
    return pair_layout(plan).run(_pair_side, shapes, operands)


def _pair_side(plan, piece, feeds, outs, scratch):
    group, block, k = piece
    (once, steps), (exchange, barrier) = feeds, scratch

    def copy():
        first = block * plan.warpgroups
        once.fill(0, j=first, k=k)
        lax.fori_loop(0, plan.q_steps, lambda i, _: steps.fill(i, i=i, j=first, k=k), None)

    def compute(member):
        j, width = block * plan.warpgroups + member, plan.k_block
        first, keys = j * plan.j_block, pl.ds(k * width, width)
        pairs = pl.ds((k * plan.j_steps + j) * plan.pairs, plan.pairs)
        once.wait(0, member)

        def opened(i):
            again = hopper.afresh(member)
            blocks = once.at(0, again) | steps.wait(i, again)
            shift, delta = (tiles.load_row(plan, blocks["sums"].at[r]) for r in range(2))
            own = [buffer.at[again] for buffer in exchange]
            return blocks, [blocks[name] for name in plan.douts()], shift, delta, own

        def exchanged(own, i, tile):
            """Lays a tile of P, or of the logits' gradients, down to be read as columns."""
            for part, target in zip(tiles.split(tile, plan.weight_parts), own, strict=True):
                target[:, pl.ds(i * width, width)] = part

        def multiply(total, own, right):
            plgpu.commit_smem()
            across = [buffer.transpose((1, 0)) for buffer in own]
            return hopper.add_products(total, tiles.cross(across, right), interpret=plan.interpret)

        def store(gradient, results):
            for part, out in zip(tiles.split(gradient, len(results)), results, strict=True):
                hopper.store_global(out.at[group, pairs], part)

        def linear_step(step, sums):
            dvalues, dkeys = sums
            blocks, douts, shift, delta, own = opened(step)
            queries, weights = [blocks[name] for name in plan.query()], []
            for i in range(plan.j_block):
                logit = tiles.against_pairs(plan, plan.query(), blocks, plan.keys(), i) * (plan.scale * LOG2E)
                weights.append(jnp.exp2(tiles.restrict(plan, logit, blocks, i) - shift))
                exchanged(own, i, weights[i])
            dvalues = multiply(dvalues, own, douts)
            for i, weight in enumerate(weights):
                dweight = tiles.against_pairs(plan, plan.douts(), blocks, plan.values(), i)
                exchanged(own, i, weight * (dweight - delta))
            dkeys = multiply(dkeys, own, queries[: plan.value_parts])
            steps.release(step)
            return dvalues, dkeys

        def step(step, sums):
            dvalues, dys, dbbs = sums
            blocks, douts, shift, delta, own = opened(step)
            s, e = (tiles.load_row(plan, blocks["rows"].at[r]) for r in range(2))
            z, cc = hopper.load(blocks["z"]), tiles.column(plan, blocks["y"].at[2, 0])
            zz, natural, more = z * z, s * (1 / LOG2E), []
            for i, dy, dbb in zip(range(plan.j_block), dys, dbbs, strict=True):
                x = hopper.load(blocks["x"].at[i], BY_ROW)
                y = tiles.column(plan, blocks["y"].at[0, i])
                square = tiles.squares(plan, x, blocks["y"][1, i, 0], z, zz, y, cc, e)
                inverse = tiles.special(plan, "rsqrt", square)
                weight = jnp.exp2(tiles.restrict(plan, square * inverse * s, blocks, i) - shift)
                exchanged(own, i, weight)
                g = weight * (tiles.against_pairs(plan, plan.douts(), blocks, plan.values(), i) - delta)
                g = g * (inverse * natural)
                # Of z^2 a sum over k will do: one number a query in registers, not a tile.
                more.append((dy + g * (y - tiles.row(plan, x) * z), dbb + jnp.sum(g * zz, axis=1)))
            dvalues = multiply(dvalues, own, douts)
            steps.release(step)
            return dvalues, *zip(*more, strict=True)

        dvalues = hopper.full((plan.pairs, plan.features), 0)
        if plan.linear:
            sums = dvalues, hopper.full((plan.pairs, plan.depth), 0)
            dvalues, dkeys = lax.fori_loop(0, plan.q_steps, linear_step, sums)
            store(dkeys, outs[plan.output_parts :])
        else:
            empty = [(hopper.full(shape, 0),) * plan.j_block for shape in (plan.tile, (ROWS,))]
            dvalues, dys, dbbs = lax.fori_loop(0, plan.q_steps, step, (dvalues, *empty))
            for i, dbb in enumerate(dbbs):
                hopper.store_global(outs[-1].at[group, k, first + i], dbb)
            with tiles.alone(plan, barrier, member):
                for i, dy in enumerate(dys):
                    hopper.store_global(outs[-2].at[group, first + i, keys], jnp.sum(dy, axis=0))

        store(dvalues, outs[: plan.output_parts])
        once.release(0)

    return copy, compute
