"""Recorded models of the authors' code, and small models with random parameters."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests import jaxprs
from tp_transformer import TPTransformer, Transformer, convert, decoding

DATA = Path(__file__).parent / "data"
NAMES = ("tp_transformer", "transformer")
MODELS = (TPTransformer, Transformer)
SIZES: dict[str, Any] = {
    "vocab_size": 11,
    "features": 16,
    "filter_features": 24,
    "num_heads": 4,
    "num_layers": 1,
}


def build(architecture: Any, **fields: Any) -> Any:
    """Builds a small model."""
    return architecture(**{**SIZES, **fields})


@functools.cache
def recorded(name: str) -> dict[str, Any]:
    """Reads input, weights and output of the authors' code, by name; "config" is a dictionary."""
    with np.load(DATA / f"{name}.npz") as archive:
        return {**archive, "config": json.loads(str(archive["config"]))}


def recorded_state(name: str) -> dict[str, np.ndarray]:
    """Returns the state dict of a recorded model."""
    return {
        key.removeprefix("params/"): array
        for key, array in recorded(name).items()
        if key.startswith("params/")
    }


@functools.cache
def recorded_model(name: str) -> tuple[Any, dict[str, Any]]:
    """Converts a recorded model."""
    return convert.from_torch(recorded_state(name), num_heads=recorded(name)["config"]["heads"])


@functools.cache
def shapes(model: Any) -> dict[str, Any]:
    """Returns the shapes of a model's parameters, traced once for all that draw some."""
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    return jax.eval_shape(model.init, jax.random.key(0), tokens, tokens)["params"]


def draw(model: Any, seed: int = 0, scale: float = 0.5) -> dict[str, Any]:
    """Draws parameters from N(0, scale^2), gains around 1; none is 0 or 1, so a missing term shows."""
    rng = np.random.default_rng(seed)

    def leaf(path, shape):
        gain = path[-1].key == "scale"
        return jnp.asarray(gain + scale * (0.3 if gain else 1) * rng.normal(size=shape.shape), shape.dtype)

    return jax.tree_util.tree_map_with_path(leaf, shapes(model))


def quickly(function: Any, **options: Any) -> Any:
    """Compiles a function without optimisation, because compilation dominates these tests.

    Not for float64 gradients, which XLA computes wrongly at this level.
    """
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0}, **options)


@functools.partial(quickly, static_argnums=0)
def apply(model: Any, params: Any, source: Any, target: Any) -> jax.Array:
    """Computes logits with a function compiled once per model and shapes."""
    return model.apply({"params": params}, source, target)


def greedy(model: Any, params: Any, source: Any, **options: Any) -> Any:
    """Runs `decoding.greedy_decode` with start 1 and end 2, compiled without optimisation."""
    call = functools.partial(decoding.greedy_decode, model, start=1, end=2, **options)
    return np.asarray(quickly(lambda params, source: call(params, source))(params, source))


def beams(model: Any, params: Any, source: Any, **options: Any) -> Any:
    """Runs `decoding.beam_search` with start 1 and end 2, compiled without optimisation."""
    call = functools.partial(decoding.beam_search, model, start=1, end=2, **options)
    return quickly(lambda params, source: call(params, source))(params, source)


def products(jaxpr: Any) -> list[Any]:
    """Returns the matrix products of a program, those of the programs that it calls too."""
    return [each for each in jaxprs.equations(jaxpr) if each.primitive.name == "dot_general"]


def tokens(*shape: int, seed: int = 0, low: int = 3, high: int = 11) -> jax.Array:
    """Draws symbols other than padding, start and end."""
    return jnp.asarray(np.random.default_rng(seed).integers(low, high, shape), jnp.int32)
