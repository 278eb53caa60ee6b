"""2-simplicial attention in blocks: no array over all triples, on any platform that XLA compiles for.

Clift et al. (2020), equation (10), as an online softmax over tiles of triples (`xla_logits.py` says what a
tile is). The loops, outermost first: chunks of heads and of batch entries, blocks of first keys, blocks of
queries. B(value_j, value_k) of a block of first keys is computed once for all queries.

The backward pass computes each tile's weights again from the saved log-sum-exp; the loops are sequential, so
one pass adds up all gradients. Both passes are plain functions of arrays and have derivatives themselves, at
the memory that JAX needs to differentiate loops.

Axis letters: B batch, H heads, N queries, M keys, D, E, F features of keys, values, outputs; T blocks of Q
queries, S blocks of J first keys, K second keys (all of them), P = J * K pairs.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels import sharding
from kernels.arrays import Size, accumulator, filled, narrow, pushforward, round_up, zeros
from kernels.two_simplicial import xla_tiling as tiles
from kernels.two_simplicial.reference import Config
from kernels.two_simplicial.xla_logits import Groups, form_of
from kernels.two_simplicial.xla_tiling import Tiling

type Blocks = Mapping[str, int] | None

# A tile that a CPU's caches hold, and one that fills an accelerator.
CPU = tiles.Budget(triples=2**18, pairs=256, rows=2**12)
ACCELERATOR = tiles.Budget(triples=2**24, pairs=1024, rows=2**18, strided=True)
FEW_KEYS = 2  # the forward pass of so few needs no tiles


def unsupported(config: Config, *arrays: Any) -> str | None:
    """Why this path cannot serve these arguments: it serves all that the definition does."""
    del arrays
    if config.scale <= 0:
        return f"scale: got {config.scale}, expected a positive number"
    return None


def forward(
    config: Config, *arrays: Any, blocks: Blocks = None
) -> tuple[Float[Array, "B N H F"], Float[Array, "B H N"]]:
    """Arrays and results as those of `reference.two_simplicial_attention`; `blocks` as in `tiles.Tiling`."""
    *inputs, mask = arrays
    dtype, precision = accumulator(*inputs), _precision(*inputs)
    if not blocks and inputs[1].shape[1] <= FEW_KEYS:
        few = functools.partial(_forward_few, config, precision)
        out, lse = _tiled(few, None, *(a.astype(dtype) for a in inputs), mask)
        return out.astype(inputs[3].dtype), lse

    def at(tiling: Tiling, query, key1, key2, value, bilinear, *mask):
        def of_chunk(arrays, bilinear, mask):
            return _forward(config, tiling, precision, arrays, bilinear, mask), ()

        query, key1, key2, value = _heads_first(dtype, query, key1, key2, value)
        (out, lse), _ = _over_chunks(
            of_chunk, tiling, (query, key1, key2, value), bilinear, mask[0] if mask else None
        )
        return jnp.swapaxes(out, 1, 2), lse

    out, lse = _tiled(at, blocks, *inputs, *(() if mask is None else (mask,)))
    return out.astype(inputs[3].dtype), lse


def tangent(config: Config, *operands: Any) -> tuple[Float[Array, "B N H F"], Float[Array, "B H N"]]:
    """Tangents of `forward`'s results; `operands` are its arrays, its results, and tangents or None."""
    *inputs, mask, _, _ = operands[:8]
    return pushforward(lambda *moved: forward(config, *moved, mask), inputs, operands[8:])


def backward(
    config: Config, *operands: Any, blocks: Blocks = None, dresidual: Float[Array, "B H N"] | None = None
) -> tuple[Array, ...]:
    """Gradients of query, key1, key2, value and bilinear, in their types.

    `operands` are the arrays of `forward`, its results, and the cotangent of its output; `dresidual` is the
    cotangent of its log-sum-exp.
    """
    *inputs, mask, out, lse, dout = operands
    dtype, precision = accumulator(*inputs), _precision(*inputs)
    # In 16 bits the output is too coarse to compute delta from: where a row's weights are concentrated, it
    # almost cancels dweight.
    exact = narrow(*inputs)

    def at(tiling: Tiling, query, key1, key2, value, bilinear, out, lse, dout, others):
        mask, dresidual = others

        def of_chunk(arrays, bilinear, mask):
            *vectors, lse, delta, dout = arrays
            if exact:
                lse, mean = _delta(config, tiling, precision, (*vectors, dout), bilinear, mask)
                delta += mean
            arrays = *vectors, lse, delta, dout
            *gradients, dbilinear = _backward(config, tiling, precision, arrays, bilinear, mask, exact)
            return gradients, (dbilinear,)

        out, dout = _heads_first(dtype, out, dout)
        delta = jnp.zeros_like(lse) if exact else jnp.sum(out * dout, axis=-1)
        if dresidual is not None:
            delta -= dresidual
        arrays = (*_heads_first(dtype, query, key1, key2, value), lse, delta, dout)
        gradients, (dbilinear,) = _over_chunks(of_chunk, tiling, arrays, bilinear.astype(dtype), mask)
        return *(jnp.swapaxes(g, 1, 2) for g in gradients), dbilinear

    # In one program with the forward pass, sharing layouts and products with it costs more than it saves.
    held = jax.lax.optimization_barrier((*inputs, out, lse, dout))
    gradients = _tiled(at, blocks, *held, (mask, dresidual))
    return tuple(g.astype(a.dtype) for g, a in zip(gradients, inputs, strict=True))


