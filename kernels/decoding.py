"""Loops that write sequences, symbol by symbol: the most probable symbol, a sampled one, or a beam search.

They are plain functions of a step and know no model; the papers' packages bring the steps. Each is one
compiled loop that stops when all rows have ended.

Axis letters: B batch; R rows; K hypotheses per row; M maximum number of symbols; V vocabulary.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernels.arrays import accumulator

Step = Callable[[Int[Array, "*R"], Any, Int[Array, ""]], tuple[Float[Array, "*R V"], Any]]
"""step(last symbols, state, number of symbols so far) -> (logits after them, state)."""
Allowed = Callable[[Int[Array, "R M"], Int[Array, ""]], Bool[Array, "R V"]]
"""allowed(symbols so far, their number) -> the symbols that may follow, at least one for each row."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How to sample a symbol.

    Attributes:
      temperature: divides the logits; lower values favor the most probable symbols.
      top_k: number of most probable symbols to sample from; None for all.
      top_p: samples from the most probable symbols that together have this probability, at least one.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        """Raises ValueError for a number out of range."""
        if not self.temperature > 0:
            raise ValueError(f"temperature: got {self.temperature}, expected more than 0")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k: got {self.top_k}, expected None or at least 1")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: got {self.top_p}, expected more than 0 and at most 1")

    def __call__(self, logits: Float[Array, "R V"], key: jax.Array) -> Int[Array, "R"]:
        """Samples one symbol per row."""
        count = logits.shape[-1] if self.top_k is None else min(self.top_k, logits.shape[-1])
        logits = logits.astype(accumulator(logits))
        logits, symbols = jax.lax.top_k(logits / self.temperature, count)
        probabilities = jax.nn.softmax(logits)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        rank = jax.random.categorical(key, jnp.where(before < self.top_p, logits, -jnp.inf))
        return jnp.take_along_axis(symbols, rank[:, None], axis=-1).squeeze(-1)


