"""What surrounds the Hopper kernels of 2-simplicial attention: padding, products of keys, slices of keys.

The kernels see groups (batch x heads) first, sizes padded to whole tiles, and pairs (j, k) in the order in
which they read them: tiles of k outermost, then j, then k within its tile.

Letters: B batch, H heads, Z = B*H, N queries (i), M keys, J and K the keys in first and second place, D, E, F
features of keys, values and output.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.arrays import bfloat16_parts, filled
from kernels.softmax import LOG2E, MASKED
from kernels.two_simplicial import pairwise
from kernels.two_simplicial.gpu_plan import Plan
from kernels.two_simplicial.gpu_tiles import Tiling
from kernels.two_simplicial.reference import Config


class Piece(NamedTuple):
    """The part of the inputs that belongs to a slice of the keys in first place."""

    key1: Float[Array, "B J H D"]
    value: Float[Array, "B J H E"]
    present: Array  # [J], False for padding
    mask: Array | None  # [Bb, N or 1, J, M or 1]; None where the mask has no axis J


@dataclass(frozen=True)
class Problem:
    """A chunk of examples, prepared."""

    tiling: Tiling  # sizes that the kernels agree on
    config: Config
    query: Array  # [B, N, H, D], padded to whole tiles, like the other arrays, all of one type
    key2: Array  # the keys in second place
    value: Array  # the values in second place
    bilinear: Array  # one map a head
    mask: Array | None  # of pairs or triples, without an axis J: [Bb, N or 1, 1, M or 1]
    pieces: Piece  # slices of keys in first place, on a leading axis
    rows: Array | None  # where a query may attend to anything, [B or 1, N, 1, 1]
    shared: dict[str, Array]  # operands of the kernels that all slices have
    keys: int  # M before padding

    def over_slices(self, function: Callable[[Any, Piece], tuple[Any, Any]], carry: Any) -> tuple[Any, Any]:
        """`jax.lax.scan` over the slices, without a loop if there is one."""
        if self.pieces.key1.shape[0] > 1:
            return jax.lax.scan(function, carry, self.pieces)
        carry, results = function(carry, jax.tree.map(lambda a: a[0], self.pieces))
        return carry, jax.tree.map(lambda a: a[None], results)

    def operands(self, piece: Piece) -> dict[str, Array]:
        """Everything that the kernels read for one slice."""
        tiling, result = self.tiling, dict(self.shared)
        if tiling.linear:
            pairs = key_pairs(self.config, piece.key1, self.key2)
            parts = bfloat16_parts(self.ordered(pairs, tiling.depth), tiling.key_parts)
            result |= {f"c{p}": part for p, part in enumerate(parts)}
        else:
            found = pairwise.products(self.config, self.query, piece.key1, self.key2)
            of_pairs = found.y, found.bb[..., None], found.cc[..., None, :]
            of_pairs = [grouped(jnp.broadcast_to(a, found.y.shape)) for a in of_pairs]
            result |= {"x": grouped(found.x), "y": jnp.stack(of_pairs, axis=1)}
        pairs = value_pairs(piece.value, self.value, self.bilinear, tiling.value_parts)
        parts = bfloat16_parts(self.ordered(pairs, tiling.features), tiling.value_parts)
        result |= {f"w{p}": part for p, part in enumerate(parts)}
        return result | self.masks(piece)

    def masks(self, piece: Piece) -> dict[str, Array]:
        """The bias of pairs and the mask of triples, where there are any."""
        tiling, result = self.tiling, {}
        mask = self.mask if piece.mask is None else piece.mask
        if tiling.biased:
            real = piece.present[:, None] & (jnp.arange(tiling.second) < self.keys)[None]
            allowed = real[None]
            if mask is not None and not tiling.masked:
                allowed = allowed & self.filled_keys(mask)[:, 0]
            result["bias"] = jnp.where(allowed, 0.0, MASKED)
        if tiling.masked:
            assert mask is not None
            size = mask.shape[0], tiling.queries, tiling.first, tiling.second
            mask = self.filled_keys(mask)
            mask = jnp.broadcast_to(filled(mask, 1, size[1]) if mask.shape[1] > 1 else mask, size)
            result["mask"] = mask.astype(jnp.int8).swapaxes(1, 2).reshape(-1, *size[1::2])
        return result

    def filled_keys(self, mask: Array) -> Array:
        """The last axis padded, unless it stands for all keys."""
        return mask if mask.shape[3] == 1 else filled(mask, 3, self.tiling.second)

    def backward_operands(
        self, lse: Float[Array, "B H N"], delta: Float[Array, "B H N"], dout: Float[Array, "B N H F"]
    ) -> dict[str, Array]:
        """Returns the additional inputs of the two backward kernels, `query_side` and `pair_side`."""
        tiling = self.tiling
        dout = dout.astype(jnp.float32)
        if self.rows is not None:
            dout = jnp.where(self.rows, dout, 0.0)
            allowed = self.rows[:, None, :, 0, 0]
            # Whose logits were not masked in the kernel: no weight at all.
            lse, delta = jnp.where(allowed, lse, -MASKED), jnp.where(allowed, delta, 0.0)
        delta, shift = (filled(grouped(a), 1, tiling.queries) for a in (delta, lse * LOG2E))
        flat = filled(filled(grouped(dout.swapaxes(1, 2)), 2, tiling.features), 1, tiling.queries)
        douts = {f"d{p}": part for p, part in enumerate(bfloat16_parts(flat, tiling.output_parts))}
        weighted = shift if tiling.linear else shift - jnp.log2(self.shared["rows"][:, 0] / LOG2E)
        return {**douts, "sums": jnp.stack([shift, delta, weighted], axis=1)}

    def gradients(
        self, piece: Piece, of_queries: tuple[Array, ...], of_pairs: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        """Gradients of query, key1, key2, values in first and second place, and bilinear, for one slice.

        `of_queries` is what `gpu_backward.query_side` returned, `of_pairs` what `pair_side` did.
        """
        tiling = self.tiling
        depth, features = self.query.shape[-1], self.bilinear.shape[1]
        of_values, of_keys = of_pairs[: tiling.output_parts], of_pairs[tiling.output_parts :]
        if tiling.linear:
            dquery = self.ungrouped(jnp.sum(of_queries[0], axis=1)[..., :depth]).swapaxes(1, 2)
            dpairs = self.disordered(of_keys, depth) * tiling.scale
            _, pullback = jax.vjp(
                lambda *keys: key_pairs(self.config, *keys),
                piece.key1.astype(jnp.float32),
                self.key2.astype(jnp.float32),
            )
            toward_keys = dquery * tiling.scale, *pullback(dpairs)
        else:
            dx, dz, daa, dcc = of_queries
            dy, dbb = of_keys
            found = pairwise.Gradients(
                x=jnp.sum(dx, axis=1),
                z=dz,
                y=dy,
                aa=jnp.sum(daa, axis=1),
                bb=jnp.sum(dbb, axis=(1, 3)),
                cc=jnp.sum(dcc, axis=1),
            )
            found = pairwise.Gradients(*map(self.ungrouped, found))
            toward_keys = pairwise.pullback(self.query, piece.key1, self.key2, found)
        dpairs = self.disordered(of_values, features)
        return *toward_keys, *value_pairs_pullback(piece.value, self.value, self.bilinear, dpairs)

    def ordered(self, pairs: Float[Array, "B H J K X"], width: int) -> Float[Array, "Z JK Y"]:
        """One row a pair, in the kernels' order, features padded to `width`."""
        tiling = self.tiling
        pairs = filled(pairs, 4, width)
        pairs = pairs.reshape(tiling.groups, tiling.first, tiling.k_steps, tiling.k_block, width)
        return pairs.swapaxes(1, 2).reshape(tiling.groups, tiling.first * tiling.second, width)

    def disordered(self, parts: tuple[Float[Array, "Z JK Y"], ...], width: int) -> Float[Array, "B H J K X"]:
        """The sum of parts in the inverse of `ordered`; one part keeps its type."""
        tiling = self.tiling
        pairs = parts[0]
        if len(parts) > 1:
            pairs = jnp.sum(jnp.stack(parts), axis=0, dtype=jnp.float32)
        pairs = pairs.reshape(tiling.groups, tiling.k_steps, tiling.first, tiling.k_block, -1)[..., :width]
        pairs = pairs.swapaxes(1, 2)
        return pairs.reshape(-1, tiling.heads, tiling.first, tiling.second, width)

    def ungrouped(self, array: Float[Array, "Z ..."]) -> Float[Array, "B H ..."]:
        """Batch and heads apart."""
        return array.reshape(-1, self.tiling.heads, *array.shape[1:])


