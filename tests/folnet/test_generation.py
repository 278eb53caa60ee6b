"""Generation: beams, end tokens, padding at either end, prompts of different lengths, the cache."""

import dataclasses
import functools
import types as types_lib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import FOLNetConfig, Sampling, generate, generate_from
from folnet.generation import repeated
from tests.folnet import small
from tests.folnet.small_decoders import OTHER, VOCAB, causal, conditional, first, method, words

pytestmark = pytest.mark.usefixtures("compiled_quickly")

EOS, PAD = 2, 0


def said(text, types, prefix=0):
    """Returns a number for a text that changes with every word, segment, place and prefix."""
    return (
        sum((i + 1) * (7 * w + 3 * t + 1) for i, (w, t) in enumerate(zip(text, types, strict=True)))
        + 5 * prefix
    )


@dataclasses.dataclass(frozen=True)
class Rule:
    """A model whose next word is the `said` number, modulo the vocabulary, or else another one.

    If it is not certain, all words are equally likely.

    It has the methods of both kinds of models that generate: it may read only what it is given.
    """

    config: FOLNetConfig = dataclasses.field(default_factory=small.config)
    certain: bool = True

    def logits(self, number):
        likely = 9.0 * jax.nn.one_hot(number % VOCAB, VOCAB)
        return (likely + 8.0 * jax.nn.one_hot((5 * number + 1) % VOCAB, VOCAB)) * self.certain

    def apply(self, variables, *args, method="read", **options):
        assert variables["params"] == {}
        return getattr(self, method)(*args, **options)

    def _sums(self, text, types, real):
        places = 1 + jnp.arange(text.shape[1])[None]
        return jnp.cumsum(jnp.where(real, places * (7 * text + 3 * types + 1), 0), axis=1)

    def read(self, text, types, real, prefix_lengths=None):
        prefix = 0 if prefix_lengths is None else 5 * prefix_lengths[:, None]
        return types_lib.SimpleNamespace(logits=self.logits(self._sums(text, types, real) + prefix))

    def encode(self, text, types, real):
        types = jnp.zeros_like(text) if types is None else types
        real = jnp.ones(text.shape, bool) if real is None else real
        return self._sums(text, types, real)[:, -1]

    def decode(self, encoded, text):
        number = encoded[:, None] + self._sums(text, jnp.zeros_like(text), jnp.ones(text.shape, bool))
        return types_lib.SimpleNamespace(logits=self.logits(number))

    def prefill(self, text, types, real, prefix_lengths=None, *, capacity):
        if capacity == NEW:  # of a target after an input
            zero = jnp.zeros(len(text), jnp.int32)
            return self.encode(text, types, real), zero, zero, capacity
        assert capacity == text.shape[1] + NEW - 1, "the last word is not read"
        types = jnp.zeros_like(text) if types is None else types
        prefix = 0 if prefix_lengths is None else 5 * prefix_lengths
        lengths = real.sum(axis=1)
        last = jnp.take_along_axis(types, lengths[:, None] - 1, axis=1)[:, 0]
        number = self._sums(text, types, real)[:, -1] + prefix
        return self.logits(number), (number, lengths, last, capacity)

    def step(self, word, state):
        number, length, last, capacity = state
        number += (length + 1) * (7 * word + 3 * last + 1)
        return self.logits(number), (number, length + 1, last, capacity)


class Many(Rule):
    """A rule for the last words of its own vocabulary."""

    def logits(self, number):
        return jax.nn.one_hot(self.config.vocab_size - 1 - number % VOCAB, self.config.vocab_size)


NEW = 4


