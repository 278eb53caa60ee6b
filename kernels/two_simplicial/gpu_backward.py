"""The backward kernels of 2-simplicial attention on Hopper GPUs.

Two passes, both of which compute the logits again: `query_side` sums over pairs of keys for each query,
`pair_side` sums over queries for each pair. Nothing is added up across blocks in memory.

With dP_ijk = dout_i . W_jk, P = exp(logit - lse) and delta_i = dout_i . out_i the gradient of a logit is
P (dP - delta). Of the triple product g = dlogit * s / t is what is summed, with the factors of
`pairwise.Gradients`.
"""

import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from kernels.softmax import LOG2E
from kernels.two_simplicial import gpu_tiles as tiles
from kernels.two_simplicial.gpu_forward import linear_factors, pair_specs, restrict
from kernels.two_simplicial.gpu_tiles import COLUMN, ROW, ROWS, TILE, Plan


def query_side(plan: Plan, operands: dict[str, Array]) -> tuple[Array, ...]:
    """Sums over pairs.

    Of the triple product x [Z, KS, J, N], z [Z, N, K] and aa [Z, KS, N], else q [Z, KS, N, D]. KS are tiles
    of k, over which the caller sums. `pairwise.Gradients` says what x, z and aa are; q is the gradient of the
    query for a scale of 1.

    Args:
      plan: sizes.
      operands: those of `gpu_forward.attend`; shift [Z, N], what is subtracted from logits times log2 e (the
        log-sum-exp, of the triple product less log2 s); delta [Z, N]; d0.. [Z, N, F], the output's gradient.
    """
    z, q, k, n = plan.groups, plan.q_steps * ROWS, plan.k_steps, plan.first
    fetched = [tiles.matrix(ROWS, plan.features, plan.k_block)] * plan.value_parts
    if plan.linear:
        shapes = [(z, k, q, plan.depth)]
        fetched += plan.queries_of_tile()
        results = [tiles.matrix(ROWS, plan.depth, dtype=jnp.float32)]
    else:
        shapes = [(z, k, n, q), (z, q, plan.second), (z, k, q)]
        fetched += plan.vectors()
        results = [tiles.matrix(ROWS, plan.k_block, dtype=jnp.float32), plgpu.SMEM((ROWS,), jnp.float32)]
        results += [plgpu.SMEM((2, plan.j_block, ROWS), jnp.float32)]
    scratch = (tuple(results), tuple(fetched), plgpu.Barrier(num_arrivals=len(fetched)))
    return plan.launch("query_side", _query_side, operands, shapes, scratch, group=z, tile=plan.q_steps, k=k)


def _query_side(plan, inputs, *references):
    outs, (results, fetched, barrier) = references[:-3], references[-3:]
    group, tile, k = (lax.axis_index(name) for name in ("group", "tile", "k"))
    here = pl.ds(pl.multiple_of(tile * ROWS, ROWS), ROWS)
    width, count = plan.k_block, plan.j_block
    names = [f"d{p}" for p in range(plan.value_parts)]
    names += [f"q{p}" for p in range(plan.query_parts)]
    copies = [(inputs[name].at[group, here], fetched[i]) for i, name in enumerate(names)]
    if not plan.linear:
        copies += [
            (inputs[name].at[group], target) for name, target in zip(("bb", "cc"), fetched[-2:], strict=True)
        ]
    tiles.fetch(copies, barrier)
    douts, queries = fetched[: plan.value_parts], fetched[plan.value_parts : len(names)]
    shift, delta = (
        tiles.rows(tiles.load(plan, inputs[n].at[group, here], ROW), width) for n in ("shift", "delta")
    )
    specs = pair_specs(plan, lambda j: (k, j))
    if not plan.linear:
        specs["x"] = plgpu.BlockSpec((count, ROWS), lambda j: (j, tile))
    if plan.masked:
        specs["mask"] = plgpu.BlockSpec((count, ROWS, width), lambda j: (j, tile, k))
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
        bb, cc = fetched[-2:]
        s, e = (tiles.rows(tiles.load(plan, inputs[n].at[group, here], ROW), width) for n in "se")
        z = tiles.load(plan, inputs["z"].at[group, here, pl.ds(k * width, width)], TILE)
        zz = z * z
        cc = tiles.columns(tiles.load(plan, cc.at[pl.ds(k * width, width)], COLUMN))

        def step(indices, *references):
            (j,) = indices
            *references, (along, across, dsquare) = references
            block = dict(zip(specs, references, strict=True))
            dx = results[2].at[lax.rem(j, 2)]
            plgpu.wait_smem_to_gmem(1, wait_read_only=True)  # what was written two steps ago
            for i in range(count):
                x = tiles.load(plan, block["x"].at[i], ROW)
                y = tiles.columns(tiles.load(plan, block["y"].at[i], COLUMN))
                b = bb[j * count + i]
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
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(dx, outs[0].at[group, k, pl.ds(j * count, count), here])
            return along, across, dsquare

        empty = tiles.zeros(plan, (ROWS, width))
        pipeline = plgpu.emit_pipeline(step, init_carry=(empty, empty, empty), **options)
        along, across, dsquare = pipeline(*arguments)
        results[0][...] = z * along - across
        results[1][...] = jnp.sum(dsquare, axis=1)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(results[0], outs[1].at[group, here, pl.ds(k * width, width)])
        plgpu.copy_smem_to_gmem(results[1], outs[2].at[group, k, here])
    plgpu.wait_smem_to_gmem(0)


