"""Trilinear attention: of a query to pairs of positions, with causal windows and grouped queries."""

import math
import numbers

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from kernels import checks, dispatch, sharding
from kernels.arrays import Size, accumulator
from kernels.trilinear import reference
from kernels.trilinear.reference import Config


def trilinear_attention(
    query: Float[ArrayLike, "*batch N H D"],
    key1: Float[ArrayLike, "*batch N G D"],
    key2: Float[ArrayLike, "*batch N G D"],
    value1: Float[ArrayLike, "*batch N G D"],
    value2: Float[ArrayLike, "*batch N G D"],
    *,
    window1: int | None = None,
    window2: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    implementation: dispatch.Implementation = None,
) -> Float[Array, "*batch N H D"]:
    """Attention of every position to pairs (j, k) of positions (Roy et al. 2025, Section 4).

        out_i = sum_jk softmax_jk(scale * sum_d q_id k1_jd k2_kd) (v1_j * v2_k)

    the values multiplied coordinate by coordinate. With `causal` a query sees i - window1 < j <= i and
    i - window2 < k <= i, itself included. The H query heads are in G groups of H / G neighbours; a group
    shares its keys and values (H / G = 64 in the paper).

    Work is N * window1 * window2 triples a head, of 4 D operations each; memory, forward and backward, is
    that of the inputs and the output (but with `implementation="reference"`). Logits, softmax and sums are
    float32 (float64 for float64 inputs).

    Args:
        query: one vector a position and head.
        key1: first keys, one vector a position and group.
        key2: second keys.
        value1: values of the first keys.
        value2: values of the second keys.
        window1: how many first keys a query sees, its own position counted; None for all of the past. Needs
            `causal`. The paper's are 512 and 32; in which order they are given makes no difference in speed.
        window2: the same for second keys.
        causal: whether the future is hidden.
        scale: what logits are multiplied by, a positive Python number; None for 1 / sqrt(D).
        implementation: None (the fastest proven here), "reference", "xla", "gpu", "tpu", "gpu_interpret",
            "tpu_interpret", or several to try in order.

    Raises:
        ValueError: shapes, types or values that do not fit; it names the argument and what was expected.
        NotImplementedError: an implementation asked for does not support these arguments, or not this
            platform.
    """
    if not isinstance(causal, bool):
        raise ValueError(f"causal: got {causal!r}, expected True or False (it is compiled in)")
    arrays = checks.floating(query=query, key1=key1, key2=key2, value1=value1, value2=value2)
    batch = _checked_batch(*arrays)
    *_, length, heads, features = arrays[0].shape
    config = Config(
        window1=_checked_window("window1", window1, causal),
        window2=_checked_window("window2", window2, causal),
        causal=causal,
        scale=1 / math.sqrt(features) if scale is None else checks.positive("scale", scale),
    )
    if 0 in (*batch, length, heads):  # nobody attends
        dispatch.checked_names(OPERATION, implementation)
        return jnp.zeros((*batch, length, heads, features), arrays[0].dtype)

    def attend(*arrays):
        flat = [checks.flatten_batch(x, batch, 3) for x in arrays]
        out = dispatch.run(OPERATION, config, *flat, implementation=implementation)
        return out.reshape(*batch, length, heads, features)

    return sharding.automatic(attend, arrays, ("*nhd",), "*nhd")


def _checked_batch(query, key1, key2, value1, value2) -> tuple[Size, ...]:
    """Returns the batch axes; raises a ValueError if the shapes do not fit each other."""
    checks.rank("query", query, 3, "[..., N, H, D]")
    checks.rank("key1", key1, 3, "[..., N, G, D]")
    *batch, length, heads, features = query.shape
    groups = key1.shape[-2]
    if features == 0:
        raise ValueError(f"query: got shape {query.shape}, expected D of at least 1")
    axes = "[..., N, G, D]"
    to_query = f"to match the batch, N and D of query {query.shape}"
    checks.shape("key1", key1, (*batch, length, groups, features), axes, to_query)
    if heads and (groups == 0 or heads % groups):
        raise ValueError(
            f"key1: got shape {key1.shape}, expected a number of groups G = {groups} that divides "
            f"the H = {heads} heads of query {query.shape}"
        )
    for name, x in (("key2", key2), ("value1", value1), ("value2", value2)):
        checks.shape(name, x, key1.shape, axes, "to match key1")
    return tuple(batch)


def _checked_window(name: str, window: int | None, causal: bool) -> int | None:
    if window is None:
        return None
    if isinstance(window, bool) or not isinstance(window, numbers.Integral):
        raise ValueError(
            f"{name}: got {window!r}, expected an int of at least 1, or None for all of the past"
        )
    if window < 1:
        raise ValueError(f"{name}: got {window}, expected at least 1 (a query sees itself)")
    if not causal:
        raise ValueError(f"{name}: got {window} with causal=False, expected causal=True")
    return int(window)


def _outputs(config, query, key1, key2, value1, *_):
    del config, key1, key2
    batch, length, heads, _ = query.shape
    lse = jax.ShapeDtypeStruct((batch, heads, length), accumulator(query.dtype))
    return jax.ShapeDtypeStruct(query.shape, value1.dtype), lse


def _describe(config, query, key1, *_):
    batch, length, heads, features = query.shape
    window1, window2 = sorted(config.reach(length))
    kind = {"dtype": str(query.dtype), "causal": config.causal}
    sizes = {
        "batch": batch,
        "N": length,
        "H": heads,
        "G": key1.shape[2],
        "D": features,
        "smaller window": window1,
        "larger window": window2,
    }
    return kind, sizes


OPERATION = dispatch.Operation(
    name="trilinear_attention",
    reference=reference.trilinear_attention,
    package="kernels.trilinear",
    outputs=_outputs,
    describe=_describe,
    batch_axis=(True,) * 5,
    differentiable=5,
)
