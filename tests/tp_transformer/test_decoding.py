"""Greedy decoding and beam search: the authors' answers, the cache, exhaustive search, stopping, devices."""

import functools
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tp_transformer import decoding_on_devices, small
from tests.tp_transformer.small import NAMES, beams, build, draw, greedy, quickly, tokens
from tp_transformer import TPTransformer, decoding

ROOT = Path(__file__).resolve().parents[2]
START, END, PAD = 1, 2, 0
SYMBOLS: dict[str, Any] = {"start": START, "end": END}
VARIED = {"seed": 1, "scale": 1.0}
"""How to draw parameters whose answers are of several lengths."""


@pytest.mark.parametrize(("name", "cache"), [*((name, True) for name in NAMES), (NAMES[0], False)])
def test_the_authors_answers(name, cache):
    """Compared up to the first end or padding symbol; the authors' code continues after it."""
    model, params = small.recorded_model(name)
    golden = small.recorded(name)
    length = golden["config"]["max_decode"]
    source = jnp.asarray(golden["input/source"], jnp.int32)
    found = greedy(model, params, source, max_length=length, cache=cache)
    assert found.shape == (len(source), length + 1)
    for got, want in zip(found, golden["output/greedy"], strict=True):
        ends = np.flatnonzero(np.isin(want[1:], (END, PAD)))
        stop = ends[0] + 2 if len(ends) else len(want)
        np.testing.assert_array_equal(got[:stop], want[:stop])
        if len(ends):
            np.testing.assert_array_equal(got[stop:], PAD)


def padded(*shape: int) -> jax.Array:
    """Draws questions of which every other one ends with padding."""
    questions = np.array(tokens(*shape))
    questions[::2, 4:] = PAD
    return jnp.asarray(questions)


def test_each_symbol_is_the_models_most_probable():
    """Sources with padding, answers of various lengths; each step's logits equal the whole decoder's."""
    model = build(TPTransformer)
    params = draw(model, **VARIED)
    source = padded(24, 6)
    found = greedy(model, params, source, max_length=7)
    assert len(np.unique(np.sum(found != PAD, axis=1))) > 2
    logits = np.asarray(small.apply(model, params, source, jnp.asarray(found[:, :-1])))
    for row, answer in enumerate(found):
        ends = np.flatnonzero(np.isin(answer[1:], (END, PAD)))
        real = slice(ends[0] + 1 if len(ends) else None)
        np.testing.assert_array_equal(np.argmax(logits[row], -1)[real], answer[1:][real])


def by_prefix(table: Any) -> Any:
    """Returns a step whose logits come from a table over prefixes [V ** 0 + V ** 1 + ..., V].

    The state is the number of the prefix: 0 for the empty prefix, V p + v + 1 for prefix p followed by v.
    """
    table = jnp.asarray(table, jnp.float32)

    def step(last, prefix, position):
        prefix = jnp.where(position == 0, 0, table.shape[1] * prefix + last + 1)
        return table[prefix], prefix

    return step


def all_answers(table: np.ndarray, length: int) -> list[tuple[float, tuple[int, ...]]]:
    """Lists every answer up to a length with its log-probability, most probable first."""
    vocab = table.shape[1]
    log_p = table - np.log(np.sum(np.exp(table), axis=1, keepdims=True))
    found = {}
    for symbols in itertools.product(range(vocab), repeat=length):
        prefix, total, answer = 0, 0.0, []
        for symbol in symbols:
            total += log_p[prefix, symbol]
            prefix = vocab * prefix + symbol + 1
            answer.append(symbol)
            if symbol in (END, PAD):
                break
        found[tuple(answer)] = total
    return sorted(((total, answer) for answer, total in found.items()), reverse=True)


def drawn_table(vocab: int, length: int, seed: int, scale: float = 2.0) -> np.ndarray:
    """Draws logits for every prefix shorter than a length."""
    count = sum(vocab**n for n in range(length))
    return scale * np.random.default_rng(seed).normal(size=(count, vocab))


