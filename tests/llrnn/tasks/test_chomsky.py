"""The tasks of Deletang et al. on strings against plain Python, and their score against sums by hand."""

import itertools

import numpy as np
import pytest

from llrnn import tasks
from tests.llrnn.tasks.definitions import Definition, assert_defined

pytestmark = pytest.mark.usefixtures("compiled_quickly")

UNIFORM = {
    "parity": Definition(2, 2, lambda s: [s.count(1) % 2]),
    "cycle_navigation": Definition(3, 5, lambda s: [(s.count(2) - s.count(0)) % 5]),
    "even_pairs": Definition(2, 2, lambda s: [sum(x != y for x, y in itertools.pairwise(s)) % 2]),
    "reverse_string": Definition(2, 2, lambda s: s[::-1], lambda n: n),
    "duplicate_string": Definition(2, 2, lambda s: s + s, lambda n: 2 * n),
    "odds_first": Definition(2, 2, lambda s: s[1::2] + s[::2], lambda n: n),
    "bucket_sort": Definition(5, 5, sorted, lambda n: n),
}
OTHERS = {
    "stack_manipulation": Definition(5, 3, lambda s: [*reversed(left_on_the_stack(s)), 2], lambda n: n + 1),
    "missing_duplicate_string": Definition(4, 2, lambda s: [missing(s)], shortest=2),
}


def left_on_the_stack(string):
    stack = []
    for symbol in string:
        if symbol == 2:
            stack = stack[:-1]
        else:
            stack.append(symbol % 3)
    return stack


def missing(string):
    half = len(string) // 2
    place = string.index(2)
    first, second = string[:half], string[half : 2 * half]
    symbol = (first + second)[place - half]
    assert [symbol if x == 2 else x for x in first] == [symbol if x == 2 else x for x in second]
    assert string[2 * half :] == [3] * (len(string) % 2)
    return symbol


@pytest.mark.parametrize("name", [*UNIFORM, *OTHERS])
def test_every_task_against_its_definition(draw, name):
    assert_defined(draw, name, (UNIFORM | OTHERS)[name])


def test_stacks_have_uniform_heights_and_uniform_symbols(draw_many):
    strings = draw_many(tasks.make("stack_manipulation"), 9, 16, batch_size=32).tokens[:, :9, 0]
    stack = np.cumsum(strings > 1, axis=1) == 0
    heights = np.bincount([row.index(next(x for x in row if x > 1)) for row in strings.tolist()])
    assert heights[0] == 0
    assert np.all(np.abs(heights[1:] - 64) < 35)
    bits = np.bincount(strings[stack])
    assert abs(bits[0] - bits[1]) < 0.1 * bits.sum()
    actions = np.bincount(strings[~stack], minlength=5)[2:]
    assert np.all(np.abs(actions / actions.sum() - 1 / 3) < 0.05)


def test_every_place_of_a_duplicate_can_be_missing(draw_many):
    batch = draw_many(tasks.make("missing_duplicate_string"), 8, 16, batch_size=32)
    places = np.bincount(np.argmax(batch.tokens[:, :8, 0] == 2, axis=1), minlength=8)
    assert np.all(np.abs(places - 64) < 35)
    assert abs(batch.targets[:, 8].mean() - 0.5) < 0.1


@pytest.mark.parametrize("name", UNIFORM)
def test_strings_are_uniform(draw_many, name):
    alphabet = UNIFORM[name].symbols
    strings = draw_many(tasks.make(name), 20, 16, batch_size=32).tokens[:500, :20, 0]
    assert np.all(np.abs(np.bincount(strings.ravel()) - 10000 / alphabet) < 500)
    assert len(np.unique(strings, axis=0)) == 500


