"""Text generation, one word at a time: the most probable next word or a sampled one, with a cache.

    out = generate(model, params, prompts, max_new_tokens=40, eos_token_id=3, pad_token_id=0)
    out = generate_from(model, params, inputs, decoder_start_token_id=0, max_new_tokens=40, ...)
    out.sequences, out.lengths

Each call is one compiled program: it reads the prompt in one pass, then loops until all rows have ended.
`decoder` describes the cache. `cache=False` reads the whole text again for each word and gives the same words
(up to rounding, when two words are equally probable).

Axis letters: B batch; T tokens of a prompt; I tokens of an input; M maximum number of new tokens; V words; N
length of a generated sequence, T + M or 1 + M.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet import masks
from folnet.model import check_text, optional

Step = Callable[[Int[Array, "B"], Any, Int[Array, ""]], tuple[Float[Array, "B V"], Any]]
"""step(last tokens, state, number of new tokens so far) -> (logits after them, state)."""


@struct.dataclass
class Generated:
    """Generated texts.

    Attributes:
      sequences: the prompt or start token, the generated tokens, then padding.
      lengths: number of tokens before the padding, including an end token.
    """

    sequences: Int[Array, "B N"]
    lengths: Int[Array, "B"]


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How to sample a word.

    Attributes:
      temperature: divides the logits; lower values favor the most probable words.
      top_k: number of most probable words to sample from; None for all.
      top_p: samples from the most probable words that together have this probability, at least one.
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

    def __call__(self, logits: Float[Array, "B V"], key: jax.Array) -> Int[Array, "B"]:
        """Samples one word per row."""
        count = logits.shape[-1] if self.top_k is None else min(self.top_k, logits.shape[-1])
        logits, words = jax.lax.top_k(logits / self.temperature, count)
        probabilities = jax.nn.softmax(logits)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        rank = jax.random.categorical(key, jnp.where(before < self.top_p, logits, -jnp.inf))
        return jnp.take_along_axis(words, rank[:, None], axis=-1)[:, 0]


def generate(
    model: Any,
    params: Mapping[str, Any],
    input_ids: Int[Array, "B T"],
    *,
    max_new_tokens: int,
    pad_token_id: int,
    eos_token_id: int | None = None,
    token_type_ids: Int[Array, "B T"] | None = None,
    attention_mask: Bool[Array, "B T"] | Int[Array, "B T"] | None = None,
    prefix_lengths: Int[Array, "B"] | None = None,
    sampling: Sampling | None = None,
    key: jax.Array | None = None,
    cache: bool = True,
) -> Generated:
    """Continues texts with a decoder-only model.

    Args:
      model: a `FOLNetForCausalLM`.
      params: its parameters.
      input_ids: tokens of the texts; shorter ones are padded at the end.
      max_new_tokens: M.
      pad_token_id: token that follows the end of a text.
      eos_token_id: token that ends a text; None to always generate M tokens.
      token_type_ids: segments; new tokens take the segment of their text's last token.
      attention_mask: True at real tokens.
      prefix_lengths: number of leading tokens that attend to one another; None for none. New tokens never
        attend to later ones.
      sampling: how to sample words; None for the most probable word.
      key: random key, required with `sampling`.
      cache: whether to keep what was read from earlier tokens.

    Raises:
      ValueError: If an argument does not fit.
    """
    batch, length = check_text(
        model.config, "input_ids", input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask
    )
    lengths = _lengths(attention_mask, batch, length)
    masks.check_prefix_lengths(prefix_lengths, batch, length, attention_mask)
    _check_options(model.config, length, max_new_tokens, pad_token_id=pad_token_id, eos_token_id=eos_token_id)
    _check_key(sampling, key)
    texts = (jnp.asarray(input_ids), optional(token_type_ids), lengths, optional(prefix_lengths))
    options = {"max_new_tokens": max_new_tokens, "pad": pad_token_id, "eos": eos_token_id}
    return _generate(model, params, *texts, key, sampling=sampling, cache=cache, **options)


def generate_from(
    model: Any,
    params: Mapping[str, Any],
    input_ids: Int[Array, "B I"],
    *,
    max_new_tokens: int,
    decoder_start_token_id: int,
    pad_token_id: int,
    eos_token_id: int | None = None,
    token_type_ids: Int[Array, "B I"] | None = None,
    attention_mask: Bool[Array, "B I"] | Int[Array, "B I"] | None = None,
    sampling: Sampling | None = None,
    key: jax.Array | None = None,
    cache: bool = True,
) -> Generated:
    """Generates a target for each input with an encoder-decoder (`FOLNetForConditionalGeneration`).

    Arguments are those of `generate`; tokens, segments and mask are those of the inputs. Targets start with
    `decoder_start_token_id`, which does not count towards M.

    Raises:
      ValueError: If an argument does not fit.
    """
    check_text(
        model.config, "input_ids", input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask
    )
    words = {"decoder_start_token_id": decoder_start_token_id, "pad_token_id": pad_token_id}
    _check_options(model.config, 1, max_new_tokens, **words, eos_token_id=eos_token_id)
    _check_key(sampling, key)
    texts = (jnp.asarray(input_ids), optional(token_type_ids), optional(attention_mask, bool))
    options = {"max_new_tokens": max_new_tokens, "pad": pad_token_id, "eos": eos_token_id}
    options |= {"start": decoder_start_token_id, "sampling": sampling, "cache": cache}
    return _generate_from(model, params, *texts, key, **options)


def search(
    step: Step,
    state: Any,
    logits: Float[Array, "B V"],
    key: jax.Array | None = None,
    *,
    max_new_tokens: int,
    pad: int,
    eos: int | None = None,
    sampling: Sampling | None = None,
) -> tuple[Int[Array, "B M"], Int[Array, "B"]]:
    """Runs the generation loop for any `step`; returns new tokens, padded at the end, and counts per row.

    `logits` are those of the first new tokens, and `state` is passed to the first step.

    Raises:
      ValueError: If `sampling` is given without a key.
    """
    _check_key(sampling, key)

    def write(tokens, ended, made, logits, count):
        if sampling is None or key is None:
            chosen = jnp.argmax(logits, axis=-1)
        else:
            chosen = sampling(logits, jax.random.fold_in(key, count))
        chosen = jnp.where(ended, pad, chosen.astype(jnp.int32))
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, chosen[:, None], count, axis=1)
        made = made + ~ended
        return tokens, (ended if eos is None else ended | (chosen == eos)), made

    def unfinished(carry):
        count, _, ended, *_ = carry
        return (count < max_new_tokens) & ~jnp.all(ended)

    def body(carry):
        count, tokens, ended, made, state = carry
        last = jax.lax.dynamic_index_in_dim(tokens, count - 1, axis=1, keepdims=False)
        logits, state = step(last, state, count)
        return count + 1, *write(tokens, ended, made, logits, count), state

    batch = logits.shape[0]
    tokens = jnp.full((batch, max_new_tokens), pad, jnp.int32)
    first = write(tokens, jnp.zeros(batch, bool), jnp.zeros(batch, jnp.int32), logits, jnp.int32(0))
    _, tokens, _, made, _ = jax.lax.while_loop(unfinished, body, (jnp.int32(1), *first, state))
    return tokens, made


_STATIC = ("model", "max_new_tokens", "pad", "eos", "sampling", "cache")


@functools.partial(jax.jit, static_argnames=_STATIC)
def _generate(
    model, params, input_ids, types, lengths, prefix_lengths, key, *, cache, max_new_tokens, **options
):
    variables, length = {"params": params}, input_ids.shape[1]
    if cache:
        mask, capacity = jnp.arange(length)[None] < lengths[:, None], length + max_new_tokens - 1
        rest = {"prefix_lengths": prefix_lengths, "capacity": capacity, "method": "prefill"}
        logits, state = model.apply(variables, input_ids, types, mask, **rest)

        def step(last, state, count):
            return model.apply(variables, last, state, method="step")
    else:
        step, logits, state = _reading_all(
            model, variables, input_ids, types, lengths, prefix_lengths, max_new_tokens
        )
    tokens, made = search(step, state, logits, key, max_new_tokens=max_new_tokens, **options)
    # New tokens follow their text directly; padding between them is removed.
    places = jnp.arange(length + max_new_tokens)[None]
    new = jnp.take_along_axis(tokens, places - lengths[:, None], axis=1)
    old = jnp.pad(input_ids, ((0, 0), (0, max_new_tokens)))
    ends = lengths + made
    sequences = jnp.where(places < lengths[:, None], old, new)
    sequences = jnp.where(places < ends[:, None], sequences, options["pad"])
    return Generated(sequences.astype(input_ids.dtype), ends)


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


@functools.partial(jax.jit, static_argnames=(*_STATIC, "start"))
def _generate_from(
    model, params, input_ids, token_type_ids, real, key, *, cache, start, max_new_tokens, **options
):
    variables, inputs = {"params": params}, (input_ids, token_type_ids, real)
    batch = input_ids.shape[0]
    first = jnp.full(batch, start, jnp.int32)
    if cache:
        state = model.apply(variables, *inputs, capacity=max_new_tokens, method="prefill")

        def step(last, state, count):
            return model.apply(variables, last, state, method="step")
    else:
        encoded = model.apply(variables, *inputs, method="encode")
        state = jnp.full((batch, max_new_tokens), options["pad"], jnp.int32)

        def step(last, text, count):
            text = jax.lax.dynamic_update_slice_in_dim(text, last[:, None], count, axis=1)
            logits = model.apply(variables, encoded, text, method="decode").logits
            return jax.lax.dynamic_index_in_dim(logits, count, axis=1, keepdims=False), text

    logits, state = step(first, state, jnp.int32(0))
    tokens, made = search(step, state, logits, key, max_new_tokens=max_new_tokens, **options)
    sequences = jnp.concatenate((first[:, None], tokens), axis=1)
    return Generated(sequences.astype(input_ids.dtype), 1 + made)


def _lengths(attention_mask: Any, batch: int, length: int) -> Int[Array, "B"]:
    """Returns the number of tokens per row; raises ValueError unless padding is at the end (or is traced)."""
    if attention_mask is None:
        return jnp.full(batch, length, jnp.int32)
    if not isinstance(attention_mask, jax.core.Tracer):
        real = jax.device_get(attention_mask).astype(bool)
        wrong = (~real[:, 0]) | (real[:, 1:] & ~real[:, :-1]).any(axis=1)
        if wrong.any():
            raise ValueError(
                f"attention_mask: got {real[wrong.argmax()].astype(int).tolist()} at [{wrong.argmax()}], "
                "expected ones followed by zeros (texts to continue are padded at the end)"
            )
    return jnp.asarray(attention_mask, bool).sum(axis=1)


def _check_options(config, length: int, max_new_tokens: int, **words: int | None) -> None:
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens: got {max_new_tokens!r}, expected an integer of at least 1")
    # The model does not read the last new token.
    if config.absolute_position and length + max_new_tokens - 1 > config.max_position_embeddings:
        most = config.max_position_embeddings - length + 1
        raise ValueError(
            f"max_new_tokens: got {max_new_tokens}, expected at most {most} after {length} tokens "
            f"(max_position_embeddings = {config.max_position_embeddings} absolute positions)"
        )

    for name, word in words.items():
        if word is not None and not 0 <= word < config.vocab_size:
            raise ValueError(f"{name}: got {word}, expected 0 to {config.vocab_size - 1}")


def _check_key(sampling: Sampling | None, key: jax.Array | None) -> None:
    if sampling is not None and key is None:
        raise ValueError("key: got None, expected a key (sampling is given)")