def continued(text, types, prefix=0, before=0, eos=None):
    """Generates by the definition: repeatedly appends the word that the rule says, in the last segment."""
    text, types, new = list(text), list(types), 0
    while new < NEW and (new == 0 or text[-1] != eos):
        text.append((before + said(text, types, prefix)) % VOCAB)
        types.append(types[-1])
        new += 1
    return text


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(("several", "ends"), [(True, False), (False, True), (True, True)])
def test_prompts_go_on_by_a_rule(cache, several, ends):
    """Prompts of several lengths, segments and prefixes; new words are of their text's last segment."""
    text = np.asarray(words(4, 5, seed=4))
    types = np.asarray([[0, 0, 0, 1, 1], [0, 1, 0, 0, 0], [1, 1, 0, 0, 1], [0, 0, 0, 0, 0]]) * several
    lengths, prefixes = (
        (np.asarray([5, 2, 3, 1]), np.asarray([4, 2, 0, 1])) if several else ([5] * 4, [0] * 4)
    )
    some = [(text[b, :n].tolist(), types[b, :n].tolist(), int(prefixes[b])) for b, n in enumerate(lengths)]
    rows = [continued(*given) for given in some]
    eos = rows[0][lengths[0] + 1] if ends else None
    rows = [continued(*given, eos=eos) for given in some]
    options: dict[str, Any] = {
        "token_type_ids": jnp.asarray(types),
        "attention_mask": first(lengths, 5),
        "prefix_lengths": jnp.asarray(prefixes),
        "key": small.key(),  # not used without sampling
    }
    dtype = jnp.int16 if several else jnp.int32
    found = generate(
        Rule(),
        {},
        jnp.asarray(text, dtype),
        max_new_tokens=NEW,
        pad_token_id=PAD,
        eos_token_id=eos,
        cache=cache,
        **(options if several else {}),
    )
    assert (found.sequences.shape, found.sequences.dtype) == ((4, 9), dtype)
    for b, row in enumerate(rows):
        np.testing.assert_array_equal(found.sequences[b], row + [PAD] * (9 - len(row)))
        assert found.lengths[b] == len(row)
    assert any(len(row) < n + NEW for row, n in zip(rows, lengths, strict=True)) == ends


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(("padded", "ends"), [(True, True), (False, False)])
def test_targets_are_written_by_a_rule(cache, padded, ends):
    """After a start token, from inputs of several lengths and segments."""
    text, start = np.asarray(words(3, 5, seed=8)), 6
    lengths = np.asarray([5, 2, 3]) if padded else [5] * 3
    types = np.asarray([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1], [1, 0, 1, 0, 0]]) * padded
    dtype = jnp.int16 if padded else jnp.int32
    before = [said(text[b, :n].tolist(), types[b, :n].tolist()) for b, n in enumerate(lengths)]
    rows = [continued([start], [0], before=number) for number in before]
    eos = rows[1][2] if ends else None
    rows = [continued([start], [0], before=number, eos=eos) for number in before]
    options: dict[str, Any] = {}
    if padded:
        options = {"token_type_ids": jnp.asarray(types), "attention_mask": first(lengths, 5)}
    found = generate_from(
        Rule(),
        {},
        jnp.asarray(text, dtype),
        decoder_start_token_id=start,
        max_new_tokens=NEW,
        pad_token_id=PAD,
        eos_token_id=eos,
        cache=cache,
        **options,
    )
    assert (found.sequences.shape, found.sequences.dtype) == ((3, 1 + NEW), dtype)
    for b, row in enumerate(rows):
        np.testing.assert_array_equal(found.sequences[b], row + [PAD] * (1 + NEW - len(row)))
        assert found.lengths[b] == len(row)
    assert (len(rows[1]) == 3) == ends


@pytest.mark.parametrize("cache", [True, False])
def test_words_may_be_more_than_numbers_of_the_prompts_type(cache):
    """They are then written in 32 bits, as after a prompt in these."""
    options: Any = {"max_new_tokens": NEW, "pad_token_id": PAD, "cache": cache}
    model: Any = Many(small.config(vocab_size=200))
    text = words(2, 3)
    kinds: tuple[Any, ...] = ((generate, {}), (generate_from, {"decoder_start_token_id": 199}))
    for run, more in kinds:
        found, want = (
            run(model, {}, text.astype(dtype), **options, **more) for dtype in (jnp.int8, jnp.int32)
        )
        assert found.sequences.dtype == jnp.int32
        np.testing.assert_array_equal(found.sequences, want.sequences)
        assert want.sequences.max() > 127
    model = Many(small.config(vocab_size=128))
    assert generate(model, {}, text.astype(jnp.int8), **options).sequences.dtype == jnp.int8