def _forward_few(config, precision, tiling, query, key1, key2, value, bilinear, mask):
    """The definition, but for the sum over pairs: a product of matrices with so few rows costs far more.

    With M of two (the agents' virtual entities) all triples are fewer numbers than the queries have, and
    tiles save nothing, except for B(u, _), M E F numbers for each batch entry. The backward pass is faster in
    tiles, small enough for the caches.
    """
    query, key1, key2, value = _heads_first(value.dtype, query, key1, key2, value)
    form = form_of(config)
    groups = form.prepare(query[None], key1[None], key2, few=True)
    crossed, queries, first = (tuple(x[0] for x in group) for group in groups[:3])
    tile = Groups(tuple(x[0] for x in crossed), queries, first, groups.second)
    permitted = None if mask is None else jnp.transpose(mask, (0, 2, 3, 1))[:, None]
    raw, _ = _raw(form, jax.lax.optimization_barrier(tile), permitted)
    logit = form.logit(raw)
    top = jax.lax.stop_gradient(jnp.max(logit, axis=(2, 3)))
    weight = _flat(_weights(logit, top, permitted))
    total = jnp.sum(weight, axis=2)
    some = total > 0
    total = jnp.where(some, total, 1)

    def of_chunk(arrays, bilinear, _):
        (value,) = arrays
        return _pairs(precision, value, value, bilinear), ()

    if isinstance(value.shape[0], int):
        pairs, _ = _over_chunks(of_chunk, tiling, (value,), bilinear, None)
    else:  # a symbol, in an exported program: all at once, not one by one
        pairs, _ = of_chunk((value,), bilinear, None)
    # A barrier, or the loop of the sum would compute its factors again for every feature.
    weight, pairs = jax.lax.optimization_barrier((weight / total[:, :, None], pairs))
    out = jnp.sum(weight[..., None] * pairs[:, :, :, None], axis=2)
    lse = jnp.where(some, top + jnp.log(total), 0)
    return jnp.swapaxes(out, 1, 2), lse


