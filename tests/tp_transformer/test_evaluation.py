"""Exact match, per module and averaged, by decoding and by forced comparison."""

import json

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import strategies as st

from tests.tp_transformer import small
from tp_transformer import TPTransformer, decoding, evaluation, objective
from tp_transformer.evaluation import Scores, Share, exact_match, forced_match, score
from tp_transformer.mathematics.batches import Batch, Batches
from tp_transformer.mathematics.questions import Question
from tp_transformer.mathematics.sources import Generator
from tp_transformer.mathematics.vocabulary import DEFAULT, END, PAD, START

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SET = Generator(
    train=90,
    test=25,
    names=("comparison__pair", "numbers__is_prime", "numbers__place_value"),
    extrapolation=("numbers__place_value_big",),
)
ANSWERS = st.lists(st.integers(3, 6), min_size=1, max_size=6)
SAID = st.lists(st.integers(0, 6), max_size=8)


match = jax.jit(exact_match, static_argnames="end")


def _row(answer, length):
    return [START, *answer, END] + [PAD] * (length - len(answer) - 2)


@hypothesis.given(
    st.lists(st.tuples(ANSWERS, st.lists(st.integers(0, 6), max_size=8)), min_size=1, max_size=6)
)
@hypothesis.settings(deadline=None, max_examples=20)
def test_exact_match_compares_answers_as_lists(pairs):
    """Compared with a definition in plain Python: symbols up to the first end must agree."""
    pairs = (pairs * 6)[:6]  # one shape, compiled once
    target = np.asarray([_row(answer, 8) for answer, _ in pairs])
    decoded = np.asarray([([START, *said] + [PAD] * 9)[:9] for _, said in pairs])
    expected = []
    for answer, said in pairs:
        expected.append((said + [PAD] * 9)[: len(answer) + 1] == [*answer, END])
    np.testing.assert_array_equal(match(decoded, target), expected)


def test_exact_match_by_hand():
    """Symbols after the end and widths do not matter; a missing end counts as an error."""
    target = np.asarray([_row([5, 6], 5)] * 6)
    decoded = np.asarray(
        [
            [START, 5, 6, END, PAD, PAD],
            [START, 5, 6, END, 7, END],
            [START, 5, 6, PAD, END, PAD],
            [START, 5, 6, 6, END, PAD],
            [START, 5, END, PAD, PAD, PAD],
            [START, 6, 5, END, PAD, PAD],
        ]
    )
    np.testing.assert_array_equal(match(decoded, target), [True, True, False, False, False, False])
    np.testing.assert_array_equal(match(decoded[:, :4], target), [True, True, False, False, False, False])
    np.testing.assert_array_equal(match(decoded[:, :3], target), [False] * 6)
    # What is missing is not the end, whatever its symbol.
    assert not match(np.asarray([[1, 7]]), np.asarray([[1, 7, 0]]), end=0)[0]
    assert match(np.asarray([[1, 7, 0]]), np.asarray([[1, 7, 0, 5]]), end=0)[0]
    without_end = np.asarray([[START, 5, 6, 5, 6]])
    with_end = np.asarray([[START, 5, 6, 5, END]])
    both = np.concatenate([without_end, with_end])
    np.testing.assert_array_equal(match(both, both), [False, True])


def test_forced_match_is_greedy_decoding():
    """Both functions agree with greedy decoding of a table of next symbols in plain Python."""
    rng = np.random.default_rng(0)
    vocabulary, length, rows = 7, 6, 400
    table = rng.normal(size=(rows, length, vocabulary, vocabulary))  # row, position, symbol before: logits
    answers = [rng.integers(3, vocabulary, rng.integers(1, 4)).tolist() for _ in range(rows)]
    target = np.asarray([_row(answer, length) for answer in answers])
    for row in range(0, rows, 2):  # every second would be decoded rightly
        for place, (before, after) in enumerate(zip(target[row], target[row, 1:], strict=False)):
            table[row, place, before, after] += 9
    logits = np.stack([table[np.arange(rows), i, target[:, i]] for i in range(length - 1)], axis=1)
    decoded = np.full((rows, length), PAD)
    decoded[:, 0] = START
    for row in range(rows):
        for place in range(length - 1):
            decoded[row, place + 1] = symbol = table[row, place, decoded[row, place]].argmax()
            if symbol == END:
                break
    forced = np.asarray(jax.jit(forced_match)(logits, target))
    np.testing.assert_array_equal(forced, exact_match(decoded, target))
    assert 200 <= forced.sum() < 250


def test_scores_count_like_the_paper():
    """Modules have equal weights in the average, whatever their size; "above" is strict."""
    scores = Scores("interpolate", {"a": Share(95, 100), "b": Share(96, 100), "c": Share(1, 4)})
    assert scores.accuracies == {"a": 0.95, "b": 0.96, "c": 0.25}
    assert scores.average == pytest.approx((0.95 + 0.96 + 0.25) / 3)
    assert scores.above() == 1
    assert scores.above(0.2) == 3
    assert Scores.from_json(json.loads(json.dumps(scores.to_json()))) == scores
    both = scores + Scores("interpolate", {"a": Share(5, 100), "d": Share(1, 1)})
    assert both.modules == {"a": Share(100, 200), "b": Share(96, 100), "c": Share(1, 4), "d": Share(1, 1)}
    with pytest.raises(ValueError, match="got splits interpolate and extrapolate, expected one split"):
        scores + Scores("extrapolate", {})
    assert np.isnan(Share(0, 0).accuracy)


