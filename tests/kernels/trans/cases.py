"""Inputs, and float64 answers worked out in NumPy, for the tests of every backend of trans."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels.trans.reference import Config
from kernels.trans.shapes import Shape

# Each kind of mask by the sizes it keeps full: what models pass, and what only a careful kernel gets right.
MASKS = {
    "none": None,
    "padding": (True, False, False, True),  # columns that are no tokens, per example
    "rows": (True, False, True, False),
    "heads": (False, True, False, True),
    "tokens": (False, False, True, True),
    "full": (True, True, True, True),
    "nothing allowed": (False, False, False, False),
}
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}
NAMES = ("out", "lse", "dkernel_logits", "dpremise")


def make_mask(shape: Shape, kind: str, seed: int = 0) -> Any:
    """A mask in which some entries, and where it can be some whole rows, are not allowed."""
    full = MASKS[kind]
    if full is None:
        return None
    sizes = [size if keep else 1 for size, keep in zip(shape.kernel_logits, full, strict=True)]
    mask = np.random.default_rng(seed).random(sizes) < 0.7
    if not any(full):
        return np.zeros(sizes, bool)
    if kind == "full":
        mask[0, 0, 0] = False
    return mask


def make(
    shape: Shape, dtype="float32", mask: str = "none", seed: int = 0, spread: float = 3.0
) -> tuple[tuple[Any, Any, Any], Any]:
    """(kernel_logits, premise, mask), dout for a shape; arrays of NumPy, bfloat16 included.

    Logits that may not be seen are large, so that none may be used, not even in the maximum of a row.

    Args:
        shape: the sizes.
        dtype: of all but the mask.
        mask: one of MASKS.
        seed: of the random numbers.
        spread: standard deviation of the logits; large enough that the softmax is far from uniform.
    """
    generator = np.random.default_rng(seed + 1)
    kernel_logits = generator.normal(size=shape.kernel_logits) * spread
    premise = generator.normal(size=shape.premise)
    dout = generator.normal(size=(*shape.kernel_logits[:3], shape.outputs))
    dtype, allowed = jnp.dtype(dtype), make_mask(shape, mask, seed)
    kernel_logits = np.where(seen(shape.config, shape.kernel_logits, allowed), kernel_logits, 900)
    return (kernel_logits.astype(dtype), premise.astype(dtype), allowed), dout.astype(dtype)


def seen(config: Config, sizes: tuple[int, ...], mask: Any) -> np.ndarray:
    """Where logits of these sizes may be seen, by the mask and of the past."""
    where = np.ones(sizes, bool) if mask is None else np.broadcast_to(np.asarray(mask), sizes)
    if config.causal:
        rows, columns = sizes[2:]
        where = where & (np.arange(columns)[None, :] <= np.arange(rows)[:, None] + config.row_offset)
    return where


def answers(config, arrays, dout) -> dict[str, np.ndarray]:
    """Values and gradients in float64, by the formulas and by nothing that is under test.

    The gradients are those of sum(out * dout); lse is a residual and has none.
    """
    kernel_logits, premise, mask = arrays
    logits = np.asarray(kernel_logits).astype(np.float64)
    values = np.asarray(premise).astype(np.float64)
    weights = np.asarray(dout).astype(np.float64)
    where = seen(config, logits.shape, mask)
    some = where.any(-1)
    top = np.where(some, np.max(logits, -1, where=where, initial=-1e300), 0.0)
    powers = np.where(where, np.exp(np.minimum(logits - top[..., None], 0)), 0.0)
    total = np.where(some, powers.sum(-1), 1.0)
    kernel = powers / total[..., None]
    out = kernel @ values
    dkernel = weights @ values.swapaxes(-1, -2)
    # The derivative of a softmax: each entry against the mean of its row under the kernel.
    mean = (kernel * dkernel).sum(-1, keepdims=True)
    return {
        "out": out,
        "lse": np.where(some, top + np.log(total), 0.0),
        "dkernel_logits": kernel * (dkernel - mean),
        "dpremise": kernel.swapaxes(-1, -2) @ weights,
    }


def error(got, want) -> float:
    """Relative distance in norm; where the answer is 0, the distance itself."""
    got = np.asarray(got).astype(np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    norm = np.linalg.norm(want)
    return float(np.linalg.norm(got - want) / (norm if norm > 0 else 1.0))


def assert_close(got: dict, want: dict, dtype) -> None:
    """Everything in `got` is within the tolerance of its dtype of what it should be."""
    tolerance = TOLERANCE[jnp.dtype(dtype).name]
    errors = {name: error(value, want[name]) for name, value in got.items()}
    assert all(one < tolerance for one in errors.values()), errors  # which nan is not


def run(backend, config, arrays, dout, **options) -> dict:
    """Values and gradients of a backend module, by name.

    The backward pass is handed the backend's own results, as it is in use.
    """
    arrays: list[Any] = [None if x is None else jnp.asarray(x) for x in arrays]

    @jax.jit  # one program to compile, not one an operation
    def both(arrays, dout):
        out, lse = backend.forward(config, *arrays, **options)
        return out, lse, *backend.backward(config, *arrays, out, lse, dout, **options)

    out, lse, dkernel_logits, dpremise = both(arrays, jnp.asarray(dout))
    assert out.dtype == dpremise.dtype == arrays[1].dtype
    assert dkernel_logits.dtype == arrays[0].dtype
    assert lse.dtype == jnp.promote_types(arrays[0].dtype, jnp.float32)
    return dict(zip(NAMES, (out, lse, dkernel_logits, dpremise), strict=True))
