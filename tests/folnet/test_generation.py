"""Generation: the loop, sampling, end tokens, padding, prompts of different lengths, the cache."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import Sampling, generate, generate_from, generation
from tests.folnet import small
from tests.folnet.small_decoders import OTHER, SUBSETS, causal, conditional, first, method, words

EOS, PAD = 2, 0


def counting(vocab, ends):
    """Returns a step without a model: w is followed by w + 1, and each row ends after a given number."""

    def step(last, state, count):
        word = jnp.where(count >= ends - 1, EOS, last + 1)
        return jax.nn.one_hot(word, vocab), state + 1

    return step


@pytest.mark.parametrize("ends", [(1, 3, 4), (2, 2, 3), (9, 9, 9)])
def test_rows_end_by_themselves(ends):
    """An end token is kept and padding follows; the loop stops when no row needs another step."""
    ends = np.asarray(ends)
    starts = np.asarray([5, 7, 9])
    logits = jax.nn.one_hot(np.where(ends == 1, EOS, starts), 19)
    steps: list[Any] = []

    def step(last, state, count):
        jax.debug.callback(lambda c: steps.append(int(c)), count)
        return counting(19, jnp.asarray(ends))(last, state, count)

    tokens, made = generation.search(step, jnp.int32(0), logits, max_new_tokens=5, pad=PAD, eos=EOS)
    jax.effects_barrier()
    for row, start, end in zip(np.asarray(tokens), starts, ends, strict=True):
        want = [start + i for i in range(min(end - 1, 5))] + [EOS] * int(end <= 5)
        np.testing.assert_array_equal(row, want + [PAD] * (5 - len(want)))
    np.testing.assert_array_equal(made, np.minimum(ends, 5))
    assert sorted(steps) == list(range(1, min(ends.max(), 5)))


def test_without_an_end_token_nothing_ends():
    """The padding token is then an ordinary word."""
    step, logits = counting(19, jnp.asarray([2, 3])), jax.nn.one_hot(jnp.asarray([5, 0]), 19)
    tokens, made = generation.search(step, jnp.int32(0), logits, max_new_tokens=4, pad=PAD)
    np.testing.assert_array_equal(tokens, [[5, EOS, EOS, EOS], [0, 1, EOS, EOS]])
    np.testing.assert_array_equal(made, [4, 4])


def greedy(logits_after, rows, new):
    """Generates by the definition: repeatedly appends the most probable word to each row."""
    rows = [list(map(int, row)) for row in rows]
    longest = max(map(len, rows)) + new
    for _ in range(new):
        text = np.asarray([row + [PAD] * (longest - len(row)) for row in rows], np.int32)
        logits = np.asarray(logits_after(jnp.asarray(text)))
        for b, row in enumerate(rows):
            row.append(int(np.argmax(logits[b, len(row) - 1])))
    return rows


def check_rows(found, rows, new, eos=None):
    """Checks rows up to their first end token, and padding after it."""
    for b, row in enumerate(rows):
        start = len(row) - new
        stop = start + row[start:].index(eos) + 1 if eos in row[start:] else len(row)
        want = row[:stop] + [PAD] * (found.sequences.shape[1] - stop)
        np.testing.assert_array_equal(found.sequences[b], want)
        assert found.lengths[b] == stop


def check_prompts(model, params, lengths, prefixes, caches):
    """Checks words generated after prompts of several lengths."""
    text, new = words(3, 5, seed=4), 4
    whole = method(model)
    rows = greedy(
        lambda longer: whole(params, longer, prefix_lengths=prefixes).logits,
        [text[b, :length] for b, length in enumerate(lengths)],
        new,
    )
    eos = rows[0][lengths[0] + 1]
    for cache in caches:
        run = small.quickly(
            lambda params, cache=cache: model.generate(
                params,
                text,
                attention_mask=first(lengths, 5),
                prefix_lengths=prefixes,
                max_new_tokens=new,
                pad_token_id=PAD,
                eos_token_id=eos,
                cache=cache,
            )
        )
        check_rows(run(params), rows, new, eos)


def test_prompts_go_on():
    """Token by token, with an end token and prompts of several lengths, some of them prefixes."""
    check_prompts(*causal(), np.asarray([5, 2, 3]), jnp.asarray([4, 2, 0]), [True])


@pytest.mark.slow
@pytest.mark.parametrize("operators", SUBSETS[2::8])
def test_prompts_of_many_models_go_on(operators):
    """With fewer operators and other base atoms, and without a cache."""
    model, params = causal(operators, num_hidden_layers=2, **OTHER)
    check_prompts(model, params, np.asarray([5, 2, 3]), None, [True, False])


@pytest.mark.parametrize("cache", [True, False])
def test_new_words_are_of_their_texts_last_segment(cache):
    """As if they had been part of the prompt."""
    model, params = causal("j.")
    text, types = words(2, 3), jnp.asarray([[0, 0, 1], [0, 1, 0]])
    run = small.quickly(
        lambda params, types: model.generate(
            params,
            text,
            token_type_ids=types,
            attention_mask=first([3, 2], 3),
            max_new_tokens=3,
            pad_token_id=PAD,
            eos_token_id=None,
            cache=cache,
        )
    )
    longer = jnp.asarray([[0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
    rows = greedy(lambda t: method(model)(params, t, longer).logits, [text[0], text[1, :2]], 3)
    check_rows(run(params, types), rows, 3)


def check_targets(model, params, caches, lengths=(4, 2)):
    """Checks words of targets after a start token."""
    text, real, new = words(2, 4, seed=8), first(lengths, 4), 2
    whole = method(model)
    rows = greedy(lambda target: whole(params, text, target, None, real).logits, [[1], [1]], new)
    for cache in caches:
        run = small.quickly(
            lambda params, cache=cache: model.generate(
                params,
                text,
                attention_mask=real,
                decoder_start_token_id=1,
                max_new_tokens=new,
                pad_token_id=PAD,
                cache=cache,
            )
        )
        check_rows(run(params), rows, new)


def test_targets_are_written():
    """With an encoder-decoder, token by token."""
    check_targets(*conditional(), [True])


@pytest.mark.slow
@pytest.mark.parametrize("operators", SUBSETS[2::8])
def test_targets_of_many_models_are_written(operators):
    """With fewer operators and other base atoms, and without a cache."""
    check_targets(*conditional(operators, num_hidden_layers=2, **OTHER), [True, False])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_types(dtype):
    """The loop's state keeps its dtypes, which are those of the computation."""
    inputs, options = words(2, 3), {"max_new_tokens": 3, "pad_token_id": PAD}
    model, params = causal(dtype=dtype, **OTHER)
    prefill = lambda p: model.apply({"params": p}, inputs, capacity=5, method="prefill")  # noqa: E731
    logits, state = jax.eval_shape(prefill, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.premises)} == {jnp.dtype(dtype)}
    assert logits.dtype == jnp.float32
    out = jax.eval_shape(lambda p: model.generate(p, inputs, **options), params)
    assert out.sequences.shape == (2, 6)
    model, params = conditional(dtype=dtype, **OTHER)
    generate = lambda p: model.generate(p, inputs, decoder_start_token_id=1, **options)  # noqa: E731
    assert jax.eval_shape(generate, params).sequences.shape == (2, 4)


