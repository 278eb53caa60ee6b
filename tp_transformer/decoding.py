"""Greedy decoding and beam search, symbol by symbol, with a cache of keys and values.

The loops are those of `kernels.decoding`. A row ends with its end symbol or with a padding symbol, after
which the answer could not be distinguished from padding.

Axis letters: B batch, S source positions, K hypotheses per source, V vocabulary, M maximum number of symbols
of an answer, A = 1 + M with the start symbol.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kernels import decoding
from kernels.decoding import Beams
from tp_transformer.model import EncoderDecoder, check_tokens

State = TypeVar("State")
Step = Callable[[Int[Array, "B K"], State, Int[Array, ""]], tuple[Float[Array, "B K V"], State]]
"""step(last symbols, state, position) -> (logits after them, state); leaves of state are [B, K, ...]."""


def greedy_decode(
    model: EncoderDecoder,
    params: Mapping[str, Any],
    source: Int[Array | np.ndarray, "B S"],
    *,
    max_length: int,
    start: int | None = None,
    end: int | None = None,
    cache: bool = True,
) -> Int[Array, "B A"]:
    """Decodes greedily: appends the most probable symbol until the end symbol.

    Args:
      model: either architecture.
      params: parameters of the model.
      source: questions, padded with `model.pad`.
      max_length: M.
      start: id of the start symbol; None for the model's.
      end: id of the end symbol; None for the model's.
      cache: whether to keep keys and values from symbol to symbol instead of computing them again. The result
        is the same.

    Returns:
      Answers in the source's dtype, or in int32 if that is too narrow for the vocabulary: the start symbol
      first, padding after the end.

    Raises:
      ValueError: `source` has the wrong shape or dtype, a number or (outside of `jax.jit`) an id is out of
        range, or neither the call nor the model has a start or an end.
    """
    symbols = _checked(model, source, max_length, start, end)
    return _greedy_decode(model, params, source, max_length=max_length, cache=cache, **symbols)


@functools.partial(jax.jit, static_argnames=("model", "max_length", "start", "end", "cache"))
def _greedy_decode(model, params, source, *, max_length, start, end, cache):
    batch = source.shape[0]
    step, state = (_cached_step if cache else _uncached_step)(model, params, source, 1, max_length, start)
    first = jnp.full((batch,), start, jnp.int32)

    def of_rows(last, state, position):
        logits, state = step(last[:, None], state, position)
        return logits[:, 0], state

    ends = _ends(end, model.pad)
    tokens, _ = decoding.search(of_rows, state, last=first, most=max_length, ends=ends)
    return decoding.as_words(jnp.concatenate((first[:, None], tokens), axis=1), source, model.vocab_size)


def _ends(end: int, pad: int) -> decoding.Ends:
    return decoding.Ends(pad, (end, pad))


def _cached_step(model, params, source, hypotheses, max_length, start):
    """Returns a step that computes a single position, and its initial state, an empty cache."""
    memory = model.apply({"params": params}, source, method="remember")

    def step(last, past, position):
        return model.apply({"params": params}, last, past, position, memory, method="step")

    return step, model.empty_past(source.shape[0], hypotheses, max_length)


def _uncached_step(model, params, source, hypotheses, max_length, start):
    """Returns a step that computes all positions again, and its initial state, the symbols so far."""
    variables = {"params": params}
    encoded = jnp.repeat(model.apply(variables, source, method="encode"), hypotheses, axis=0)
    mask = jnp.repeat(source != model.pad, hypotheses, axis=0)

    def step(last, prefix, position):
        prefix = jax.lax.dynamic_update_slice_in_dim(prefix, last[..., None], position, axis=2)
        flat = prefix.reshape(-1, max_length)
        logits = model.apply(variables, flat, encoded, mask, method="decode")
        logits = jax.lax.dynamic_index_in_dim(logits, position, axis=1)
        return logits.reshape(*last.shape, logits.shape[-1]), prefix

    return step, jnp.full((source.shape[0], hypotheses, max_length), model.pad, jnp.int32)


def _checked(model, source, max_length, start, end) -> dict[str, int]:
    """Checks the arguments of both searches and returns the ids of start and end."""
    check_tokens("source", source, model.vocab_size)
    if max_length < 1:
        raise ValueError(f"max_length: got {max_length}, expected at least 1")
    symbols = {
        "start": model.start if start is None else start,
        "end": model.end if end is None else end,
    }
    for name, symbol in symbols.items():
        if symbol is None:
            raise ValueError(f"{name}: got None, expected an id, since the model has none")
        if not 0 <= symbol < model.vocab_size:
            raise ValueError(f"{name}: got {symbol}, expected 0 to {model.vocab_size - 1}")
    return symbols


def beam_search(
    model: EncoderDecoder,
    params: Mapping[str, Any],
    source: Int[Array | np.ndarray, "B S"],
    *,
    max_length: int,
    start: int | None = None,
    end: int | None = None,
    beams: int = 4,
    length_exponent: float = 0.0,
    cache: bool = True,
) -> Beams:
    """Finds K = `beams` answers of high total probability to each question; one beam is greedy decoding.

    `beams` is the number of hypotheses kept at a time. `length_exponent` is the exponent a of
    `kernels.decoding.length_penalty`; larger values favour longer answers. In the result, A symbols are the
    start symbol and those that `lengths` counts. Other arguments and errors are those of `greedy_decode`.
    """
    symbols = _checked(model, source, max_length, start, end)
    if beams < 1:
        raise ValueError(f"beams: got {beams}, expected at least 1")
    if length_exponent < 0:
        raise ValueError(f"length_exponent: got {length_exponent}, expected at least 0")
    how = {"max_length": max_length, "beams": beams, "length_exponent": length_exponent, "cache": cache}
    return _beam_search(model, params, source, **symbols, **how)


@functools.partial(
    jax.jit, static_argnames=("model", "max_length", "start", "end", "beams", "length_exponent", "cache")
)
def _beam_search(model, params, source, *, max_length, start, end, beams, length_exponent, cache):
    batch = source.shape[0]
    step, state = (_cached_step if cache else _uncached_step)(model, params, source, beams, max_length, start)
    first = jnp.full((batch, beams), start, jnp.int32)
    how: Any = {"most": max_length, "ends": _ends(end, model.pad), "length_exponent": length_exponent}
    found = decoding.search_beams(step, state, last=first, **how)
    first = jnp.where(jnp.isneginf(found.log_probabilities), model.pad, first)
    tokens = jnp.concatenate((first[..., None], found.tokens), axis=2)
    return found._replace(tokens=decoding.as_words(tokens, source, model.vocab_size))
