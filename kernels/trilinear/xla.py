"""Trilinear attention in tiles, in plain JAX: runs anywhere, forward and backward in memory linear in N.

With one position j of the first keys fixed, the logits of all k are one matrix product,

    logit_ijk = (q_i * k1_j) . k2_k        and        out_i = sum_j v1_j * (P_ij. @ V2),

so the work is two products, 2 D multiply-adds a triple; the rest is masks and exponentials of tiles.

Windows are banded. A tile of T queries sees T + window2 - 1 second keys, which are a slice; of the first keys
it sees T + window1 - 1, but each query only window1 of them. So with windows the loop over first keys goes by
the distance o = i - j, not by j: row i of a tile meets k1_{i-o}, again a slice, and no product is spent on a
pair that is masked, however large T is. The smaller window is given to that loop (the two keys may change
places).

The backward pass recomputes the weights from the log-sum-exp and does all in one sweep over tiles of queries,
six products: a scan is sequential, so gradients of keys are sums in its carry and nothing is computed twice.

Letters: B batch, G groups, T positions of a tile, R heads a group, J first keys at a time, K second keys of a
block, D features. Heads are laid out [B, G, N, R, D], keys and values [B, G, N, D].
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernels.arrays import Size, accumulator, narrow, pushforward, round_up, zeros
from kernels.softmax import MASKED
from kernels.trilinear.reference import Config, in_order


def unsupported(config: Config, *arrays: Any) -> str | None:
    """Nothing is: any shape, any floating type, any platform."""
    del config, arrays
    return None


def block_candidates(config: Config, *arrays: Any) -> dict[str, list[dict[str, int]]]:
    """Block sizes worth trying: positions of a tile, first keys at a time, second keys of a block."""
    config, arrays = config.smaller_window_first(arrays)
    default = default_blocks(config, *arrays[:2])
    length = arrays[0].shape[1]
    tried = [default]
    for queries in (8, 16, 32, 64, 128, 256):
        for first in (1, 2, 4, 8):
            blocks = default | {"queries": min(queries, length), "first": first}
            if blocks not in tried:
                tried.append(blocks)
    return {"forward": tried, "backward": tried}


def forward(
    config: Config, *arrays: Array, blocks: Mapping[str, int] | None = None
) -> tuple[Float[Array, "B N H D"], Float[Array, "B H N"]]:
    """`reference.trilinear_attention`, tile by tile: its arrays and its results.

    `blocks` has "queries", "first" and "second": sizes of T, J and K. None for `default_blocks`.
    """
    dtype = arrays[3].dtype
    config, (query, key1, key2, value1, value2) = config.smaller_window_first(arrays)
    tiles, (precise, product) = _tiles(config, query, key1, blocks), _products(key2.dtype)
    query = _heads(tiles, query) * config.scale
    key1, value1 = _first(tiles, key1), _first(tiles, value1)
    key2, value2 = _second(tiles, key2), _second(tiles, value2)

    def tile(start):
        q = _slice(query, start, tiles.queries)

        def block(k_start, state):
            k2, v2 = (_slice(a, k_start, tiles.second) for a in (key2, value2))

            def pairs(chunk, state):
                top, total, sums = state
                left = tiles.gather(key1, start, chunk)
                logit = precise("bgtrjd,bgkd->bgtrjk", q[..., None, :] * left, k2)
                logit = jnp.where(tiles.seen(start, chunk, k_start), logit, MASKED)
                # A row may have seen nothing yet: its weights are then exp(0) of masked logits. The first
                # real logit, at the latest the query's own, wipes them out: exp(MASKED - real) = 0.
                higher = jnp.maximum(top, jax.lax.stop_gradient(jnp.max(logit, axis=(4, 5))))
                weight = jnp.exp(logit - higher[..., None, None])
                rescale = jnp.exp(top - higher)
                total = total * rescale + jnp.sum(weight, axis=(4, 5))
                part = product("bgtrjk,bgkd->bgtrjd", weight, v2)
                part = jnp.sum(part * tiles.gather(value1, start, chunk), axis=4)
                return higher, total, sums * rescale[..., None] + part

            return _loop(tiles.chunks(start), pairs, state)

        zero = _zeros_like(q, q.shape[:-1])
        state = zero + MASKED, zero, _zeros_like(q, q.shape)
        top, total, sums = tiles.over_blocks(start, block, state)
        return sums / total[..., None], top + jnp.log(total)

    out, lse = jax.lax.map(tile, tiles.starts)
    return _positions(tiles, out).astype(dtype), jnp.swapaxes(_positions(tiles, lse), 1, 2)


def tangent(config: Config, *operands: Any) -> tuple[Float[Array, "B N H D"], Float[Array, "B H N"]]:
    """Tangents of `forward`'s results; `operands` are its arrays, its results, and tangents or None."""
    return pushforward(lambda *moved: forward(config, *moved), operands[:5], operands[7:])