def prepare(config: Config, plan: Plan, interpret: bool, *arrays: Any) -> Problem:
    """Pads a chunk of the inputs, and computes what does not depend on the slice of keys.

    `arrays` are those of `gpu.forward` for `plan.examples` examples, all of one type.
    """
    query, key1, key2, value, bilinear, mask = arrays
    m, tiling = key1.shape[1], dataclasses.replace(plan.tiling, interpret=interpret)
    rows = None
    if mask is not None and mask.shape[2:] == (1, 1):
        rows, mask = mask, None

    def slices(array, axis):
        array = filled(array, axis, plan.slices * tiling.first)
        array = array.reshape(*array.shape[:axis], plan.slices, tiling.first, *array.shape[axis + 1 :])
        return jnp.moveaxis(array, axis, 0)

    sliced = None
    if mask is not None and mask.shape[2] > 1:
        sliced, mask = slices(mask, 2), None
    pieces = Piece(slices(key1, 1), slices(value, 1), slices(jnp.ones(m, bool), 0), sliced)
    query = filled(query, 1, tiling.queries)
    key2, value = filled(key2, 1, tiling.second), filled(value, 1, tiling.second)
    if tiling.linear:
        flat = filled(grouped(query.swapaxes(1, 2)), 2, tiling.depth)
        shared = {f"q{p}": part for p, part in enumerate(bfloat16_parts(flat, tiling.query_parts))}
    else:
        found = pairwise.products(config, query, key1[:, :0], key2)
        of_rows = jnp.stack([grouped(found.s) * LOG2E, grouped(found.e)], axis=1)
        shared = {"z": grouped(found.z), "rows": of_rows}
    return Problem(tiling, config, query, key2, value, bilinear, mask, pieces, rows, shared, m)


