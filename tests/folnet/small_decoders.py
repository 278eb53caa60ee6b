"""Small text-to-text models with random parameters, and their compiled methods."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from folnet import FOLNetForCausalLM, FOLNetForConditionalGeneration
from tests.folnet import small

VOCAB = small.SIZES["vocab_size"]
# All that base atoms and the ends of the stack can differ in, at once.
OTHER: dict[str, Any] = {
    "relative_position": "t5",
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 5,
    "absolute_position": True,
    "max_position_embeddings": 12,
    "diagonal_link": True,
}
ALONE = ("j.", "m.", "c.", ".a", ".t", ".p")
SUBSETS = tuple(
    unary + "." + binary
    for unary in ("", "j", "m", "c", "jm", "jc", "mc", "jmc")
    for binary in ("", "a", "t", "p", "at", "ap", "tp", "atp")
    if unary or binary
)


@functools.cache
def causal(operators: str = "jmc.atp", **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Returns a decoder-only model with parameters."""
    model = FOLNetForCausalLM(small.config(operators=operators, **fields))
    return model, small.draw(model)


@functools.cache
def conditional(operators: str = "jmc.atp", **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Returns an encoder-decoder with parameters."""
    model = FOLNetForConditionalGeneration(small.config(operators=operators, **fields))
    return model, small.draw(model, seed=1)


@functools.cache
def method(model: Any, name: str = "__call__", **options: Any) -> Any:
    """Returns a compiled method of parameters, arrays and named arrays."""
    return small.quickly(
        lambda params, *args, **arrays: model.apply(
            {"params": params}, *args, method=name, **options, **arrays
        )
    )


def words(batch: int, length: int, seed: int = 0) -> Any:
    """Returns random token ids."""
    return jnp.asarray(np.random.default_rng(seed).integers(0, VOCAB, (batch, length)), jnp.int32)


def first(lengths: Any, length: int) -> Any:
    """Returns an attention mask with the given number of real tokens per row, then padding."""
    return jnp.arange(length)[None] < jnp.asarray(lengths)[:, None]