def test_larger_alphabets(draw):
    task = tasks.make("reverse_string", alphabet=6)
    batch = draw(task, 20, batch_size=4)
    assert (task.fields, task.num_outputs) == ((7,), 6)
    assert batch.tokens[:, :20].max() == 5
    np.testing.assert_array_equal(batch.targets[:, 20:], batch.tokens[:, 19::-1, 0])
    walk = tasks.make("cycle_navigation", cycle=3)
    batch = draw(walk, 20, batch_size=64)
    np.testing.assert_array_equal(batch.targets[:, 20], (batch.tokens[:, :20, 0] - 1).sum(axis=1) % 3)
    assert walk.num_outputs == 3
    assert tasks.make("cycle_navigation", cycle=2).num_outputs == 2


@pytest.mark.parametrize("name", ["odds_first", "modular_arithmetic"])
@pytest.mark.parametrize("length", [4, 7])
def test_computation_comes_between_string_and_answer(draw, name, length):
    """The strings and answers are those without it, at other times; the two empty symbols differ."""
    plain, task = tasks.make(name), tasks.make(name, computation=2)
    assert isinstance(task, tasks.StringTask)
    assert task.fields == (plain.fields[0] + 1,)
    assert task.steps(length) == plain.steps(length) + 2 * length
    end = int(task.string_length(length))
    batch, other = (draw(one, length, batch_size=32, seed=1) for one in (task, plain))
    tokens, symbols = batch.tokens[..., 0], task.symbols
    np.testing.assert_array_equal(tokens[:, :end], other.tokens[:, :end, 0])
    assert set(tokens[:, end : 3 * end].ravel().tolist()) == {symbols}
    assert set(tokens[:, 3 * end :].ravel().tolist()) == {symbols + 1}
    answer = int(task.output_length(length))
    for field in ("targets", "mask"):
        found, wanted = (np.asarray(getattr(one, field)) for one in (batch, other))
        np.testing.assert_array_equal(found[:, 3 * end : 3 * end + answer], wanted[:, end : end + answer])
        assert found.sum() == wanted.sum()


def test_score_is_the_mean_over_41_to_500():
    accuracies = dict.fromkeys(range(41, 501), 0.5)
    assert tasks.deletang_score(accuracies) == pytest.approx(0.5)
    assert tasks.deletang_score(accuracies | {1: 1.0, 40: 1.0, 501: 1.0}) == pytest.approx(0.5)
    assert tasks.deletang_score(accuracies | {41: 1.0}) == pytest.approx(0.5 + 0.5 / 460)
    assert tasks.deletang_score(accuracies | {500: 0.0}) == pytest.approx(0.5 - 0.5 / 460)
    assert tasks.deletang_score({50: 0.25, 100: 0.75, 200: 0.9}, lengths=(50, 100)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("accuracies", "lengths", "message"),
    [
        (dict.fromkeys(range(42, 501), 1.0), range(41, 501), "got no accuracy for 1 lengths, starting at 41"),
        ({}, (50,), "accuracy_by_length: got no accuracy for 1 lengths"),
        ({50: 1.5}, (50,), "accuracy_by_length: got 1.5 at length 50, expected 0 to 1"),
        ({50: float("nan")}, (50,), "accuracy_by_length: got nan at length 50"),
        ({50: 1.0}, (), "lengths: got none, expected at least one length"),
    ],
)
def test_score_refuses(accuracies, lengths, message):
    with pytest.raises(ValueError, match=message):
        tasks.deletang_score(accuracies, lengths=lengths)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("even_pairs", {"alphabet": 3}, "alphabet of even_pairs: got 3, expected 2"),
        ("parity", {"alphabet": 3}, "alphabet of parity: got 3, expected 2"),
        ("bucket_sort", {"alphabet": 1}, "alphabet: got 1, expected at least 2"),
        ("cycle_navigation", {"alphabet": 2}, "alphabet of cycle_navigation: got 2, expected 3"),
        ("cycle_navigation", {"cycle": 1}, "cycle: got 1, expected at least 2"),
        ("odds_first", {"computation": -1}, "computation of odds_first: got -1, expected at least 0"),
    ],
)
def test_refuses_what_is_no_task(name, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.make(name, **options)
