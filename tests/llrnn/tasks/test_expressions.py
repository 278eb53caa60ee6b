"""The tasks of Deletang et al. on expressions against Python, which knows the rules."""

import numpy as np
import pytest

from llrnn import tasks
from tests.llrnn.tasks.definitions import Definition, assert_defined

pytestmark = pytest.mark.usefixtures("compiled_quickly")

DEFINITIONS = {
    "modular_arithmetic": Definition(8, 5, lambda s: [value(s, "01234+-*")]),
    "modular_arithmetic_brackets": Definition(10, 5, lambda s: [value(s, "01234+-*()")]),
    "solve_equation": Definition(11, 5, lambda s: solutions(s, "01234+-()x="), shortest=3),
}


def value(string, shown):
    return eval("".join(shown[symbol] for symbol in string)) % 5


def solutions(string, shown):
    left, right = "".join(shown[symbol] for symbol in string).split("=")
    return [x for x in range(5) if eval(left.replace("x", str(x))) % 5 == int(right)]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_task_against_its_definition(draw, name):
    assert_defined(draw, name, DEFINITIONS[name])


def test_expressions_split_uniformly_and_use_every_operator(draw_many):
    """Of 8 symbols, (l+r) has l of 1 to 4, with one shape for each of the lengths 1 to 4."""
    batch = draw_many(tasks.make("modular_arithmetic_brackets"), 8, 16, batch_size=32)
    strings = batch.tokens[:, :8, 0].tolist()
    shapes: list[str] = ["".join("ddddd+++()"[symbol] for symbol in string) for string in strings]
    expected: list[str] = ["(d+(+d))", "(+d+(d))", "((d)++d)", "((+d)+d)"]
    assert set(shapes) == set(expected)
    assert all(abs(shapes.count(shape) - 128) < 45 for shape in expected)
    chosen = batch.tokens[[shape == expected[0] for shape in shapes], 2, 0] - 5
    assert np.all(np.abs(np.bincount(chosen) / len(chosen) - 1 / 3) < 0.15)
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


def test_refuses_a_modulus_of_one():
    with pytest.raises(ValueError, match="modulus: got 1, expected at least 2"):
        tasks.make("solve_equation", modulus=1)
    assert tasks.make("solve_equation", modulus=2).num_outputs == 2
