"""Answers, symbol by symbol: greedily or by beam search, with what attention has seen kept in a cache.

A search is a plain function of `step`, which gives logits after the last symbol of each hypothesis; it knows
no model. Either is one compiled loop that stops when all rows have ended. A row ends with its end symbol, or
with a padding symbol: of what follows one, nothing could be told from padding.

Axis letters: B batch, S source positions, K hypotheses about one source, V vocabulary, M the most symbols of
an answer.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tp_transformer.model import EncoderDecoder

State = TypeVar("State")
Step = Callable[[Int[Array, "B K"], State, Int[Array, ""]], tuple[Float[Array, "B K V"], State]]
"""step(last symbols, state, position) -> (logits after them, state); leaves of state start with [B, K]."""


@functools.partial(jax.jit, static_argnames=("model", "max_length", "start", "end", "cache"))
def greedy_decode(
    model: EncoderDecoder,
    params: Mapping[str, Any],
    source: Int[Array, "B S"],
    *,
    max_length: int,
    start: int,
    end: int,
    cache: bool = True,
) -> Int[Array, "B M+1"]:
    """The most probable symbol, again and again.

    Args:
      model: either architecture.
      params: its parameters.
      source: questions, padded with `model.pad`.
      max_length: M.
      start: the symbol that answers start with.
      end: the symbol that ends them.
      cache: whether keys and values are kept from symbol to symbol, or computed anew. The symbols are the
        same.

    Returns:
      Answers of the source's type: the start symbol first, padding after the end.

    Raises:
      ValueError: a source or a number that does not fit, by name.
    """
    _check(model, source, max_length, start, end)
    batch = source.shape[0]
    step, state = (_cached_step if cache else _uncached_step)(model, params, source, 1, max_length, start)
    tokens = greedy_search(step, state, batch, max_length=max_length, start=start, end=end, pad=model.pad)
    return tokens.astype(source.dtype)


def greedy_search(
    step: Step, state: Any, batch: int, *, max_length: int, start: int, end: int, pad: int
) -> Int[Array, "B M+1"]:
    """The loop of `greedy_decode`, for any `step` with K = 1.

    Args:
      step: logits after the last symbols.
      state: what it needs first.
      batch: B.
      max_length: M.
      start: first symbol of each row.
      end: ends a row.
      pad: ends a row, and fills it after its end.
    """
    tokens = jnp.full((batch, max_length + 1), pad, jnp.int32).at[:, 0].set(start)

    def goes_on(carry):
        position, ended, _, _ = carry
        return (position < max_length) & ~jnp.all(ended)

    def body(carry):
        position, ended, tokens, state = carry
        last = jax.lax.dynamic_slice_in_dim(tokens, position, 1, axis=1)
        logits, state = step(last, state, position)
        chosen = jnp.where(ended, pad, jnp.argmax(logits[:, 0], axis=-1).astype(jnp.int32))
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, chosen[:, None], position + 1, axis=1)
        return position + 1, ended | _ends(chosen, end, pad), tokens, state

    carry = (jnp.int32(0), jnp.zeros(batch, bool), tokens, state)
    return jax.lax.while_loop(goes_on, body, carry)[2]


def _ends(chosen: Int[Array, "..."], end: int, pad: int) -> Bool[Array, "..."]:
    return (chosen == end) | (chosen == pad)


def _cached_step(model, params, source, hypotheses, max_length, start):
    """A step that computes one position, and the room for the others."""
    variables = {"params": params}
    memory = model.apply(variables, source, method="remember")

    def step(last, past, position):
        return model.apply(variables, last, past, position, memory, method="step")

    return step, model.empty_past(source.shape[0], hypotheses, max_length)


def _uncached_step(model, params, source, hypotheses, max_length, start):
    """A step that computes all positions again; its state is the symbols so far."""
    variables = {"params": params}
    encoded = jnp.repeat(model.apply(variables, source, method="encode"), hypotheses, axis=0)
    mask = jnp.repeat(source != model.pad, hypotheses, axis=0)

    def step(last, prefix, position):
        prefix = jax.lax.dynamic_update_slice_in_dim(prefix, last[..., None], position, axis=2)
        flat = prefix.reshape(-1, max_length)
        logits = model.apply(variables, flat, encoded, mask, method="decode")
        logits = jax.lax.dynamic_index_in_dim(logits, position, axis=1, keepdims=False)
        return logits.reshape(*last.shape, -1), prefix

    return step, jnp.full((source.shape[0], hypotheses, max_length), model.pad, jnp.int32)


def _check(model, source, max_length, start, end):
    if source.ndim != 2 or not jnp.issubdtype(source.dtype, jnp.integer):
        raise ValueError(f"source has shape {source.shape} and type {source.dtype}, expected integers [B, S]")
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}, expected at least 1")
    for name, symbol in (("start", start), ("end", end)):
        if not 0 <= symbol < model.vocab_size:
            raise ValueError(f"{name} is {symbol}, expected one of {model.vocab_size} symbols")
