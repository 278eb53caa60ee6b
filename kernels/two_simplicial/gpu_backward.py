"""The backward kernels of 2-simplicial attention on Hopper GPUs.

Two passes, both of which compute the logits again: `query_side` sums over pairs of keys for each query,
`pair_side` sums over queries for each pair. Nothing is added up across blocks in memory.

With dP_ijk = dout_i . W_jk, P = exp(logit - lse) and delta_i = dout_i . out_i the gradient of a logit is
P (dP - delta). Of the triple product g = dlogit * s / t is what is summed, with the factors of
`pairwise.Gradients`.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from kernels.softmax import LOG2E
from kernels.two_simplicial import gpu_tiles as tiles
from kernels.two_simplicial.gpu_forward import linear_factors, pair_specs, restrict
from kernels.two_simplicial.gpu_tiles import COLUMN, ROW, ROWS, TILE, Layout, Tiling


def query_layout(plan: Tiling, program: Mapping[str, Any] | None = None) -> Layout:
    """What `query_side` needs; in the kernel, for the program with these indices."""
    tile, k = (program["tile"], program["k"]) if program else (0, 0)
    z, q, steps, n = plan.groups, plan.queries, plan.k_steps, plan.first
    width, count = plan.k_block, plan.j_block
    specs = pair_specs(plan, lambda j: (k, j))
    if not plan.linear:
        specs["x"] = plgpu.BlockSpec((count, ROWS), lambda j: (j, tile))
    if plan.masked:
        specs["mask"] = plgpu.BlockSpec((count, ROWS, width), lambda j: (j, tile, k))
    fetched = [tiles.matrix(ROWS, plan.features, width)] * plan.output_parts
    arrivals = len(fetched)
    if plan.linear:
        shapes = [(z, steps, q, plan.depth)]
        fetched += [tiles.matrix(ROWS, plan.depth, width)] * plan.query_parts
        arrivals += plan.query_parts
        results = [tiles.matrix(ROWS, plan.depth, dtype=jnp.float32)]
    else:
        shapes = [(z, steps, n, q), (z, q, plan.second), (z, steps, q)]
        shapes += [(z, plan.q_steps, steps * tiles.line(width))]
        fetched += [tiles.vector(n), tiles.vector(width)]
        arrivals += tiles.pieces(n) + tiles.pieces(width)
        results = [tiles.matrix(ROWS, width, dtype=jnp.float32), plgpu.SMEM((ROWS,), jnp.float32)]
        results += [plgpu.SMEM((2, count, ROWS), jnp.float32), tiles.vector(width)]
    return Layout(
        grid={"group": z, "tile": plan.q_steps, "k": steps},
        results=tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes),
        scratch=(tuple(results), tuple(fetched), plgpu.Barrier(num_arrivals=arrivals)),
        specs=specs,
        steps=plan.j_steps,
        reduces=not plan.linear,
    )


def query_side(plan: Tiling, operands: Mapping[str, Array]) -> tuple[Array, ...]:
    """Sums over pairs.

    Of the triple product x [Z, KS, J, N], z [Z, N, K], aa [Z, KS, N] and cc [Z, QS, K] (tiles of k padded to
    lines), else q [Z, KS, N, D]. KS are tiles of k and QS of queries, over which the caller sums.
    `pairwise.Gradients` says what x, z, aa and cc are; q is the gradient of the query for a scale of 1.

    Args:
      plan: sizes.
      operands: those of `gpu_forward.attend`; shift [Z, N], what is subtracted from logits times log2 e (the
        log-sum-exp, of the triple product less log2 s); delta [Z, N]; d0.. [Z, N, F], the output's gradient.
    """
    names = [*query_layout(plan).specs, *(f"d{p}" for p in range(plan.output_parts)), "shift", "delta"]
    names += [f"q{p}" for p in range(plan.query_parts)] if plan.linear else ["bb", "cc", "s", "e", "z"]
    operands = {name: operands[name] for name in names}
    return tiles.launch(plan, "query_side", _query_side, query_layout(plan), operands)


def _query_side(plan, program, inputs, *references):
    outs, (results, fetched, barrier) = references[:-3], references[-3:]
    group, tile, k = program.values()
    here = pl.ds(pl.multiple_of(tile * ROWS, ROWS), ROWS)
    width, count = plan.k_block, plan.j_block
    names = [f"d{p}" for p in range(plan.output_parts)]
    names += [f"q{p}" for p in range(plan.query_parts)]
    copies = [(inputs[name].at[group, here], fetched[i]) for i, name in enumerate(names)]
    line = tiles.line(width)
    if not plan.linear:
        copies += tiles.copies(inputs["bb"].at[group], fetched[-2])
        copies += [(inputs["cc"].at[group, pl.ds(pl.multiple_of(k * line, line), line)], fetched[-1])]
    tiles.fetch(copies, barrier)
    douts, queries = fetched[: plan.output_parts], fetched[plan.output_parts : len(names)]
    shift, delta = (
        tiles.rows(tiles.load(plan, inputs[n].at[group, here], ROW), width) for n in ("shift", "delta")
    )
    specs = query_layout(plan, program).specs
    arguments = [inputs[name].at[plan.example(group, inputs[name].shape[0])] for name in specs]
    options = {"grid": (plan.j_steps,), "in_specs": list(specs.values()), "max_concurrent_steps": plan.stages}

    if plan.linear:

        def linear_step(_, *references):
            *references, dquery = references
            block = dict(zip(specs, references, strict=True))
            products = []
            for i, factors in enumerate(linear_factors(plan, queries, block)):
                logit = tiles.multiply(plan, (ROWS, width), factors) * (plan.scale * LOG2E)
                weight = jnp.exp2(restrict(plan, logit, block, i) - shift)
                g = weight * (_dweight(plan, douts, block, i) - delta)
                keys = [block[f"c{p}"].at[pl.ds(i * width, width)] for p in range(plan.value_parts)]
                products += tiles.cross(tiles.split(g, plan.weight_parts), keys)
            plgpu.commit_smem()  # of what was loaded, before a copy overwrites it
            return tiles.multiply(plan, dquery, products)

        carry = tiles.zeros(plan, (ROWS, plan.depth))
        results[0][...] = plgpu.emit_pipeline(linear_step, init_carry=carry, **options)(*arguments)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(results[0], outs[0].at[group, k, here])
    else:
        s, e = (tiles.rows(tiles.load(plan, inputs[n].at[group, here], ROW), width) for n in "se")
        z = tiles.load(plan, inputs["z"].at[group, here, pl.ds(k * width, width)], TILE)
        zz = z * z
        cc = tiles.columns(tiles.load(plan, fetched[-1].at[pl.ds(0, width)], COLUMN))

        def step(indices, *references):
            (j,) = indices
            *references, (along, across, dsquare, dcc) = references
            block = dict(zip(specs, references, strict=True))
            dx = results[2].at[lax.rem(j, 2)]
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)  # what was written two steps ago
            for i in range(count):
                x = tiles.load(plan, block["x"].at[i], ROW)
                y = tiles.columns(tiles.load(plan, block["y"].at[i], COLUMN))
                b = fetched[-2][j * count + i]
                square = tiles.squares(plan, x, b, z, zz, y, cc, e)
                inverse = tiles.special(plan, "rsqrt", square)
                # The shift leaves a factor of s in the weight.
                weight = jnp.exp2(restrict(plan, square * inverse * s, block, i) - shift)
                g = weight * (_dweight(plan, douts, block, i) - delta) * inverse
                gy = g * y
                dx[i, :] = x * jnp.sum(g * cc, axis=1) - jnp.sum(gy * z, axis=1)
                along = along + g * b
                across = across + gy * tiles.rows(x, width)
                dsquare = dsquare + gy * y
                dcc = dcc + g * tiles.rows(x * x, width)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(dx, outs[0].at[group, k, pl.ds(j * count, count), here])
            return along, across, dsquare, dcc

        empty = tiles.zeros(plan, (ROWS, width))
        pipeline = plgpu.emit_pipeline(step, init_carry=(empty,) * 4, **options)
        along, across, dsquare, dcc = pipeline(*arguments)
        results[0][...] = z * along - across
        results[1][...] = jnp.sum(dsquare, axis=1)
        results[3][pl.ds(0, width)] = jnp.sum(dcc, axis=0)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(results[0], outs[1].at[group, here, pl.ds(k * width, width)])
        plgpu.copy_smem_to_gmem(results[1], outs[2].at[group, k, here])
        plgpu.copy_smem_to_gmem(
            results[3], outs[3].at[group, tile, pl.ds(pl.multiple_of(k * line, line), line)]
        )
    plgpu.wait_smem_to_gmem(0)


def _dweight(plan, douts, block, i):
    """The gradient of the softmax's weights of a tile, dout . W_jk."""
    pairs = pl.ds(i * plan.k_block, plan.k_block)
    values = [block[f"w{p}"].at[pairs].transpose((1, 0)) for p in range(plan.value_parts)]
    return tiles.multiply(plan, (ROWS, plan.k_block), tiles.cross(douts, values))


