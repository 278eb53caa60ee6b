"""The forward kernel of 2-simplicial attention on Hopper GPUs.

A computing warpgroup takes ROWS queries of one group and walks over all pairs of keys: several j and a tile
of k at a step. Logits and softmax live in registers and are rescaled once a step; the exponentials are the
left operand of P @ W where they stand. The warpgroups of a program share what belongs to the pairs.
"""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array

from kernels import hopper
from kernels.hopper import BY_ROW, ROWS
from kernels.softmax import LOG2E, MASKED
from kernels.two_simplicial import gpu_tiles as tiles
from kernels.two_simplicial.gpu_tiles import Layout, Tiling


def layout(plan: Tiling) -> Layout:
    """What `attend` needs."""
    steps = [*plan.values(), *(plan.keys() if plan.linear else "xy"), *["bias"] * plan.biased]
    return Layout(
        plan,
        "forward",
        grid=(plan.groups, plan.q_steps // plan.warpgroups),
        axis="i",
        feeds=[
            (plan.query() if plan.linear else ["rows"], 1),
            ([] if plan.linear else ["z"], plan.k_steps),
            (steps + ["mask"] * plan.masked, plan.k_steps * plan.j_steps),
        ],
    )


def attend(plan: Tiling, operands: Mapping[str, Array]) -> tuple[Array, Array]:
    """Attended values [Z, N, F] float32 and log2 of the denominators [Z, N], about -1e30 where all is masked.

    Args:
      plan: sizes.
      operands: by name, as `gpu_operands.py` makes them: of the triple product x [Z, J, N], z [Z, N, K], y
        [Z, 3, J, K] (with b.b and c.c), rows [Z, 2, N] (s times log2 e, and e), or of the linear logits q0..
        [Z, N, D] and c0.. [Z, J*K, D]; w0.. [Z, J*K, F]; bias [batch or 1, J, K]; mask int8 [batch or 1, J,
        N, K].
    """
    rows = plan.groups, plan.queries
    results = ((*rows, plan.features), jnp.float32), (rows, jnp.float32)

    out, lse = layout(plan).run(_attend, results, operands)
    return out, lse


def _attend(plan, piece, feeds, outs, _):
    group, block = piece
    once, keys, steps = feeds

    def copy():
        tile = block * plan.warpgroups
        once.fill(0, i=tile)

        def key(k, _):
            keys.fill(k, i=tile, k=k)
            lax.fori_loop(
                0, plan.j_steps, lambda j, _: steps.fill(k * plan.j_steps + j, i=tile, j=j, k=k), None
            )

        lax.fori_loop(0, plan.k_steps, key, None)

    def compute(member):
        here = pl.ds((block * plan.warpgroups + member) * ROWS, ROWS)
        fixed = once.wait(0, member)
        by = s = e = plan.scale * LOG2E
        if not plan.linear:
            s, e = (hopper.load(fixed["rows"].at[r], BY_ROW) for r in range(2))
            by = tiles.row(plan, s)
        restricted = plan.biased or plan.masked

        def scores(z, blocks):
            if plan.linear:
                names = plan.query(), blocks, plan.keys()
                return [tiles.against_pairs(plan, *names, i) for i in range(plan.j_block)]
            result, zz, cc = [], z * z, tiles.column(plan, blocks["y"].at[2, 0])
            for i in range(plan.j_block):
                x = hopper.load(blocks["x"].at[i], BY_ROW)
                y = tiles.column(plan, blocks["y"].at[0, i])
                square = tiles.squares(plan, x, blocks["y"][1, i, 0], z, zz, y, cc, tiles.row(plan, e))
                result.append(tiles.special(plan, "sqrt", square))
            return result

        def step(position, z, carry):
            accumulator, top, total = carry
            blocks = once.at(0, hopper.afresh(member)) | steps.wait(position, member)
            found = scores(z, blocks)
            if restricted:
                found = [tiles.restrict(plan, score * by, blocks, i) for i, score in enumerate(found)]
            # Factors are positive and the same for all pairs: the largest score has the largest logit.
            largest = found[0]
            for score in found[1:]:
                largest = jnp.maximum(largest, score)
            largest = jnp.max(largest, axis=1)
            above = jnp.maximum(top, largest if restricted else largest * s)
            shrink = jnp.exp2(top - above)
            shift = tiles.row(plan, above)
            weights = [jnp.exp2((score if restricted else score * by) - shift) for score in found]
            summed = weights[0]
            for weight in weights[1:]:
                summed = summed + weight
            total = total * shrink + jnp.sum(summed, axis=1)
            factors = []
            for i, weight in enumerate(weights):
                pairs = pl.ds(i * plan.k_block, plan.k_block)
                values = [blocks[name].at[pairs] for name in plan.values()]
                factors += tiles.cross(tiles.split(weight, plan.weight_parts), values)
            accumulator = accumulator * hopper.along_columns(shrink, accumulator.shape)
            accumulator = hopper.add_products(accumulator, factors, interpret=plan.interpret)
            steps.release(position)
            return accumulator, above, total

        def key(k, carry):
            z = None
            if not plan.linear:
                z = hopper.load(keys.wait(k, member)["z"])
                keys.release(k)
            return lax.fori_loop(
                0, plan.j_steps, lambda j, carry: step(k * plan.j_steps + j, z, carry), carry
            )

        nothing = hopper.full((ROWS, plan.features), 0), hopper.full((ROWS,), MASKED), hopper.full((ROWS,), 0)
        accumulator, top, total = lax.fori_loop(0, plan.k_steps, key, nothing)
        once.release(0)
        inverse = 1.0 / total
        if restricted:
            inverse = jnp.where(top > 0.5 * MASKED, inverse, 0.0)
        hopper.store_global(
            outs[0].at[group, here], accumulator * hopper.along_columns(inverse, accumulator.shape)
        )
        hopper.store_global(outs[1].at[group, here], top + jnp.log2(total))

    return copy, compute
