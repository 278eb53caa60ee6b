"""Text generation: the most probable next word, a sampled one, or the best texts of a beam, with a cache.

    out = generate(model, params, prompts, max_new_tokens=40, eos_token_id=3, pad_token_id=0)
    out = generate_from(model, params, inputs, decoder_start_token_id=0, max_new_tokens=40, ...)
    out.sequences, out.lengths

Each call is one compiled program: it reads the prompt in one pass, then runs a loop of `kernels.decoding`
until all rows have ended. `decoder` describes the cache. `cache=False` reads the whole text again for each
word and gives the same words (up to rounding, when two words are equally probable).

Axis letters: B batch; T tokens of a prompt; I tokens of an input; M maximum number of new tokens; V words; N
length of a generated sequence, T + M or 1 + M; K beams; R rows, B times the number of texts for each.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import masks
from folnet.model import check_text, optional
from kernels import decoding
from kernels.decoding import Allowed, Ends, Sampling


@struct.dataclass
class Generated:
    """Generated texts.

    Attributes:
      sequences: the prompt or start token, the generated tokens, then padding. Prompts that are padded on the
        left stay so. In the prompt's dtype, or in int32 if it is too narrow for the vocabulary.
      lengths: number of tokens without padding, including an end token.
      scores: of a beam search: log-probability of the new tokens, divided by the length penalty.
    """

    sequences: Int[Array, "R N"]
    lengths: Int[Array, "R"]
    scores: Float[Array, "R"] | None = None


@dataclasses.dataclass(frozen=True)
class How:
    """How texts are continued.

    Attributes:
      most: M.
      ends: when a text ends.
      sampling: how to sample words; None for the most probable word.
      allowed: which words may follow; None for all.
      beams: K, the hypotheses that a beam search keeps; 1 for none.
      texts: number of texts to return of a beam.
      length_exponent: of `decoding.length_penalty`.
      cache: whether to keep what was read from earlier tokens.
    """

    most: int
    ends: Ends
    sampling: Sampling | None = None
    allowed: Allowed | None = None
    beams: int = 1
    texts: int = 1
    length_exponent: float = 0.0
    cache: bool = True


def generate(
    model: Any,
    params: Mapping[str, Any],
    input_ids: Int[Array, "B T"],
    *,
    max_new_tokens: int,
    pad_token_id: int,
    eos_token_id: int | Sequence[int] | None = None,
    token_type_ids: Int[Array, "B T"] | None = None,
    attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
    prefix_lengths: Int[Array, "B"] | None = None,
    key: jax.Array | None = None,
    **options: Any,
) -> Generated:
    """Continues texts with a decoder-only model.

    Args:
      model: a `FOLNetForCausalLM`.
      params: its parameters.
      input_ids: tokens of the texts; shorter ones are padded at the end or at the start.
      max_new_tokens: M.
      pad_token_id: token that follows the end of a text.
      eos_token_id: token that ends a text, or several; None to always generate M tokens.
      token_type_ids: segments; new tokens take the segment of their text's last token.
      attention_mask: True at real tokens.
      prefix_lengths: number of leading tokens that attend to one another; None for none. New tokens never
        attend to later ones.
      key: random key, required with `sampling`.
      **options: further options.
        - `sampling`, a `Sampling`: samples words instead of taking the most probable ones.
        - `num_beams`: K hypotheses of a beam search instead. `num_return_sequences`, 1 by default: returns so
          many of them, the best first, in rows next to each other. `length_exponent`, 0 by default, is that
          of `decoding.length_penalty`; larger values favor longer texts.
        - `stop_sequences`: lists of tokens that end a text when they occur in a row.
        - `allowed(tokens [R, M], count)`: True at the words [R, V] that may follow the `count` new tokens.
        - `cache`: False to read the whole text again for each word.

    Raises:
      ValueError: If an argument does not fit.
      TypeError: If there is no such option.
    """
    batch, length = check_text(
        model.config, "input_ids", input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask
    )
    lengths, before = _lengths(attention_mask, batch, length)
    real = None if attention_mask is None else jnp.arange(length)[None] < lengths[:, None]
    masks.check_prefix_lengths(prefix_lengths, batch, length, real)
    how = _how(model.config, length, max_new_tokens, pad_token_id, eos_token_id, key, **options)
    texts = (jnp.asarray(input_ids), optional(token_type_ids), lengths, optional(prefix_lengths))
    if before is None:
        return _generate(model, params, *texts, key, how=how)
    first, types = (None if text is None else _rolled(text, -before) for text in texts[:2])
    out = _generate(model, params, first, types, *texts[2:], key, how=how)
    shift = jnp.repeat(before, how.texts)
    return dataclasses.replace(out, sequences=_padded_before(out.sequences, shift, pad_token_id))


def generate_from(
    model: Any,
    params: Mapping[str, Any],
    input_ids: Int[Array, "B I"],
    *,
    max_new_tokens: int,
    decoder_start_token_id: int,
    pad_token_id: int,
    eos_token_id: int | Sequence[int] | None = None,
    token_type_ids: Int[Array, "B I"] | None = None,
    attention_mask: Bool[Array, "B I"] | Int[Array, "B I"] | None = None,
    key: jax.Array | None = None,
    **options: Any,
) -> Generated:
    """Generates a target for each input with an encoder-decoder (`FOLNetForConditionalGeneration`).

    Arguments are those of `generate`; tokens, segments and mask are those of the inputs. Targets start with
    `decoder_start_token_id`, which does not count towards M.

    Raises:
      ValueError: If an argument does not fit.
      TypeError: If there is no such option.
    """
    check_text(
        model.config, "input_ids", input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask
    )
    _check_words(model.config, decoder_start_token_id=decoder_start_token_id)
    how = _how(model.config, 1, max_new_tokens, pad_token_id, eos_token_id, key, **options)
    texts = (jnp.asarray(input_ids), optional(token_type_ids), optional(attention_mask, bool))
    return _generate_from(model, params, *texts, key, start=decoder_start_token_id, how=how)


def _found(
    step: decoding.Step,
    state: Any,
    key: jax.Array | None,
    how: How,
    last: Int[Array, "B"] | None = None,
    logits: Float[Array, "B V"] | None = None,
) -> tuple[Int[Array, "R M"], Int[Array, "R"], Float[Array, "R"] | None]:
    """Runs the loop; returns new tokens, their number, and of a beam search the scores.

    `step` and `state` are of rows: of B without beams and of B * K with beams, whose hypotheses are adjacent.
    """
    options: dict[str, Any] = {"most": how.most, "ends": how.ends, "allowed": how.allowed}
    first = {"last": last, "logits": logits}
    if how.beams == 1:
        tokens, made = decoding.search(step, state, **first, key=key, sampling=how.sampling, **options)
        return tokens, made, None
    options["length_exponent"] = how.length_exponent

    def split(x):
        return x.reshape(-1, how.beams, *x.shape[1:]) if jnp.ndim(x) else x

    def merge(x):
        return x.reshape(-1, *x.shape[2:]) if jnp.ndim(x) else x

    def of_beams(last, state, count):
        logits, state = step(merge(last), jax.tree.map(merge, state), count)
        return split(logits), jax.tree.map(split, state)

    first = jax.tree.map(split, repeated(first, how.beams))
    found = decoding.search_beams(of_beams, jax.tree.map(split, state), **first, **options)
    best = jax.tree.map(lambda x: merge(x[:, : how.texts]), found)
    return best.tokens, best.lengths, best.scores


def repeated(tree: Any, times: int) -> Any:
    """Repeats each row, with the copies next to each other; scalars and None stay."""
    return jax.tree.map(lambda x: jnp.repeat(x, times, axis=0) if jnp.ndim(x) and times > 1 else x, tree)


@functools.partial(jax.jit, static_argnames=("model", "how"))
def _generate(model, params, input_ids, types, lengths, prefix_lengths, key, *, how):
    variables, length = {"params": params}, input_ids.shape[1]
    if how.cache:
        mask, capacity = jnp.arange(length)[None] < lengths[:, None], length + how.most - 1
        rest = {"prefix_lengths": prefix_lengths, "capacity": capacity, "method": "prefill"}
        logits, state = model.apply(variables, input_ids, types, mask, **rest)
        state = repeated(state, how.beams)

        def step(last, state, count):
            return model.apply(variables, last, state, method="step")
    else:
        texts = repeated((input_ids, types, lengths, prefix_lengths), how.beams)
        step, logits, state = _reading_all(model, variables, *texts, max_new_tokens=how.most)
        logits = logits[:: how.beams]
    tokens, made, scores = _found(step, state, key, how, logits=logits)
    input_ids, lengths = repeated((input_ids, lengths), how.texts)
    # New tokens follow their text directly; padding between them is removed.
    places = jnp.arange(length + how.most)[None]
    new = jnp.take_along_axis(tokens, places - lengths[:, None], axis=1)
    old = jnp.pad(input_ids, ((0, 0), (0, how.most)))
    ends = lengths + made
    sequences = jnp.where(places < lengths[:, None], old, new)
    sequences = jnp.where(places < ends[:, None], sequences, how.ends.pad)
    return Generated(decoding.as_words(sequences, input_ids, model.config.vocab_size), ends, scores)


def _reading_all(model, variables, input_ids, token_type_ids, lengths, prefix_lengths, max_new_tokens):
    """Returns a step that reads the whole text again, the first logits, and its state (the text so far)."""
    batch, length = input_ids.shape
    types = jnp.zeros_like(input_ids) if token_type_ids is None else token_type_ids
    last_type = jnp.take_along_axis(types, lengths[:, None] - 1, axis=1)
    after = ((0, 0), (0, max_new_tokens - 1))
    places = jnp.arange(length + max_new_tokens - 1)[None]
    types = jnp.where(places < lengths[:, None], jnp.pad(types, after), last_type)

    def logits_of(text, ends):
        out = model.apply(variables, text, types, places < ends[:, None], prefix_lengths=prefix_lengths)
        return jnp.take_along_axis(out.logits, (ends - 1)[:, None, None], axis=1)[:, 0]

    def read(last, text, count):
        ends = lengths + count
        text = text.at[jnp.arange(batch), ends - 1].set(last)
        return logits_of(text, ends), text

    text = jnp.pad(input_ids, after).astype(jnp.int32)
    return read, logits_of(text, lengths), text


@functools.partial(jax.jit, static_argnames=("model", "start", "how"))
def _generate_from(model, params, input_ids, token_type_ids, real, key, *, start, how):
    variables, inputs = {"params": params}, (input_ids, token_type_ids, real)
    first = jnp.full(input_ids.shape[0], start, jnp.int32)
    if how.cache:
        state = model.apply(variables, *inputs, capacity=how.most, method="prefill")

        def step(last, state, count):
            return model.apply(variables, last, state, method="step")
    else:
        encoded = repeated(model.apply(variables, *inputs, method="encode"), how.beams)
        state = jnp.full((input_ids.shape[0], how.most), how.ends.pad, jnp.int32)

        def step(last, text, count):
            text = jax.lax.dynamic_update_slice_in_dim(text, last[:, None], count, axis=1)
            logits = model.apply(variables, encoded, text, method="decode").logits
            return jax.lax.dynamic_index_in_dim(logits, count, axis=1, keepdims=False), text

    tokens, made, scores = _found(step, repeated(state, how.beams), key, how, last=first)
    sequences = jnp.concatenate((repeated(first, how.texts)[:, None], tokens), axis=1)
    return Generated(decoding.as_words(sequences, input_ids, model.config.vocab_size), 1 + made, scores)


def _lengths(attention_mask: Any, batch: int, length: int) -> tuple[Int[Array, "B"], Int[Array, "B"] | None]:
    """Returns the number of tokens per row, and of the padding before them, None if all of it is after them.

    Raises:
      ValueError: Unless real tokens are next to each other in each row (not checked while tracing).
    """
    if attention_mask is None:
        return jnp.full(batch, length, jnp.int32), None
    real = jnp.asarray(attention_mask, bool)
    lengths, before = real.sum(axis=1), jnp.argmax(real, axis=1)
    if isinstance(attention_mask, jax.core.Tracer):
        return lengths, before
    host = np.asarray(attention_mask, bool)  # also where `real` is traced with the rest
    wrong = ((host[:, 1:] & ~host[:, :-1]).sum(axis=1) + host[:, 0] != 1).nonzero()[0]
    if len(wrong):
        raise ValueError(
            f"attention_mask: got {host[wrong[0]].astype(int).tolist()} at [{wrong[0]}], expected ones next "
            "to each other, with zeros after or before them (texts to continue are padded at one end)"
        )
    return lengths, before if not host[:, 0].all() else None


def _rolled(text: Int[Array, "B N"], shift: Int[Array, "B"]) -> Int[Array, "B N"]:
    """Moves each row to the right by its shift; what leaves at one end comes back at the other."""
    places = (jnp.arange(text.shape[1])[None] - shift[:, None]) % text.shape[1]
    return jnp.take_along_axis(text, places, axis=1)


def _padded_before(text: Int[Array, "R N"], shift: Int[Array, "R"], pad: int) -> Int[Array, "R N"]:
    """Moves each row to the right, after padding; there is as much padding at its end."""
    return jnp.where(jnp.arange(text.shape[1])[None] < shift[:, None], pad, _rolled(text, shift))


def _how(
    config: Any,
    length: int,
    max_new_tokens: int,
    pad: int,
    eos: int | Sequence[int] | None,
    key: jax.Array | None,
    *,
    sampling: Sampling | None = None,
    num_beams: int = 1,
    num_return_sequences: int = 1,
    length_exponent: float = 0.0,
    stop_sequences: Sequence[Sequence[int]] = (),
    allowed: Allowed | None = None,
    cache: bool = True,
) -> How:
    """Returns the options in the form that the compiled programs take; raises ValueError if one is unfit."""
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens: got {max_new_tokens!r}, expected an integer of at least 1")
    # The model does not read the last new token.
    if config.absolute_position and length + max_new_tokens - 1 > config.max_position_embeddings:
        most = config.max_position_embeddings - length + 1
        raise ValueError(
            f"max_new_tokens: got {max_new_tokens}, expected at most {most} after {length} tokens "
            f"(max_position_embeddings = {config.max_position_embeddings} absolute positions)"
        )
    symbols = () if eos is None else tuple(map(int, np.atleast_1d(eos)))
    sequences = tuple(map(tuple, stop_sequences))
    _check_words(config, pad_token_id=pad, eos_token_id=symbols, stop_sequences=sum(sequences, ()))
    if num_beams < 1:
        raise ValueError(f"num_beams: got {num_beams}, expected at least 1")
    if not 1 <= num_return_sequences <= num_beams:
        raise ValueError(
            f"num_return_sequences: got {num_return_sequences}, expected 1 to num_beams = {num_beams}"
        )
    if length_exponent < 0:
        raise ValueError(f"length_exponent: got {length_exponent}, expected at least 0")
    if num_beams > 1 and sampling is not None:
        raise ValueError(f"sampling: got {sampling}, expected None with num_beams = {num_beams}")
    decoding.check_key(sampling, key)
    ends = Ends(pad, symbols, sequences)
    return How(
        max_new_tokens, ends, sampling, allowed, num_beams, num_return_sequences, length_exponent, cache
    )


def _check_words(config: Any, **words: int | tuple[int, ...]) -> None:
    """Raises ValueError for a token that is no word."""
    for name, several in words.items():
        for word in several if isinstance(several, tuple) else (several,):
            if not 0 <= word < config.vocab_size:
                raise ValueError(f"{name}: got {word}, expected 0 to {config.vocab_size - 1}")