def pair_layout(plan: Tiling, program: Mapping[str, Any] | None = None) -> Layout:
    """What `pair_side` needs; in the kernel, for the program with these indices."""
    j, k = (program["j"], program["k"]) if program else (0, 0)
    width, count, pairs = plan.k_block, plan.j_block, plan.pairs
    z, flat = plan.groups, (plan.groups, plan.first * plan.second)
    # The operands of a matrix instruction have one swizzle, and these meet each other in four of them.
    transforms = tiles.swizzled(math.gcd(plan.features, plan.depth), width)

    def row_tile(features):
        return plgpu.BlockSpec((ROWS, features), lambda i: (i, 0), transforms=transforms)

    def matrix(rows, columns):
        return plgpu.SMEM((rows, columns), jnp.bfloat16, transforms=transforms)

    specs = {"rows": plgpu.BlockSpec((4, ROWS), lambda i: (0, i))}
    specs |= {f"d{p}": row_tile(plan.features) for p in range(plan.output_parts)}
    if plan.linear:
        specs |= {f"q{p}": row_tile(plan.depth) for p in range(plan.query_parts)}
    else:
        specs["z"] = plgpu.BlockSpec((ROWS, width), lambda i: (i, k))
        specs["x"] = plgpu.BlockSpec((count, ROWS), lambda i: (j, i))
    if plan.masked:
        specs["mask"] = plgpu.BlockSpec((count, ROWS, width), lambda i: (j, i, k))
    exchange = [matrix(ROWS, pairs)] * plan.weight_parts
    fetched = [matrix(pairs, plan.features)] * plan.value_parts
    shapes = [jax.ShapeDtypeStruct((*flat, plan.features), jnp.bfloat16)] * plan.output_parts
    results = []
    if plan.linear:
        fetched += [matrix(pairs, plan.depth)] * plan.key_parts
        shapes += [jax.ShapeDtypeStruct((*flat, plan.depth), jnp.bfloat16)] * plan.key_parts
    else:
        fetched += [plgpu.SMEM((count, width), jnp.float32), tiles.vector(count), tiles.vector(width)]
        sums = (z, plan.first, plan.second), (z, plan.k_steps, plan.first, ROWS)
        shapes += [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in sums]
        results = [plgpu.SMEM((count, width), jnp.float32), plgpu.SMEM((count, ROWS), jnp.float32)]
    fetched += [plgpu.SMEM((count, width), jnp.float32)] * plan.biased
    return Layout(
        grid={"group": z, "j": plan.j_steps, "k": plan.k_steps},
        results=tuple(shapes),
        scratch=(tuple(results), tuple(exchange), tuple(fetched), plgpu.Barrier(num_arrivals=len(fetched))),
        specs=specs,
        steps=plan.q_steps,
        reduces=not plan.linear,
    )


