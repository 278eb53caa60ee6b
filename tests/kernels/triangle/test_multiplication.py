"""Triangle multiplication: float64 formulas, initial values, dtypes, errors."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import triangle_multiplicative_update

pytestmark = pytest.mark.usefixtures("compiled_quickly")
B, N, D, F = 2, 4, 3, 5
X = np.random.default_rng(0).normal(size=(B, N, N, D))
MASK = np.random.default_rng(1).random((B, N, N)) < 0.7


def weights(features=F):
    draw = np.random.default_rng(2).normal
    shapes = {
        "norm_in_weight": (D,), "norm_in_bias": (D,), "p_in_weight": (2 * D, D), "p_in_bias": (2 * D,),
        "g_in_weight": (2 * D, D), "g_in_bias": (2 * D,), "norm_out_weight": (D,), "norm_out_bias": (D,),
        "p_out_weight": (features, D), "p_out_bias": (features,), "g_out_weight": (features, D),
        "g_out_bias": (features,),
    }  # fmt: skip
    return {name: draw(size=shape) for name, shape in shapes.items()}


def formula(x, direction, mask, w, eps):
    """Algorithms 11 and 12 of AlphaFold's supplement, pair by pair, of one example."""

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    def norm(z, name):
        z = (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + eps)
        return z * w[f"{name}_weight"] + w[f"{name}_bias"]

    y = norm(x, "norm_in")
    ab = sigmoid(y @ w["g_in_weight"].T + w["g_in_bias"]) * (y @ w["p_in_weight"].T + w["p_in_bias"])
    ab = ab * mask[:, :, None]
    a, b = ab[..., :D], ab[..., D:]
    z = np.zeros_like(x)
    for i, j, k in np.ndindex(N, N, N):
        z[i, j] += a[i, k] * b[j, k] if direction == "outgoing" else a[k, i] * b[k, j]
    z = norm(z, "norm_out")
    return sigmoid(y @ w["g_out_weight"].T + w["g_out_bias"]) * (z @ w["p_out_weight"].T + w["p_out_bias"])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("direction", ["outgoing", "incoming"])
def test_values_are_those_of_the_formula(direction):
    w = weights()
    update = jax.jit(triangle_multiplicative_update, static_argnames=("direction", "eps"))
    got = update(X, direction=direction, mask=MASK, eps=1e-3, **w)
    for b in range(B):
        np.testing.assert_allclose(got[b], formula(X[b], direction, MASK[b], w, 1e-3), rtol=1e-10, atol=1e-10)
    # Without batch axes, with a mask of numbers, and with nothing masked.
    one = update(X[0], direction=direction, mask=1.0 * MASK[0], eps=1e-3, **w)
    np.testing.assert_allclose(one, got[0], rtol=1e-10, atol=1e-12)
    full = update(X[0], direction=direction, **w)
    np.testing.assert_allclose(
        full, formula(X[0], direction, np.ones((N, N)), w, 1e-5), rtol=1e-10, atol=1e-10
    )


@pytest.mark.usefixtures("x64")
def test_parameters_that_are_not_given():
    """Gains of 1 and biases of 0; matrices drawn from the key, of LeCun's variance."""
    w = weights()
    plain = {
        name: value for name, value in w.items() if name.split("_")[0] in "pg" and name.endswith("weight")
    }
    gains = {"norm_in_weight": np.ones(D), "norm_out_weight": np.ones(D)}
    rest = {name: np.zeros_like(value) for name, value in w.items() if name.endswith("bias")}
    update = jax.jit(triangle_multiplicative_update)
    np.testing.assert_allclose(update(X, **plain), update(X, **plain, **gains, **rest), rtol=1e-12)
    size, key = 60, jax.random.key(0)
    keys = jax.random.split(key, 4)
    shapes = {"p_in_weight": 2 * size, "g_in_weight": 2 * size, "p_out_weight": size, "g_out_weight": size}
    initializer = jax.nn.initializers.lecun_normal(in_axis=-1, out_axis=-2)

    @jax.jit
    def draw(keys):
        named = zip(keys, shapes.items(), strict=True)
        return {name: initializer(k, (rows, size), jnp.float64) for k, (name, rows) in named}

    drawn = draw(keys)
    assert float(jnp.std(drawn["p_in_weight"])) == pytest.approx(size**-0.5, rel=0.03)
    x = np.random.default_rng(3).normal(size=(2, 2, size))
    np.testing.assert_allclose(update(x, key=key), update(x, **drawn), rtol=1e-12)
    with pytest.raises(ValueError, match="key: got None, expected a random key for p_in_weight, g_in_weight"):
        triangle_multiplicative_update(X)


def test_bfloat16_is_near_float32():
    w = {name: value.astype(np.float32) for name, value in weights().items()}
    x = X.astype(np.float32)
    update = jax.jit(triangle_multiplicative_update)
    wanted = np.asarray(update(x, **w))
    low = {name: jnp.asarray(value, jnp.bfloat16) for name, value in w.items()}
    got = update(jnp.asarray(x, jnp.bfloat16), **low)
    assert got.dtype == jnp.bfloat16
    assert np.linalg.norm(np.asarray(got, np.float32) - wanted) < 0.03 * np.linalg.norm(wanted)


def test_the_arguments_are_those_of_cuequivariance():
    """In its order: https://docs.nvidia.com/cuda/cuequivariance/api/, version 0.13."""
    parts = ("norm_in", "p_in", "g_in", "norm_out", "p_out", "g_out")
    names = [f"{part}_{kind}" for part in parts for kind in ("weight", "bias")]
    expected = ["x", "direction", "key", "mask", *names, "eps", "precision", "fallback"]
    assert list(inspect.signature(triangle_multiplicative_update).parameters) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": "both"}, "direction: got 'both', expected 'outgoing' or 'incoming'"),
        ({"x": X[:, :3]}, "x: got shape (2, 3, 4, 3), expected [..., N, N, D]"),
        ({"p_in_weight": np.ones((D, D))}, "p_in_weight: got shape (3, 3), expected the shape = (6, 3)"),
        ({"g_out_weight": np.ones((4, D))}, "g_out_weight: got shape (4, 3), expected the shape = (5, 3)"),
        ({"mask": np.ones((B, N, 3))}, "mask: got shape (2, 4, 3), expected [..., N, N]"),
        ({"mask": np.ones((B, N, 1))}, "mask: got shape (2, 4, 1), expected [..., N, N]"),
        ({"norm_in_bias": np.zeros(D, int)}, "norm_in_bias: got dtype int"),
        ({"eps": 0.0}, "eps: got 0.0, expected a finite number greater than 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_errors(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        triangle_multiplicative_update(**{"x": X, **weights()} | change)
