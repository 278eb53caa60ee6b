"""Plain NumPy in float64, loop by loop, of what the baselines share; and how their tests call them."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn


def drawn(module: nn.Module, *inputs: Any, seed: int = 0, scale: float = 0.5) -> dict[str, Any]:
    """Float32 variables with every entry drawn, so that biases and gains take part; gains are around 1."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)

    def draw(path, leaf):
        around = 1.0 if path[-1].key == "scale" else 0.0
        return jnp.asarray((around + scale * rng.normal(size=leaf.shape)).astype(leaf.dtype))

    return jax.tree_util.tree_map_with_path(draw, shapes)


def wide(variables: dict[str, Any]) -> dict[str, Any]:
    """The parameters in float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), variables["params"])


def apply(module: nn.Module, variables: dict[str, Any], *inputs: Any, **options: Any) -> Any:
    """The module's compiled output: op by op it would take far longer."""
    options = {name: jnp.asarray(x) if isinstance(x, np.ndarray) else x for name, x in options.items()}
    return jax.jit(lambda v, *arrays: module.apply(v, *arrays, **options))(variables, *inputs)


def finite_gradients(module: nn.Module, *inputs: Any) -> None:
    """The gradients of all parameters are finite, and reach all of them."""
    variables = drawn(module, *inputs, scale=0.3)

    def loss(variables):
        return jnp.sum(jnp.sin(cast(jax.Array, module.apply(variables, *inputs))))

    gradients = jax.jit(jax.grad(loss))(variables)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        leaf = np.asarray(leaf)  # by JAX, each shape would be a program
        assert np.isfinite(leaf).all(), path
        if [key.key for key in path[-2:]] != ["key", "bias"]:  # a softmax does not see it
            assert np.any(leaf != 0), path


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def dense(p: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    y = x @ p["kernel"]
    return y + p["bias"] if "bias" in p else y


def layer_norm(p: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Of one vector."""
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p["scale"] + p["bias"]


def feed_forward(p: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """Of one vector."""
    return dense(p["output"], np.maximum(dense(p["hidden"], x), 0))


def each(function: Any, x: np.ndarray) -> np.ndarray:
    """The function of every vector along the last axis."""
    flat = x.reshape(-1, x.shape[-1])
    return np.stack([function(row) for row in flat]).reshape(x.shape)


def layers(p: dict[str, Any], x: np.ndarray, mixer: Any, num_layers: int, norm: str = "pre") -> np.ndarray:
    """A stack of residual layers on one example; `mixer` takes its parameters and the states."""
    for i in range(num_layers):
        q = p[f"layer_{i}"]
        for name, f in (
            ("mixer", lambda y, q=q: mixer(q["mixer"], y)),
            ("feed_forward", lambda y, q=q: each(lambda row: feed_forward(q["feed_forward"], row), y)),
        ):

            def normed(y, name=name, q=q):
                return each(lambda row: layer_norm(q[f"{name}_norm"], row), y)

            x = x + f(normed(x)) if norm == "pre" else normed(x + f(x))
    return each(lambda row: layer_norm(p["norm"], row), x) if norm == "pre" else x