def pair_side(plan: Tiling, operands: Mapping[str, Array]) -> tuple[Array, ...]:
    """Sums over queries: w0.. [Z, J*K, F], then c0.. [Z, J*K, D] for a scale of 1, or those of the product.

    w0.. are bfloat16 numbers that add up to the gradient of W, as many as those of the output's gradient, and
    c0.. to that of C. Of the
    triple product there are y [Z, J, K], and bb [Z, KS, J, ROWS], to be summed over KS and ROWS.

    Args:
      plan: sizes; j_block * k_block is 64.
      operands: those of `query_side`, but one `rows` [Z, 4, N] of s, e, the log-sum-exp times log2 e, and
        delta instead of the vectors (of the linear logits s and e are not used); bj [Z, J] instead of bb,
        each step's padded to a line.
    """
    names = [*pair_layout(plan).specs, *_pair_names(plan)]
    operands = {name: operands[name] for name in names}
    return tiles.launch(plan, "pair_side", _pair_side, pair_layout(plan), operands)


def _pair_names(plan: Tiling) -> list[str]:
    """What a program of `pair_side` fetches once."""
    names = [f"w{p}" for p in range(plan.value_parts)]
    names += [f"c{p}" for p in range(plan.key_parts)] if plan.linear else ["y", "bj", "cc"]
    return names + ["bias"] * plan.biased


