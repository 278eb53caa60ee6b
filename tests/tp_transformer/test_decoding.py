"""Greedy decoding and beam search of models: the authors' answers, the cache, probabilities, devices."""

import functools
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

from tests.tp_transformer import decoding_on_devices, plain, small
from tests.tp_transformer.small import NAMES, beams, build, draw, greedy, quickly, tokens
from tp_transformer import TPTransformer, convert, decoding

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = Path(__file__).resolve().parents[2]
START, END, PAD = 1, 2, 0
SYMBOLS: dict[str, Any] = {"start": START, "end": END}
VARIED = {"seed": 1, "scale": 1.0}
"""How to draw parameters whose answers are of several lengths."""


@pytest.mark.parametrize("name", NAMES)
def test_the_authors_answers(name):
    """Compared up to the first end or padding symbol; the authors' code continues after it."""
    model, params = small.recorded_model(name)
    golden = small.recorded(name)
    length = golden["config"]["max_decode"]
    source = jnp.asarray(golden["input/source"], jnp.int32)
    found = greedy(model, params, source, max_length=length)
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
    state = convert.to_torch(model, params)
    for row, k in np.ndindex(4, 3):
        answer = found.tokens[row, k, : 1 + found.lengths[row, k]].tolist()
        logits = plain.logits(state, model.num_heads, model.num_layers, np.asarray(source[row]), answer[:-1])
        log_p = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
        total = sum(log_p[t, symbol] for t, symbol in enumerate(answer[1:]))
        np.testing.assert_allclose(found.log_probabilities[row, k], total, rtol=1e-4, atol=1e-4)
        penalty = ((5 + len(answer) - 1) / 6) ** 0.5
        np.testing.assert_allclose(found.scores[row, k], total / penalty, rtol=1e-4, atol=1e-4)
    assert np.all(np.diff(found.scores, axis=1) <= 0)


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
    past = model.empty_past(1, 1, 3)
    assert past[0].keys.dtype == jnp.bfloat16
    assert not any(map(np.any, jax.tree.leaves(past)))
    for function in (decoding.greedy_decode, decoding.beam_search):
        decode = functools.partial(function, model, max_length=3, **SYMBOLS)
        found = jax.eval_shape(decode, draw(model), tokens(2, 5).astype(jnp.int16))
        assert getattr(found, "tokens", found).dtype == jnp.int16


def test_answers_may_have_more_symbols_than_the_type_of_the_source():
    """They are those to the same source in 32 bits, and of this type."""
    model = build(TPTransformer, vocab_size=200)
    params, source = draw(model, seed=1), tokens(2, 4)
    found, want = (
        greedy(model, params, source.astype(of), max_length=1, cache=False) for of in (jnp.int8, jnp.int32)
    )
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, want)
    assert want.max() > 127


@pytest.mark.unchecked  # unsigned ids are no `Int`
def test_answers_have_the_type_of_the_source_if_it_has_all_symbols():
    for size, dtype in ((256, np.uint8), (300, np.int32)):
        model = build(TPTransformer, vocab_size=size)
        for function in (decoding.greedy_decode, decoding.beam_search):
            decode = functools.partial(function, model, max_length=1, **SYMBOLS)
            found = jax.eval_shape(decode, small.shapes(model), tokens(2, 4).astype(np.uint8))
            assert getattr(found, "tokens", found).dtype == dtype


def test_an_empty_cache_can_be_donated():
    """No array is in it twice. Its memory is used for the new one."""
    model = build(TPTransformer, num_layers=2)
    past = model.empty_past(2, 1, 3)
    jax.jit(lambda past: jax.tree.map(jnp.sin, past), donate_argnums=0)(past)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(past))


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


def test_no_questions_have_no_answers():
    """An empty batch is a batch, with and without a cache."""
    model = build(TPTransformer)
    params, source = draw(model), tokens(0, 5)
    assert greedy(model, params, source, max_length=3).shape == (0, 4)
    assert beams(model, params, source, max_length=3, beams=2, cache=False).tokens.shape == (0, 2, 4)


def test_there_are_no_more_answers_than_symbols():
    """Of one symbol; the other hypotheses are padding from their start on."""
    model = build(TPTransformer)
    count = model.vocab_size + 2
    found = jax.device_get(beams(model, draw(model, **VARIED), padded(2, 6), beams=count, max_length=1))
    there = np.isfinite(found.log_probabilities)
    assert 1 < there.sum(axis=1).min() < count
    np.testing.assert_array_equal(found.tokens[~there], PAD)
    np.testing.assert_array_equal(found.tokens[there][:, 0], START)