def test_sampled_words_are_those_of_their_keys():
    """The n-th word is drawn with the n-th key of the one given, in texts and (without a cache) targets."""
    key, sampling = small.key(3), Sampling(temperature=2.0)
    options: Any = {"max_new_tokens": NEW, "pad_token_id": PAD, "sampling": sampling, "key": key}
    same = jnp.zeros((3, VOCAB))
    draw = small.quickly(
        lambda: jnp.stack([sampling(same, jax.random.fold_in(key, n)) for n in range(NEW)], 1)
    )
    text = generate(Rule(certain=False), {}, words(3, 2), **options)
    options |= {"decoder_start_token_id": 1, "cache": False}
    target = generate_from(Rule(certain=False), {}, words(3, 2), **options)
    want = draw()
    np.testing.assert_array_equal(np.asarray(text.sequences)[:, 2:], want)
    np.testing.assert_array_equal(np.asarray(target.sequences)[:, 1:], want)


def test_padding_before_a_text_is_padding_after_it():
    """New words follow the text, at the same columns in all rows; segments and prefixes move along."""
    model, text = Rule(), np.asarray(words(3, 4, seed=2))
    types = np.asarray([[0, 1, 1, 1], [1, 0, 1, 0], [0, 0, 1, 1]])
    lengths, prefixes = (4, 2, 3), (1, 2, 0)
    left, left_types = (np.full((3, 4), fill) for fill in (7, 1))
    real = np.zeros((3, 4), bool)
    for row, length in enumerate(lengths):
        left[row, 4 - length :], left_types[row, 4 - length :] = text[row, :length], types[row, :length]
        real[row, 4 - length :] = True
    given = {"token_type_ids": left_types, "attention_mask": real, "prefix_lengths": np.asarray(prefixes)}
    arrays: dict[str, Any] = jax.tree.map(jnp.asarray, given)
    out = generate(model, {}, jnp.asarray(left), max_new_tokens=NEW, pad_token_id=PAD, **arrays)
    for row, length in enumerate(lengths):
        want = continued(text[row, :length], types[row, :length], prefixes[row])
        np.testing.assert_array_equal(out.sequences[row], [PAD] * (4 - length) + want)
    np.testing.assert_array_equal(out.lengths, np.asarray(lengths) + NEW)


BEAMS: dict[str, Any] = {
    "num_beams": 4,
    "num_return_sequences": 3,
    "length_exponent": 0.5,
    "eos_token_id": (EOS, 11),
    "pad_token_id": PAD,
}


@pytest.mark.parametrize("build", [causal, conditional])
def test_beams_have_the_probabilities_of_their_texts(build):
    """By the whole model, word by word. Any of several tokens ends a text."""
    model, params = build("j.")
    text, real = words(2, 3, seed=4), first([3, 2], 3)
    options = {"attention_mask": real, "max_new_tokens": 3, **BEAMS}
    types = jnp.asarray([[0, 1, 1], [1, 0, 0]])
    if build is conditional:
        options |= {"decoder_start_token_id": 1, "token_type_ids": types}
    found = jax.device_get(small.quickly(lambda params: model.generate(params, text, **options))(params))
    assert found.sequences.shape == (6, 4 if build is conditional else 6)
    assert (np.diff(found.scores.reshape(2, 3), axis=1) <= 0).all()
    rows = np.repeat([0, 1], 3)
    begins = np.ones(6, int) if build is conditional else np.asarray([3, 2])[rows]
    given = (np.asarray(text)[rows], found.sequences, np.asarray(types)[rows], np.asarray(real)[rows])
    # Padding after a text changes nothing in it.
    out = method(model)(params, *(given if build is conditional else given[1:2]))
    logs = np.asarray(out.logits, np.float64)
    logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
    for row, (begin, length) in enumerate(zip(begins, found.lengths, strict=True)):
        sequence = found.sequences[row]
        total = sum(logs[row, place - 1, sequence[place]] for place in range(begin, length))
        np.testing.assert_allclose(found.scores[row], total / ((5 + length - begin) / 6) ** 0.5, rtol=1e-4)
        assert (sequence[length:] == PAD).all()
        ends = np.isin(sequence[begin:length], (EOS, 11))
        assert not ends[:-1].any()
        assert ends[-1] or length - begin == 3
    tails = [found.sequences[row * 3 : row * 3 + 3] for row in range(2)]
    assert all(len(np.unique(tail, axis=0)) == 3 for tail in tails)