def grouped(array: Float[Array, "B H ..."]) -> Float[Array, "Z ..."]:
    """Batch and heads as one axis."""
    return array.reshape(-1, *array.shape[2:])


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
    first: Float[Array, "B J H E"],
    second: Float[Array, "B K H E"],
    bilinear: Float[Array, "H F E E"],
    parts: int,
) -> Float[Array, "B H J K F"]:
    """W_jk = B(value_j, value_k), of which bfloat16 inputs need as many digits as `parts` numbers hold."""
    half = pairwise.product("hfrs,bjhr->bhjfs", bilinear, first)
    if first.dtype == jnp.bfloat16:
        half = jnp.concatenate(bfloat16_parts(half, parts), axis=-1)
        second = jnp.concatenate([second] * parts, axis=-1)
    pairs = pairwise.product("bhjfs,bkhs->bhjkf", half, second)
    return pairs.astype(first.dtype) if parts == 1 else pairs


def value_pairs_pullback(
    first: Float[Array, "B J H E"],
    second: Float[Array, "B K H E"],
    bilinear: Float[Array, "H F E E"],
    gradient: Float[Array, "B H J K F"],
) -> tuple[Float[Array, "B J H E"], Float[Array, "B K H E"], Float[Array, "H F E E"]]:
    """Gradients of values in first and second place and of the bilinear map, float32, from that of W.

    The products over pairs are of numbers in the inputs' type.
    """
    dtype, product = first.dtype, pairwise.product
    gradient = gradient.astype(dtype)
    half = product("hfrs,bjhr->bhjfs", bilinear, first).astype(dtype)
    dsecond = product("bhjkf,bhjfs->bkhs", gradient, half)
    dhalf = product("bhjkf,bkhs->bhjfs", gradient, second)
    dfirst = product("bhjfs,hfrs->bjhr", dhalf, bilinear)
    return dfirst, dsecond, product("bhjfs,bjhr->hfrs", dhalf, first)