def backward(
    config: Config,
    *operands: Array,
    blocks: Mapping[str, int] | None = None,
    dresidual: Float[Array, "B H N"] | None = None,
) -> tuple[Array, ...]:
    """Gradients of `forward`'s arrays.

    `operands` are these, its output, log-sum-exp and the output's cotangent; `dresidual` is the cotangent of
    the log-sum-exp.
    """
    *arrays, out, lse, dout = operands
    swapped, (query, key1, key2, value1, value2) = config.smaller_window_first(arrays)
    tiles, (precise, product) = _tiles(swapped, query, key1, blocks), _products(key2.dtype)
    query, out, dout = (_heads(tiles, a) for a in (query, out, dout))
    lse = _rows(tiles, lse)
    # sum_jk P dP of each row. In 16 bits the output is too coarse to compute it from: where a row's weights
    # are concentrated, it almost cancels dP.
    exact = narrow(*arrays)
    delta = jnp.zeros_like(lse) if exact else jnp.sum(out * dout, axis=-1)
    if dresidual is not None:
        delta -= _rows(tiles, dresidual)
    query = query * config.scale
    key1, value1 = _first(tiles, key1), _first(tiles, value1)
    key2, value2 = _second(tiles, key2), _second(tiles, value2)

    def tile(gradients, start):
        q, g, row_lse, row_delta = (_slice(a, start, tiles.queries) for a in (query, dout, lse, delta))

        def terms(chunk, k_start, k2, v2):
            left, gain = tiles.gather(key1, start, chunk), tiles.gather(value1, start, chunk)
            a, b = q[..., None, :] * left, g[..., None, :] * gain
            logit = precise("bgtrjd,bgkd->bgtrjk", a, k2)
            logit = jnp.where(tiles.seen(start, chunk, k_start), logit, MASKED)
            return left, a, b, logit, product("bgtrjd,bgkd->bgtrjk", b, v2)

        def block_of_delta(k_start, state):
            k2, v2 = (_slice(a, k_start, tiles.second) for a in (key2, value2))

            def pairs(chunk, state):
                top, total, sums = state
                *_, logit, dweight = terms(chunk, k_start, k2, v2)
                higher = jnp.maximum(top, jax.lax.stop_gradient(jnp.max(logit, axis=(4, 5))))
                weight, rescale = jnp.exp(logit - higher[..., None, None]), jnp.exp(top - higher)
                more = jnp.sum(weight, axis=(4, 5)), jnp.sum(weight * dweight, axis=(4, 5))
                return higher, *(x * rescale + y for x, y in zip((total, sums), more, strict=True))

            return _loop(tiles.chunks(start), pairs, state)

        if exact:
            # Weights are normalised anew: the logits of the forward pass may differ in the last bit, and
            # where logits are large that is more than the weights of all pairs but one.
            zero = jnp.zeros_like(row_lse)
            top, total, sums = tiles.over_blocks(start, block_of_delta, (zero + MASKED, zero, zero))
            row_lse, row_delta = top + jnp.log(total), row_delta + sums / total

        def block(k_start, state):
            dq, dkey1, dkey2, dvalue1, dvalue2 = state
            k2, v2 = (_slice(a, k_start, tiles.second) for a in (key2, value2))

            def pairs(chunk, state):
                dq, dkey1, dk2, dvalue1, dv2 = state
                left, a, b, logit, dweight = terms(chunk, k_start, k2, v2)
                weight = jnp.exp(logit - row_lse[..., None, None])
                dlogit = weight * (dweight - row_delta[..., None, None])
                da = product("bgtrjk,bgkd->bgtrjd", dlogit, k2)
                db = product("bgtrjk,bgkd->bgtrjd", weight, v2)
                dk2 = dk2 + product("bgtrjk,bgtrjd->bgkd", dlogit, a)
                dv2 = dv2 + product("bgtrjk,bgtrjd->bgkd", weight, b)
                dkey1 = tiles.scatter(dkey1, start, chunk, jnp.sum(da * q[..., None, :], axis=3))
                dvalue1 = tiles.scatter(dvalue1, start, chunk, jnp.sum(db * g[..., None, :], axis=3))
                return dq + jnp.sum(da * left, axis=4), dkey1, dk2, dvalue1, dv2

            zero = _zeros_like(q, k2.shape)
            state = dq, dkey1, zero, dvalue1, zero
            dq, dkey1, dk2, dvalue1, dv2 = _loop(tiles.chunks(start), pairs, state)
            return dq, dkey1, _add(dkey2, dk2, k_start), dvalue1, _add(dvalue2, dv2, k_start)

        dq, *gradients = tiles.over_blocks(start, block, (_zeros_like(q, q.shape), *gradients))
        return tuple(gradients), dq * config.scale

    gradients = tuple(_zeros_like(query, a.shape) for a in (key1, key2, value1, value2))
    (dkey1, dkey2, dvalue1, dvalue2), dquery = jax.lax.scan(tile, gradients, tiles.starts)
    length = slice(tiles.front, tiles.front + tiles.length)
    dkey1, dvalue1 = (jnp.swapaxes(a[:, :, length], 1, 2) for a in (dkey1, dvalue1))
    dkey2, dvalue2 = (jnp.swapaxes(a[:, :, : tiles.length], 1, 2) for a in (dkey2, dvalue2))
    gradients = _positions(tiles, dquery), dkey1, dkey2, dvalue1, dvalue2
    return in_order(swapped is not config, gradients, arrays)


