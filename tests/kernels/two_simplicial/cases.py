"""Inputs of 2-simplicial attention and their float64 answers, for the tests of every backend.

arrays = cases.arrays(shapes.ODD, mask="padding")
want = cases.expected(config, arrays, cases.cotangent(arrays))
out, lse = backend.forward(config, *arrays)
cases.check(out, want.out, 1e-5)
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kernels.two_simplicial.reference import Config
from kernels.two_simplicial.shapes import Shape

CONFIGS = (Config("unsigned", scale=0.3), Config("trilinear", scale=0.5), Config("signed", scale=0.7))
# An eps as large as many of the products, for values that show where it is added.
SOFT = Config("unsigned", scale=0.3, eps=0.7)

# Named by what they are used for; each is one of the broadcast forms that the mask's dimensions may take.
MASKS = ("none", "padding", "queries", "triangle", "causal", "random", "nothing", "some rows")

# Where a naive gradient is NaN, where the triple product is exactly 0 or largest.
DEGENERATE = ("zeros", "one-hot", "parallel", "padded")

NAMES = ("query", "key1", "key2", "value", "bilinear")


class Answer(NamedTuple):
    """What the definition gives in float64 for inputs that were exactly representable in their own type."""

    out: np.ndarray
    lse: np.ndarray
    gradients: tuple[np.ndarray, ...]


def mask_of(kind: str, shape: Shape, seed: int = 0) -> np.ndarray | None:
    """A boolean [b, n, j, k] with some of its dimensions 1, or None."""
    rng = np.random.default_rng(seed)
    b, n, m = shape.batch, shape.queries, shape.keys
    i, j, k = np.arange(n)[:, None, None], np.arange(m)[:, None], np.arange(m)
    match kind:
        case "none":
            return None
        case "padding":  # a different number of keys in each example
            lengths = rng.integers(1, m + 1, b)
            present = k < lengths[:, None]
            return (present[:, :, None] & present[:, None, :])[:, None]
        case "queries":  # whole rows, without pairs
            return rng.random((b, n, 1, 1)) < 0.7
        case "triangle":  # unordered pairs, the same for all
            return (j <= k)[None, None]
        case "causal":  # by key 1 and query
            return (j <= i)[None] & np.ones((1, n, m, 1), bool)
        case "random":
            return rng.random((b, n, m, m)) < 0.6
        case "nothing":
            return np.zeros((1, 1, 1, 1), bool)
        case "some rows":  # some with nothing allowed, some with one pair
            allowed = rng.random((b, n, m, m)) < 0.5
            allowed[:, ::3] = False
            allowed[:, 1::3] = (j == m - 1) & (k == 0)
            return allowed
        case _:
            raise ValueError(f"no mask called {kind!r}")


def arrays(
    shape: Shape, *, mask: str = "none", kind: str = "normal", dtype: Any = np.float32, seed: int = 0
) -> tuple[Any, ...]:
    """query, key1, key2, value, bilinear, mask: the arrays of a backend's `forward`, in `dtype`.

    Args:
      shape: the sizes.
      mask: one of MASKS.
      kind: "normal", "large" or one of DEGENERATE.
      dtype: of all but the mask.
      seed: of the numbers drawn.
    """
    rng = np.random.default_rng(seed)
    b, h, n, m, d = shape.batch, shape.heads, shape.queries, shape.keys, shape.features

    def normal(*size: int) -> np.ndarray:
        return rng.standard_normal(size)

    query, key1, key2 = normal(b, n, h, d), normal(b, m, h, d), normal(b, m, h, d)
    value, bilinear = normal(b, m, h, shape.e), normal(h, shape.f, shape.e, shape.e) / shape.e
    match kind:
        case "normal":
            # With CONFIGS softmaxes neither flat nor of one pair: trilinear logits of about 1, signed ones
            # of about 2, unsigned ones of about the root of D.
            query, key1, key2 = (a * (2 / d**0.5) ** (1 / 3) for a in (query, key1, key2))
        case "large":  # unsigned logits of about a hundred with CONFIGS, softmaxes of one pair
            query = 6 * query
        case "zeros":
            query, key1, key2 = (np.zeros_like(a) for a in (query, key1, key2))
        case "one-hot":
            query, key1, key2 = (np.eye(d)[rng.integers(0, d, a.shape[:-1])] for a in (query, key1, key2))
        case "parallel":
            direction = normal(d) / np.sqrt(d)
            query, key1, key2 = (a[..., :1] * direction for a in (query, key1, key2))
        case "padded":  # the last half of everything is zero vectors
            for a in (query, key1, key2, value):
                a[:, (a.shape[1] + 1) // 2 :] = 0
        case _:
            raise ValueError(f"no inputs called {kind!r}")
    allowed = None if mask == "none" else mask_of(mask, shape, seed)
    drawn = [a.astype(dtype) for a in (query, key1, key2, value, bilinear)]
    with jax.enable_x64(True):  # float64 stays float64
        return *map(jnp.asarray, drawn), None if allowed is None else jnp.asarray(allowed)


def cotangent(arrays: tuple[Any, ...], seed: int = 1) -> np.ndarray:
    """A cotangent of the output, in the type of the value."""
    query, *_, value, bilinear, _ = arrays
    size = (*query.shape[:3], bilinear.shape[1])
    return np.random.default_rng(seed).standard_normal(size).astype(value.dtype)


def expected(config: Config, arrays: tuple[Any, ...], dout: Any) -> Answer:
    """Output, log-sum-exp and gradients in float64, in NumPy (so that no definition has to be compiled).

    Letters as in `kernels.two_simplicial.reference`, whose gradients are compared with these.
    """
    *inputs, allowed = arrays
    query, key1, key2, value, bilinear = (np.asarray(a, np.float64) for a in inputs)
    query, key1, key2, value = (np.moveaxis(a, 2, 1) for a in (query, key1, key2, value))
    dout = np.moveaxis(np.asarray(dout, np.float64), 2, 1)

    logit, logit_pullback = _logits(config, query, key1, key2)
    allowed = np.broadcast_to(True if allowed is None else np.asarray(allowed)[:, None], logit.shape)
    top = np.max(logit, axis=(-2, -1), keepdims=True, where=allowed, initial=-1e300)
    weight = np.where(allowed, np.exp(np.where(allowed, logit - top, 0)), 0)
    total = weight.sum((-2, -1), keepdims=True)
    lse = np.where(total > 0, np.log(np.where(total > 0, total, 1)) + top, 0)[..., 0, 0]
    weight = weight / np.where(total > 0, total, 1)

    half = _einsum("hfrs,bhjr->bhjfs", bilinear, value)
    pairs = _einsum("bhjfs,bhks->bhjkf", half, value)
    out = _einsum("bhijk,bhjkf->bhif", weight, pairs)

    dpairs = _einsum("bhijk,bhif->bhjkf", weight, dout)
    dhalf = _einsum("bhjkf,bhks->bhjfs", dpairs, value)
    dvalue = _einsum("bhjfs,hfrs->bhjr", dhalf, bilinear) + _einsum("bhjkf,bhjfs->bhks", dpairs, half)
    dbilinear = _einsum("bhjfs,bhjr->hfrs", dhalf, value)
    dweight = _einsum("bhif,bhjkf->bhijk", dout, pairs)
    dlogit = weight * (dweight - (weight * dweight).sum((-2, -1), keepdims=True))
    gradients = *logit_pullback(dlogit), dvalue
    back = [np.moveaxis(a, 1, 2) for a in (out, *gradients)]
    return Answer(back[0], lse, (*back[1:], dbilinear))


_einsum = functools.partial(np.einsum, optimize=True)


def _logits(config, query, key1, key2):
    """The logits of heads-first arrays, and the function from their cotangent to those of the arrays."""
    if config.logit == "unsigned":
        ab, ac, bc = (
            _einsum("bhxd,bhyd->bhxy", *two) for two in ((query, key1), (query, key2), (key1, key2))
        )
        ab, ac, bc = ab[..., None], ac[:, :, :, None], bc[:, :, None]
        aa, bb, cc = ((a * a).sum(-1) for a in (query, key1, key2))
        aa, bb, cc = aa[..., None, None], bb[:, :, None, :, None], cc[:, :, None, None]
        norm = np.sqrt(ab**2 * cc + bc**2 * aa + ac**2 * bb - 2 * ab * ac * bc + config.eps**2)

        def pullback(dlogit):
            dsquare = config.scale * dlogit / norm / 2
            dab = (dsquare * (2 * ab * cc - 2 * ac * bc)).sum(4)
            dac = (dsquare * (2 * ac * bb - 2 * ab * bc)).sum(3)
            dbc = (dsquare * (2 * bc * aa - 2 * ab * ac)).sum(2)
            daa, dbb, dcc = (
                2 * (dsquare * other**2).sum(axes)[..., None]
                for other, axes in ((bc, (3, 4)), (ac, (2, 4)), (ab, (2, 3)))
            )
            return (
                dab @ key1 + dac @ key2 + daa * query,
                dab.swapaxes(2, 3) @ query + dbc @ key2 + dbb * key1,
                dac.swapaxes(2, 3) @ query + dbc.swapaxes(2, 3) @ key1 + dcc * key2,
            )

        return config.scale * norm, pullback

    def times(a, b):
        """The product of two vectors whose product with the third is the logit."""
        if config.logit == "trilinear":
            return config.scale * a * b
        cut = (x.reshape(*x.shape[:-1], -1, 3) for x in (a, b))
        product = config.scale * np.cross(*cut)
        return product.reshape(*product.shape[:-2], -1)

    first, second = key1[:, :, :, None], key2[:, :, None]
    both = times(first, second)

    def pullback_of_product(dlogit):
        moved = _einsum("bhijk,bhid->bhjkd", dlogit, query)
        dquery = _einsum("bhijk,bhjkd->bhid", dlogit, both)
        return dquery, times(second, moved).sum(3), times(moved, first).sum(2)

    return _einsum("bhid,bhjkd->bhijk", query, both), pullback_of_product


def error(got: Any, want: np.ndarray, floor: float = 0.1) -> float:
    """||got - want|| / ||want||, norms over whole arrays; a wanted norm below `floor` counts as that."""
    got = np.asarray(got, np.float64)
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    assert np.all(np.isfinite(got)), "not all finite"
    return float(np.linalg.norm(got - want) / max(np.linalg.norm(want), floor))


def check(got: Any, want: np.ndarray, tolerance: float, name: str = "array", floor: float = 0.1) -> None:
    """Fails where `error` is above the tolerance."""
    found = error(got, want, floor)
    assert found <= tolerance, f"{name}: relative error {found:.2e}, allowed {tolerance:.0e}"


def check_answer(
    got: tuple[Any, Any, tuple[Any, ...]], want: Answer, tolerance: float, *, floor: float = 0.1
) -> None:
    """Output, log-sum-exp and all gradients (as (out, lse, gradients)) against the definition's.

    The log-sum-exp is never rounded to 16 bits: it has more digits whatever the tolerance of the others.
    """
    out, lse, gradients = got
    check(out, want.out, tolerance, "out", floor)
    check(lse, want.lse, min(tolerance, 1e-4), "lse", floor)
    assert len(gradients) == len(NAMES)
    for name, g, w in zip(NAMES, gradients, want.gradients, strict=True):
        check(g, w, tolerance, f"gradient of {name}", floor)
