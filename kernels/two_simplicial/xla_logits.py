"""Logits of one tile of triples and their derivatives, for the blockwise path.

A tile holds the triples of J first keys, all K second keys and Q queries, for some batch entries and heads,
as an array [B, H, J, K, Q]: queries are minor, so that a softmax's reductions run over major axes.

What a tile is computed from is kept in four groups, by what it is indexed with. The blockwise path slices
them, and adds up a group's gradients over the tiles that share it, without knowing what is in them.

Axis letters: B batch, H heads, T blocks of Q queries, S blocks of J first keys, K second keys, D features.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.softmax import MASKED
from kernels.two_simplicial.pairwise import LEAST_SQUARE
from kernels.two_simplicial.reference import Config

PRECISE = jax.lax.Precision.HIGHEST


class Groups(NamedTuple):
    """What tiles are computed from, or the gradients of that; each a tuple of arrays."""

    crossed: tuple[Array, ...] = ()  # leading axes S, T: one for each tile
    queries: tuple[Array, ...] = ()  # leading axis T: shared by the tiles of all first keys
    first: tuple[Array, ...] = ()  # leading axis S: shared by the tiles of all queries
    second: tuple[Array, ...] = ()  # shared by all tiles


@dataclass(frozen=True)
class TripleProduct:
    """The unsigned scalar triple product: after three products of matrices, O(1) for a triple.

    Clift et al. (2020), equation (8), with a, b, c the query, the first and the second key:
    square = (a.b)^2 c.c + (b.c)^2 a.a + (a.c)^2 b.b - 2 (a.b) (a.c) (b.c). The scale is multiplied into the
    query and eps beforehand; the logit is then the root itself.
    """

    config: Config

    @property
    def least(self) -> float:
        """A `raw` value that no allowed triple is below."""
        return max((self.config.scale * self.config.eps) ** 2, LEAST_SQUARE)

    def prepare(
        self,
        query: Float[Array, "T B H Q D"],
        key1: Float[Array, "S B H J D"],
        key2: Float[Array, "B H K D"],
        *,
        few: bool = False,
    ) -> Groups:
        """The dot products of each tile; with `few` keys as sums, since products of matrices cost more."""
        query, dots = query * self.config.scale, _sums if few else _products
        return Groups(
            crossed=(dots(query[None], key1[:, None]),),
            queries=(dots(query, key2[None]), jnp.sum(query * query, axis=-1)),
            first=(
                jnp.einsum("sbhjd,bhkd->sbhjk", key1, key2, precision=PRECISE),
                jnp.sum(key1 * key1, axis=-1),
            ),
            second=(jnp.sum(key2 * key2, axis=-1),),
        )

    def raw(self, tile: Groups) -> Float[Array, "B H J K Q"]:
        """The squares, eps^2 included."""
        ab, ac, bc, aa, bb, cc = _broadcast(tile)
        return ac * (ac * bb - 2 * ab * bc) + ((ab * ab) * cc + ((bc * bc) * aa + self.least))

    def logit(self, raw: Array) -> Array:
        """From `raw`, increasing; so the largest of a row is found before it is applied."""
        return jnp.sqrt(raw)

    def backward(
        self, tile: Groups, logit: Float[Array, "B H J K Q"], dlogit: Float[Array, "B H J K Q"]
    ) -> Groups:
        """Gradients of the dot products."""
        ab, ac, bc, aa, bb, cc = _broadcast(tile)
        twice = jax.lax.optimization_barrier(dlogit / logit)  # twice the gradient of the square
        return Groups(
            crossed=(jnp.sum(twice * (ab * cc - ac * bc), axis=3),),
            queries=(
                jnp.sum(twice * (ac * bb - ab * bc), axis=2),
                0.5 * jnp.sum(twice * (bc * bc), axis=(2, 3)),
            ),
            first=(
                jnp.sum(twice * (bc * aa - ab * ac), axis=4),
                0.5 * jnp.sum(twice * (ac * ac), axis=(3, 4)),
            ),
            second=(0.5 * jnp.sum(twice * (ab * ab), axis=(2, 4)),),
        )


def _products(query: Float[Array, "*_ Q D"], key: Float[Array, "*_ K D"]) -> Float[Array, "*_ K Q"]:
    return jnp.einsum("...qd,...kd->...kq", query, key, precision=PRECISE)


def _sums(query: Float[Array, "*_ Q D"], key: Float[Array, "*_ K D"]) -> Float[Array, "*_ K Q"]:
    return jnp.sum(query[..., None, :, :] * key[..., :, None, :], axis=-1)


def _broadcast(tile: Groups) -> tuple[Array, ...]:
    """The six dot products, each with the axes [B, H, J, K, Q] or 1 in their place."""
    (ab,), (ac, aa), (bc, bb), (cc,) = tile
    return (
        ab[:, :, :, None, :],
        ac[:, :, None, :, :],
        bc[:, :, :, :, None],
        aa[:, :, None, None, :],
        bb[:, :, :, None, None],
        cc[:, :, None, :, None],
    )


@dataclass(frozen=True)
class Product:
    """The trilinear and the signed logit: dot products of a query with the J * K products of the keys.

    The product of two keys is elementwise (then the sum over d of q k1 k2 is a dot product), or the cross
    product of each piece of three coordinates (det[a, b, c] = a . (b x c)).
    """

    config: Config

    @property
    def least(self) -> float:
        """A `raw` value that no allowed triple is below."""
        return MASKED

    def prepare(
        self,
        query: Float[Array, "T B H Q D"],
        key1: Float[Array, "S B H J D"],
        key2: Float[Array, "B H K D"],
        *,
        few: bool = False,
    ) -> Groups:
        """The vectors themselves, queries scaled."""
        del few
        return Groups(queries=(query * self.config.scale,), first=(key1,), second=(key2,))

    def raw(self, tile: Groups) -> Float[Array, "B H J K Q"]:
        """The logits themselves, scaled with the queries."""
        (query,), (key1,), (key2,) = tile.queries, tile.first, tile.second
        return jnp.einsum("bhjkd,bhqd->bhjkq", self.products(key1, key2), query, precision=PRECISE)

    def logit(self, raw: Array) -> Array:
        """`raw` is the logit."""
        return raw

    def products(
        self, key1: Float[Array, "B H J D"], key2: Float[Array, "B H K D"]
    ) -> Float[Array, "B H J K D"]:
        """The product of every pair of keys."""
        key1, key2 = key1[:, :, :, None], key2[:, :, None]
        if self.config.logit == "trilinear":
            return key1 * key2
        key1, key2 = (k.reshape(*k.shape[:-1], -1, 3) for k in (key1, key2))
        products = jnp.cross(key1, key2)
        return products.reshape(*products.shape[:-2], -1)

    def backward(
        self, tile: Groups, logit: Float[Array, "B H J K Q"], dlogit: Float[Array, "B H J K Q"]
    ) -> Groups:
        """Gradients of the vectors."""
        del logit
        (query,), (key1,), (key2,) = tile.queries, tile.first, tile.second
        products, pull = jax.vjp(self.products, key1, key2)
        dproducts = jnp.einsum("bhjkq,bhqd->bhjkd", dlogit, query, precision=PRECISE)
        dquery = jnp.einsum("bhjkq,bhjkd->bhqd", dlogit, products, precision=PRECISE)
        dkey1, dkey2 = pull(dproducts)
        return Groups(queries=(dquery,), first=(dkey1,), second=(dkey2,))


def form_of(config: Config) -> TripleProduct | Product:
    """The kind of logit that a configuration names."""
    return TripleProduct(config) if config.logit == "unsigned" else Product(config)
