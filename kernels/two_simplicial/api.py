"""2-simplicial attention: attention of a query to pairs of keys."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from kernels import checks, dispatch, sharding
from kernels.two_simplicial import reference
from kernels.two_simplicial.reference import Config, Logit

LEAST_EPS = 1e-15  # its square must be a normal float32


def two_simplicial_attention(
    query: Float[ArrayLike, "*batch N H D"],
    key1: Float[ArrayLike, "*batch M H D"],
    key2: Float[ArrayLike, "*batch M H D"],
    value: Float[ArrayLike, "*batch M H E"],
    bilinear: Float[ArrayLike, "H F E E"],
    *,
    logit: Logit = "unsigned",
    mask: Bool[ArrayLike, "..."] | None = None,
    scale: float = 1.0,
    eps: float = 1e-6,
    implementation: dispatch.Implementation = None,
) -> Float[Array, "*batch N H F"]:
    """Attention of every query to all pairs (j, k) of keys (Clift et al. 2020, Section 3).

        out_i = sum_jk softmax_jk(logit(q_i, k1_j, k2_k)) * B(value_j, value_k),
        B(u, v)_f = sum_rs bilinear[f, r, s] u_r v_s

    where, for each head,

    - `logit="unsigned"`: scale * sqrt(<q, k1, k2>^2 + eps^2), the unsigned scalar triple product of the
      paper, <a, b, c>^2 = (a.b)^2 c.c + (b.c)^2 a.a + (a.c)^2 b.b - 2 (a.b)(a.c)(b.c);
    - `logit="trilinear"`: scale * sum_d q_d k1_d k2_d;
    - `logit="signed"`: scale * sum_l det[q_l, k1_l, k2_l] over pieces l of three coordinates (Roy et al.
      2025, Section 5), which is invariant under rotations and may be negative.

    Memory, forward and backward, is that of the inputs and the output: no array over triples is formed (but
    with `implementation="reference"`). Logits, softmax and sums are float32 (float64 for float64 inputs).

    Args:
        query: one vector a query and head.
        key1: first keys.
        key2: second keys, as many as first ones.
        value: one vector a key and head, the same for both places of a pair.
        bilinear: for each head the tensor B that makes one vector of a pair's two.
        logit: "unsigned", "trilinear" or "signed".
        mask: True where attention is allowed; each axis full or of size 1. A query with nothing allowed gives
            0 and has no gradient. Keys and values that no query may attend to are not read: they may be NaN.
        scale: what logits are multiplied by, a positive Python number. The paper has none.
        eps: keeps the gradient of the unsigned logit finite where the product is 0.
        implementation: None (the fastest proven here), "reference", "xla", "gpu", "tpu", "gpu_interpret",
            "tpu_interpret", or several to try in order.

    Raises:
        ValueError: shapes, types or values that do not fit; it names the argument and what was expected.
        NotImplementedError: an implementation asked for does not support these arguments, or not this
            platform.
    """
    config, arrays = _checked(query, key1, key2, value, bilinear, logit, mask, scale, eps)
    *batch, n, heads, _ = arrays[0].shape
    keys, features = arrays[1].shape[-3], arrays[4].shape[1]
    if 0 in (*batch, n, keys, heads, features):  # nothing to attend to, or nobody who does
        dispatch.checked_names(OPERATION, implementation)
        return jnp.zeros((*batch, n, heads, features), arrays[0].dtype)

    def attend(*arrays):
        *arrays, bilinear, mask = arrays
        arrays = [checks.flatten_batch(x, batch, 3) for x in arrays]
        if mask is None:
            out = dispatch.run(OPERATION, config, *arrays, bilinear, None, implementation=implementation)
        else:
            mask = checks.flatten_batch(mask, batch, 3)
            arrays, attending = _unread_as_zero(arrays, mask)
            out = dispatch.run(OPERATION, config, *arrays, bilinear, mask, implementation=implementation)
            out = jnp.where(attending, out, 0)
        return out.reshape(*batch, n, heads, features)

    return sharding.automatic(attend, arrays, ("*nhd", "*mhd", "*mhd", "*mhe", "hfes"), "*nhf")


def _unread_as_zero(arrays, mask):
    """Returns the arrays with 0 for what the mask excludes everywhere, and which queries attend to anything.

    What is excluded may hold anything, also NaN, and a product with a weight of 0 would let that through.
    """
    query, key1, key2, value = arrays
    attending = mask.any((2, 3))[..., None, None]
    first, second = (mask.any(axes)[..., None, None] for axes in ((1, 3), (1, 2)))
    read = (attending, query), (first, key1), (second, key2), (first | second, value)
    return [jnp.where(*pair, 0) for pair in read], attending


def _checked(query, key1, key2, value, bilinear, logit, mask, scale, eps):
    config = Config(
        logit=logit, scale=checks.positive("scale", scale), eps=checks.positive("eps", eps, LEAST_EPS)
    )
    query, key1, key2, value, bilinear = checks.floating(
        query=query, key1=key1, key2=key2, value=value, bilinear=bilinear
    )
    checks.rank("query", query, 3, "[..., N, H, D]")
    checks.rank("key1", key1, 3, "[..., M, H, D]")
    checks.rank("value", value, 3, "[..., M, H, E]")
    *batch, n, heads, depth = query.shape
    m, width = key1.shape[-3], value.shape[-1]
    to_query = f"to match the batch, heads and D of query {query.shape}"
    checks.shape("key1", key1, (*batch, m, heads, depth), "[..., M, H, D]", to_query)
    checks.shape("key2", key2, key1.shape, "[..., M, H, D]", "to match key1")
    to_key1 = f"to match key1 {key1.shape}"
    checks.shape("value", value, (*batch, m, heads, width), "[..., M, H, E]", to_key1)
    checks.rank("bilinear", bilinear, 4, "[H, F, E, E]")
    to_value = f"to match the heads and E of value {value.shape}"
    checks.shape("bilinear", bilinear, (heads, bilinear.shape[1], width, width), "[H, F, E, E]", to_value)
    for name, x, axis, size in (("query", query, "D", depth), ("value", value, "E", width)):
        if size == 0:
            raise ValueError(f"{name}: got shape {x.shape}, expected {axis} of at least 1")
    if logit == "signed" and depth % 3:
        raise ValueError(f"query: got D = {depth}, expected a multiple of 3 with logit='signed'")
    mask = checks.mask(mask, (*batch, n, m, m), "[..., N, M, M]")
    return config, (query, key1, key2, value, bilinear, mask)


def _outputs(config, query, key1, key2, value, bilinear, mask, *_):
    del config, key1, key2, mask
    batch, n, heads, _ = query.shape
    out = jax.ShapeDtypeStruct((batch, n, heads, bilinear.shape[1]), value.dtype)
    return out, jax.ShapeDtypeStruct((batch, heads, n), np.promote_types(value.dtype, np.float32))


def _describe(config, query, key1, key2, value, bilinear, mask, *_):
    del key2
    batch, n, heads, depth = query.shape
    kind = {"dtype": str(query.dtype), "logit": config.logit, "masked": mask is not None}
    sizes = {
        "groups": batch * heads,
        "N": n,
        "M": key1.shape[1],
        "D": depth,
        "E": value.shape[-1],
        "F": bilinear.shape[1],
    }
    return kind, sizes


OPERATION = dispatch.Operation(
    name="two_simplicial_attention",
    reference=reference.two_simplicial_attention,
    package="kernels.two_simplicial",
    outputs=_outputs,
    describe=_describe,
    batch_axis=(True, True, True, True, False, True),
    differentiable=5,
)