@pytest.mark.parametrize("prompted", [True, False])
def test_the_cache_changes_nothing_in_beams(prompted):
    """Words, lengths and scores are equal, also for texts of several lengths in a batch."""
    text, lengths = words(3, 4, seed=4), np.asarray([4, 2, 3])
    types = jnp.asarray([[0, 1, 1, 1], [1, 0, 1, 0], [0, 0, 1, 1]])
    options = {"token_type_ids": types, "attention_mask": first(lengths, 4), "max_new_tokens": NEW, **BEAMS}
    more: Any = {"prefix_lengths": jnp.asarray([1, 2, 0])} if prompted else {"decoder_start_token_id": 6}
    run: Any = generate if prompted else generate_from
    found, anew = (run(Rule(), {}, text, cache=cache, **options, **more) for cache in (True, False))
    np.testing.assert_array_equal(found.sequences, anew.sequences)
    np.testing.assert_array_equal(found.lengths, anew.lengths)
    np.testing.assert_allclose(found.scores, anew.scores, rtol=1e-5)
    assert len(np.unique(np.asarray(found.sequences)[:, 4 * prompted :], axis=0)) > 6
    if prompted:  # each beam's padding may stand before its text instead
        left = jax.tree.map(
            lambda rows: jnp.stack([jnp.roll(row, 4 - n) for row, n in zip(rows, lengths, strict=True)]),
            {"token_type_ids": types, "attention_mask": options["attention_mask"], "text": text},
        )
        moved = run(Rule(), {}, left.pop("text"), **{**options, **more, **left})
        for row, sequence in enumerate(np.asarray(found.sequences)):
            before = 4 - lengths[row // BEAMS["num_return_sequences"]]
            want = np.concatenate(([PAD] * before, sequence[: len(sequence) - before]))
            np.testing.assert_array_equal(moved.sequences[row], want)


@pytest.mark.unchecked  # a NumPy array is no `Array`
@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_padding_is_known_where_a_model_is_traced(kind):
    """The rows of a mask that is not traced are checked there too."""

    def run(mask):
        options: Any = {"max_new_tokens": NEW, "pad_token_id": PAD, "prefix_lengths": np.asarray([1, 2])}
        made = lambda _: generate(Rule(), {}, words(2, 5), attention_mask=mask, **options)  # noqa: E731
        return jax.eval_shape(made, small.key()).sequences.shape

    ones = np.ones((2, 5), np.int32)
    assert run(kind(ones)) == (2, 9)
    with pytest.raises(ValueError, match="attention_mask: got"):
        run(kind(ones * [1, 0, 1, 1, 1]))


def test_as_many_tokens_as_there_are_positions():
    """The last new token needs none, since it is not read."""
    model = Rule(small.config(absolute_position=True, max_position_embeddings=9))
    for new in (1, 7):
        options: dict[str, Any] = {"max_new_tokens": new, "pad_token_id": PAD, "cache": False}
        run = functools.partial(generate, model, {}, words(2, 3), **options)
        assert jax.eval_shape(run).sequences.shape == (2, 3 + new)


def test_copies_of_a_row_are_next_to_each_other():
    """Scalars and None have no rows."""
    found = repeated({"rows": jnp.asarray([[1, 2], [3, 4]]), "one": 5, "none": None}, 2)
    np.testing.assert_array_equal(found["rows"], [[1, 2], [1, 2], [3, 4], [3, 4]])
    assert (found["one"], found["none"]) == (5, None)


def test_half_precision():
    """The loop's state keeps its dtypes, which are those of the computation."""
    inputs, options = words(2, 3), {"max_new_tokens": 3, "pad_token_id": PAD}
    model, params = causal("c.t", dtype="bfloat16", **OTHER)
    prefill = lambda p: model.apply({"params": p}, inputs, capacity=5, method="prefill")  # noqa: E731
    logits, state = jax.eval_shape(prefill, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.premises)} == {jnp.dtype("bfloat16")}
    assert logits.dtype == jnp.float32
    out = jax.eval_shape(lambda p: model.generate(p, inputs, **options), params)
    assert out.sequences.shape == (2, 6)
    model, params = conditional("c.t", dtype="bfloat16", **OTHER)
    generate = lambda p: model.generate(p, inputs, decoder_start_token_id=1, **options)  # noqa: E731
    assert jax.eval_shape(generate, params).sequences.shape == (2, 4)


