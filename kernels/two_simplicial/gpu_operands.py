"""What surrounds the Hopper kernels of 2-simplicial attention: padding, products of keys, slices of keys.

The kernels see groups (batch x heads) first, sizes padded to whole tiles, and pairs (j, k) in the order in
which they read them: tiles of k outermost, then j, then k within its tile.

Letters: B batch, H heads, Z = B*H, N queries (i), M keys, J and K the keys in first and second place, D, E, F
features of keys, values and output.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.arrays import filled, round_up
from kernels.softmax import LOG2E, MASKED
from kernels.two_simplicial import gpu_tiles, pairwise
from kernels.two_simplicial.gpu_tiles import ROWS, Plan
from kernels.two_simplicial.reference import Config

# What W and its like may take at a time.
CHUNK_BYTES = 64 << 20


class Piece(NamedTuple):
    """The part of the inputs that belongs to a slice of the keys in first place."""

    key1: Float[Array, "B J H D"]
    value: Float[Array, "B J H E"]
    bias: Float[Array, "Zb J K"] | None
    mask: Array | None  # int8 [Bb, J, N, K]


@dataclass(frozen=True)
class Problem:
    """A call of the kernels, prepared."""

    plan: Plan  # sizes of one kernel call
    config: Config
    query: Array  # padded to whole tiles, like the other arrays, all of one type
    key2: Array  # the keys in second place
    value: Array  # the values in second place
    bilinear: Array  # one map a head
    pieces: Piece  # slices of keys in first place, on a leading axis
    rows: Array | None  # where a query may attend to anything, [B or 1, N, 1, 1]
    shared: dict[str, Array]  # operands of the kernels that all slices have
    sizes: tuple[int, int, int, int]  # N, M, D and F before padding

    def each_chunk(self, function: Callable[[Piece], Any]) -> Any:
        """The function's results for all slices, stacked on a new first axis."""
        if self.pieces.key1.shape[0] == 1:
            return jax.tree.map(lambda a: a[None], function(jax.tree.map(lambda a: a[0], self.pieces)))
        return jax.lax.map(function, self.pieces)

    def operands(self, piece: Piece) -> dict[str, Array]:
        """Everything that the kernels read for one slice."""
        result = dict(self.shared)
        if self.plan.linear:
            pairs = key_pairs(self.config, piece.key1, self.key2)
            parts = gpu_tiles.split(self.ordered(pairs, self.plan.depth), self.plan.key_parts)
            result |= {f"c{p}": part for p, part in enumerate(parts)}
        else:
            found = pairwise.products(self.config, self.query, piece.key1, self.key2)
            result |= {"x": grouped(found.x), "y": grouped(found.y), "bb": lines(grouped(found.bb))}
        pairs = value_pairs(piece.value, self.value, self.bilinear)
        parts = gpu_tiles.split(self.ordered(pairs, self.plan.features), self.plan.value_parts)
        result |= {f"w{p}": part for p, part in enumerate(parts)}
        result |= {"bias": piece.bias} if piece.bias is not None else {}
        result |= {"mask": piece.mask} if piece.mask is not None else {}
        return result

    def backward_operands(
        self, out: Float[Array, "B N H F"], lse: Float[Array, "B H N"], dout: Float[Array, "B N H F"]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Returns the additional inputs of the two backward kernels, `query_side` and `pair_side`."""
        plan = self.plan
        dout = dout.astype(jnp.float32)
        if self.rows is not None:
            dout = jnp.where(self.rows, dout, 0.0)
            # Whose logits were not masked in the kernel: no weight at all.
            lse = jnp.where(self.rows[:, None, :, 0, 0], lse, -MASKED)
        delta = pairwise.product("bnhf,bnhf->bhn", dout, out.astype(jnp.float32))
        delta, shift = (filled(grouped(a), 1, plan.queries) for a in (delta, lse * LOG2E))
        flat = filled(filled(grouped(dout.swapaxes(1, 2)), 2, plan.features), 1, plan.queries)
        douts = {f"d{p}": part for p, part in enumerate(gpu_tiles.split(flat, plan.value_parts))}
        if plan.linear:
            s = e = jnp.zeros_like(shift)
            weighted = shift
        else:
            s, e = self.shared["s"], self.shared["e"]
            weighted = shift - jnp.log2(s / LOG2E)
        vectors = jnp.stack([s, e, shift, delta], axis=1)
        return {**douts, "shift": weighted, "delta": delta}, {**douts, "rows": vectors}

    def gradients(
        self, piece: Piece, of_queries: tuple[Array, ...], of_pairs: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """Gradients of query, key1, key2, values in first and second place, and bilinear, for one slice.

        `of_queries` is what `gpu_backward.query_side` returned, `of_pairs` what `pair_side` did.
        """
        plan = self.plan
        *_, depth, features = self.sizes
        if plan.linear:
            dquery = self.ungrouped(jnp.sum(of_queries[0], axis=1)[..., :depth]).swapaxes(1, 2)
            dpairs = self.disordered(of_pairs[1], depth) * plan.scale
            _, pullback = jax.vjp(
                lambda *keys: key_pairs(self.config, *keys),
                piece.key1.astype(jnp.float32),
                self.key2.astype(jnp.float32),
            )
            toward_keys = dquery * plan.scale, *pullback(dpairs)
        else:
            dx, dz, daa = of_queries
            sums = of_pairs[1]
            count = plan.j_block
            dbb = sums[:, :, count : 2 * count].reshape(plan.groups, plan.first, plan.second)
            found = pairwise.Gradients(
                x=jnp.sum(dx, axis=1),
                z=dz,
                y=sums[:, :, :count].reshape(plan.groups, plan.first, plan.second),
                aa=jnp.sum(daa, axis=1),
                bb=jnp.sum(dbb, axis=2),
                cc=jnp.sum(sums[:, :, 2 * count], axis=1),
            )
            found = pairwise.Gradients(*map(self.ungrouped, found))
            toward_keys = pairwise.pullback(self.query, piece.key1, self.key2, found)
        dpairs = self.disordered(of_pairs[0], features)
        return *toward_keys, *value_pairs_pullback(piece.value, self.value, self.bilinear, dpairs)

    def ordered(self, pairs: Float[Array, "B H J K X"], width: int) -> Float[Array, "Z JK Y"]:
        """One row a pair, in the kernels' order, features padded to `width`."""
        plan = self.plan
        pairs = filled(pairs, 4, width)
        pairs = pairs.reshape(plan.groups, plan.first, plan.k_steps, plan.k_block, width)
        return pairs.swapaxes(1, 2).reshape(plan.groups, plan.first * plan.second, width)

    def disordered(self, pairs: Float[Array, "Z JK Y"], width: int) -> Float[Array, "B H J K X"]:
        """The inverse of `ordered`."""
        plan = self.plan
        pairs = pairs.reshape(plan.groups, plan.k_steps, plan.first, plan.k_block, -1)[..., :width]
        pairs = pairs.swapaxes(1, 2)
        return pairs.reshape(-1, plan.heads, plan.first, plan.second, width)

    def ungrouped(self, array: Float[Array, "Z ..."]) -> Float[Array, "B H ..."]:
        """Batch and heads apart."""
        return array.reshape(-1, self.plan.heads, *array.shape[1:])


def grouped(array: Float[Array, "B H ..."]) -> Float[Array, "Z ..."]:
    """Batch and heads as one axis."""
    return array.reshape(-1, *array.shape[2:])


def lines(vector: Float[Array, "Z X"]) -> Float[Array, "Z Y"]:
    """Padded to whole lines of shared memory."""
    return filled(vector, 1, gpu_tiles.line(vector.shape[1]))


def key_pairs(
    config: Config, key1: Float[Array, "B J H D"], key2: Float[Array, "B K H D"]
) -> Float[Array, "B H J K D"]:
    """C with logit = scale * q . C_jk: products of the keys, or cross products of their pieces of three."""
    dtype = jnp.promote_types(key1.dtype, jnp.float32)
    left = key1.astype(dtype).swapaxes(1, 2)[:, :, :, None]
    right = key2.astype(dtype).swapaxes(1, 2)[:, :, None]
    if config.logit == "trilinear":
        return left * right
    left, right = (a.reshape(*a.shape[:-1], -1, 3) for a in (left, right))
    cross = jnp.cross(left, right)
    return cross.reshape(*cross.shape[:-2], -1)


def value_pairs(
    first: Float[Array, "B J H E"], second: Float[Array, "B K H E"], bilinear: Float[Array, "H F E E"]
) -> Float[Array, "B H J K F"]:
    """W_jk = B(value_j, value_k), summed in float32."""
    half = pairwise.product("hfrs,bjhr->bhjfs", bilinear, first).astype(first.dtype)
    return pairwise.product("bhjfs,bkhs->bhjkf", half, second)


def value_pairs_pullback(
    first: Float[Array, "B J H E"],
    second: Float[Array, "B K H E"],
    bilinear: Float[Array, "H F E E"],
    gradient: Float[Array, "B H J K F"],
) -> tuple[Float[Array, "B J H E"], Float[Array, "B K H E"], Float[Array, "H F E E"]]:
    """Gradients of values in first and second place and of the bilinear map, float32, from that of W.

    Products are of numbers in the inputs' type, as the forward pass's are.
    """
    dtype, product = first.dtype, pairwise.product
    gradient = gradient.astype(dtype)
    half = product("hfrs,bjhr->bhjfs", bilinear, first).astype(dtype)
    dsecond = product("bhjkf,bhjfs->bkhs", gradient, half)
    dhalf = product("bhjkf,bkhs->bhjfs", gradient, second).astype(dtype)
    dfirst = product("bhjfs,hfrs->bjhr", dhalf, bilinear)
    return dfirst, dsecond, product("bhjfs,bjhr->hfrs", dhalf, first)


def prepare(config: Config, *arrays: Any, blocks: Mapping[str, int], interpret: bool) -> Problem:
    """Pads the inputs, decides on sizes, and computes what does not depend on the slice of keys.

    Arguments as those of `gpu.forward`.
    """
    *inputs, mask = arrays
    dtype = jnp.result_type(*inputs)
    query, key1, key2, value, bilinear = (a.astype(dtype) for a in inputs)
    batch, n, heads, depth = query.shape
    m, features = key1.shape[1], bilinear.shape[1]
    narrow, linear = dtype == jnp.bfloat16, config.logit != "unsigned"
    key_parts = (2 if narrow else 3) if linear else 0
    queries, second = round_up(n, ROWS), round_up(m, blocks["k"])
    wide = {"features": round_up(features, 16), "depth": round_up(depth, 16) if linear else 0}

    # Slices of keys in first place: as few as fit, all of one size.
    one = 2 * batch * heads * second * (wide["features"] * (1 if narrow else 3) + wide["depth"] * key_parts)
    chunks = math.ceil(m / max(CHUNK_BYTES // one, blocks["j"]))
    first = round_up(math.ceil(m / chunks), blocks["j"])
    chunks = math.ceil(m / first)

    rows, of_pairs, of_triples = _masks(mask)
    if of_pairs is None and (chunks * first != m or second != m):
        of_pairs = jnp.ones((1, 1, m, m), bool)
    plan = Plan(
        linear=linear,
        groups=batch * heads,
        heads=heads,
        queries=queries,
        first=first,
        second=second,
        scale=config.scale,
        value_parts=1 if narrow else 3,
        weight_parts=1 if narrow else 2,
        query_parts=(1 if narrow else 3) if linear else 0,
        key_parts=key_parts,
        biased=of_pairs is not None,
        masked=of_triples is not None,
        j_block=blocks["j"],
        k_block=blocks["k"],
        stages=blocks["stages"],
        interpret=interpret,
        **wide,
    )

    def slices(array, axis):
        array = filled(array, axis, chunks * first)
        array = array.reshape(*array.shape[:axis], chunks, first, *array.shape[axis + 1 :])
        return jnp.moveaxis(array, axis, 0)

    bias = triples = None
    if of_pairs is not None:
        of_pairs = filled(jnp.broadcast_to(of_pairs[:, 0], (of_pairs.shape[0], m, m)), 2, second)
        bias = jnp.where(slices(of_pairs, 1), 0.0, MASKED)
    if of_triples is not None:
        of_triples = jnp.broadcast_to(of_triples, (of_triples.shape[0], n, m, m)).swapaxes(1, 2)
        triples = slices(filled(filled(of_triples, 2, queries), 3, second), 1).astype(jnp.int8)
    pieces = Piece(slices(key1, 1), slices(value, 1), bias, triples)

    query, key2, value = filled(query, 1, queries), filled(key2, 1, second), filled(value, 1, second)
    if linear:
        flat = filled(grouped(query.swapaxes(1, 2)), 2, wide["depth"])
        shared = {f"q{p}": part for p, part in enumerate(gpu_tiles.split(flat, plan.query_parts))}
    else:
        found = pairwise.products(config, query, key1, key2)
        shared = {
            "z": grouped(found.z),
            "cc": lines(grouped(found.cc)),
            "s": grouped(found.s) * LOG2E,
            "e": grouped(found.e),
        }
    return Problem(plan, config, query, key2, value, bilinear, pieces, rows, shared, (n, m, depth, features))


def _masks(mask):
    """The mask as one of rows, one of pairs, and one of triples, of which at most one is not None."""
    if mask is None:
        return None, None, None
    if mask.shape[2:] == (1, 1):
        return mask, None, None
    if mask.shape[1] == 1:
        return None, mask, None
    return None, None, mask