@functools.partial(quickly, static_argnames=("width", "length", "length_exponent"))
def search(table: np.ndarray, width: int, length: int, length_exponent: float = 0.0) -> Any:
    """Runs beam search on a table of logits."""
    step, state = by_prefix(table), jnp.zeros((1, width), jnp.int32)
    options: Any = {"max_length": length, "pad": PAD, "length_exponent": length_exponent, **SYMBOLS}
    return decoding.search_beams(step, state, 1, width, **options)


def answers(tokens: Any) -> list[tuple[int, ...]]:
    """Returns rows without the start symbol and without anything after their end."""
    rows = []
    for row in np.asarray(tokens).reshape(-1, np.shape(tokens)[-1]):
        assert row[0] == START
        ends = np.flatnonzero(np.isin(row[1:], (END, PAD)))
        rows.append(tuple(map(int, row[1 : ends[0] + 2] if len(ends) else row[1:])))
    return rows


def test_a_wide_beam_finds_the_best_answers_there_are():
    """With as many beams as answers, all are found in order, with probabilities that sum to 1."""
    table = drawn_table(4, 3, seed=0)
    want = all_answers(table, 3)
    found = search(table, len(want), 3)
    assert answers(found.tokens) == [answer for _, answer in want]
    np.testing.assert_allclose(found.log_probabilities[0], [total for total, _ in want], rtol=1e-4)
    np.testing.assert_allclose(np.sum(np.exp(found.log_probabilities)), 1, rtol=1e-5)


def plain_beam(table: np.ndarray, width: int, length: int, exponent: float) -> list[tuple[float, tuple]]:
    """Runs beam search on Python lists."""
    vocab = table.shape[1]
    log_p = table - np.log(np.sum(np.exp(table), axis=1, keepdims=True))
    alive: list[Any] = [(0.0, 0.0, 0, ())]  # rank, log-probability, prefix, answer
    for _ in range(length):
        longer = []
        for rank, total, prefix, answer in alive:
            if answer and answer[-1] in (END, PAD):
                longer.append((rank, total, prefix, answer))
                continue
            for symbol in range(vocab):
                sum_, size = total + log_p[prefix, symbol], len(answer) + 1
                rank_ = sum_ / ((5 + size) / 6) ** exponent
                longer.append((rank_, sum_, vocab * prefix + symbol + 1, (*answer, symbol)))
        alive = sorted(longer, key=lambda x: -x[0])[:width]
    return [(total, answer) for _, total, _, answer in alive]


@pytest.mark.parametrize(("width", "exponent"), [(1, 0.0), (2, 0.0), (3, 0.6), (5, 1.0)])
def test_narrow_beams_against_lists(width, exponent):
    """The same hypotheses are kept and dropped, with and without a length penalty."""
    for seed in range(6):
        table = drawn_table(5, 4, seed)
        found = search(table, width, 4, length_exponent=exponent)
        want = plain_beam(table, width, 4, exponent)
        assert answers(found.tokens) == [answer for _, answer in want]
        np.testing.assert_allclose(found.log_probabilities[0], [total for total, _ in want], rtol=1e-4)


def test_a_beam_finds_what_greedy_misses():
    """The most probable first symbol has improbable continuations; the second has a certain one."""
    p = np.full((1 + 4, 4), 1e-6)
    p[0] = (1e-6, 0.4, 1e-6, 0.6)  # 3, or 1?
    p[1 + 3] = (0.25, 0.25, 0.25, 0.25)  # after 3, nothing is sure
    p[1 + 1, END] = 1  # after 1 comes the end
    table = np.log(p / p.sum(axis=1, keepdims=True))
    narrow, wide = (search(table, width, 2) for width in (1, 2))
    assert answers(narrow.tokens)[0][0] == 3
    assert answers(wide.tokens)[0] == (1, END)
    np.testing.assert_allclose(np.exp(wide.log_probabilities[0, 0]), 0.4, rtol=1e-4)
    assert wide.log_probabilities[0, 0] > narrow.log_probabilities[0, 0]