def _dweight(plan, douts, block, i):
    """The gradient of the softmax's weights of a tile, dout . W_jk."""
    pairs = pl.ds(i * plan.k_block, plan.k_block)
    values = [block[f"w{p}"].at[pairs].transpose((1, 0)) for p in range(plan.value_parts)]
    return tiles.multiply(plan, (ROWS, plan.k_block), tiles.cross(douts, values))


def pair_side(plan: Plan, operands: dict[str, Array]) -> tuple[Array, ...]:
    """Sums over queries: w [Z, J*K, F], and of the triple product sums [Z, JS, R, K], else c [Z, J*K, D].

    JS are steps of `j_block` keys j, and R its 2 j_block + 2 rows of sums: y for each j, bb for each j (to be
    summed over k), cc (to be summed over JS), and one that is not used. c is for a scale of 1.

    Args:
      plan: sizes; j_block * k_block is a multiple of 64.
      operands: those of `query_side`, but one `rows` [Z, 4, N] of s, e, the log-sum-exp times log2 e, and
        delta instead of the vectors; of the linear logits s and e are not used.
    """
    width, count = plan.k_block, plan.j_block
    pairs = count * width
    weights = plgpu.SMEM((ROWS, pairs), jnp.bfloat16, transforms=tiles.swizzled(plan.features, width))
    fetched = [tiles.matrix(pairs, plan.features, width)] * plan.value_parts
    exchange = [weights] * plan.weight_parts
    shapes: list[tuple[int, ...]] = [(plan.groups, plan.first * plan.second, plan.features)]
    results = [tiles.matrix(pairs, plan.features, dtype=jnp.float32)]
    if plan.linear:
        transforms = tiles.swizzled(plan.depth, width)
        fetched += [tiles.matrix(pairs, plan.depth, width)] * plan.key_parts
        exchange += [plgpu.SMEM((ROWS, pairs), jnp.bfloat16, transforms=transforms)] * plan.weight_parts
        shapes += [(plan.groups, plan.first * plan.second, plan.depth)]
        results += [tiles.matrix(pairs, plan.depth, dtype=jnp.float32)]
    else:
        fetched += [plgpu.SMEM((count, width), jnp.float32), *plan.vectors()]
        shapes += [(plan.groups, plan.j_steps, 2 * count + 2, plan.second)]
        results += [plgpu.SMEM((2 * count + 2, width), jnp.float32)]
    fetched += [plgpu.SMEM((count, width), jnp.float32)] * plan.biased
    scratch = (tuple(results), tuple(exchange), tuple(fetched), plgpu.Barrier(num_arrivals=len(fetched)))
    steps = {"j": plan.j_steps, "k": plan.k_steps}
    return plan.launch("pair_side", _pair_side, operands, shapes, scratch, group=plan.groups, **steps)


