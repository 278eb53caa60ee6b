"""Inputs of trilinear attention and their float64 answers, for the tests of every backend.

arrays, dout = cases.make(shape, "float32")
want = cases.answers(shape.config, arrays, dout)
cases.assert_close(cases.run(backend, shape.config, arrays, dout), want, "float32")
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels.trilinear.reference import Config
from kernels.trilinear.shapes import Shape

NAMES = ("out", "lse", "dquery", "dkey1", "dkey2", "dvalue1", "dvalue2")
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "bfloat16": 1.5e-2, "float16": 2e-3}

# Softmaxes of equals, of ties, of one pair only, and of logits whose exponential overflows.
KINDS = ("normal", "zeros", "one-hot", "parallel", "large")


def make(
    shape: Shape, dtype: Any = "float32", *, kind: str = "normal", seed: int = 0
) -> tuple[tuple, np.ndarray]:
    """(query, key1, key2, value1, value2) and dout: arrays of NumPy, bfloat16 included.

    Args:
        shape: the sizes.
        dtype: of all.
        kind: one of KINDS.
        seed: of the random numbers.
    """
    generator = np.random.default_rng(seed)

    def normal(size):
        return generator.normal(size=size)

    query, key1, key2 = normal(shape.query), normal(shape.key), normal(shape.key)
    value1, value2, dout = normal(shape.key), normal(shape.key), normal(shape.query)
    match kind:
        case "normal":  # logits of a standard deviation of 2: a softmax neither flat nor of one pair
            query = 2 * query
        case "zeros":
            query, key1, key2 = (np.zeros_like(a) for a in (query, key1, key2))
        case "one-hot":
            basis = np.eye(shape.features)
            query, key1, key2 = (
                basis[generator.integers(0, shape.features, a.shape[:-1])] for a in (query, key1, key2)
            )
        case "parallel":
            query, key1, key2 = (a[..., :1] * np.ones(shape.features) for a in (query, key1, key2))
        case "large":
            query = 100 * query
        case _:
            raise ValueError(f"no inputs called {kind!r}")
    arrays = query, key1, key2, value1, value2
    return tuple(a.astype(jnp.dtype(dtype)) for a in arrays), dout.astype(jnp.dtype(dtype))


def answers(config: Config, arrays: tuple, dout: Any) -> dict[str, np.ndarray]:
    """Values and gradients in float64: a loop over queries, by the formulas and nothing that is under test.

    The gradients are those of sum(out * dout); lse is a residual and has none.
    """
    query, key1, key2, value1, value2 = (np.asarray(a).astype(np.float64) for a in arrays)
    dout = np.asarray(dout).astype(np.float64)
    batch, length, heads, _ = query.shape
    each = heads // key1.shape[2]
    out, lse = np.zeros_like(query), np.zeros((batch, heads, length))
    dquery = np.zeros_like(query)
    dkey1, dkey2, dvalue1, dvalue2 = (np.zeros_like(a) for a in (key1, key2, value1, value2))
    for b, h, i in np.ndindex(batch, heads, length):
        end = i + 1 if config.causal else length
        first = slice(max(0, end - (config.window1 or length)) if config.causal else 0, end)
        second = slice(max(0, end - (config.window2 or length)) if config.causal else 0, end)
        at1, at2 = (b, first, h // each), (b, second, h // each)
        q, k1, k2, v1, v2 = query[b, i, h], key1[at1], key2[at2], value1[at1], value2[at2]
        logits = config.scale * (q * k1) @ k2.T
        top = logits.max()
        lse[b, h, i] = top + np.log(np.exp(logits - top).sum())
        weights = np.exp(logits - lse[b, h, i])
        out[b, i, h] = np.einsum("jk,jd,kd->d", weights, v1, v2)
        cotangent = dout[b, i, h]
        dweights = (cotangent * v1) @ v2.T
        dlogits = config.scale * weights * (dweights - np.sum(weights * dweights))
        dquery[b, i, h] = np.einsum("jk,jd,kd->d", dlogits, k1, k2)
        dkey1[at1] += q * (dlogits @ k2)
        dkey2[at2] += q * (dlogits.T @ k1)
        dvalue1[at1] += cotangent * (weights @ v2)
        dvalue2[at2] += cotangent * (weights.T @ v1)
    return dict(zip(NAMES, (out, lse, dquery, dkey1, dkey2, dvalue1, dvalue2), strict=True))


def error(got: Any, want: np.ndarray, floor: float = 0.1) -> float:
    """Relative distance in norm; an answer whose root mean square is below `floor` counts as `floor`."""
    got = np.asarray(got).astype(np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.isfinite(got).all()
    return float(np.linalg.norm(got - want) / max(np.linalg.norm(want), floor * np.sqrt(want.size)))


def assert_close(
    got: dict[str, Any], want: dict[str, np.ndarray], dtype: Any, *, factor: float = 1.0
) -> None:
    """Everything in `got` is within the tolerance of its dtype (times `factor`) of what it should be."""
    errors = {name: error(value, want[name]) for name, value in got.items()}
    assert all(one <= factor * TOLERANCE[jnp.dtype(dtype).name] for one in errors.values()), errors


def run(backend: Any, config: Config, arrays: tuple, dout: Any, **options: Any) -> dict[str, Any]:
    """Values and gradients of a backend module, by name.

    The backward pass is handed the backend's own results, as it is in use.
    """
    arrays = tuple(jnp.asarray(a) for a in arrays)

    @jax.jit  # one program to compile, not one an operation
    def both(arrays, dout):
        out, lse = backend.forward(config, *arrays, **options)
        return out, lse, backend.backward(config, *arrays, out, lse, dout, **options)

    out, lse, gradients = both(arrays, jnp.asarray(dout))
    assert out.dtype == arrays[3].dtype
    assert lse.dtype == jnp.promote_types(arrays[0].dtype, jnp.float32)
    assert [g.dtype for g in gradients] == [a.dtype for a in arrays]
    return dict(zip(NAMES, (out, lse, *gradients), strict=True))
