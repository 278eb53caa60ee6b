"""The tasks of Deletang et al. on binary numbers against Python's integers."""

import math
import operator

import numpy as np
import pytest

from llrnn import tasks
from tests.llrnn.tasks.definitions import Definition, assert_defined

pytestmark = pytest.mark.usefixtures("compiled_quickly")

DEFINITIONS = {
    "binary_addition": Definition(3, 3, lambda s: bits(operator.add, s), lambda n: n + 1, shortest=3),
    "binary_multiplication": Definition(3, 3, lambda s: bits(operator.mul, s), lambda n: n, shortest=3),
    "compute_sqrt": Definition(2, 2, lambda s: root(s), lambda n: -(-n // 2)),
}


LONG = 90  # symbols, so that numbers are longer than machine words


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


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_task_against_its_definition(draw, name):
    assert_defined(draw, name, DEFINITIONS[name], room=LONG)


@pytest.mark.parametrize("name", ["binary_addition", "binary_multiplication"])
def test_numbers_are_uniform_among_those_of_their_length(draw_many, name):
    strings = draw_many(tasks.make(name), 6, 32, batch_size=32, max_length=LONG).tokens[:, :6, 0].tolist()
    sizes = [string.index(2) for string in strings]
    assert np.all(np.abs(np.bincount(sizes, minlength=5)[1:] - 256) < 70)
    firsts = np.bincount([number(string[:2]) for string in strings if string[2] == 2], minlength=4)
    assert firsts[0] == 0
    assert np.all(np.abs(firsts[1:] / firsts.sum() - 1 / 3) < 0.12)
    seconds = np.bincount([number(string[4:]) for string in strings if string[3] == 2], minlength=4)
    assert np.all(np.abs(seconds[1:] / seconds.sum() - 1 / 3) < 0.12)


def test_radicands_are_uniform_and_positive(draw_many):
    batch = draw_many(tasks.make("compute_sqrt"), 3, 32, batch_size=32, max_length=LONG)
    strings = batch.tokens[:, :3, 0].tolist()
    numbers = np.bincount([number(string[::-1]) for string in strings], minlength=8)
    assert numbers[0] == 0
    assert np.all(np.abs(numbers[1:] / 1024 - 1 / 7) < 0.05)


def test_refuses_lengths_without_two_numbers():
    with pytest.raises(ValueError, match="with 3 <= shortest <= longest"):
        tasks.make("binary_addition", train_lengths=(2, 9))
