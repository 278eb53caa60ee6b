"""Answers, symbol by symbol: greedily or by beam search, with what attention has seen kept in a cache.

A search is a plain function of `step`, which gives logits after the last symbol of each hypothesis; it knows
no model. Either is one compiled loop that stops when all rows have ended. A row ends with its end symbol, or
with a padding symbol: of what follows one, nothing would be distinguishable from padding.

Axis letters: B batch, S source positions, K hypotheses about one source, V vocabulary, M the most symbols of
an answer.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import struct
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
    """The loop of `greedy_decode` for any `step` with K = 1, from a first state, of B rows."""
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
    """Of what a loop carries (position, ended, ...): whether there is room, and a row that has not ended."""
    return lambda carry: (carry[0] < max_length) & ~jnp.all(carry[1])


def _ends(chosen: Int[Array, "..."], end: int, pad: int) -> Bool[Array, "..."]:
    return (chosen == end) | (chosen == pad)


def _cached_step(model, params, source, hypotheses, max_length, start):
    """A step that computes one position, and the room for the others."""
    memory = model.apply({"params": params}, source, method="remember")

    def step(last, past, position):
        return model.apply({"params": params}, last, past, position, memory, method="step")

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


@struct.dataclass
class Beams:
    """Answers found, the best first.

    Attributes:
      tokens: as `greedy_decode` gives them.
      log_probabilities: of the answer with its end, natural logarithm; -inf where there is no further answer.
      scores: what they are ranked by: log-probability over the penalty of the length.
    """

    tokens: Int[Array, "B K M+1"]
    log_probabilities: Float[Array, "B K"]
    scores: Float[Array, "B K"]


@functools.partial(
    jax.jit, static_argnames=("model", "max_length", "start", "end", "beams", "length_exponent", "cache")
)
def beam_search(
    model: EncoderDecoder,
    params: Mapping[str, Any],
    source: Int[Array, "B S"],
    *,
    max_length: int,
    start: int,
    end: int,
    beams: int = 4,
    length_exponent: float = 0.0,
    cache: bool = True,
) -> Beams:
    """Several answers to each question, of high probability as a whole; with one beam, the greedy one.

    Other arguments and errors are those of `greedy_decode`. `beams` is K, the hypotheses kept at a time;
    `length_exponent` is a of `length_penalty`: more favours longer answers.
    """
    _check(model, source, max_length, start, end)
    if beams < 1:
        raise ValueError(f"beams is {beams}, expected at least 1")
    if length_exponent < 0:
        raise ValueError(f"length_exponent is {length_exponent}, expected 0 or more")
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
    """((5 + length) / 6)^a of Wu et al. (2016), their equation (14); 1 for a = 0."""
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
    """The loop of `beam_search` for any `step`, from a first state whose leaves follow their hypotheses.

    A hypothesis that has ended stays in the beam with the score that it has, for as long as K others do not
    beat it. The loop stops when all have ended.
    """
    tokens = jnp.full((batch, beams, max_length + 1), pad, jnp.int32).at[..., 0].set(start)
    # All hypotheses are the same at first; but for one they have no probability, or all would stay the same.
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
        _, best = jax.lax.top_k(ranks.reshape(batch, -1), beams)
        parents, chosen = best // vocab, (best % vocab).astype(jnp.int32)
        tokens, ended, lengths, state = jax.tree.map(
            lambda x: follow(x, parents), (tokens, ended, lengths, state)
        )
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, chosen[..., None], position + 1, axis=2)
        total = jnp.take_along_axis(candidates.reshape(batch, -1), best, axis=1)
        return position + 1, ended | _ends(chosen, end, pad), tokens, total, lengths, state

    none = jnp.zeros((batch, beams), bool)
    carry = (jnp.int32(0), none, tokens, total, jnp.zeros((batch, beams), jnp.int32), state)
    _, _, tokens, total, lengths, _ = jax.lax.while_loop(_unfinished(max_length), body, carry)
    tokens = jnp.where(jnp.isneginf(total)[..., None], pad, tokens)
    return Beams(tokens, total, total / length_penalty(lengths, length_exponent))