def _pair_side(plan, program, inputs, *references):
    outs, (results, exchange, fetched, barrier) = references[:-4], references[-4:]
    group, j, k = program.values()
    width, count, pairs = plan.k_block, plan.j_block, plan.pairs
    flat = pl.ds(pl.multiple_of((k * plan.j_steps + j) * pairs, pairs), pairs)
    square_block = (pl.ds(j * count, count), pl.ds(k * width, width))
    fetched = dict(zip(_pair_names(plan), fetched, strict=True))
    copies = []
    for name, target in fetched.items():
        if name in ("y", "bias"):
            place = plan.example(group, inputs[name].shape[0]), *square_block
        elif name in ("bj", "cc"):
            size = target.shape[0]
            place = group, pl.ds(pl.multiple_of((j if name == "bj" else k) * size, size), size)
        else:
            place = group, flat
        copies.append((inputs[name].at[place], target))
    tiles.fetch(copies, barrier)
    specs = pair_layout(plan, program).specs
    arguments = [inputs[name].at[plan.example(group, inputs[name].shape[0])] for name in specs]
    options = {"grid": (plan.q_steps,), "in_specs": list(specs.values()), "max_concurrent_steps": plan.stages}
    dvalues = tiles.zeros(plan, (count * width, plan.features))

    def opened(references):
        block = {**fetched, **dict(zip(specs, references, strict=True))}
        vectors = [tiles.rows(tiles.load(plan, block["rows"].at[r], ROW), width) for r in range(4)]
        return block, [block[f"d{p}"] for p in range(plan.output_parts)], vectors

    def exchanged(i, tile):
        """Lays a tile of P, or of the logits' gradients, down to be read as columns."""
        for part, target in zip(tiles.split(tile, plan.weight_parts), exchange, strict=True):
            target[:, pl.ds(i * width, width)] = part

    across = [tile.transpose((1, 0)) for tile in exchange]

    def store(gradient, name, parts, first):
        """Writes the parts of a gradient over what it is the gradient of, and copies them out."""
        for p, part in enumerate(tiles.split(gradient, parts)):
            fetched[f"{name}{p}"][...] = part
        plgpu.commit_smem()
        for p in range(parts):
            plgpu.copy_smem_to_gmem(fetched[f"{name}{p}"], outs[first + p].at[group, flat])

    if plan.linear:

        def linear_step(_, *references):
            *references, (dvalues, dkeys) = references
            block, douts, (_, _, shift, delta) = opened(references)
            queries = [block[f"q{p}"] for p in range(plan.query_parts)]
            weights = []
            for i, factors in enumerate(linear_factors(plan, queries, block)):
                logit = tiles.multiply(plan, (ROWS, width), factors) * (plan.scale * LOG2E)
                weights.append(jnp.exp2(restrict(plan, logit, block, i) - shift))
                exchanged(i, weights[i])
            plgpu.commit_smem()
            dvalues = tiles.multiply(plan, dvalues, tiles.cross(across, douts))
            for i, weight in enumerate(weights):
                exchanged(i, weight * (_dweight(plan, douts, block, i) - delta))
            plgpu.commit_smem()
            factors = tiles.cross(across, queries[: plan.value_parts])
            return dvalues, tiles.multiply(plan, dkeys, factors)

        carry = dvalues, tiles.zeros(plan, (pairs, plan.depth))
        dvalues, dkeys = plgpu.emit_pipeline(linear_step, init_carry=carry, **options)(*arguments)
        store(dkeys, "c", plan.key_parts, plan.output_parts)
    else:
        cc = tiles.columns(tiles.load(plan, fetched["cc"].at[pl.ds(0, width)], COLUMN))

        def step(_, *references):
            *references, (dvalues, dys, dbbs) = references
            block, douts, (s, e, shift, delta) = opened(references)
            natural = s * (1 / LOG2E)
            z = tiles.load(plan, block["z"], TILE)
            zz = z * z
            for i in range(count):
                x = tiles.load(plan, block["x"].at[i], ROW)
                y = tiles.columns(tiles.load(plan, block["y"].at[i], COLUMN))
                square = tiles.squares(plan, x, block["bj"][i], z, zz, y, cc, e)
                inverse = tiles.special(plan, "rsqrt", square)
                weight = jnp.exp2(restrict(plan, square * inverse * s, block, i) - shift)
                exchanged(i, weight)
                g = weight * (_dweight(plan, douts, block, i) - delta) * (inverse * natural)
                dys = _with(dys, i, dys[i] + g * (y - tiles.rows(x, width) * z))
                dbbs = _with(dbbs, i, dbbs[i] + jnp.sum(g * zz, axis=1))
            plgpu.commit_smem()
            return tiles.multiply(plan, dvalues, tiles.cross(across, douts)), dys, dbbs

        empty = tiles.zeros(plan, (ROWS, width))
        # Of z^2 a sum over k will do: one number a query in registers, not a tile.
        carry = dvalues, (empty,) * count, (tiles.zeros(plan, (ROWS,), ROW),) * count
        dvalues, dys, dbbs = plgpu.emit_pipeline(step, init_carry=carry, **options)(*arguments)
        for r, tile in enumerate(dys):
            results[0][r, :] = jnp.sum(tile, axis=0)
        for i, dbb in enumerate(dbbs):
            results[1][i, :] = dbb
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(results[0], outs[-2].at[group, *square_block])
        plgpu.copy_smem_to_gmem(results[1], outs[-1].at[group, k, pl.ds(j * count, count)])
    store(dvalues, "w", plan.output_parts, 0)
    plgpu.wait_smem_to_gmem(0)


def _with(items: tuple, i: int, item) -> tuple:
    """The tuple with one item exchanged."""
    return (*items[:i], item, *items[i + 1 :])