# ---- tiles
# ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Tiles:
    """How positions are cut. First keys have `front` zeros before them: rows reach before position 0."""

    config: Config  # with window1 not larger than window2
    length: int  # N
    groups: int  # G
    queries: int  # T
    first: int  # J, first keys at a time
    second: int  # K, second keys of a block

    @property
    def starts(self) -> Array:
        """The first position of every tile."""
        return jnp.arange(-(-self.length // self.queries)) * self.queries

    @property
    def padded(self) -> int:
        """N rounded up to whole tiles."""
        return round_up(self.length, self.queries)

    @property
    def front(self) -> int:
        """Zeros before the first keys."""
        return self.queries + self.first if self.config.causal else 0

    def chunks(self, start: int | Array) -> int | Array:
        """How many chunks of J first keys the tile at `start` meets."""
        if not self.config.causal:
            return -(-self.length // self.first)
        window, _ = self.config.reach(self.length)
        if window <= self.queries:
            return -(-window // self.first)  # no tile has less past: a number known when compiling
        return -(-jnp.minimum(window, start + self.queries) // self.first)

    def gather(
        self, keys: Float[Array, "B G n D"], start: int | Array, chunk: int | Array
    ) -> Float[Array, "B G #T 1 J D"]:
        """For each row of the tile the first keys (or their values) of a chunk."""
        t, j = self.queries, self.first
        if not self.config.causal:
            return _slice(keys, chunk * j, j)[:, :, None, None]
        band = _slice(keys, start - chunk * j - (j - 1) + self.front, t + j - 1)
        rows = [band[:, :, j - 1 - o : j - 1 - o + t] for o in range(j)]  # distance chunk * j + o
        return jnp.stack(rows, axis=3)[:, :, :, None]

    def scatter(
        self,
        sums: Float[Array, "B G n D"],
        start: int | Array,
        chunk: int | Array,
        rows: Float[Array, "B G T J D"],
    ) -> Float[Array, "B G n D"]:
        """Adds what belongs to `gather`'s keys to where they were gathered from: its transpose."""
        j = self.first
        if not self.config.causal:
            return _add(sums, jnp.sum(rows, axis=2), chunk * j)
        shifted = [jnp.pad(rows[:, :, :, o], ((0, 0), (0, 0), (j - 1 - o, o), (0, 0))) for o in range(j)]
        band = functools.reduce(jnp.add, shifted)
        return _add(sums, band, start - chunk * j - (j - 1) + self.front)

    def seen(self, start: int | Array, chunk: int | Array, k_start: int | Array) -> Bool[Array, "#T 1 J K"]:
        """Which of the triples of a step are allowed."""
        step = jnp.arange(self.first) + chunk * self.first
        k = jnp.arange(self.second) + k_start
        if not self.config.causal:
            return (step < self.length)[None, None, :, None] & (k < self.length)[None, None, None, :]
        window1, window2 = self.config.reach(self.length)
        i = jnp.arange(self.queries) + start
        first = (step < window1)[None, :] & (step[None, :] <= i[:, None])  # j = i - step is a position
        back = i[:, None] - k[None, :]
        second = (back >= 0) & (back < window2)
        return first[:, None, :, None] & second[:, None, None, :]

    def over_blocks(self, start: int | Array, block: Callable, state: Any) -> Any:
        """Folds `block(k_start, state)` over the blocks of second keys that the tile at `start` sees."""
        _, window = self.config.reach(self.length)
        if not self.config.causal:
            low, count = 0, -(-self.length // self.second)
        elif window + self.queries - 1 <= self.second or self.length <= self.second:
            low, count = jnp.maximum(0, start - window + 1), 1
        else:
            low = jnp.maximum(0, start - window + 1)
            count = -(-(jnp.minimum(start + self.queries, self.length) - low) // self.second)
        return _loop(count, lambda n, state: block(low + n * self.second, state), state)


def default_blocks(config: Config, query: Any, key: Any) -> dict[str, int]:
    """Sizes with which products have about 128 rows and a step's tile of logits at most a million numbers.

    Fastest on two cores, where a tile should stay in a cache; rows enough come from the heads of a group,
    else from positions, else from several first keys.
    """
    batch, length, heads, _ = query.shape
    per_group = heads // key.shape[2]
    window1, window2 = config.reach(length)
    queries = min(length, max(8, min(64, 128 // per_group)))
    second = min(1024, length if window2 == length else queries + window2 - 1)
    known = batch if isinstance(batch, int) else 1  # an exported artifact may leave the batch open
    queries = max(1, min(queries, 2**20 // (known * heads * second)))
    first = 1 if queries * per_group > 64 else min(4, window1)
    return {"queries": queries, "first": first, "second": second}


def _tiles(config: Config, query: Array, key: Array, blocks: Mapping[str, int] | None) -> _Tiles:
    sizes = default_blocks(config, query, key) | dict(blocks or {})
    return _Tiles(config, query.shape[1], key.shape[2], sizes["queries"], sizes["first"], sizes["second"])


# ---- layouts
# --------------------------------------------------------------------------------------------------


def _heads(tiles: _Tiles, x: Float[Array, "B N H D"]) -> Float[Array, "B G n R D"]:
    """Query rows of whole tiles, a group's heads side by side, in the type of sums."""
    batch, length, heads, features = x.shape
    x = x.astype(accumulator(x.dtype)).reshape(batch, length, tiles.groups, heads // tiles.groups, features)
    return _pad(jnp.swapaxes(x, 1, 2), 0, tiles.padded - length)


def _first(tiles: _Tiles, x: Float[Array, "B N G D"]) -> Float[Array, "B G n D"]:
    """First keys or their values, in the type of sums: they meet queries in elementwise products."""
    x = x.astype(accumulator(x.dtype))
    back = tiles.padded - tiles.length if tiles.config.causal else tiles.first
    return _pad(jnp.swapaxes(x, 1, 2), tiles.front, back)


def _second(tiles: _Tiles, x: Float[Array, "B N G D"]) -> Float[Array, "B G n D"]:
    """Second keys or their values, in the type of sums."""
    x = x.astype(accumulator(x.dtype))
    return _pad(jnp.swapaxes(x, 1, 2), 0, tiles.padded - tiles.length + tiles.second)


def _pad(x: Array, front: int, back: int) -> Array:
    return jnp.pad(x, [(0, 0), (0, 0), (front, back), *[(0, 0)] * (x.ndim - 3)])


def _rows(tiles: _Tiles, x: Float[Array, "B H N"]) -> Float[Array, "B G n R"]:
    """A number of each query row, as `_heads` lays out vectors."""
    return _heads(tiles, jnp.swapaxes(x, 1, 2)[..., None])[..., 0]


def _positions(tiles: _Tiles, x: Float[Array, "tiles B G T R *rest"]) -> Float[Array, "B N H *rest"]:
    """What was computed tile by tile, by position and head."""
    count, batch, groups, each, per_group, *rest = x.shape
    x = jnp.moveaxis(x, (1, 0, 3, 2), (0, 1, 2, 3))
    return x.reshape(batch, count * each, groups * per_group, *rest)[:, : tiles.length]


# ---- arithmetic
# -----------------------------------------------------------------------------------------------


def _products(dtype: jnp.dtype) -> tuple[Callable[..., Array], Callable[..., Array]]:
    """Returns einsum for logits and for other products, of inputs of some dtype.

    Logits are always precise: they are large, and their errors are not relative. With inputs of 16 bits the
    other products lose nothing more in the default precision of a chip.
    """
    precise = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
    wide = dtype.itemsize > 2
    return precise, precise if wide else functools.partial(jnp.einsum, precision=jax.lax.Precision.DEFAULT)


def _slice(x: Array, start: int | Array, size: int) -> Array:
    """Positions [start, start + size)."""
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis=2)


def _add(x: Array, part: Array, start: int | Array) -> Array:
    """Adds `part` to the positions from `start` on."""
    sums = _slice(x, start, part.shape[2]) + part
    return jax.lax.dynamic_update_slice_in_dim(x, sums, start, axis=2)


def _loop(count: int | Array, body: Callable, state: Any) -> Any:
    if isinstance(count, int) and count == 1:
        return body(0, state)
    return jax.lax.fori_loop(0, count, body, state)


def _zeros_like(x: Array, shape: tuple[Size, ...]) -> Array:
    """Zeros to start a loop from, in the type of sums."""
    return zeros(x, shape, accumulator(x.dtype))
