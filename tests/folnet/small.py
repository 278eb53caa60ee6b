"""Recorded models of the authors' code, and small models with random parameters."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import folnet
from folnet import FOLNetConfig, convert, heads, parameters

DATA = Path(__file__).parent / "data"
RECORDED = ("folnet_full", "folnet_join_assoc")
# All sizes differ, so that axes cannot be mistaken for one another.
SIZES: dict[str, Any] = {
    "vocab_size": 19,
    "hidden_size": 14,
    "relation_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "head_size": 4,
    "intermediate_size": 22,
    "relation_intermediate_size": 10,
    "max_distance": 3,
}


def config(**fields: Any) -> FOLNetConfig:
    """Returns settings with small sizes."""
    return FOLNetConfig(**{**SIZES, **fields})


@functools.cache
def recorded(name: str) -> dict[str, Any]:
    """Returns input, weights and output of the authors' code by name, and "config" as a dictionary."""
    with np.load(DATA / f"{name}.npz") as archive:
        return {**archive, "config": json.loads(str(archive["config"]))}


def recorded_state(name: str, head: str = "pretraining") -> dict[str, np.ndarray]:
    """Returns the state dict of a recorded model, or its encoder's part with another head."""
    arrays = recorded(name)
    state = {k.removeprefix("pretraining/"): v for k, v in arrays.items() if k.startswith("pretraining/")}
    if head == "pretraining":
        return state
    state = {k: v for k, v in state.items() if k.startswith("folnet.")}
    return state | {k.removeprefix(f"{head}/"): v for k, v in arrays.items() if k.startswith(f"{head}/")}


def recorded_model(name: str, model: Any, head: str = "pretraining") -> tuple[Any, dict[str, Any]]:
    """Returns a recorded model, converted."""
    settings, params = convert.from_torch(recorded(name)["config"], recorded_state(name, head), model=model)
    return model(settings), params


def recorded_inputs(name: str) -> tuple[jax.Array, jax.Array]:
    """Returns tokens and segments of a recorded batch."""
    arrays = recorded(name)
    ids, types = (arrays[f"input/{key}"] for key in ("token_ids", "segment_ids"))
    return jnp.asarray(ids, jnp.int32), jnp.asarray(types, jnp.int32)


@functools.cache
def recorded_outputs(name: str) -> dict[str, Any]:
    """Returns our outputs for a recorded encoder and its heads, compiled together.

    All heads read the outputs of one encoder.
    """
    models = {
        head: recorded_model(name, model, "pretraining" if head == "encoder" else head)
        for head, model in (
            ("encoder", folnet.FOLNet),
            ("pretraining", folnet.FOLNetForPreTraining),
            ("classification", folnet.FOLNetForSequenceClassification),
            ("span", folnet.FOLNetForQuestionAnswering),
        )
    }
    masked = jnp.asarray(recorded(name)["input/mlm_positions"], jnp.int32)

    def words(model, encoded):
        logits = model.predictions(heads.at(encoded.last_hidden_state, masked), model.folnet.embeddings)
        return model._output(logits, encoded.pooler_output)

    @quickly
    def run(params, ids, types):
        def outputs(head, *given, **options):
            return apply(models[head][0], params[head], *given, **options)

        encoded = outputs("encoder", ids, types)
        found = {head: outputs(head, encoded, True, method="_head") for head in ("classification", "span")}
        return {"encoder": encoded, "pretraining": outputs("pretraining", encoded, method=words), **found}

    return run({head: params for head, (_, params) in models.items()}, *recorded_inputs(name))


def apply(model: Any, params: Any, *arguments: Any, **options: Any) -> Any:
    """Applies a model to its arguments."""
    return model.apply({"params": params}, *arguments, **options)


_shapes = functools.cache(parameters.shapes)


def draw(model: Any, seed: int = 0, scale: float = 0.4) -> dict[str, Any]:
    """Draws all parameters, including biases, from N(0, scale^2), so that a missing term shows."""
    rng = np.random.default_rng(seed)
    return parameters.nest(
        {
            name: jnp.asarray((scale * rng.normal(size=shape)).astype(np.float32))
            for name, shape in _shapes(model).items()
        }
    )


def tokens(batch: int = 2, length: int = 7, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """Returns token ids and segments, first zeros and then ones."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, SIZES["vocab_size"], (batch, length))
    types = (np.arange(length)[None] >= rng.integers(2, length, (batch, 1))).astype(np.int32)
    return jnp.asarray(ids, jnp.int32), jnp.asarray(types)


def key(seed: int = 0) -> jax.Array:
    """Returns a key of a kind that compiles quickly; the default kind unrolls into long programs."""
    return jax.random.key(seed, impl="rbg")


def quickly(function: Any, **options: Any) -> Any:
    """Compiles a function without optimization, since compilation takes most of the tests' time."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0}, **options)


def draw_like(tree: Any, seed: int = 0, scale: float = 0.4) -> Any:
    """Returns a tree of arrays with the given shapes from N(0, scale^2)."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray((scale * rng.normal(size=leaf.shape)).astype(np.float32)), tree
    )