@pytest.mark.parametrize(
    ("given", "fields", "message"),
    [
        ({"max_new_tokens": 0}, {}, "max_new_tokens: got 0, expected an integer of at least 1"),
        ({"max_new_tokens": 2.0}, {}, "max_new_tokens: got 2.0, expected an integer of at least 1"),
        (
            {"max_new_tokens": 8},
            {"absolute_position": True, "max_position_embeddings": 9},
            "max_new_tokens: got 8, expected at most 7 after 3 tokens",
        ),
        ({"eos_token_id": 19}, {}, "eos_token_id: got 19, expected 0 to 18"),
        ({"eos_token_id": np.int64(19)}, {}, "eos_token_id: got 19, expected 0 to 18"),
        ({"num_beams": 2, "length_exponent": -1.0}, {}, "length_exponent: got -1.0, expected at least 0"),
        ({"pad_token_id": -1}, {}, "pad_token_id: got -1"),
        ({"attention_mask": [[1, 1, 1], [0, 0, 0]]}, {}, r"attention_mask: got \[0, 0, 0\] at \[1\]"),
        ({"num_beams": 0}, {}, "num_beams: got 0, expected at least 1"),
        (
            {"num_beams": 2, "num_return_sequences": 3},
            {},
            "num_return_sequences: got 3, expected 1 to ",
        ),
        ({"num_return_sequences": 0}, {}, "num_return_sequences: got 0, expected 1 to num_beams = 1"),
        ({"num_beams": 2, "sampling": Sampling(), "key": small.key()}, {}, "sampling: got .* expected None"),
        ({"eos_token_id": (3, 20)}, {}, "eos_token_id: got 20, expected 0 to 18"),
        ({"stop_sequences": [(1, 19)]}, {}, "stop_sequences: got 19, expected 0 to 18"),
        ({"attention_mask": [[1, 1, 1], [1, 0, 1]]}, {}, r"attention_mask: got \[1, 0, 1\] at \[1\]"),
        ({"attention_mask": [[1, 1], [1, 1]]}, {}, r"attention_mask: got shape \(2, 2\)"),
        ({"token_type_ids": [[0, 0, 0], [0, 1, 2]]}, {}, r"token_type_ids: got 2 at \[1, 2\]"),
        ({"prefix_lengths": [1, 4]}, {}, r"prefix_lengths: got 4 at \[1\], expected 0 to 3"),
        ({"sampling": Sampling()}, {}, "key: got None"),
    ],
)
def test_bad_prompts(given, fields, message):
    """Refused with the argument's name before anything is computed; parameters are not read."""
    model, _ = causal(**fields)
    given = {k: jnp.asarray(v) if isinstance(v, list) else v for k, v in given.items()}
    options: dict[str, Any] = {"max_new_tokens": 2, "pad_token_id": PAD, **given}
    with pytest.raises(ValueError, match=message):
        generate(model, {}, words(2, 3), **options)


@pytest.mark.parametrize(
    ("given", "fields", "message"),
    [
        (
            {"max_new_tokens": 10},
            {"absolute_position": True, "max_position_embeddings": 9},
            "max_new_tokens: got 10, expected at most 9 after 1 token",
        ),
        ({"decoder_start_token_id": 19}, {}, "decoder_start_token_id: got 19, expected 0 to 18"),
        ({"attention_mask": jnp.ones((2, 2))}, {}, r"attention_mask: got shape \(2, 2\)"),
        ({"attention_mask": jnp.full((2, 3), 2)}, {}, r"attention_mask: got 2 at \[0, 0\]"),
        ({"token_type_ids": jnp.full((2, 3), 2)}, {}, r"token_type_ids: got 2 at \[0, 0\]"),
        ({"sampling": Sampling()}, {}, "key: got None"),
    ],
)
def test_bad_inputs(given, fields, message):
    """Inputs of an encoder-decoder."""
    model, _ = conditional(**fields)
    options: dict[str, Any] = {"max_new_tokens": 2, "pad_token_id": PAD, "decoder_start_token_id": 1, **given}
    with pytest.raises(ValueError, match=message):
        generate_from(model, {}, words(2, 3), **options)
