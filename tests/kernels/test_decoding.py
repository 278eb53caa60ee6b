"""Loops of decoding: ends, what may follow, sampling, and beams against lists and all sequences there are."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels import decoding
from kernels.decoding import Ends, Sampling

pytestmark = pytest.mark.usefixtures("compiled_quickly")

EOS, PAD = 2, 0


def counting(vocab, ends):
    """Returns a step without a model: w is followed by w + 1, and each row ends after a given number."""

    def step(last, state, count):
        word = jnp.where(count >= ends - 1, EOS, last + 1)
        return jax.nn.one_hot(word, vocab), state + 1

    return step


STEPS: list[int] = []


@jax.jit
def searched(logits, ends):
    """Runs the loop with a step that records its numbers."""

    def step(last, state, count):
        jax.debug.callback(lambda c: STEPS.append(int(c)), count)
        return counting(19, ends)(last, state, count)

    return decoding.search(step, jnp.int32(0), logits=logits, most=5, ends=Ends(PAD, (EOS,)))


@pytest.mark.parametrize("ends", [(1, 3, 4), (2, 2, 3), (9, 9, 9)])
def test_rows_end_by_themselves(ends):
    """An end token is kept and padding follows; the loop stops when no row needs another step."""
    ends = np.asarray(ends)
    starts = np.asarray([5, 7, 9])
    logits = jax.nn.one_hot(np.where(ends == 1, EOS, starts), 19)
    STEPS.clear()
    tokens, made = searched(logits, jnp.asarray(ends))
    jax.effects_barrier()
    for row, start, end in zip(np.asarray(tokens), starts, ends, strict=True):
        want = [start + i for i in range(min(end - 1, 5))] + [EOS] * int(end <= 5)
        np.testing.assert_array_equal(row, want + [PAD] * (5 - len(want)))
    np.testing.assert_array_equal(made, np.minimum(ends, 5))
    assert sorted(STEPS) == list(range(1, min(ends.max(), 5)))


def test_without_an_end_token_nothing_ends():
    """The padding token is then an ordinary word."""
    step, logits = counting(19, jnp.asarray([2, 3])), jax.nn.one_hot(jnp.asarray([5, 0]), 19)
    tokens, made = decoding.search(step, jnp.int32(0), logits=logits, most=4, ends=Ends(PAD))
    np.testing.assert_array_equal(tokens, [[5, EOS, EOS, EOS], [0, 1, EOS, EOS]])
    np.testing.assert_array_equal(made, [4, 4])


def test_drawing_is_as_probable_as_the_model_says():
    """Compares frequencies with the softmax at a temperature, among the words allowed by top_k and top_p."""
    logits = np.asarray([2.0, -1.0, 1.5, 0.0, 1.0, -3.0])
    count = 20000
    cases = ((1.0, None, 1.0), (0.5, 4, 1.0), (2.0, None, 0.7), (1.0, 3, 0.5))
    rows = jnp.broadcast_to(jnp.asarray(logits)[None], (count, 6))
    draw = jax.jit(
        lambda rows: [Sampling(*case)(rows, jax.random.key(n, impl="rbg")) for n, case in enumerate(cases)]
    )
    for (temperature, top_k, top_p), drawn in zip(cases, draw(rows), strict=True):
        found = np.bincount(drawn, minlength=6) / count
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
        return decoding.search(step, 0, logits=logits, key=key, sampling=sampling, most=8, ends=Ends(PAD))[0]

    draw = jax.jit(run, static_argnums=1)
    one, again, other = (np.asarray(draw(jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert (one[0] != one[1]).any()
    assert len(set(one[0])) > 3
    np.testing.assert_array_equal(draw(jax.random.key(0), 1), 0)
    # Ties are sorted by word; more words than there are is all of them.
    assert {0, 4} <= set(np.unique(draw(jax.random.key(0), 5))) <= set(range(5))
    np.testing.assert_array_equal(draw(jax.random.key(0), 100), one)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"logits": jnp.zeros((1, 3)), "sampling": Sampling()}, "key: got None"),
        ({}, "last, logits: got none, expected one of them"),
        ({"logits": jnp.zeros((1, 3)), "last": jnp.zeros(1, int)}, "last, logits: got both"),
    ],
)
def test_what_the_loop_needs(given, message):
    with pytest.raises(ValueError, match=message):
        decoding.search(lambda last, state, count: (state, state), 0, most=2, ends=Ends(PAD), **given)


def test_top_p_ends_where_it_is_reached():
    """Of two equally probable words the first has half of the probability, and is enough for it."""
    rows = jnp.zeros((50, 2))
    assert not Sampling(top_p=0.5)(rows, jax.random.key(0, impl="rbg")).any()
    assert Sampling(top_p=0.51)(rows, jax.random.key(0, impl="rbg")).any()


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


def test_rows_end_with_one_of_several_symbols_or_with_several_in_a_row():
    """Of 5 6 7 8 9 10: at 8 or 10, and after 6 7; a sequence longer than the row never ends it."""
    step = lambda last, state, count: (jax.nn.one_hot(last + 1, 12), state)  # noqa: E731
    run = lambda **ends: decoding.search(step, 0, last=jnp.asarray([4]), most=6, ends=Ends(PAD, **ends))  # noqa: E731
    for ends, count in (
        ({"symbols": (10, 8)}, 4),
        ({"sequences": ((6, 7),)}, 3),
        ({"sequences": ((7, 6), (4, 5), (8, 9))}, 5),
        ({"sequences": (tuple(range(4, 11)),)}, 6),
    ):
        tokens, made = run(**ends)
        np.testing.assert_array_equal(tokens[0], [*range(5, 5 + count), *[PAD] * (6 - count)])
        assert int(made[0]) == count
    with pytest.raises(ValueError, match="sequences: got one without symbols"):
        Ends(PAD, sequences=((),))


def rising(tokens, count):
    """Allows symbols that are greater than the last one, and the greatest of all again and again."""
    vocab = 5
    last = jnp.where(
        count > 0, jnp.take_along_axis(tokens, jnp.maximum(count - 1, 0)[None, None], axis=1), -1
    )
    symbols = jnp.arange(vocab)[None]
    return (symbols > last) | ((symbols == vocab - 1) & (last == vocab - 1))


def test_only_what_is_allowed_follows():
    """The most probable symbol of those, for sampling too."""
    logits = jnp.asarray([[3.0, 0.0, 2.0, 1.0, -1.0]] * 2)
    step = lambda last, state, count: (logits, state)  # noqa: E731
    options: Any = {"logits": logits, "most": 4, "ends": Ends(9), "allowed": rising}
    tokens, _ = decoding.search(step, 0, **options)
    np.testing.assert_array_equal(tokens, [[0, 2, 3, 4]] * 2)
    drawn, _ = decoding.search(step, 0, key=jax.random.key(3), sampling=Sampling(temperature=3.0), **options)
    assert (np.diff(drawn, axis=1) > 0).sum() + (np.asarray(drawn)[:, 1:] == 4).sum() >= 6
    assert ((np.diff(drawn, axis=1) > 0) | (np.asarray(drawn)[:, 1:] == 4)).all()


@pytest.mark.parametrize("allowed", [None, rising])
def test_beams_are_the_best_of_all_sequences(allowed):
    """With a beam as wide as their number; probabilities are of what may follow. The state has a scalar."""
    vocab, most = 5, 3
    tables = np.random.default_rng(0).normal(size=(2, most, vocab, vocab)) * 2

    def step(last, state, count):
        of_row, total = state
        return jnp.asarray(tables)[of_row, total, last], (of_row, total + 1)

    beams = vocab**most
    rows = jnp.broadcast_to(jnp.arange(2)[:, None], (2, beams))
    options: Any = {"most": most, "ends": Ends(PAD, (EOS,)), "allowed": allowed}
    found = jax.jit(lambda last: decoding.search_beams(step, (rows, jnp.int32(0)), last=last, **options))(
        jnp.ones((2, beams), jnp.int32)
    )
    # The same from the logits of the first symbols.
    first = jnp.broadcast_to(jnp.asarray(tables)[:, None, 0, 1], (2, beams, vocab))
    state = (rows, jnp.int32(1))
    again = jax.jit(lambda of: decoding.search_beams(step, state, logits=of, **options))(first)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6), again, found)
    for row in range(2):
        want: dict[tuple[int, ...], float] = {}
        for symbols in itertools.product(range(vocab), repeat=most):
            last, total, answer = 1, 0.0, ()
            for count, symbol in enumerate(symbols):
                logits = tables[row, count, last].copy()
                if allowed is not None:
                    before = -1 if not answer else last
                    logits[
                        [s for s in range(vocab) if s <= before and not s == before == vocab - 1]
                    ] = -np.inf
                total += logits[symbol] - np.log(np.exp(logits).sum())
                answer, last = (*answer, symbol), symbol
                if symbol == EOS:
                    break
            if np.isfinite(total):
                want[answer] = total
        best = sorted(want.items(), key=lambda pair: -pair[1])
        count = len(best)
        np.testing.assert_allclose(found.log_probabilities[row, :count], [p for _, p in best], rtol=1e-4)
        for tokens, length, (answer, _) in zip(found.tokens[row], found.lengths[row], best, strict=False):
            assert tuple(tokens[:length].tolist()) == answer
        assert np.isneginf(found.log_probabilities[row, count:]).all()
        assert not found.lengths[row, count:].any()