def test_fewer_answers_than_beams():
    """Unused beams have probability 0 and contain no symbols."""
    found = search(drawn_table(3, 1, 0), 5, 1)
    assert answers(found.tokens[:, :3]) == [answer for _, answer in all_answers(drawn_table(3, 1, 0), 1)]
    np.testing.assert_array_equal(found.log_probabilities[0, 3:], -np.inf)
    np.testing.assert_array_equal(found.tokens[0, 3:], PAD)


def test_length_exponent_favours_length():
    """One symbol of probability 0.5 or four of 0.8 each: the longer is less probable but ranks higher."""
    assert decoding.length_penalty(jnp.asarray(7), 1.0) == 2
    p = np.full((sum(4**n for n in range(4)), 4), 1e-9)
    p[0, END], p[0, 3] = 0.5, 0.5
    prefix = 0
    for _ in range(2):
        prefix = 4 * prefix + 4
        p[prefix, 3], p[prefix, 1] = 0.8, 0.2
    p[4 * prefix + 4, END] = 1
    table = np.log(p / p.sum(axis=1, keepdims=True))
    assert answers(search(table, 4, 4).tokens)[0] == (END,)
    assert answers(search(table, 4, 4, length_exponent=2.0).tokens)[0] == (3, 3, 3, END)


def test_beams_of_a_model():
    """Probabilities are the model's, of each row's own question; the cache changes nothing."""
    model = build(TPTransformer)
    params, source = draw(model, **VARIED), padded(4, 6)
    found, anew = (
        beams(model, params, source, beams=3, cache=cache, max_length=5, length_exponent=0.5)
        for cache in (True, False)
    )
    found, anew = jax.device_get((found, anew))
    np.testing.assert_array_equal(found.tokens, anew.tokens)
    assert len(np.unique(found.tokens[:, 0], axis=0)) > 1  # questions have answers of their own
    np.testing.assert_allclose(found.scores, anew.scores, rtol=1e-4, atol=1e-5)
    assert found.tokens.dtype == source.dtype
    for k in range(3):
        logits = np.asarray(small.apply(model, params, source, jnp.asarray(found.tokens[:, k, :-1])))
        log_p = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        for row, answer in enumerate(answers(found.tokens[:, k])):
            total = sum(log_p[row, t, symbol] for t, symbol in enumerate(answer))
            np.testing.assert_allclose(found.log_probabilities[row, k], total, rtol=1e-4, atol=1e-4)
            penalty = ((5 + len(answer)) / 6) ** 0.5
            np.testing.assert_allclose(found.scores[row, k], total / penalty, rtol=1e-4, atol=1e-4)
    assert np.all(np.diff(found.scores, axis=1) <= 0)


@pytest.mark.parametrize("kind", ["greedy", "beams"])
def test_it_stops_when_all_have_ended(kind):
    """The number of steps is that of the longest answer, not the maximum."""
    steps = []
    ends_at = jnp.asarray([1, 3, 2])

    def step(last, state, position):
        jax.debug.callback(lambda p: steps.append(int(p)), position)
        symbol = jnp.where(position + 1 >= ends_at, END, 4)[:, None]
        return 9.0 * jax.nn.one_hot(jnp.broadcast_to(symbol, last.shape), 6), state

    options = {"max_length": 20, "pad": 3, **SYMBOLS}
    if kind == "greedy":
        found = jax.jit(lambda: decoding.greedy_search(step, (), 3, **options))()
    else:
        found = jax.jit(lambda: decoding.search_beams(step, (), 3, 1, **options).tokens[:, 0])()
    jax.effects_barrier()
    assert sorted(steps) == [0, 1, 2]
    np.testing.assert_array_equal(found[:, :4], [[1, 2, 3, 3], [1, 4, 4, 2], [1, 4, 2, 3]])
    np.testing.assert_array_equal(found[:, 4:], 3)


def test_batches_of_one_shape_are_traced_once():
    """Decoding a second batch does not compile again."""
    model = build(TPTransformer)
    params = draw(model)

    @quickly
    @chex.assert_max_traces(1)
    def decode(params, source):
        return decoding.greedy_decode(model, params, source, max_length=3, **SYMBOLS)

    for seed in range(2):  # `jit` keeps what it traced, whether it compiles it or not
        jax.eval_shape(decode, params, tokens(2, 5, seed=seed))