def test_score_goes_through_a_split():
    """Every question counts once, padding rows never; a known number is correct in each module."""
    batches = Batches(SET, "interpolate", batch_size=16, shuffle=False, keep_last=True)
    right_answers = {}
    for index in range(batches.num_questions):
        module = batches.modules[index // 25]
        right_answers[module] = right_answers.get(module, 0) + (batches.question(index).answer[0] in "FT3")

    @jax.jit
    def right(target):
        begins = jnp.asarray([DEFAULT.encode(letter)[1] for letter in "FT3"])
        return jnp.any(target[:, 1, None] == begins[None], axis=1)

    scores = score(lambda batch: right(batch.target), batches, batches.modules, split="interpolate")
    assert scores.modules == {module: Share(right_answers[module], 25) for module in batches.modules}
    halves = [
        score(
            lambda batch: right(batch.target).tolist(),  # also numbers on the host
            Batches(
                SET,
                "interpolate",
                batch_size=16,
                shuffle=False,
                keep_last=True,
                process_index=host,
                process_count=2,
            ),
            batches.modules,
            split="interpolate",
        )
        for host in range(2)
    ]
    assert halves[0] + halves[1] == scores


def test_score_refuses_another_shape():
    """`right` must return one value per row."""
    batches = Batches(SET, "extrapolate", batch_size=5)
    with pytest.raises(ValueError, match=r"right: got shape \(5, 1\), expected \(5,\)"):
        score(lambda batch: batch.index[:, None] > 0, batches, batches.modules, split="extrapolate")


def test_most_frequent_answers():
    """Per module of the training split; this is the baseline a model must beat."""
    batches = Batches(SET, "train", batch_size=10)
    frequent = evaluation.most_frequent_answers(batches)
    assert set(frequent) == set(SET.names)
    for module, answer in frequent.items():
        answers = [pair.answer for pair in SET.questions("train", module)]
        assert answers.count(answer) == max(answers.count(other) for other in answers)
    assert frequent["numbers__is_prime"] in ("True", "False")


def test_of_equally_frequent_answers_the_first_in_the_alphabet():
    """Whichever was asked for first."""
    answers = ("b", "9", "10", "9", "b", "10", "a")

    class Asked(list):
        modules = ("one",)

        def question(self, index):
            return Question("?", answers[index])

    rows = np.arange(len(answers), dtype=np.int32)
    batch = Batch(rows[:, None], rows[:, None], 0 * rows, rows)
    assert evaluation.most_frequent_answers(Asked([batch])) == {"one": "10"}


@pytest.mark.parametrize(
    "call",
    [
        lambda: exact_match(np.zeros((3, 4), int), np.zeros((2, 4), int)),
        lambda: exact_match(np.zeros(4, int), np.zeros((1, 4), int)),
        lambda: forced_match(np.zeros((3, 4, 7)), np.zeros((3, 4), int)),
        lambda: forced_match(np.zeros((3, 4)), np.zeros((3, 4), int)),
    ],
)
def test_shapes_are_checked(call):
    """Errors state both shapes."""
    with pytest.raises(ValueError, match=r"got shapes? \(.*\(.*\)"):
        call()


@pytest.mark.slow
def test_both_ways_agree_on_a_model_that_has_learned_a_little():
    """Cached decoding and forced answers give the same scores, for a model that answers True or False."""
    primes = Generator(train=300, test=64, names=("numbers__is_prime",), extrapolation=())
    sizes = {"batch_size": 32, "buckets": ((48, 8),)}
    train = Batches(primes, "train", **sizes)
    test = Batches(primes, "interpolate", **sizes, shuffle=False, keep_last=True)
    model = small.build(TPTransformer, vocab_size=DEFAULT.size)
    params = small.quickly(model.init)(jax.random.key(0), train[0].source, train[0].target)["params"]
    optimizer = optax.adam(1e-2)

    @small.quickly
    def update(params, state, batch):
        def loss(params):
            given, labels = objective.shifted(batch.target)
            sums = objective.next_symbol_sums(model.apply({"params": params}, batch.source, given), labels)
            return sums.loss / sums.symbols

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for step in range(30):
        params, state = update(params, state, train[step])

    @small.quickly
    def forced(batch):
        given = batch.target[:, :-1]
        return forced_match(model.apply({"params": params}, batch.source, given), batch.target)

    def decoded(batch):
        tokens = decoding.greedy_decode(model, params, batch.source, max_length=7, start=START, end=END)
        return exact_match(tokens, batch.target)

    one, other = (score(right, test, test.modules, split="interpolate") for right in (forced, decoded))
    assert one == other
    assert 10 < one.modules["numbers__is_prime"].right < 64
