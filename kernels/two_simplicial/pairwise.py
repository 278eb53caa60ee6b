"""The unsigned scalar triple product from pairwise dot products, and the way back from their gradients.

For a = q_i, b = k1_j, c = k2_k and a^ = a / |a| equation (8) of Clift et al. (2020) is |a| times a square
root of a sum of squares,

    x = a^.b    z = a^.c    y = b.c
    |<a,b,c>|^2 = |a|^2 ((y - x z)^2 + x^2 c.c + z^2 (b.b - x^2)),       b.b >= x^2 by Cauchy and Schwarz,

four multiply-adds a triple, of which only y belongs to the pair (j, k): what varies with (i, k) stays in
registers while j runs. The logit is

    s_i t_ijk,    s_i = scale |a|,    t_ijk = sqrt((y - x z)^2 + x^2 c.c + z^2 (b.b - x^2) + (eps / |a|)^2).

With g = dlogit * s / t the gradients of the dot products are sums of g times one of them (`Gradients`), and
the kernels end there: `pullback` computes those of the vectors from them with small matrix products.

Axis letters: B batch, H heads, N queries (i), M keys, J and K the keys in first and second place, D features.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernels.two_simplicial.reference import Config

# Below this a query counts as 0. Its square and its inverse's square are normal float32 numbers, and so is
# (eps / TINY)^2 for every eps up to 1.
TINY = 1e-18

# Added to the square where eps is too small to keep 1 / t finite in float32.
LEAST_SQUARE = 1e-30


class Products(NamedTuple):
    """What the logits of all triples are made of; float32 at least."""

    x: Float[Array, "B H J N"]  # a^.b, queries last: one row a key, as the kernels read it
    z: Float[Array, "B H N K"]  # a^.c
    y: Float[Array, "B H J K"]  # b.c
    bb: Float[Array, "B H J"]
    cc: Float[Array, "B H K"]
    s: Float[Array, "B H N"]  # scale |a|
    e: Float[Array, "B H N"]  # (eps / |a|)^2


class Gradients(NamedTuple):
    """Sums over the third index of g = dlogit * s / t, times what the name says."""

    x: Float[Array, "B H J N"]  # sum_k g (x c.c - y z)
    z: Float[Array, "B H N K"]  # sum_j g (z b.b - x y)
    y: Float[Array, "B H J K"]  # sum_i g (y - x z)
    aa: Float[Array, "B H N"]  # sum_jk g y^2
    bb: Float[Array, "B H J"]  # sum_ik g z^2
    cc: Float[Array, "B H K"]  # sum_ij g x^2


def product(equation: str, *operands: Array) -> Array:
    """An einsum that is exact up to float32 (float64) sums: bfloat16 operands are multiplied as they are."""
    dtype = jnp.promote_types(jnp.result_type(*operands), jnp.float32)
    return jnp.einsum(equation, *operands, precision=jax.lax.Precision.HIGHEST, preferred_element_type=dtype)


def lengths(query: Float[Array, "B N H D"]) -> Float[Array, "B H N"]:
    """|q|, and TINY for shorter ones, so that it can be divided by."""
    return jnp.maximum(jnp.sqrt(product("bnhd,bnhd->bhn", query, query)), TINY)


def products(
    config: Config,
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B J H D"],
    key2: Float[Array, "B K H D"],
) -> Products:
    """The dot products of equation (8), queries normalised.

    Args:
      config: scale and eps are used; the logit is "unsigned".
      query: any float type; so are the keys.
      key1: the keys in first place, or a slice of them.
      key2: the keys in second place.
    """
    length = lengths(query)
    return Products(
        x=product("bnhd,bjhd->bhjn", query, key1) / length[:, :, None, :],
        z=product("bnhd,bkhd->bhnk", query, key2) / length[:, :, :, None],
        y=product("bjhd,bkhd->bhjk", key1, key2),
        bb=product("bjhd,bjhd->bhj", key1, key1),
        cc=product("bkhd,bkhd->bhk", key2, key2),
        s=config.scale * length,
        e=jnp.maximum((config.eps / length) ** 2, LEAST_SQUARE),
    )


def pullback(
    query: Float[Array, "B N H D"],
    key1: Float[Array, "B J H D"],
    key2: Float[Array, "B K H D"],
    gradients: Gradients,
) -> tuple[Float[Array, "B N H D"], Float[Array, "B J H D"], Float[Array, "B K H D"]]:
    """Gradients of queries and keys from those of their dot products; float32 at least.

    The square |<a,b,c>|^2 is quadratic in each vector, so that d/da = b d/d(a.b) + c d/d(a.c) + 2a d/d(a.a).
    """
    length = lengths(query).swapaxes(1, 2)[..., None]
    dtype = length.dtype
    query, key1, key2 = (a.astype(dtype) for a in (query, key1, key2))
    unit = query / length
    along = product("bhjn,bjhd->bnhd", gradients.x, key1) + product("bhnk,bkhd->bnhd", gradients.z, key2)
    aa, bb, cc = (a.swapaxes(1, 2)[..., None] for a in (gradients.aa, gradients.bb, gradients.cc))
    dquery = (along + unit * aa) / length
    dkey1 = product("bhjn,bnhd->bjhd", gradients.x, unit) + product("bhjk,bkhd->bjhd", gradients.y, key2)
    dkey2 = product("bhnk,bnhd->bkhd", gradients.z, unit) + product("bhjk,bjhd->bkhd", gradients.y, key1)
    return dquery, dkey1 + bb * key1, dkey2 + cc * key2