def test_drawing_is_as_probable_as_the_model_says():
    """Compares frequencies with the softmax at a temperature, among the words allowed by top_k and top_p."""
    logits = np.asarray([2.0, -1.0, 1.5, 0.0, 1.0, -3.0])
    count = 20000
    keys = jax.random.split(jax.random.key(0), count)
    for temperature, top_k, top_p in ((1.0, None, 1.0), (0.5, 4, 1.0), (2.0, None, 0.7), (1.0, 3, 0.5)):
        sampling = Sampling(temperature, top_k, top_p)
        draw = small.quickly(
            jax.vmap(lambda key, sampling=sampling: sampling(jnp.asarray(logits)[None], key))
        )
        found = np.bincount(np.asarray(draw(keys)).ravel(), minlength=6) / count
        order = np.argsort(-logits)[:top_k]
        p = np.exp(logits[order] / temperature)
        p /= p.sum()
        ahead = itertools.accumulate(p, initial=0.0)
        kept = [word for word, before in zip(order, ahead, strict=False) if before < top_p]
        want = np.zeros(6)
        want[kept] = np.exp(logits[kept] / temperature)
        want /= want.sum()
        np.testing.assert_array_equal(found == 0, want == 0)
        # Four standard deviations; the key is fixed.
        np.testing.assert_array_less(np.abs(found - want), 4 * np.sqrt(want * (1 - want) / count) + 1e-9)


def test_each_word_is_drawn_anew():
    """Each step and row has its own key; a choice among one word is the most probable word."""
    logits = jnp.zeros((2, 19))

    def run(key, top_k=None):
        step = lambda last, state, count: (logits, state)  # noqa: E731
        sampling = Sampling(top_k=top_k)
        return generation.search(step, 0, logits, key, sampling=sampling, max_new_tokens=8, pad=PAD)[0]

    draw = small.quickly(run, static_argnums=1)
    one, again, other = (np.asarray(draw(jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert (one[0] != one[1]).any()
    assert len(set(one[0])) > 3
    np.testing.assert_array_equal(draw(jax.random.key(0), 1), 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": 0.0}, "temperature: got 0.0, expected more than 0"),
        ({"top_k": 0}, "top_k: got 0, expected None or at least 1"),
        ({"top_p": 0.0}, "top_p: got 0.0"),
        ({"top_p": 1.5}, "top_p: got 1.5"),
    ],
)
def test_bad_sampling(given, message):
    """Numbers out of range."""
    with pytest.raises(ValueError, match=message):
        Sampling(**given)


@pytest.mark.parametrize(
    ("given", "fields", "message"),
    [
        ({"max_new_tokens": 0}, {}, "max_new_tokens: got 0, expected an integer of at least 1"),
        (
            {"max_new_tokens": 8},
            {"absolute_position": True, "max_position_embeddings": 9},
            "max_new_tokens: got 8, expected at most 7 after 3 tokens",
        ),
        ({"eos_token_id": 19}, {}, "eos_token_id: got 19, expected 0 to 18"),
        ({"pad_token_id": -1}, {}, "pad_token_id: got -1"),
        ({"attention_mask": [[0, 1, 1], [1, 1, 1]]}, {}, r"attention_mask: got \[0, 1, 1\] at \[0\]"),
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
        ({"sampling": Sampling()}, {}, "key: got None"),
    ],
)
def test_bad_inputs(given, fields, message):
    """Inputs of an encoder-decoder."""
    model, _ = conditional(**fields)
    options: dict[str, Any] = {"max_new_tokens": 2, "pad_token_id": PAD, "decoder_start_token_id": 1, **given}
    with pytest.raises(ValueError, match=message):
        generate_from(model, {}, words(2, 3), **options)
