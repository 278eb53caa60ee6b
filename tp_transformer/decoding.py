"""Greedy decoding and beam search, symbol by symbol, with a cache of keys and values.

The search loops are plain functions of `step`, which returns logits after the last symbol of each hypothesis;
they know no model. Each is one compiled loop that stops when all rows have ended. A row ends with its end
symbol or with a padding symbol, after which the answer could not be distinguished from padding.

Axis letters: B batch, S source positions, K hypotheses per source, V vocabulary, M maximum number of symbols
of an answer, A = 1 + M with the start symbol.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

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
      Answers in the source's dtype: the start symbol first, padding after the end.

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
    tokens = greedy_search(step, state, batch, max_length=max_length, start=start, end=end, pad=model.pad)
    return tokens.astype(source.dtype)


def greedy_search(
    step: Step, state: Any, batch: int, *, max_length: int, start: int, end: int, pad: int
) -> Int[Array, "B A"]:
    """Runs the loop of `greedy_decode` for any `step` with K = 1, from a state of B = `batch` rows."""
    tokens = jnp.full((batch, max_length + 1), pad, jnp.int32).at[:, 0].set(start)

    def body(carry):
        position, ended, tokens, state = carry
        last = jax.lax.dynamic_slice_in_dim(tokens, position, 1, axis=1)
        logits, state = step(last, state, position)
        chosen = jnp.where(ended, pad, jnp.argmax(logits[:, 0], axis=-1).astype(jnp.int32))
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, chosen[:, None], position + 1, axis=1)
        return position + 1, ended | _ends(chosen, end, pad), tokens, state

    carry = (jnp.int32(0), jnp.zeros(batch, bool), tokens, state)
    return jax.lax.while_loop(_unfinished(max_length), body, carry)[2]


def _unfinished(max_length: int) -> Callable[[tuple[Any, ...]], Bool[Array, ""]]:
    """Returns a loop condition on (position, ended, ...): there is room and some row has not ended."""
    return lambda carry: (carry[0] < max_length) & ~jnp.all(carry[1])


def _ends(chosen: Int[Array, "..."], end: int, pad: int) -> Bool[Array, "..."]:
    return (chosen == end) | (chosen == pad)


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
        logits = jax.lax.dynamic_index_in_dim(logits, position, axis=1, keepdims=False)
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


@struct.dataclass
class Beams:
    """Answers found by beam search, best first.

    Attributes:
      tokens: answers in the form of `greedy_decode`.
      log_probabilities: natural logarithm of the probability of the answer with its end; -inf where fewer
        than K answers exist.
      scores: ranking scores: log-probability divided by the length penalty.
    """

    tokens: Int[Array, "B K A"]
    log_probabilities: Float[Array, "B K"]
    scores: Float[Array, "B K"]


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
    `length_penalty`; larger values favour longer answers. Other arguments and errors are those of
    `greedy_decode`.
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
    found = search_beams(
        step,
        state,
        batch,
        beams,
        max_length=max_length,
        start=start,
        end=end,
        pad=model.pad,
        length_exponent=length_exponent,
    )
    return dataclasses.replace(found, tokens=found.tokens.astype(source.dtype))


def length_penalty(length: Int[Array, "*B"], exponent: float) -> Float[Array, "*B"]:
    """Computes ((5 + length) / 6)^a of Wu et al. (2016), equation (14); 1 for a = 0."""
    return ((5.0 + length) / 6.0) ** exponent


def search_beams(
    step: Step,
    state: Any,
    batch: int,
    beams: int,
    *,
    max_length: int,
    start: int,
    end: int,
    pad: int,
    length_exponent: float = 0.0,
) -> Beams:
    """Runs the loop of `beam_search` for any `step`; leaves of the state are reordered with their hypotheses.

    A finished hypothesis stays in the beam with its score until K others beat it. The loop stops when all
    hypotheses have ended.
    """
    tokens = jnp.full((batch, beams, max_length + 1), pad, jnp.int32).at[..., 0].set(start)
    # All hypotheses are equal at first. All but one get probability 0, because otherwise they would stay
    # equal.
    total = jnp.broadcast_to(jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)[None], (batch, beams))
    follow = jax.vmap(lambda x, parents: x[parents])

    def body(carry):
        position, ended, tokens, total, lengths, state = carry
        last = jax.lax.dynamic_index_in_dim(tokens, position, axis=2, keepdims=False)
        logits, state = step(last, state, position)
        vocab = logits.shape[-1]
        only_pad = jnp.where(jnp.arange(vocab) == pad, 0.0, -jnp.inf)[None, None]
        gain = jnp.where(ended[..., None], only_pad, jax.nn.log_softmax(logits))
        candidates = total[..., None] + gain
        lengths = jnp.where(ended, lengths, position + 1)
        ranks = candidates / length_penalty(lengths, length_exponent)[..., None]
        _, best = jax.lax.top_k(ranks.reshape(batch, beams * vocab), beams)
        parents, chosen = best // vocab, (best % vocab).astype(jnp.int32)
        tokens, ended, lengths, state = jax.tree.map(
            lambda x: follow(x, parents), (tokens, ended, lengths, state)
        )
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, chosen[..., None], position + 1, axis=2)
        total = jnp.take_along_axis(candidates.reshape(batch, beams * vocab), best, axis=1)
        return position + 1, ended | _ends(chosen, end, pad), tokens, total, lengths, state

    none = jnp.zeros((batch, beams), bool)
    carry = (jnp.int32(0), none, tokens, total, jnp.zeros((batch, beams), jnp.int32), state)
    _, _, tokens, total, lengths, _ = jax.lax.while_loop(_unfinished(max_length), body, carry)
    tokens = jnp.where(jnp.isneginf(total)[..., None], pad, tokens)
    return Beams(tokens, total, total / length_penalty(lengths, length_exponent))
