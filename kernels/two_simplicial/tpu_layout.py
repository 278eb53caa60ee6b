"""What the TPU kernels of 2-simplicial attention read and write, made and undone by plain jnp around them.

Queries lie in the lanes (the minor axis), keys in the sublanes: a tile of logits is [j, k, queries], so a
softmax over pairs reduces over major axes and a scalar of a pair is a column that is broadcast along lanes.
Batch and heads are one axis of groups. Everything is padded with zeros to whole tiles; `allowed` says which
pairs are there.

Unsigned logits need pairwise products only. With both keys normalised, x = q.k1^, z = q.k2^, y = k1^.k2^,

    logit^2 = |k1|^2 |k2|^2 (x^2 + z^2 + |q|^2 y^2 - 2 x y z) + eps^2        (equation (8))

with scale and log2(e) inside q, so that the kernel's logits are exponents of two. The other two logits are
products of q with one vector a pair, k1_j * k2_k; the signed one is the trilinear one on permuted
coordinates. All functions here are differentiable: the kernels' gradients go back to the arguments through
`jax.vjp`.

Axis letters: B batch, H heads, G groups (B * H), N queries, M keys, D features of queries and keys, E of
values, F of the output.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.arrays import Described
from kernels.softmax import LOG2E
from kernels.two_simplicial.reference import Config

LANES = 128
SUBLANES = 8


@dataclass(frozen=True)
class Plan:
    """Sizes of one call, and how it is cut into tiles.

    Attributes:
      groups: G.
      heads: H.
      n: queries.
      m: keys.
      f: output features.
      queries: queries of a tile, a multiple of 128.
      keys: first keys (j) of a tile.
      partners: second keys (k) of a tile.
      padded_queries: N up to a multiple of `queries`.
      first: M up to a multiple of `keys`.
      second: M up to a multiple of `partners`.
    """

    groups: int
    heads: int
    n: int
    m: int
    f: int
    queries: int
    keys: int
    partners: int
    padded_queries: int
    first: int
    second: int

    @property
    def rows(self) -> int:
        """Pairs of a tile."""
        return self.keys * self.partners


def group_major(x: Float[Array, "B L H D"], length: int) -> Float[Array, "G padded D"]:
    """Batch and heads to one axis, the second axis padded with zeros to `length`."""
    batch, size, heads, features = x.shape
    x = jnp.swapaxes(x, 1, 2).reshape(batch * heads, size, features)
    return jnp.pad(x, ((0, 0), (0, length - size), (0, 0)))


def query_rows(x: Float[Array, "B N H F"], plan: Plan) -> Float[Array, "G F padded"]:
    """Vectors of queries with the queries in lanes."""
    return jnp.swapaxes(group_major(x, plan.padded_queries), 1, 2)


def scalar_rows(x: Float[Array, "B H N"], plan: Plan) -> Float[Array, "G 8 padded"]:
    """One number a query, in all eight rows of a register: broadcasting it in the kernel costs every tile."""
    x = jnp.pad(x.reshape(plan.groups, 1, plan.n), ((0, 0), (0, 0), (0, plan.padded_queries - plan.n)))
    return jnp.broadcast_to(x, (plan.groups, SUBLANES, plan.padded_queries))


def from_scalar_rows(x: Float[Array, "G 1 padded"], plan: Plan) -> Float[Array, "B H N"]:
    """The inverse of `scalar_rows`, for results that are in one row."""
    return x[:, 0, : plan.n].reshape(-1, plan.heads, plan.n)


def from_query_rows(x: Float[Array, "G F padded"], plan: Plan) -> Float[Array, "B N H F"]:
    """The inverse of `query_rows`, without the padding."""
    x = x[:, :, : plan.n].reshape(-1, plan.heads, x.shape[1], plan.n)
    return jnp.transpose(x, (0, 3, 1, 2))


def pair_allowed(mask: Array | None, plan: Plan) -> Float[Array, "B first second"]:
    """1 for the pairs (j, k) that are there and that the mask allows, when it is the same for all queries.

    The first axis is 1 where all examples are alike.
    """
    here = (jnp.arange(plan.first)[:, None] < plan.m) & (jnp.arange(plan.second)[None, :] < plan.m)
    if mask is None or mask.shape[1] > 1:
        return here[None].astype(jnp.float32)
    pairs = jnp.broadcast_to(mask[:, 0], (mask.shape[0], plan.m, plan.m))
    pairs = jnp.pad(pairs, ((0, 0), (0, plan.first - plan.m), (0, plan.second - plan.m)))
    return pairs.astype(jnp.float32)


def triple_mask(mask: Array | None, plan: Plan) -> Array | None:
    """An int8 [B, j, k, N] of a mask that differs between queries, None for one that does not."""
    if mask is None or mask.shape[1] == 1:
        return None
    mask = jnp.moveaxis(mask, 1, 3).astype(jnp.int8)
    padded = (plan.first, plan.second, plan.padded_queries)
    room = [(0, 0), *((0, p - s if s > 1 else 0) for p, s in zip(padded[:2], mask.shape[1:], strict=False))]
    return jnp.pad(mask, (*room, (0, plan.padded_queries - plan.n)))


def pairwise(
    config: Config, plan: Plan, allowed: Array, query: Array, key1: Array, key2: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """What makes an unsigned logit: x [G, j, N], z [G, k, N], |q|^2 [G, 8, N], y and norms [G, j, k].

    Pairs that are not allowed have norm 0, so their logit is the smallest there is and has no gradient.
    """
    query = group_major(query, plan.padded_queries).astype(jnp.float32) * (config.scale * LOG2E)
    key1, square1 = _unit(group_major(key1, plan.first))
    key2, square2 = _unit(group_major(key2, plan.second))
    x = _einsum("gnd,gjd->gjn", query, key1)
    z = _einsum("gnd,gkd->gkn", query, key2)
    y = _einsum("gjd,gkd->gjk", key1, key2)
    norms = square1[:, :, None] * square2[:, None, :]
    norms = (norms.reshape(-1, plan.heads, *norms.shape[1:]) * allowed[:, None]).reshape(norms.shape)
    aa = jnp.broadcast_to(
        jnp.sum(query * query, axis=2)[:, None, :], (plan.groups, SUBLANES, plan.padded_queries)
    )
    return x, z, aa, y, norms


def _unit(key: Array) -> tuple[Array, Array]:
    """Unit vectors and squared lengths; a zero vector stays one, and gets no gradient from its direction."""
    key = key.astype(jnp.float32)
    square = jnp.sum(key * key, axis=-1)
    some = square > 0
    inverse = jnp.where(some, jax.lax.rsqrt(jnp.where(some, square, 1.0)), 0.0)
    return key * inverse[..., None], square


def product_factors(
    config: Config, plan: Plan, query: Array, key1: Array, key2: Array
) -> tuple[Array, Array, Array]:
    """Q [G, D, N], a [G, j, D], r [G, k, D]: the logit of a triple is scale * sum_d q_d a_jd r_kd.

    For the signed logit, whose pieces are determinants q.(b x c), b x c = b' * c'' - b'' * c' with the
    coordinates of a piece turned by one (') and by two (''): a product on twice as many coordinates.
    """
    if config.logit == "signed":
        query = jnp.concatenate([query, query], axis=-1)
        key1 = jnp.concatenate([_turned(key1, 1), -_turned(key1, 2)], axis=-1)
        key2 = jnp.concatenate([_turned(key2, 2), _turned(key2, 1)], axis=-1)
    return query_rows(query, plan), group_major(key1, plan.first), group_major(key2, plan.second)


def _turned(x: Array, by: int) -> Array:
    """Coordinate c + by in the place of c, in every piece of three."""
    pieces = x.reshape(*x.shape[:-1], -1, 3)
    return jnp.roll(pieces, -by, axis=-1).reshape(x.shape)


def value_factors(plan: Plan, value: Array, bilinear: Array, with_ones: bool = False) -> tuple[Array, Array]:
    """Factors v [G, k, E] and g [G, j, E, F] of a pair's value v_k g_j, where g_j = bilinear(value_j, .).

    Both are float32. With ones, E and F are one more: the last feature of every pair's value is 1, and its
    weighted sum is the denominator of the softmax, from the same rounded weights as the numerators.
    """
    if with_ones:
        value = jnp.pad(value, ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=1)
        bilinear = jnp.pad(bilinear, ((0, 0), (0, 1), (0, 1), (0, 1))).at[:, -1, -1, -1].set(1)
    first = group_major(value, plan.first).astype(jnp.float32)
    first = first.reshape(-1, plan.heads, *first.shape[1:])
    maps = _einsum("hfrs,bhjr->bhjsf", bilinear.astype(jnp.float32), first)
    second = group_major(value, plan.second).astype(jnp.float32)
    return second, maps.reshape(plan.groups, *maps.shape[2:])


def value_dtype(value: Described, bilinear: Described) -> jnp.dtype:
    """The type of the products with values: bfloat16 when both are, else float32."""
    both = value.dtype == jnp.bfloat16 and bilinear.dtype == jnp.bfloat16
    return jnp.dtype(jnp.bfloat16 if both else jnp.float32)


def _einsum(equation: str, *operands: Array) -> Array:
    return jnp.einsum(equation, *operands, precision=jax.lax.Precision.HIGHEST)
