"""Questions composed of two modules: the value of an inner question is an operand of an outer one.

    Let h be the closest to 3 in -7, 12. What is 5 - h?

The dataset's own composed modules are no help here: the generator chooses inner modules by itself, usually
several, so that compositions cannot be held out, and their questions are too long for small runs. These
questions have the dataset's forms with small numbers. Each of the `FUNCTIONS` is composed with each of them;
the compositions of `HELD_OUT`, where each function is once the inner one, are tested only. Their outer ones
are arithmetic: where the second biggest value or the closest one is asked for, the answer is often a number
of the outer question, so that .47 and .67 of questions are answered without the inner one (`guess`).
"""

import dataclasses
import functools
import itertools
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from typing import cast

from experiments.mathematics.drawn import Drawn
from tp_transformer import mathematics

LARGEST, LARGEST_FACTOR = 20, 9
"""Numbers in questions are at most this large; those of products are smaller."""


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of integers.

    Attributes:
        form: its form in questions, with a place for each operand.
        value: its value; None where it is not unique.
        largest: the largest absolute value of its numbers.
    """

    form: str
    value: Callable[..., int | None]
    largest: int = LARGEST


def _second(*numbers: int) -> int | None:
    return sorted(numbers)[-2] if len(set(numbers)) == len(numbers) else None


def _closest(to: int, *numbers: int) -> int | None:
    distances = [abs(number - to) for number in numbers]
    return min(numbers, key=lambda number: abs(number - to)) if len(set(distances)) > 1 else None


FUNCTIONS: Mapping[str, Function] = {
    "sum": Function("{} + {}", lambda a, b: a + b),
    "difference": Function("{} - {}", lambda a, b: a - b),
    "product": Function("{}*{}", lambda a, b: a * b, LARGEST_FACTOR),
    "second": Function("the second biggest value in {}, {}, {}", _second),
    "closest": Function("the closest to {} in {}, {}", _closest),
}
PAIRS = tuple(itertools.product(FUNCTIONS, FUNCTIONS))
"""The compositions, as names of the outer and the inner function."""

HELD_OUT = (
    ("sum", "product"),
    ("sum", "difference"),
    ("difference", "second"),
    ("difference", "sum"),
    ("product", "closest"),
)


def compose(outer: str, inner: str, rng: random.Random) -> mathematics.Question:
    """Draws a question and its answer: the inner function's value is one of the outer one's operands."""
    while True:
        (text, value), letter = _draw(inner, rng), rng.choice(string.ascii_lowercase)
        question, answer = _draw(outer, rng, {letter: value})
        if answer is not None:
            return mathematics.Question(f"Let {letter} be {text}. What is {question}?", str(answer))


def _draw(name: str, rng: random.Random, given: Mapping[str, int | None] = {}) -> tuple[str, int | None]:
    """Draws operands, with a given one at a random place; returns the text, and the value if there is one."""
    function = FUNCTIONS[name]
    count = function.form.count("{}")
    numbers = [rng.randint(-function.largest, function.largest) for _ in range(count)]
    shown: list[str] = [str(number) for number in numbers]
    for letter, value in given.items():
        place = rng.randrange(count)
        if value is None:
            return "", None
        shown[place], numbers[place] = letter, value
    return function.form.format(*shown), function.value(*numbers)


def guess(outer: str, inner: str, question: str) -> str:
    """Returns the likeliest answer to someone who reads the outer question, and of the inner one its form."""
    letter, asked = question[len("Let ")], question.split("What is ")[1].removesuffix("?")
    form = re.escape(FUNCTIONS[outer].form).replace(r"\{\}", "(.+?)")
    shown = cast(re.Match[str], re.fullmatch(form, asked)).groups()
    answers: Counter[int | None] = Counter()
    for value, count in _values(inner).items():
        numbers = [value if operand == letter else int(operand) for operand in shown]
        answers[FUNCTIONS[outer].value(*numbers)] += count
    del answers[None]
    return str(answers.most_common(1)[0][0])


@functools.cache
def _values(name: str, draws: int = 3000) -> Counter[int]:
    """Counts the values of a function of operands as `compose` draws them."""
    rng = random.Random(0)
    values = (_draw(name, rng)[1] for _ in range(draws))
    return Counter(value for value in values if value is not None)


def name_of(outer: str, inner: str) -> str:
    """Returns the name of a composition's module."""
    return f"{outer}_of_{inner}"


class Composed(Drawn):
    """A source of composed questions, whose modules are the compositions."""

    def modules(self, split: mathematics.Split) -> tuple[str, ...]:
        """Returns the names of a split's compositions."""
        held = split == mathematics.EXTRAPOLATE
        return tuple(name_of(*pair) for pair in PAIRS if (pair in HELD_OUT) == held)

    def draw(self, module: str, rng: random.Random) -> mathematics.Question:
        """Draws a question of a composition and its answer."""
        (outer, inner) = next(pair for pair in PAIRS if name_of(*pair) == module)
        return compose(outer, inner, rng)