def _forward(config, tiling, precision, arrays, bilinear, mask):
    """One chunk, heads first: [B, H, N, F] and [B, H, N]."""
    query, key1, key2, value = arrays
    form = form_of(config)
    size, keys = query.shape[2], key1.shape[2]
    groups = form.prepare(tiles.blocked(query, 2, tiling.queries), tiles.blocked(key1, 2, tiling.j), key2)
    allowed = _allowed_in(mask, tiling, size, keys)

    def of_keys(carry, xs):
        s, crossed, first, value1 = xs
        pairs = _pairs(precision, value1, value, bilinear)
        # A feature that is always 1: its mean's numerator is the denominator of all the others.
        pairs = jnp.concatenate([pairs, jnp.ones_like(pairs[..., :1])], axis=-1)
        pairs = jnp.swapaxes(pairs, 2, 3)

        def of_queries(_, xs):
            t, crossed, queries, top, sums = xs
            raw, permitted = _raw(form, Groups(crossed, queries, first, groups.second), allowed(s, t))
            largest = jax.lax.stop_gradient(form.logit(jnp.max(raw, axis=(2, 3))))
            top, before = jnp.maximum(top, largest), top
            weight = _flat(_weights(form.logit(raw), top, permitted))
            sums = sums * jnp.exp(before - top)[:, :, None]
            return None, (top, sums + jnp.einsum("bhfp,bhpq->bhfq", pairs, weight, precision=precision))

        blocks = jnp.arange(carry[0].shape[0])
        return jax.lax.scan(of_queries, None, (blocks, crossed, groups.queries, *carry))[1], None

    values = tiles.blocked(value, 2, tiling.j)
    rows = (-(-size // tiling.queries), *query.shape[:2], tiling.queries)
    top = zeros(query, rows, query.dtype) + form.logit(jnp.asarray(form.least, query.dtype))
    sums = zeros(query, (*rows[:3], bilinear.shape[1] + 1, rows[3]), query.dtype)
    xs = (jnp.arange(values.shape[0]), groups.crossed, groups.first, values)
    (top, sums), _ = jax.lax.scan(of_keys, (top, sums), xs)
    total = sums[..., -1, :]
    some = total > 0
    total = jnp.where(some, total, 1)
    out = jnp.swapaxes(sums[..., :-1, :] / total[..., None, :], 3, 4)
    lse = jnp.where(some, top + jnp.log(total), 0)
    return tiles.unblocked(out, 2, size), tiles.unblocked(lse, 2, size)


def _backward(config, tiling, precision, arrays, bilinear, mask, exact):
    """One chunk, heads first: the gradients of query, key1, key2, value and bilinear.

    With `exact` delta is subtracted outside of a product, in which a chip may round it.
    """
    query, key1, key2, value, lse, delta, dout = arrays
    form = form_of(config)
    size, keys = query.shape[2], key1.shape[2]

    def prepare(query, key1, key2):
        return form.prepare(tiles.blocked(query, 2, tiling.queries), tiles.blocked(key1, 2, tiling.j), key2)

    groups, from_groups = jax.vjp(prepare, query, key1, key2)
    allowed = _allowed_in(mask, tiling, size, keys)

    def nothing(x):
        return zeros(query, x.shape, x.dtype)

    def of_keys(carry, xs):
        dqueries, dsecond, dvalue, dbilinear = carry
        s, crossed, first, value1 = xs
        pairs, from_pairs = jax.vjp(functools.partial(_pairs, precision), value1, value, bilinear)
        # One more feature, 1, whose cotangent is -delta: the product below is then dweight - delta.
        one = jnp.ones_like(pairs[..., :1])
        extended = pairs if exact else jnp.concatenate([pairs, one], axis=-1)

        def of_queries(carry, xs):
            dfirst, dsecond, dpairs = carry
            t, crossed, queries, dqueries, lse, delta, dout = xs
            tile = Groups(crossed, queries, first, groups.second)
            raw, permitted = _raw(form, tile, allowed(s, t))
            logit = form.logit(raw)
            weight = _weights(logit, lse, permitted)
            # Barriers: each of these is computed once, not again inside every loop that uses it.
            weight, logit = jax.lax.optimization_barrier((weight, logit))
            rise = jnp.einsum("bhpf,bhqf->bhpq", extended, dout, precision=precision)
            rise = jax.lax.optimization_barrier(rise.reshape(weight.shape))
            if exact:
                rise -= delta[:, :, None, None]
            dout = dout[..., : pairs.shape[-1]]
            dpairs += jnp.einsum("bhpq,bhqf->bhpf", _flat(weight), dout, precision=precision)
            gradients = form.backward(tile, logit, weight * rise)
            dfirst = jax.tree.map(jnp.add, dfirst, gradients.first)
            dsecond = jax.tree.map(jnp.add, dsecond, gradients.second)
            dqueries = jax.tree.map(jnp.add, dqueries, gradients.queries)
            return (dfirst, dsecond, dpairs), (gradients.crossed, dqueries)

        carry = (jax.tree.map(nothing, first), dsecond, nothing(pairs))
        xs = (jnp.arange(lse_blocks.shape[0]), crossed, groups.queries, dqueries, lse_blocks, *dout_blocks)
        (dfirst, dsecond, dpairs), (dcrossed, dqueries) = jax.lax.scan(of_queries, carry, xs)
        dvalue1, dvalue2, more = from_pairs(dpairs)
        return (dqueries, dsecond, dvalue + dvalue2, dbilinear + more), (dcrossed, dfirst, dvalue1)

    lse_blocks = tiles.blocked(lse, 2, tiling.queries)
    extended = dout if exact else jnp.concatenate([dout, -delta[..., None]], axis=-1)
    dout_blocks = tuple(tiles.blocked(x, 2, tiling.queries) for x in (delta, extended))
    values = tiles.blocked(value, 2, tiling.j)
    carry = jax.tree.map(nothing, (groups.queries, groups.second, value, bilinear))
    xs = (jnp.arange(values.shape[0]), groups.crossed, groups.first, values)
    (dqueries, dsecond, dvalue, dbilinear), (dcrossed, dfirst, dvalue1) = jax.lax.scan(of_keys, carry, xs)
    dquery, dkey1, dkey2 = from_groups(Groups(dcrossed, dqueries, dfirst, dsecond))
    return dquery, dkey1, dkey2, dvalue + tiles.unblocked(dvalue1, 2, keys), dbilinear


def _delta(config, tiling, precision, arrays, bilinear, mask):
    """The log-sum-exp of each query of one chunk, and the mean of dweight by its weights: twice [B, H, N].

    Weights are normalised anew: the logits of the forward pass may differ in the last bit, and where logits
    are large that is more than the weights of all pairs but one.
    """
    query, key1, key2, value, dout = arrays
    form = form_of(config)
    size, keys = query.shape[2], key1.shape[2]
    groups = form.prepare(tiles.blocked(query, 2, tiling.queries), tiles.blocked(key1, 2, tiling.j), key2)
    allowed = _allowed_in(mask, tiling, size, keys)

    def of_keys(carry, xs):
        s, crossed, first, value1 = xs
        pairs = _pairs(precision, value1, value, bilinear)

        def of_queries(_, xs):
            t, crossed, queries, dout, top, total, sums = xs
            raw, permitted = _raw(form, Groups(crossed, queries, first, groups.second), allowed(s, t))
            logit = form.logit(raw)
            top, before = jnp.maximum(top, jax.lax.stop_gradient(jnp.max(logit, axis=(2, 3)))), top
            weight = _weights(logit, top, permitted)
            rise = jnp.einsum("bhpf,bhqf->bhpq", pairs, dout, precision=precision)
            more = jnp.sum(weight, axis=(2, 3)), jnp.sum(_flat(weight) * rise, axis=2)
            total, sums = (x * jnp.exp(before - top) + y for x, y in zip((total, sums), more, strict=True))
            return None, (top, total, sums)

        xs = (jnp.arange(dout_blocks.shape[0]), crossed, groups.queries, dout_blocks, *carry)
        return jax.lax.scan(of_queries, None, xs)[1], None

    dout_blocks = tiles.blocked(dout, 2, tiling.queries)
    values = tiles.blocked(value, 2, tiling.j)
    zero = jnp.zeros_like(dout_blocks[..., 0])
    least = zero + form.logit(jnp.asarray(form.least, query.dtype))
    xs = (jnp.arange(values.shape[0]), groups.crossed, groups.first, values)
    (top, total, sums), _ = jax.lax.scan(of_keys, (least, zero, zero), xs)
    total = jnp.where(total > 0, total, 1)
    return tuple(tiles.unblocked(x, 2, size) for x in (top + jnp.log(total), sums / total))


def _raw(form, tile, permitted):
    """What the logits of a tile are computed from, the least where a triple is not permitted."""
    raw = form.raw(tile)
    return (raw if permitted is None else jnp.where(permitted, raw, form.least)), permitted


def _weights(logit, lse, permitted):
    weight = jnp.exp(logit - lse[:, :, None, None])
    return weight if permitted is None else jnp.where(permitted, weight, 0)


def _pairs(
    precision: jax.lax.Precision,
    value1: Float[Array, "B H J E"],
    value2: Float[Array, "B H K E"],
    bilinear: Float[Array, "H F E E"],
) -> Float[Array, "B H P F"]:
    """B(value_j, value_k) of every pair."""
    half = jnp.einsum("hfrs,bhjr->bhjfs", bilinear, value1, precision=precision)
    return _flat(jnp.einsum("bhjfs,bhks->bhjkf", half, value2, precision=precision))


def _flat(tile: Float[Array, "B H J K X"]) -> Float[Array, "B H P X"]:
    return tile.reshape(*tile.shape[:2], -1, tile.shape[-1])


def _allowed_in(
    mask: Bool[Array, "#B #N #M #M"] | None, tiling: Tiling, size: Size, keys: int
) -> Callable[[Array, Array], Bool[Array, "#B 1 #J #K #Q"] | None]:
    """Which triples of the tile (s, t) are allowed; None where that is all of them, at every tile."""
    ragged = keys % tiling.j != 0
    if mask is not None:
        for axis, length, block in ((1, size, tiling.queries), (2, keys, tiling.j)):
            if mask.shape[axis] > 1:
                mask = filled(mask, axis, round_up(length, block))

    def allowed(s, t):
        permitted = None
        if mask is not None:
            permitted = mask
            for axis, block, index in ((1, tiling.queries, t), (2, tiling.j, s)):
                if mask.shape[axis] > 1:
                    permitted = jax.lax.dynamic_slice_in_dim(permitted, index * block, block, axis)
            permitted = jnp.transpose(permitted, (0, 2, 3, 1))[:, None]
        if ragged:  # first keys that only fill up the last block
            real = (s * tiling.j + jnp.arange(tiling.j) < keys)[None, None, :, None, None]
            permitted = real if permitted is None else permitted & real
        return permitted

    return allowed


def _over_chunks(function, tiling: Tiling, arrays, bilinear, mask):
    """Calls `function(arrays, bilinear, mask) -> (outputs, sums)` for each chunk of heads and batch entries.

    Args:
      function: of arrays [b, h, ...]; gives outputs [b, h, ...] and sums over the batch [h, ...].
      tiling: the chunks' b and h.
      arrays: each [B, H, ...].
      bilinear: [H, ...].
      mask: [B or 1, ...] or None.
    """
    (batch, heads), whole = arrays[0].shape[:2], mask if mask is not None and mask.shape[0] == 1 else None
    if (batch, heads) == (tiling.batch, tiling.heads):
        return function(arrays, bilinear, mask)
    cut = functools.partial(tiles.chunks, strided=tiling.strided)
    joined = functools.partial(tiles.joined, strided=tiling.strided)
    own = () if mask is None or whole is not None else (cut(mask, 0, tiling.batch),)

    def of_heads(xs):
        arrays, bilinear = xs

        def of_batch(sums, xs):
            arrays, *own = xs
            outputs, more = function(arrays, bilinear, own[0] if own else whole)
            return jax.tree.map(jnp.add, sums, more), outputs

        like = tuple(jax.tree.map(lambda x: x[0], arrays))
        _, shapes = jax.eval_shape(function, like, bilinear, own[0][0] if own else whole)
        sums = jax.tree.map(lambda x: zeros(like[0], x.shape, x.dtype), shapes)
        return jax.lax.scan(of_batch, sums, (arrays, *own))

    arrays = tuple(cut(cut(a, 0, tiling.batch), 2, tiling.heads) for a in arrays)
    sums, outputs = jax.lax.map(of_heads, (arrays, cut(bilinear, 0, tiling.heads)))
    outputs = jax.tree.map(lambda x: joined(joined(x, 2), 0), outputs)
    return outputs, jax.tree.map(lambda x: joined(x, 0), sums)


def _tiled(function, blocks: Blocks, query, key1, *arrays):
    """Calls `function(tiling, *arrays)` with block sizes for the platform that it is compiled for."""
    batch, queries, heads, _ = query.shape
    sizes = (batch, heads, queries, key1.shape[1])
    count = sharding.devices(query)
    cpu, accelerator = (tiles.tiling(*sizes, budget, blocks, count) for budget in (CPU, ACCELERATOR))
    if cpu == accelerator:
        return function(cpu, query, key1, *arrays)
    on_cpu, elsewhere = functools.partial(function, cpu), functools.partial(function, accelerator)
    return jax.lax.platform_dependent(query, key1, *arrays, cpu=on_cpu, default=elsewhere)


def _heads_first(dtype: jnp.dtype, *arrays: Float[Array, "B _ H _"]) -> tuple[Float[Array, "B H _ _"], ...]:
    return tuple(jnp.swapaxes(a, 1, 2).astype(dtype) for a in arrays)


def _precision(*arrays: Array) -> jax.lax.Precision:
    """For products with values: full, but for inputs of 16 bits, which lose nothing more to a fast product.

    Products of the logits are always precise: logits are large, and their errors are not relative.
    """
    narrow = all(a.dtype in (jnp.bfloat16, jnp.float16) for a in arrays)
    return jax.lax.Precision.DEFAULT if narrow else jax.lax.Precision.HIGHEST


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Block sizes to try when tuning, the default first."""
    del config
    query, key1, *_ = arrays
    batch, queries, heads, _ = query.shape
    sizes = (batch, heads, queries, key1.shape[1])
    budgets = [
        tiles.Budget(2**triples, pairs, rows)
        for triples in range(17, 27)
        for pairs in (256, 1024, 4096)
        for rows in (2**12, 2**14, 2**18)
    ]
    found = dict.fromkeys(tiles.tiling(*sizes, budget) for budget in budgets)
    names = "batch", "heads", "queries", "j"
    candidates = [{}, *({name: getattr(tiling, name) for name in names} for tiling in found)]
    return {"forward": candidates, "backward": candidates}
