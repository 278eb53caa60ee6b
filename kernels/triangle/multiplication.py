"""Triangle multiplication: an update of a pair representation by products over a third position."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from kernels import checks
from kernels.arrays import accumulator

_lecun_normal = jax.nn.initializers.lecun_normal(in_axis=-1, out_axis=-2)


def triangle_multiplicative_update(
    x: Float[ArrayLike, "*batch N N D"],
    direction: Literal["outgoing", "incoming"] = "outgoing",
    key: PRNGKeyArray | None = None,
    mask: Shaped[ArrayLike, "..."] | None = None,
    norm_in_weight: Float[ArrayLike, "D"] | None = None,
    norm_in_bias: Float[ArrayLike, "D"] | None = None,
    p_in_weight: Float[ArrayLike, "2*D D"] | None = None,
    p_in_bias: Float[ArrayLike, "2*D"] | None = None,
    g_in_weight: Float[ArrayLike, "2*D D"] | None = None,
    g_in_bias: Float[ArrayLike, "2*D"] | None = None,
    norm_out_weight: Float[ArrayLike, "D"] | None = None,
    norm_out_bias: Float[ArrayLike, "D"] | None = None,
    p_out_weight: Float[ArrayLike, "F D"] | None = None,
    p_out_bias: Float[ArrayLike, "F"] | None = None,
    g_out_weight: Float[ArrayLike, "F D"] | None = None,
    g_out_bias: Float[ArrayLike, "F"] | None = None,
    eps: float = 1e-5,
    precision: jax.lax.Precision | None = None,
    fallback: bool | None = None,
) -> Float[Array, "*batch N N F"]:
    """AlphaFold's triangle multiplication, with the arguments of cuEquivariance's function of this name.

        y = LayerNorm_in(x)
        a, b = the halves of mask * sigmoid(y g_in^T + g_in_bias) * (y p_in^T + p_in_bias)
        z_ij = sum_k a_ik * b_jk                    (outgoing; a_ki * b_kj if incoming)
        out = sigmoid(y g_out^T + g_out_bias) * (LayerNorm_out(z) p_out^T + p_out_bias)

    Jumper et al. (2021), supplement, Algorithms 11 and 12. To switch, replace `from cuequivariance_jax import
    triangle_multiplicative_update` by `from kernels import triangle_multiplicative_update`. It is plain JAX,
    for any chip, size and transformation. The products of matrices have the operands' dtype; sums, LayerNorms
    and gates are float32 at least (float64 for float64 inputs).

    Args:
        x: the pair representation; any number of batch axes.
        direction: "outgoing" or "incoming".
        key: for the initial values of projections and gates that are None, LeCun's truncated normal, as in
            cuEquivariance.
        mask: [..., N, N], True or 1 where a pair is there; its batch axes broadcast with those of x.
        norm_in_weight: gain of the first LayerNorm; None for 1.
        norm_in_bias: its bias; None for 0.
        p_in_weight: projection of the inputs, of which the first half of the rows makes a.
        p_in_bias: its bias; None for none.
        g_in_weight: gate of the inputs.
        g_in_bias: its bias; None for none.
        norm_out_weight: gain of the second LayerNorm; None for 1.
        norm_out_bias: its bias; None for 0.
        p_out_weight: projection of the output; with None, F is that of `g_out_weight`, or else D.
        p_out_bias: its bias; None for none.
        g_out_weight: gate of the output.
        g_out_bias: its bias; None for none.
        eps: added to the variances.
        precision: of the matrix products; None for full float32 precision.
        fallback: accepted for cuEquivariance's sake; there is one implementation.

    Raises:
        ValueError: shapes, types or values that do not fit; it names the argument and what was expected.
    """
    del fallback
    (x,) = checks.floating(x=x)
    if direction not in ("outgoing", "incoming"):
        raise ValueError(f"direction: got {direction!r}, expected 'outgoing' or 'incoming'")
    checks.rank("x", x, 3, "[..., N, N, D]")
    *batch, n, other, depth = x.shape
    if n != other or not depth:
        raise ValueError(f"x: got shape {x.shape}, expected [..., N, N, D] with D of at least 1")
    eps = checks.positive("eps", eps)
    given = {
        "norm_in_weight": norm_in_weight, "norm_in_bias": norm_in_bias,
        "p_in_weight": p_in_weight, "p_in_bias": p_in_bias,
        "g_in_weight": g_in_weight, "g_in_bias": g_in_bias,
        "norm_out_weight": norm_out_weight, "norm_out_bias": norm_out_bias,
        "p_out_weight": p_out_weight, "p_out_bias": p_out_bias,
        "g_out_weight": g_out_weight, "g_out_bias": g_out_bias,
    }  # fmt: skip
    w = {name: jnp.asarray(value) for name, value in given.items() if value is not None}
    features = next((len(w[name]) for name in ("p_out_weight", "g_out_weight") if name in w), depth)
    w = _completed(w, depth, features, x.dtype, key)
    if mask is not None:
        mask = _checked_mask(jnp.asarray(mask), (*batch, n, n))
    wide = accumulator(x)
    products = {"precision": jax.lax.Precision.HIGHEST if precision is None else precision}

    def linear(y, name):
        out = jnp.einsum("...d,fd->...f", y, w[f"{name}_weight"], preferred_element_type=wide, **products)
        return out + _last(w[f"{name}_bias"], out) if f"{name}_bias" in w else out

    def norm(y, name):
        y = y.astype(wide)
        y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
        y = y * _last(w[f"{name}_weight"], y) + _last(w[f"{name}_bias"], y)
        return y.astype(x.dtype)

    y = norm(x, "norm_in")
    ab = jax.nn.sigmoid(linear(y, "g_in")) * linear(y, "p_in")
    if mask is not None:
        ab = ab * mask[..., None].astype(wide)
    a, b = jnp.split(ab.astype(x.dtype), 2, axis=-1)
    equation = "...ikd,...jkd->...ijd" if direction == "outgoing" else "...kid,...kjd->...ijd"
    z = norm(jnp.einsum(equation, a, b, preferred_element_type=wide, **products), "norm_out")
    return (jax.nn.sigmoid(linear(y, "g_out")) * linear(z, "p_out")).astype(x.dtype)


def _completed(
    w: dict[str, Array], depth: int, features: int, dtype: jnp.dtype, key: PRNGKeyArray | None
) -> dict[str, Array]:
    """Returns the parameters with initial values for those that are needed and missing."""
    shapes = {
        "norm_in_weight": (depth,), "norm_in_bias": (depth,),
        "p_in_weight": (2 * depth, depth), "p_in_bias": (2 * depth,),
        "g_in_weight": (2 * depth, depth), "g_in_bias": (2 * depth,),
        "norm_out_weight": (depth,), "norm_out_bias": (depth,),
        "p_out_weight": (features, depth), "p_out_bias": (features,),
        "g_out_weight": (features, depth), "g_out_bias": (features,),
    }  # fmt: skip
    for name, value in w.items():
        if not jnp.issubdtype(value.dtype, jnp.floating):
            raise ValueError(f"{name}: got dtype {value.dtype}, expected floating point numbers")
        checks.shape(name, value, shapes[name], "the shape", f"with D = {depth} and F = {features}")
    drawn = ("p_in_weight", "g_in_weight", "p_out_weight", "g_out_weight")
    missing = [name for name in drawn if name not in w]
    found = dict(w)
    if missing:
        if key is None:
            raise ValueError(f"key: got None, expected a random key for {', '.join(missing)}, which are None")
        keys = jax.random.split(key, len(drawn))
        found |= {name: _lecun_normal(keys[drawn.index(name)], shapes[name], dtype) for name in missing}
    for part in ("norm_in", "norm_out"):
        found.setdefault(f"{part}_weight", jnp.ones(depth, dtype))
        found.setdefault(f"{part}_bias", jnp.zeros(depth, dtype))
    return found


def _checked_mask(mask: Shaped[Array, "..."], full: tuple[int, ...]) -> Shaped[Array, "..."]:
    try:
        if mask.shape[-2:] != full[-2:]:
            raise ValueError
        return jnp.broadcast_to(mask, jnp.broadcast_shapes(mask.shape, full))
    except ValueError:
        raise ValueError(
            f"mask: got shape {mask.shape}, expected [..., N, N] that broadcasts with {full}"
        ) from None


def _last(vector: Float[Array, "D"], like: Float[Array, "*B D"]) -> Float[Array, "..."]:
    """Gives a vector as many axes as `like`, in its dtype."""
    return vector.reshape((1,) * (like.ndim - 1) + vector.shape).astype(like.dtype)
