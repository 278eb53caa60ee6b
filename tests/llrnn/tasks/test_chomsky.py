"""The tasks of Deletang et al. against plain Python, and their score against sums computed by hand."""

import itertools
import math
import operator

import numpy as np
import pytest

from llrnn import tasks

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ANSWERS = {  # alphabet, classes, and the answer to a string
    "parity": (2, 2, lambda s: [s.count(1) % 2]),
    "cycle_navigation": (3, 5, lambda s: [(s.count(2) - s.count(0)) % 5]),
    "reverse_string": (2, 2, lambda s: s[::-1]),
    "duplicate_string": (2, 2, lambda s: s + s),
    "odds_first": (2, 2, lambda s: s[1::2] + s[::2]),
    "bucket_sort": (5, 5, sorted),
    "even_pairs": (2, 2, lambda s: [sum(x != y for x, y in itertools.pairwise(s)) % 2]),
}
OTHERS = {  # symbols, classes, least length, the longest answer, and the answer to a string
    "stack_manipulation": (5, 3, 1, lambda n: n + 1, lambda s: [*reversed(left_on_the_stack(s)), 2]),
    "missing_duplicate_string": (4, 2, 2, lambda n: 1, lambda s: [missing(s)]),
    "modular_arithmetic": (8, 5, 1, lambda n: 1, lambda s: [value(s, "01234+-*")]),
    "modular_arithmetic_brackets": (9, 5, 1, lambda n: 1, lambda s: [value(s, "01234+-()")]),
    "solve_equation": (11, 5, 3, lambda n: 1, lambda s: solutions("".join("01234+-()x="[c] for c in s))),
    "binary_addition": (3, 3, 3, lambda n: n + 1, lambda s: bits(operator.add, s)),
    "binary_multiplication": (3, 3, 3, lambda n: n, lambda s: bits(operator.mul, s)),
    "compute_sqrt": (2, 2, 1, lambda n: -(-n // 2), lambda s: root(s)),
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


def value(string, shown):
    """Returns the value of an expression of digits, modulo 5; Python knows the rules."""
    return eval("".join(shown[symbol] for symbol in string)) % 5


def solutions(equation):
    left, right = equation.split("=")
    return [x for x in range(5) if eval(left.replace("x", str(x))) % 5 == int(right)]


def number(lowest_first):
    return sum(bit << place for place, bit in enumerate(lowest_first))


def bits(operation, string):
    """Returns the bits of the result, lowest first, and the end."""
    place = string.index(2)
    numbers = number(string[:place]), number(string[place + 1 :])
    assert min(numbers) > 0
    return [*map(int, f"{operation(*numbers):b}"[::-1]), 2]


def root(string):
    return [*map(int, f"{math.isqrt(number(string[::-1])):0{-(-len(string) // 2)}b}")]


@pytest.mark.parametrize("name", ANSWERS)
def test_every_task_against_its_definition(draw, name):
    task = tasks.make(name)
    alphabet, classes, answer = ANSWERS[name]
    assert (task.fields, task.num_outputs) == ((alphabet + 1,), classes)
    assert task.train_lengths == (1, 40)
    assert task.test_lengths == tuple(range(41, 501))
    for length in (1, 2, 7, 20):
        batch = draw(task, length, batch_size=32, seed=length)
        size = 20 + len(answer([0] * 20))
        assert batch.tokens.shape == (32, size, 1)
        assert task.steps(20) == size
        for tokens, targets, mask in zip(
            batch.tokens[..., 0].tolist(), batch.targets, batch.mask, strict=True
        ):
            out = answer(tokens[:length])
            assert set(tokens[:length]) <= set(range(alphabet))
            assert tokens[length:] == [alphabet] * (size - length)
            assert targets[length : length + len(out)].tolist() == out
            assert np.flatnonzero(mask).tolist() == list(range(length, length + len(out)))


@pytest.mark.parametrize("name", OTHERS)
def test_tasks_with_strings_of_their_own_against_their_definitions(draw, name):
    """Strings, answers of unequal lengths, what is scored, and what stands where nothing is."""
    task = tasks.make(name)
    assert isinstance(task, tasks.StringTask)
    symbols, classes, least, longest, answer = OTHERS[name]
    assert (task.fields, task.num_outputs, task.min_length) == ((symbols + 1,), classes, least)
    assert task.train_lengths == (least, 40)
    assert task.test_lengths == tuple(range(41, 501))
    assert task.steps(20) == 20 + longest(20)
    for length in (least, least + 1, 7, 12, 20):
        batch = draw(task, length, batch_size=32, seed=length)
        start = task.string_length(length)
        assert start == (length - (length % 2 == 0) if name == "modular_arithmetic" else length)
        for tokens, targets, mask in zip(
            batch.tokens[..., 0].tolist(), batch.targets.tolist(), batch.mask, strict=True
        ):
            out = answer(tokens[:start])
            assert tokens[start:] == [symbols] * (len(tokens) - start)
            assert targets[start : start + len(out)] == out
            assert np.flatnonzero(mask).tolist() == list(range(start, start + len(out)))
            assert set(targets) <= set(range(classes))


@pytest.mark.parametrize("name", ["binary_addition", "binary_multiplication", "compute_sqrt"])
def test_numbers_may_be_longer_than_machine_words(draw, name):
    batch = draw(tasks.make(name), 90, max_length=90, batch_size=3)
    for tokens, targets in zip(batch.tokens[..., 0].tolist(), batch.targets.tolist(), strict=True):
        out = OTHERS[name][-1](tokens[:90])
        assert targets[90 : 90 + len(out)] == out


@pytest.mark.parametrize("name", ["solve_equation", "compute_sqrt"])
def test_a_traced_length_gives_the_strings_of_that_length(draw, name):
    task = tasks.make(name)
    traced, static = draw(task, 9), draw(task, 9, static=True)
    for found, expected in zip(traced.tokens, static.tokens, strict=True):
        np.testing.assert_array_equal(found, expected)


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


def test_expressions_split_uniformly_and_use_every_operator(draw_many):
    """Of 8 symbols, (l+r) has l of 1 to 4, with one shape for each of the lengths 1 to 4."""
    batch = draw_many(tasks.make("modular_arithmetic_brackets"), 8, 16, batch_size=32)
    strings = batch.tokens[:, :8, 0].tolist()
    shapes: list[str] = ["".join("ddddd++()"[symbol] for symbol in string) for string in strings]
    expected: list[str] = ["(d+(+d))", "(+d+(d))", "((d)++d)", "((+d)+d)"]
    assert set(shapes) == set(expected)
    assert all(abs(shapes.count(shape) - 128) < 45 for shape in expected)
    signs = batch.tokens[[shape == expected[0] for shape in shapes], 2, 0] - 5
    assert abs(signs.mean() - 0.5) < 0.2
    digits = np.bincount(batch.tokens[batch.tokens[..., 0] < 5].ravel(), minlength=5)
    assert np.all(np.abs(digits / digits.sum() - 0.2) < 0.06)
    operators = draw_many(tasks.make("modular_arithmetic"), 9, 16, batch_size=32).tokens[:, 1:9:2, 0] - 5
    assert np.all(np.abs(np.bincount(operators.ravel()) / operators.size - 1 / 3) < 0.05)


def test_the_unknown_is_the_first_digit_from_a_uniform_place_on(draw_many):
    """Of 5 symbols, (d+d): the first digit from the first, second and last place, the second from two."""
    batch = draw_many(tasks.make("solve_equation"), 7, 16, batch_size=32)
    places = np.bincount(np.argmax(batch.tokens[:, :7, 0] == 9, axis=1), minlength=7)
    assert places[[1, 3]].sum() == 512
    assert abs(places[1] / 512 - 3 / 5) < 0.1


@pytest.mark.parametrize("name", ["binary_addition", "binary_multiplication"])
def test_numbers_are_uniform_among_those_of_their_length(draw_many, name):
    strings = draw_many(tasks.make(name), 6, 32, batch_size=32).tokens[:, :6, 0].tolist()
    sizes = [string.index(2) for string in strings]
    assert np.all(np.abs(np.bincount(sizes, minlength=5)[1:] - 256) < 70)
    firsts = np.bincount([number(string[:2]) for string in strings if string[2] == 2], minlength=4)
    assert firsts[0] == 0
    assert np.all(np.abs(firsts[1:] / firsts.sum() - 1 / 3) < 0.12)
    seconds = np.bincount([number(string[4:]) for string in strings if string[3] == 2], minlength=4)
    assert np.all(np.abs(seconds[1:] / seconds.sum() - 1 / 3) < 0.12)


def test_radicands_are_uniform_and_positive(draw_many):
    strings = draw_many(tasks.make("compute_sqrt"), 3, 32, batch_size=32).tokens[:, :3, 0].tolist()
    numbers = np.bincount([number(string[::-1]) for string in strings], minlength=8)
    assert numbers[0] == 0
    assert np.all(np.abs(numbers[1:] / 1024 - 1 / 7) < 0.05)


@pytest.mark.parametrize("name", ANSWERS)
def test_strings_are_uniform(draw_many, name):
    alphabet = ANSWERS[name][0]
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
        ("solve_equation", {"modulus": 1}, "modulus: got 1, expected at least 2"),
        ("binary_addition", {"train_lengths": (2, 9)}, "with 3 <= shortest <= longest"),
        ("parity", {"alphabet": 3}, "alphabet of parity: got 3, expected 2"),
        ("bucket_sort", {"alphabet": 1}, "alphabet: got 1, expected at least 2"),
        ("cycle_navigation", {"alphabet": 2}, "alphabet of cycle_navigation: got 2, expected 3"),
        ("cycle_navigation", {"cycle": 1}, "cycle: got 1, expected at least 2"),
    ],
)
def test_refuses_what_is_no_task(name, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.make(name, **options)
