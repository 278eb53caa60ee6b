"""Loops of decoding: ends, what may follow, sampling, and beams against lists and all sequences there are."""

import functools
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


def test_tokens_have_32_bits_where_numbers_have_64():
    with jax.enable_x64(True):
        step, logits = counting(19, jnp.asarray([2])), jax.nn.one_hot(jnp.asarray([5]), 19)
        tokens, _ = decoding.search(step, jnp.int32(0), logits=logits, most=3, ends=Ends(PAD))
    assert tokens.dtype == jnp.int32
    np.testing.assert_array_equal(tokens, [[5, EOS, EOS]])


@pytest.mark.parametrize(
    ("dtype", "size", "found"),
    [
        (jnp.int8, 128, jnp.int8),
        (jnp.int8, 129, jnp.int32),
        (jnp.int16, 2**15, jnp.int16),
        (jnp.int16, 2**15 + 1, jnp.int32),
        (jnp.int32, 2**31, jnp.int32),
    ],
)
def test_words_have_the_prompts_type_if_it_has_all_of_them(dtype, size, found):
    words = decoding.as_words(jnp.asarray([[size - 1]]), jnp.zeros((3, 2), dtype), size)
    assert (words.dtype, int(words[0, 0])) == (found, size - 1)


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
    drawn = jax.jit(
        lambda rows: [Sampling(top_p=p)(rows, jax.random.key(0, impl="rbg")).any() for p in (0.5, 0.51)]
    )
    assert list(map(bool, drawn(np.zeros((50, 2), np.float32)))) == [False, True]


def test_top_p_of_many_words_is_summed_in_32_bits():
    """With sixteen bits, the sum over equally probable words would stop to grow at a quarter of them."""
    logits = jnp.zeros((400, 1024), jnp.bfloat16)
    drawn = Sampling(top_p=0.75)(logits, jax.random.key(0))
    assert 700 < drawn.max() < 0.75 * 1024


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
        ({"sequences": ((5, 6),)}, 2),
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


def test_beams_are_the_best_of_all_sequences_that_are_allowed():
    """With a beam as wide as their number; probabilities are of what may follow. The state has a scalar."""
    vocab, most = 5, 3
    tables = np.random.default_rng(0).normal(size=(2, most, vocab, vocab)) * 2

    def step(last, state, count):
        of_row, total = state
        return jnp.asarray(tables)[of_row, total, last], (of_row, total + 1)

    beams = vocab**most
    rows = jnp.broadcast_to(jnp.arange(2)[:, None], (2, beams))
    options: Any = {"most": most, "ends": Ends(PAD, (EOS,)), "allowed": rising}
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
                before = -1 if not answer else last
                logits[[s for s in range(vocab) if s <= before and not s == before == vocab - 1]] = -np.inf
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
            if symbol in (EOS, PAD):
                break
        found[tuple(answer)] = total
    return sorted(((total, answer) for answer, total in found.items()), reverse=True)


def drawn_table(vocab: int, length: int, seed: int, scale: float = 2.0) -> np.ndarray:
    """Draws logits for every prefix shorter than a length."""
    count = sum(vocab**n for n in range(length))
    return scale * np.random.default_rng(seed).normal(size=(count, vocab))


@functools.partial(jax.jit, static_argnames=("width", "length", "length_exponent"))
def searched_table(table: np.ndarray, width: int, length: int, length_exponent: float = 0.0) -> Any:
    """Runs beam search on a table of logits; a row ends with EOS or padding."""
    step, state = by_prefix(table), jnp.zeros((1, width), jnp.int32)
    options: Any = {"most": length, "ends": Ends(PAD, (EOS, PAD)), "length_exponent": length_exponent}
    return decoding.search_beams(step, state, last=jnp.ones((1, width), jnp.int32), **options)


def answers(found: Any) -> list[tuple[int, ...]]:
    """Returns the sequences of the only row, without padding."""
    pairs = zip(np.asarray(found.tokens[0]), np.asarray(found.lengths[0]), strict=True)
    return [tuple(tokens[:length].tolist()) for tokens, length in pairs]


def test_a_wide_beam_finds_the_best_answers_there_are():
    """With as many beams as answers, all are found in order, with probabilities that sum to 1."""
    table = drawn_table(4, 3, seed=0)
    want = all_answers(table, 3)
    found = searched_table(table, len(want), 3)
    assert answers(found) == [answer for _, answer in want]
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
            if answer and answer[-1] in (EOS, PAD):
                longer.append((rank, total, prefix, answer))
                continue
            for symbol in range(vocab):
                sum_, size = total + log_p[prefix, symbol], len(answer) + 1
                rank_ = sum_ / ((5 + size) / 6) ** exponent
                longer.append((rank_, sum_, vocab * prefix + symbol + 1, (*answer, symbol)))
        alive = sorted(longer, key=lambda x: -x[0])[:width]
    return [(total, answer) for _, total, _, answer in alive]


@pytest.mark.parametrize(("width", "exponent"), [(1, 0.0), (3, 0.6)])
def test_narrow_beams_against_lists(width, exponent):
    """The same hypotheses are kept and dropped, with and without a length penalty."""
    for seed in range(6):
        table = drawn_table(5, 4, seed)
        found = searched_table(table, width, 4, length_exponent=exponent)
        want = plain_beam(table, width, 4, exponent)
        assert answers(found) == [answer for _, answer in want]
        np.testing.assert_allclose(found.log_probabilities[0], [total for total, _ in want], rtol=1e-4)


