"""The forward kernel of 2-simplicial attention on Hopper GPUs.

A block takes ROWS queries of one group and walks over all pairs of keys: several j and a tile of k at a step,
fetched ahead into shared memory. Logits and softmax live in registers and are rescaled once a step; the
exponentials are the left operand of P @ W where they stand.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
from jaxtyping import Array

from kernels.softmax import LOG2E, MASKED
from kernels.two_simplicial import gpu_tiles as tiles
from kernels.two_simplicial.gpu_tiles import COLUMN, ROW, ROWS, TILE, Layout, Specs, Tiling


def layout(plan: Tiling, program: Mapping[str, Any] | None = None) -> Layout:
    """What `attend` needs; in the kernel, for the program with these indices."""
    tile = program["tile"] if program else 0
    width, count, rows = plan.k_block, plan.j_block, (plan.groups, plan.queries)
    specs = pair_specs(plan, lambda k, j: (k, j))
    if not plan.linear:
        specs["z"] = plgpu.BlockSpec((ROWS, width), lambda k, j: (tile, k))
        specs["x"] = plgpu.BlockSpec((count, ROWS), lambda k, j: (j, tile))
    if plan.masked:
        specs["mask"] = plgpu.BlockSpec((count, ROWS, width), lambda k, j: (j, tile, k))
    results = tiles.matrix(ROWS, plan.features, dtype=jnp.float32), plgpu.SMEM((ROWS,), jnp.float32)
    if plan.linear:
        fetched = [tiles.matrix(ROWS, plan.depth, width)] * plan.query_parts
        arrivals = len(fetched)
    else:
        sizes = plan.first, plan.k_steps * tiles.line(width)
        fetched, arrivals = [tiles.vector(size) for size in sizes], sum(map(tiles.pieces, sizes))
    return Layout(
        grid={"group": plan.groups, "tile": plan.q_steps},
        results=tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((*rows, plan.features), rows)),
        scratch=(*results, *fetched, plgpu.Barrier(num_arrivals=arrivals)),
        specs=specs,
        steps=plan.k_steps * plan.j_steps,
        reduces=True,
    )


def attend(plan: Tiling, operands: Mapping[str, Array]) -> tuple[Array, Array]:
    """Attended values [Z, N, F] float32 and log2 of the denominators [Z, N], about -1e30 where all is masked.

    Args:
      plan: sizes.
      operands: by name, as `gpu_operands.py` makes them: of the triple product x [Z, J, N], z [Z, N, K], y
        [Z, J, K], bb [Z, J], cc [Z, K] (tiles of k padded to lines, as J is), s (times log2 e) and e [Z, N],
        or of the linear logits q0.. [Z, N, D] and c0.. [Z, J*K, D]; w0.. [Z, J*K, F]; bias [batch or 1, J,
        K]; mask int8 [batch or 1, J, N, K].
    """
    names = [*layout(plan).specs]
    names += [f"q{p}" for p in range(plan.query_parts)] if plan.linear else ["bb", "cc", "s", "e"]
    operands = {name: operands[name] for name in names}
    out, lse = tiles.launch(plan, "forward", _attend, layout(plan), operands)
    return out, lse


def _attend(plan, program, inputs, out, lse, out_tile, lse_tile, *fetched):
    group, tile = program["group"], program["tile"]
    start = pl.multiple_of(tile * ROWS, ROWS)
    width, count = plan.k_block, plan.j_block
    specs = layout(plan, program).specs
    *here, barrier = fetched
    if plan.linear:
        tiles.fetch(
            [(inputs[f"q{p}"].at[group, pl.ds(start, ROWS)], here[p]) for p in range(plan.query_parts)],
            barrier,
        )
        factor = plan.scale * LOG2E
    else:
        vectors = [(inputs[name].at[group], here[i]) for i, name in enumerate(("bb", "cc"))]
        tiles.fetch([copy for pair in vectors for copy in tiles.copies(*pair)], barrier)
        s, e = (tiles.load(plan, inputs[n].at[group, pl.ds(start, ROWS)], ROW) for n in "se")

    def step(indices, *references):
        k, j = indices
        *references, (accumulator, top, total) = references
        block = dict(zip(specs, references, strict=True))
        if plan.linear:
            scores = [
                tiles.multiply(plan, (ROWS, width), factors) for factors in linear_factors(plan, here, block)
            ]
        else:
            z = tiles.load(plan, block["z"], TILE)
            zz = z * z
            cc = tiles.columns(tiles.load(plan, here[1].at[pl.ds(k * tiles.line(width), width)], COLUMN))
            scores = []
            for i in range(count):
                x = tiles.load(plan, block["x"].at[i], ROW)
                y = tiles.columns(tiles.load(plan, block["y"].at[i], COLUMN))
                square = tiles.squares(plan, x, here[0][j * count + i], z, zz, y, cc, tiles.rows(e, width))
                scores.append(tiles.special(plan, "sqrt", square))
        by = factor if plan.linear else tiles.rows(s, width)
        if plan.biased or plan.masked:
            scores = [restrict(plan, score * by, block, i) for i, score in enumerate(scores)]
        # Factors are positive and the same for all pairs: the largest score has the largest logit.
        largest = scores[0]
        for score in scores[1:]:
            largest = jnp.maximum(largest, score)
        largest = jnp.max(largest, axis=1)
        if not (plan.biased or plan.masked):
            largest = largest * (factor if plan.linear else s)
        above = jnp.maximum(top, largest)
        shrink = jnp.exp2(top - above)
        shift = tiles.rows(above, width)
        if plan.biased or plan.masked:
            weights = [jnp.exp2(score - shift) for score in scores]
        else:
            weights = [jnp.exp2(score * by - shift) for score in scores]
        summed = weights[0]
        for weight in weights[1:]:
            summed = summed + weight
        total = total * shrink + jnp.sum(summed, axis=1)
        # What was loaded above may be overwritten by a copy from here on.
        plgpu.commit_smem()
        factors = []
        for i, weight in enumerate(weights):
            pairs = pl.ds(i * width, width)
            values = [block[f"w{p}"].at[pairs] for p in range(plan.value_parts)]
            factors += tiles.cross(tiles.split(weight, plan.weight_parts), values)
        accumulator = accumulator * tiles.rows(shrink, plan.features)
        return tiles.multiply(plan, accumulator, factors), above, total

    pipeline = plgpu.emit_pipeline(
        step,
        grid=(plan.k_steps, plan.j_steps),
        in_specs=list(specs.values()),
        max_concurrent_steps=plan.stages,
        init_carry=(
            tiles.zeros(plan, (ROWS, plan.features)),
            tiles.zeros(plan, (ROWS,), ROW, MASKED),
            tiles.zeros(plan, (ROWS,), ROW),
        ),
    )
    accumulator, top, total = pipeline(
        *(inputs[name].at[plan.example(group, inputs[name].shape[0])] for name in specs)
    )
    inverse = 1.0 / total
    if plan.biased or plan.masked:
        inverse = jnp.where(top > 0.5 * MASKED, inverse, 0.0)
    out_tile[...] = accumulator * tiles.rows(inverse, plan.features)
    lse_tile[...] = top + jnp.log2(total)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(out_tile, out.at[group, pl.ds(start, ROWS)])
    plgpu.copy_smem_to_gmem(lse_tile, lse.at[group, pl.ds(start, ROWS)])
    plgpu.wait_smem_to_gmem(0)


def pair_specs(plan: Tiling, place: Callable) -> Specs:
    """Blocks of what belongs to pairs of keys: W, C, y and the bias.

    Args:
      plan: sizes.
      place: from a pipeline's indices to the steps of k and j.
    """
    width, count = plan.k_block, plan.j_block

    def row(*indices):
        k, j = place(*indices)
        return k * plan.j_steps + j, 0

    def flat(features):
        transforms = tiles.swizzled(features, width)
        return plgpu.BlockSpec((count * width, features), row, transforms=transforms)

    square = plgpu.BlockSpec((count, width), lambda *indices: place(*indices)[::-1])
    specs = {f"w{p}": flat(plan.features) for p in range(plan.value_parts)}
    if plan.linear:
        specs |= {f"c{p}": flat(plan.depth) for p in range(plan.key_parts)}
    else:
        specs["y"] = square
    if plan.biased:
        specs["bias"] = square
    return specs


def linear_factors(plan: Tiling, queries, block) -> list[list[tuple]]:
    """For each j of a step the products whose sum is q . C_jk."""
    width = plan.k_block
    return [
        tiles.cross(
            queries,
            [block[f"c{p}"].at[pl.ds(i * width, width)].transpose((1, 0)) for p in range(plan.key_parts)],
        )
        for i in range(plan.j_block)
    ]


def restrict(plan: Tiling, score, block, i: int):
    """Logits of a tile with -1e30 where the pair is padding or masked."""
    if plan.biased:
        score = score + tiles.columns(tiles.load(plan, block["bias"].at[i], COLUMN))
    if plan.masked:
        allowed = tiles.load(plan, block["mask"].at[i], TILE)
        score = jnp.where(allowed != 0, score, MASKED)
    return score
