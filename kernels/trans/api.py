"""The trans operator: from two relations a third, through everything that may stand between."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from kernels import checks, dispatch, sharding
from kernels.arrays import accumulator
from kernels.trans import reference
from kernels.trans.reference import Config


def trans(
    kernel_logits: Float[ArrayLike, "*batch H X A"],
    premise: Float[ArrayLike, "*batch H A Y"],
    *,
    causal: bool = False,
    mask: Bool[ArrayLike, "..."] | None = None,
    implementation: dispatch.Implementation = None,
) -> Float[Array, "*batch H X Y"]:
    """The trans operator of FOLNet (Chen 2023, Table 2): who is related to y through some a.

        u_h(x, y) = sum_a softmax_a(kernel_logits)_h(x, a) * premise_h(a, y)

    Heads stand before the two tokens, [..., H, T, T], and the projections that make the arguments should
    write them so: a transpose costs as much as the operator. What is kept for the gradients is the arguments,
    the result and one number a row. Softmax and sums are float32 (float64 for float64 arguments).

    The relations need not be square: a kernel [..., H, X, A] applied to a premise [..., H, A, Y] gives
    [..., H, X, Y]. For rows spread over devices see `kernels.trans.sharded`.

    Args:
        kernel_logits: the kernel before its softmax over the last axis.
        premise: the relation that it is applied to.
        causal: allow only a <= x; X and A must be equal.
        mask: True where allowed, broadcast to kernel_logits: [..., 1, 1, A] for padding. A row with nothing
            allowed gives 0 and has no gradient. Logits that are masked or not causal, and rows of the premise
            whose column is masked in every row, are not read: they may be NaN.
        implementation: None (the fastest proven here), "reference", "xla", "gpu", "tpu", "gpu_interpret",
            "tpu_interpret", or several to try in order.

    Raises:
        ValueError: shapes, types or values that do not fit; it names the argument and what was expected.
        NotImplementedError: an implementation asked for does not support these arguments, or not this
            platform.
    """
    config, kernel_logits, premise, mask = checked(kernel_logits, premise, causal, mask)
    *batch, heads, rows, columns = kernel_logits.shape
    outputs = premise.shape[-1]
    if 0 in (*batch, heads, rows, columns, outputs):  # an empty result, or a sum over nothing
        dispatch.checked_names(OPERATION, implementation)
        return jnp.zeros((*batch, heads, rows, outputs), premise.dtype)

    def apply(*arrays: Any) -> Array:
        flat: Any = (None if x is None else checks.flatten_batch(x, batch, 3) for x in arrays)
        logits, premise, mask = flat
        if mask is None:
            out = dispatch.run(OPERATION, config, logits, premise, None, implementation=implementation)
        else:
            # What is excluded everywhere may hold anything, also NaN, and a product with a weight of 0 would
            # let that through.
            where: Any = reference.allowed(config, rows, columns, mask)
            premise = jnp.where(where.any(2)[..., None], premise, 0)
            out = dispatch.run(OPERATION, config, logits, premise, mask, implementation=implementation)
            out = jnp.where(where.any(3)[..., None], out, 0)
        return out.reshape(*batch, heads, rows, outputs)

    return sharding.automatic(apply, (kernel_logits, premise, mask), ("*hxa", "*hay"), "*hxy")


def checked(
    kernel_logits: Any, premise: Any, causal: Any, mask: Any
) -> tuple[Config, Float[Array, "*batch H X A"], Float[Array, "*batch H A Y"], Bool[Array, "..."] | None]:
    """Returns the static settings and the arguments of `trans` as arrays, with all axes in the mask.

    Raises:
        ValueError: shapes or types that do not fit; it names the argument and what was expected.
    """
    if not isinstance(causal, bool):
        raise ValueError(f"causal: got {causal!r}, expected True or False (it is compiled in)")
    kernel_logits, premise = checks.floating(kernel_logits=kernel_logits, premise=premise)
    checks.rank("kernel_logits", kernel_logits, 3, "[..., H, X, A]")
    checks.rank("premise", premise, 3, "[..., H, A, Y]")
    *batch, heads, rows, columns = kernel_logits.shape
    checks.shape(
        "premise",
        premise,
        (*batch, heads, columns, premise.shape[-1]),
        "[..., H, A, Y]",
        f"to match the batch, heads and last axis of kernel_logits {kernel_logits.shape}",
    )
    if causal and rows != columns:
        raise ValueError(
            f"kernel_logits: got shape {kernel_logits.shape}, expected [..., H, T, T] with causal=True"
        )
    return Config(causal), kernel_logits, premise, checks.mask(mask, kernel_logits.shape, "[..., H, X, A]")


def _outputs(config, kernel_logits, premise, mask, *_):
    del config, mask
    *lead, _ = kernel_logits.shape
    lse = jax.ShapeDtypeStruct(lead, accumulator(premise.dtype))
    return jax.ShapeDtypeStruct((*lead, premise.shape[3]), premise.dtype), lse


def _describe(config, kernel_logits, premise, mask, *_):
    batch, heads, rows, columns = kernel_logits.shape
    kind = {"dtype": str(premise.dtype), "causal": config.causal, "masked": mask is not None}
    return kind, {"groups": batch * heads, "X": rows, "A": columns, "Y": premise.shape[3]}


OPERATION = dispatch.Operation(
    name="trans",
    reference=reference.trans,
    package="kernels.trans",
    outputs=_outputs,
    describe=_describe,
    batch_axis=(True, True, True),
    differentiable=2,
)