def test_the_cache_and_four_beams_are_defaults(monkeypatch):
    """Traced, not compiled; a single beam and a single symbol are enough."""
    model = build(TPTransformer)
    monkeypatch.setattr(decoding, "_uncached_step", None)

    def shapes(decode, length, **options):
        call = functools.partial(decode, model, max_length=length, **SYMBOLS, **options)
        return jax.eval_shape(call, draw(model), tokens(3, 7))

    assert shapes(decoding.beam_search, 4).tokens.shape == (3, 4, 5)
    assert shapes(decoding.beam_search, 4, beams=1).tokens.shape == (3, 1, 5)
    assert shapes(decoding.greedy_decode, 1).shape == (3, 2)


def test_bfloat16_caches_bfloat16():
    """Keys and values keep their compute dtype, and answers have the source's dtype."""
    model = build(TPTransformer, dtype=jnp.bfloat16)
    assert model.empty_past(1, 1, 3)[0].keys.dtype == jnp.bfloat16
    decode = functools.partial(decoding.greedy_decode, model, max_length=3, **SYMBOLS)
    found = jax.eval_shape(decode, draw(model), tokens(2, 5).astype(jnp.int16))
    assert found.dtype == jnp.int16


@pytest.mark.slow
def test_a_batch_over_devices():
    """Sharded inputs give the same answers as a single device without further settings."""
    script = Path(decoding_on_devices.__file__)
    module = ".".join(script.relative_to(ROOT).with_suffix("").parts)
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["devices"] == 4
    model = build(TPTransformer)
    params, source = draw(model), tokens(decoding_on_devices.BATCH, 5)
    options: dict[str, Any] = {"max_length": decoding_on_devices.LENGTH, **SYMBOLS}
    want = decoding.beam_search(model, params, source, beams=3, **options)
    np.testing.assert_array_equal(found["greedy"], decoding.greedy_decode(model, params, source, **options))
    np.testing.assert_array_equal(found["beams"], want.tokens)
    np.testing.assert_allclose(found["scores"], want.scores, rtol=1e-4)


def test_what_is_refused():
    """Errors name the argument."""
    model = build(TPTransformer)
    params, source = draw(model), tokens(2, 5)
    calls: tuple[Any, ...] = (
        (source[0], {}, "source: got shape"),
        (source.astype(jnp.float32), {}, "source: got shape .* float32"),
        (source[:, :0], {}, r"source: got shape \(2, 0\), expected at least one symbol"),
        (source.at[1, 0].set(11), {}, "source: got id 11 in row 1 at position 0, expected 0 to 10"),
        (source, {"start": None}, "start: got None, expected an id, since the model has none"),
        (source, {"max_length": 0}, "max_length: got 0"),
        (source, {"start": 11}, "start: got 11, expected 0 to 10"),
        (source, {"end": -1}, "end: got -1"),
    )
    for given, options, message in calls:
        searches: tuple[Any, ...] = (decoding.greedy_decode, decoding.beam_search)
        for decode in searches:
            with pytest.raises(ValueError, match=message):
                decode(model, params, given, **{"max_length": 3, **SYMBOLS, **options})
    refused: tuple[Any, ...] = (
        ({"beams": 0}, "beams: got 0"),
        ({"length_exponent": -1.0}, "length_exponent: got -1"),
    )
    for options, message in refused:
        with pytest.raises(ValueError, match=message):
            decoding.beam_search(model, params, source, max_length=3, **SYMBOLS, **options)


@pytest.mark.parametrize("cache", [True, False])
def test_no_questions_have_no_answers(cache):
    """An empty batch is a batch."""
    model = build(TPTransformer)
    params, source = draw(model), tokens(0, 5)
    assert greedy(model, params, source, max_length=3, cache=cache).shape == (0, 4)
    assert beams(model, params, source, max_length=3, beams=2, cache=cache).tokens.shape == (0, 2, 4)