def test_a_beam_finds_what_greedy_misses():
    """The most probable first symbol has improbable continuations; the second has a certain one."""
    p = np.full((1 + 4, 4), 1e-6)
    p[0] = (1e-6, 0.4, 1e-6, 0.6)  # 3, or 1?
    p[1 + 3] = (0.25, 0.25, 0.25, 0.25)  # after 3, nothing is sure
    p[1 + 1, EOS] = 1  # after 1 comes the end
    table = np.log(p / p.sum(axis=1, keepdims=True))
    narrow, wide = (searched_table(table, width, 2) for width in (1, 2))
    assert answers(narrow)[0][0] == 3
    assert answers(wide)[0] == (1, EOS)
    np.testing.assert_allclose(np.exp(wide.log_probabilities[0, 0]), 0.4, rtol=1e-4)
    assert wide.log_probabilities[0, 0] > narrow.log_probabilities[0, 0]


def test_sums_have_32_bits_where_logits_have_16():
    """Sixteen bits would be too few to tell long answers apart."""
    logits = jnp.linspace(0, 3, 9, dtype=jnp.bfloat16)[None, None]
    found = decoding.search_beams(
        lambda last, state, count: (jnp.broadcast_to(logits, (1, 2, 9)), state),
        jnp.int32(0), logits=jnp.broadcast_to(logits, (1, 2, 9)), most=8, ends=Ends(PAD),
    )  # fmt: skip
    wanted = 8 * jax.nn.log_softmax(logits.astype(jnp.float32))[0, 0, -1]
    assert found.log_probabilities.dtype == jnp.float32
    np.testing.assert_allclose(found.log_probabilities[0, 0], wanted, rtol=1e-6)


def test_fewer_answers_than_beams():
    """Unused beams have probability 0 and contain no symbols."""
    table = drawn_table(3, 1, 0)
    found = searched_table(table, 5, 1)
    assert answers(found) == [answer for _, answer in all_answers(table, 1)] + [(), ()]
    np.testing.assert_array_equal(found.log_probabilities[0, 3:], -np.inf)
    np.testing.assert_array_equal(found.tokens[0, 3:], PAD)


@pytest.mark.parametrize("pad", [-1, 9])
def test_padding_need_not_be_a_symbol(pad):
    """What has ended stays in the beam as it does with a symbol for padding."""
    logits = jnp.asarray([[[0.1, 0.4, 1.5, 1.0]] * 3])
    step = lambda last, state, count: (logits, state)  # noqa: E731
    options: Any = {"last": jnp.zeros((1, 3), jnp.int32), "most": 4}
    found, wanted = (decoding.search_beams(step, 0, ends=Ends(p, (EOS,)), **options) for p in (pad, PAD))
    np.testing.assert_array_equal(wanted.tokens[0, 0], [EOS, PAD, PAD, PAD])
    ended = np.arange(4) >= np.asarray(wanted.lengths)[..., None]
    assert ended.any(axis=-1).all()
    np.testing.assert_array_equal(found.tokens, np.where(ended, pad, wanted.tokens))
    jax.tree.map(np.testing.assert_array_equal, found[1:], wanted[1:])


@pytest.mark.parametrize("search", [decoding.search, decoding.search_beams])
def test_one_symbol_at_least_is_asked_for(search):
    with pytest.raises(ValueError, match="most: got 0, expected at least 1"):
        search(lambda *_: None, 0, last=jnp.zeros((1, 2), int), most=0, ends=Ends(PAD))


def test_length_exponent_favours_length():
    """One symbol of probability 0.5 or four of 0.8 each: the longer is less probable but ranks higher."""
    assert decoding.length_penalty(jnp.asarray(7), 1.0) == 2
    p = np.full((sum(4**n for n in range(4)), 4), 1e-9)
    p[0, EOS], p[0, 3] = 0.5, 0.5
    prefix = 0
    for _ in range(2):
        prefix = 4 * prefix + 4
        p[prefix, 3], p[prefix, 1] = 0.8, 0.2
    p[4 * prefix + 4, EOS] = 1
    table = np.log(p / p.sum(axis=1, keepdims=True))
    assert answers(searched_table(table, 4, 4))[0] == (EOS,)
    assert answers(searched_table(table, 4, 4, length_exponent=2.0))[0] == (3, 3, 3, EOS)


@pytest.mark.parametrize("kind", ["greedy", "beams"])
def test_it_stops_when_all_have_ended(kind):
    """The number of steps is that of the longest row, not the maximum."""
    steps = []
    ends_at = jnp.asarray([1, 3, 2])

    def step(last, state, count):
        jax.debug.callback(lambda c: steps.append(int(c)), count)
        symbol = jnp.where(count + 1 >= ends_at, EOS, 4).reshape(last.shape)
        return 9.0 * jax.nn.one_hot(symbol, 6), state

    options: Any = {"most": 20, "ends": Ends(3, (EOS,))}
    ones = jnp.ones(3, jnp.int32)
    if kind == "greedy":
        found = jax.jit(lambda: decoding.search(step, (), last=ones, **options)[0])()
    else:
        found = jax.jit(lambda: decoding.search_beams(step, (), last=ones[:, None], **options).tokens[:, 0])()
    jax.effects_barrier()
    assert sorted(steps) == [0, 1, 2]
    np.testing.assert_array_equal(found[:, :3], [[2, 3, 3], [4, 4, 2], [4, 2, 3]])
    np.testing.assert_array_equal(found[:, 3:], 3)