@dataclasses.dataclass(frozen=True)
class Ends:
    """When a row ends, and what fills it up from there.

    Attributes:
      pad: the symbol after an end.
      symbols: symbols that end a row; () for none.
      sequences: several symbols in a row that end it.
    """

    pad: int
    symbols: tuple[int, ...] = ()
    sequences: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for a sequence without symbols."""
        if () in self.sequences:
            raise ValueError("sequences: got one without symbols, expected at least one symbol in each")

    def __call__(self, found: Int[Array, "*R M"], count: Int[Array, ""]) -> Bool[Array, "*R"]:
        """Returns which rows end with the last of `count` symbols."""
        last = jax.lax.dynamic_index_in_dim(found, count - 1, axis=-1, keepdims=False)
        ended = jnp.zeros(last.shape, bool)
        for symbol in self.symbols:
            ended |= last == symbol
        for sequence in self.sequences:
            size = len(sequence)
            if size <= found.shape[-1]:
                window = jax.lax.dynamic_slice_in_dim(found, count - size, size, axis=-1)
                wanted = jnp.asarray(sequence).reshape((1,) * (found.ndim - 1) + (size,))
                ended |= jnp.all(window == wanted, axis=-1) & (count >= size)
        return ended


def search(
    step: Step,
    state: Any,
    *,
    last: Int[Array, "R"] | None = None,
    logits: Float[Array, "R V"] | None = None,
    key: jax.Array | None = None,
    most: int,
    ends: Ends,
    sampling: Sampling | None = None,
    allowed: Allowed | None = None,
) -> tuple[Int[Array, "R M"], Int[Array, "R"]]:
    """Appends the most probable symbol, or a sampled one, until every row has ended.

    Args:
      step: returns logits [R, V].
      state: passed to the first step.
      last: symbols before the first ones, for the step to read; or
      logits: those of the first symbols.
      key: random key, required with `sampling`.
      most: M.
      ends: when a row ends.
      sampling: how to sample; None for the most probable symbol.
      allowed: which symbols may follow; None for all.

    Returns:
      Symbols with padding after their end, and their number with the end.

    Raises:
      ValueError: If `sampling` is given without a key, or not one of `last` and `logits`, or `most` is less
        than 1.
    """
    check_key(sampling, key)
    _check_most(most)

    def write(rows, logits, count):
        ended, tokens, made = rows
        if allowed is not None:
            logits = jnp.where(allowed(tokens, count), logits, -jnp.inf)
        if sampling is None or key is None:
            chosen = jnp.argmax(logits, axis=-1)
        else:
            chosen = sampling(logits, jax.random.fold_in(key, count))
        chosen = jnp.where(ended, ends.pad, chosen.astype(jnp.int32))
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, chosen[:, None], count, axis=1)
        return chosen, (ended | ends(tokens, count + 1), tokens, made + ~ended)

    def body(carry):
        count, rows, last, state = carry
        logits, state = step(last, state, count)
        last, rows = write(rows, logits, count)
        return count + 1, rows, last, state

    first = _one_of(last, logits)
    shape = first.shape[:1]
    rows = (
        jnp.zeros(shape, bool),
        jnp.full((*shape, most), ends.pad, jnp.int32),
        jnp.zeros(shape, jnp.int32),
    )
    if logits is not None:
        last, rows = write(rows, logits, jnp.int32(0))
    carry = (jnp.int32(logits is not None), rows, last, state)
    _, (_, tokens, made), *_ = jax.lax.while_loop(_unfinished(most), body, carry)
    return tokens, made


class Beams(NamedTuple):
    """Sequences found by beam search, best first.

    Attributes:
      tokens: symbols with padding after their end.
      lengths: number of symbols, with the end.
      log_probabilities: natural logarithm of the probability of the sequence with its end; -inf where fewer
        than K sequences exist.
      scores: ranking scores: log-probability divided by the length penalty.
    """

    tokens: Int[Array, "B K M"]
    lengths: Int[Array, "B K"]
    log_probabilities: Float[Array, "B K"]
    scores: Float[Array, "B K"]


def length_penalty(length: Int[Array, "*B"], exponent: float) -> Float[Array, "*B"]:
    """Computes ((5 + length) / 6)^a of Wu et al. (2016), equation (14); 1 for a = 0."""
    return ((5.0 + length) / 6.0) ** exponent


def search_beams(
    step: Step,
    state: Any,
    *,
    last: Int[Array, "B K"] | None = None,
    logits: Float[Array, "B K V"] | None = None,
    most: int,
    ends: Ends,
    length_exponent: float = 0.0,
    allowed: Allowed | None = None,
) -> Beams:
    """Finds K sequences of high total probability for each row; one hypothesis is `search`.

    A finished hypothesis stays in the beam with its score until K others beat it. The loop stops when all
    hypotheses have ended.

    Args:
      step: returns logits [B, K, V].
      state: passed to the first step. Leaves are [B, K, ...], reordered with their hypotheses, or scalars.
      last: symbols before the first ones, for the step to read, the same for all hypotheses of a row; or
      logits: those of the first symbols, likewise.
      most: M.
      ends: when a hypothesis ends.
      length_exponent: the exponent of `length_penalty`; larger values favor longer sequences.
      allowed: which symbols may follow, for rows of B * K hypotheses; None for all.

    Raises:
      ValueError: If not one of `last` and `logits` is given, or `most` is less than 1.
    """
    _check_most(most)
    first = _one_of(last, logits)
    batch, beams = first.shape[:2]
    follow = jax.vmap(lambda x, parents: x[parents])

    def extend(hypotheses, state, logits, count):
        ended, tokens, total, lengths = hypotheses
        logits = logits.astype(accumulator(logits))
        vocab = logits.shape[-1]
        if allowed is not None:
            may = allowed(tokens.reshape(batch * beams, most), count).reshape(logits.shape)
            logits = jnp.where(may, logits, -jnp.inf)
        # What has ended continues in one way, whose place is that of the padding if this is a word.
        place = ends.pad if 0 <= ends.pad < vocab else 0
        only_pad = jnp.where(jnp.arange(vocab) == place, 0.0, -jnp.inf)[None, None]
        gain = jnp.where(ended[..., None], only_pad, jax.nn.log_softmax(logits))
        candidates = total[..., None] + gain
        lengths = jnp.where(ended, lengths, count + 1)
        ranks = candidates / length_penalty(lengths, length_exponent)[..., None]
        _, best = jax.lax.top_k(ranks.reshape(batch, beams * vocab), beams)
        parents, chosen = best // vocab, (best % vocab).astype(jnp.int32)
        tokens, ended, lengths, state = jax.tree.map(
            lambda x: follow(x, parents) if jnp.ndim(x) else x, (tokens, ended, lengths, state)
        )
        chosen = jnp.where(ended, ends.pad, chosen)
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, chosen[..., None], count, axis=2)
        total = jnp.take_along_axis(candidates.reshape(batch, beams * vocab), best, axis=1)
        return chosen, (ended | ends(tokens, count + 1), tokens, total, lengths), state

    def body(carry):
        count, hypotheses, last, state = carry
        logits, state = step(last, state, count)
        last, hypotheses, state = extend(hypotheses, state, logits, count)
        return count + 1, hypotheses, last, state

    # All hypotheses are equal at first. All but one get probability 0, because otherwise they would stay
    # equal.
    shape = (batch, beams)
    total = jnp.broadcast_to(jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)[None], shape)
    tokens = jnp.full((*shape, most), ends.pad, jnp.int32)
    hypotheses = (jnp.zeros(shape, bool), tokens, total, jnp.zeros(shape, jnp.int32))
    if logits is not None:
        last, hypotheses, state = extend(hypotheses, state, logits, jnp.int32(0))
    carry = (jnp.int32(logits is not None), hypotheses, last, state)
    _, (_, tokens, total, lengths), *_ = jax.lax.while_loop(_unfinished(most), body, carry)
    exists = ~jnp.isneginf(total)
    scores = total / length_penalty(lengths, length_exponent)
    return Beams(jnp.where(exists[..., None], tokens, ends.pad), jnp.where(exists, lengths, 0), total, scores)


def check_key(sampling: Sampling | None, key: jax.Array | None) -> None:
    """Raises ValueError if there is no key to sample with."""
    if sampling is not None and key is None:
        raise ValueError("key: got None, expected a key (sampling is given)")


def as_words(tokens: Int[Array, "*R M"], prompt: Int[Array, "..."], vocab_size: int) -> Int[Array, "*R M"]:
    """Returns tokens in the prompt's dtype, or in int32 if the vocabulary does not fit into it."""
    fits = jnp.iinfo(prompt.dtype).max >= vocab_size - 1
    return tokens.astype(prompt.dtype if fits else jnp.int32)


def _one_of(last: Array | None, logits: Array | None) -> Array:
    """Returns the one that is given; raises ValueError if both or none are."""
    if last is not None and logits is None:
        return last
    if logits is None or last is not None:
        raise ValueError(f"last, logits: got {'both' if last is not None else 'none'}, expected one of them")
    return logits


def _check_most(most: int) -> None:
    """Raises ValueError if no symbol is to be found."""
    if most < 1:
        raise ValueError(f"most: got {most}, expected at least 1")


def _unfinished(most: int) -> Callable[[tuple[Any, ...]], Bool[Array, ""]]:
    """Returns a loop condition on (number, (ended, ...), ...): there is room and some row has not ended."""
    return lambda carry: (carry[0] < most) & ~jnp.all(carry[1][0])