def _pair_side(plan, inputs, *references):
    outs, (results, exchange, fetched, barrier) = references[:-4], references[-4:]
    group, j, k = (lax.axis_index(name) for name in ("group", "j", "k"))
    width, count = plan.k_block, plan.j_block
    flat = pl.ds((k * plan.j_steps + j) * count * width, count * width)
    square_block = (pl.ds(j * count, count), pl.ds(k * width, width))
    places: dict[str, tuple] = {f"w{p}": (group, flat) for p in range(plan.value_parts)}
    if plan.linear:
        places |= {f"c{p}": (group, flat) for p in range(plan.key_parts)}
    else:
        places |= {"y": (group, *square_block), "bb": (group,), "cc": (group,)}
    if plan.biased:
        places["bias"] = (plan.example(group, inputs["bias"].shape[0]), *square_block)
    fetched = dict(zip(places, fetched, strict=True))
    tiles.fetch([(inputs[name].at[place], fetched[name]) for name, place in places.items()], barrier)

    def row_tile(features):
        transforms = tiles.swizzled(features, width)
        return plgpu.BlockSpec((ROWS, features), lambda i: (i, 0), transforms=transforms)

    specs = {"rows": plgpu.BlockSpec((4, ROWS), lambda i: (0, i))}
    specs |= {f"d{p}": row_tile(plan.features) for p in range(plan.value_parts)}
    if plan.linear:
        specs |= {f"q{p}": row_tile(plan.depth) for p in range(plan.query_parts)}
    else:
        specs["z"] = plgpu.BlockSpec((ROWS, width), lambda i: (i, k))
        specs["x"] = plgpu.BlockSpec((count, ROWS), lambda i: (j, i))
    if plan.masked:
        specs["mask"] = plgpu.BlockSpec((count, ROWS, width), lambda i: (j, i, k))
    arguments = [inputs[name].at[plan.example(group, inputs[name].shape[0])] for name in specs]
    options = {"grid": (plan.q_steps,), "in_specs": list(specs.values()), "max_concurrent_steps": plan.stages}
    dvalues = tiles.zeros(plan, (count * width, plan.features))

    def opened(references):
        block = {**fetched, **dict(zip(specs, references, strict=True))}
        vectors = [tiles.rows(tiles.load(plan, block["rows"].at[r], ROW), width) for r in range(4)]
        return block, [block[f"d{p}"] for p in range(plan.value_parts)], vectors

    def exchanged(first, i, tile):
        """Lays a tile of P, or of the logits' gradients, down to be read as columns."""
        for p, part in enumerate(tiles.split(tile, plan.weight_parts)):
            exchange[first + p][:, pl.ds(i * width, width)] = part

    def across(first):
        return [tile.transpose((1, 0)) for tile in exchange[first : first + plan.weight_parts]]

    if plan.linear:

        def linear_step(_, *references):
            *references, (dvalues, dkeys) = references
            block, douts, (_, _, shift, delta) = opened(references)
            queries = [block[f"q{p}"] for p in range(plan.query_parts)]
            for i, factors in enumerate(linear_factors(plan, queries, block)):
                logit = tiles.multiply(plan, (ROWS, width), factors) * (plan.scale * LOG2E)
                weight = jnp.exp2(restrict(plan, logit, block, i) - shift)
                exchanged(0, i, weight)
                exchanged(plan.weight_parts, i, weight * (_dweight(plan, douts, block, i) - delta))
            plgpu.commit_smem()
            dvalues = tiles.multiply(plan, dvalues, tiles.cross(across(0), douts))
            factors = tiles.cross(across(plan.weight_parts), queries[: plan.value_parts])
            return dvalues, tiles.multiply(plan, dkeys, factors)

        carry = dvalues, tiles.zeros(plan, (count * width, plan.depth))
        dvalues, results[1][...] = plgpu.emit_pipeline(linear_step, init_carry=carry, **options)(*arguments)
        target = outs[1].at[group, flat]
    else:
        cc = tiles.columns(tiles.load(plan, fetched["cc"].at[pl.ds(k * width, width)], COLUMN))

        def step(_, *references):
            *references, (dvalues, dys, dbbs, dcc) = references
            block, douts, (s, e, shift, delta) = opened(references)
            natural = s * (1 / LOG2E)
            z = tiles.load(plan, block["z"], TILE)
            zz = z * z
            for i in range(count):
                x = tiles.load(plan, block["x"].at[i], ROW)
                y = tiles.columns(tiles.load(plan, block["y"].at[i], COLUMN))
                square = tiles.squares(plan, x, block["bb"][j * count + i], z, zz, y, cc, e)
                inverse = tiles.special(plan, "rsqrt", square)
                weight = jnp.exp2(restrict(plan, square * inverse * s, block, i) - shift)
                exchanged(0, i, weight)
                g = weight * (_dweight(plan, douts, block, i) - delta) * (inverse * natural)
                dys = _with(dys, i, dys[i] + g * (y - tiles.rows(x, width) * z))
                dbbs = _with(dbbs, i, dbbs[i] + g * zz)
                dcc = dcc + g * tiles.rows(x * x, width)
            plgpu.commit_smem()
            return tiles.multiply(plan, dvalues, tiles.cross(across(0), douts)), dys, dbbs, dcc

        empty = tiles.zeros(plan, (ROWS, width))
        carry = dvalues, (empty,) * count, (empty,) * count, empty
        dvalues, dys, dbbs, dcc = plgpu.emit_pipeline(step, init_carry=carry, **options)(*arguments)
        for r, tile in enumerate((*dys, *dbbs, dcc, dcc)):
            results[1][r, :] = jnp.sum(tile, axis=0)
        target = outs[1].at[group, j, :, pl.ds(k * width, width)]
    results[0][...] = dvalues
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(results[0], outs[0].at[group, flat])
    plgpu.copy_smem_to_gmem(results[1], target)
    plgpu.wait_smem_to_gmem(0)


def _with(items: tuple, i: int, item) -> tuple:
    """The tuple with one item exchanged."""
    return (*items[:i], item, *items[i + 1 :])
