"""The tasks on expressions of Deletang et al. (2022), whose values are modulo a number.

`llrnn.tasks.chomsky` describes the form of strings and answers.

Axis letters: B sequences, L symbols of the string.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from llrnn.tasks.base import Length, Task
from llrnn.tasks.chomsky import OneSymbolTask

_PLUS, _MINUS, _TIMES, _OPEN, _CLOSE = range(5)
"""Symbols other than digits, from the first number that is no digit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModularTask(OneSymbolTask):
    """Base class of tasks with digits 0 to `modulus` - 1, the first symbols, whose answer is such a digit.

    Attributes:
      modulus: the modulus of the arithmetic.
    """

    modulus: int = 5

    def __post_init__(self):
        super().__post_init__()
        if self.modulus < 2:
            raise ValueError(f"modulus: got {self.modulus}, expected at least 2")

    @property
    def num_outputs(self) -> int:
        """The number of digits."""
        return self.modulus

    def _symbol(self, drawn: Int[Array, "B 1"], length: Length) -> Int[Array, "B"]:
        return drawn[:, 0] % self.modulus


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModularArithmetic(ModularTask):
    """The value of an expression of digits and +, -, *; a regular task.

    After the digits come the symbols +, - and *. Expressions have odd lengths: at an even length, one symbol
    less.
    """

    @property
    def symbols(self) -> int:
        """The digits and three operators."""
        return self.modulus + 3

    def string_length(self, length: Length) -> Length:
        """Returns the greatest odd number of at most `length`."""
        return length - 1 + length % 2

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B 1"]]:
        key, operator_key = jax.random.split(key)
        shape, time = (batch_size, max_length), jnp.arange(max_length)
        digits = jax.random.randint(key, shape, 0, self.modulus, dtype=jnp.int32)
        operators = jax.random.randint(operator_key, shape, 0, 3, dtype=jnp.int32)
        strings = jnp.where(time % 2 == 0, digits, self.modulus + operators)

        def step(state: tuple[Array, Array], at: Array) -> tuple[tuple[Array, Array], None]:
            """Adds a term when the next one begins."""
            total, term = state
            digit, operator = digits[:, at], operators[:, at - 1]
            product = operator == _TIMES
            new = jnp.where(product, term * digit, jnp.where(operator == _MINUS, -digit, digit))
            after = (total + jnp.where(product, 0, term)) % self.modulus, new % self.modulus
            inside = at < length
            return (jnp.where(inside, after[0], total), jnp.where(inside, after[1], term)), None

        start = (jnp.zeros_like(digits[:, 0]), digits[:, 0])
        (total, term), _ = jax.lax.scan(step, start, jnp.arange(2, max_length, 2))
        return strings, (total + term)[:, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModularArithmeticBrackets(ModularTask):
    """The value of an expression of digits, +, -, * and brackets; a deterministic context-free task.

    After the digits come the symbols +, -, *, ( and ). Expressions are d, -d, (d), (-d) and, of 5 symbols and
    more, (l+r), (l-r) and (l*r) with l of a uniform length.
    """

    @property
    def symbols(self) -> int:
        """The digits, three operators and two brackets."""
        return self.modulus + 5

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B 1"]]:
        written = _draw_expressions(key, batch_size, length, max_length, self.modulus, operators=3)
        return written, _values(written, length, self.modulus)[:, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveEquation(ModularTask):
    """The digit x for which an equation holds; a deterministic context-free task.

    The equation is an expression as in `ModularArithmeticBrackets`, without products, in which x stands for
    one digit, then = and its value. After the digits come the symbols +, -, (, ), x and =.
    """

    train_lengths: tuple[int, int] = (3, 40)

    @property
    def symbols(self) -> int:
        """The digits, two operators, two brackets, x and =."""
        return self.modulus + 6

    min_length = 3  # as of x=1

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B 1"]]:
        key, place_key = jax.random.split(key)
        left, time = length - 2, jnp.arange(max_length)[None]
        written = _draw_expressions(key, batch_size, left, max_length, self.modulus, operators=2)
        value = _values(written, left, self.modulus)[:, None]
        # The first digit from a uniform place on, as the authors choose it; after the last, from the start.
        place = jax.random.randint(place_key, (batch_size, 1), 0, left)
        is_digit = (written < self.modulus) & (time < left)
        x = jnp.argmin(jnp.where(is_digit, (time - place) % left, max_length), axis=1, keepdims=True)
        solution = jnp.take_along_axis(written, x, axis=1)
        # There is no *: the symbols after it have the numbers before.
        strings = jnp.where(written > self.modulus + _TIMES, written - 1, written)
        strings = jnp.where(time == x, self.modulus + 4, strings)
        strings = jnp.where(time == left, self.modulus + 5, strings)
        return jnp.where(time > left, value, strings), solution


def _draw_expressions(
    key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, modulus: int, *, operators: int
) -> Int[Array, "B L"]:
    """Draws expressions with brackets of one length, with the first so many of +, - and *.

    The symbols are those of `ModularArithmeticBrackets`, and anything from `length` on.
    """
    draws = jax.random.uniform(key, (batch_size, max_length, 3))
    return jax.vmap(lambda drawn: _expand(drawn, length, modulus, operators))(draws)


def _expand(draws: Float[Array, "L 3"], length: Length, modulus: int, operators: int) -> Int[Array, "L"]:
    """Draws one expression from left to right, with what is still to come on a stack.

    An item of the stack is -1 - s for the symbol s, or n for an expression of n symbols. Each step takes an
    item, gives the first symbol of its expansion, and puts the others back. As each of them has a symbol at
    least, the stack has never more than `length` items.
    """

    def step(state: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        stack, height = state
        time, (of_digit, of_length, of_operator) = inputs
        item = stack[height - 1]
        digit = jnp.floor(of_digit * modulus).astype(jnp.int32)
        operator = modulus + jnp.floor(of_operator * operators).astype(jnp.int32)
        left = 1 + jnp.floor(of_length * (item - 4)).astype(jnp.int32)
        kind = jnp.where(item < 0, 0, jnp.minimum(item, 5))  # 0 for a symbol
        minus, opens, closes = (jnp.int32(modulus + number) for number in (_MINUS, _OPEN, _CLOSE))
        first = jnp.stack([-1 - item, digit, minus, opens, opens, opens])[kind]
        nothing = jnp.int32(0)
        rest, count = jax.lax.switch(
            jnp.asarray([0, 0, 1, 2, 2, 3])[kind],
            [
                lambda: (jnp.stack([nothing] * 4), 0),
                lambda: (jnp.stack([jnp.int32(1), *[nothing] * 3]), 1),
                lambda: (jnp.stack([-1 - closes, item - 2, *[nothing] * 2]), 2),
                lambda: (jnp.stack([-1 - closes, item - 3 - left, -1 - operator, left]), 4),
            ],
        )
        stack = jax.lax.dynamic_update_slice(stack, rest, (height - 1,))
        return (stack, jnp.where(time < length, height - 1 + count, height)), first

    stack = jnp.zeros(len(draws) + 4, jnp.int32).at[0].set(length)
    return jax.lax.scan(step, (stack, jnp.int32(1)), (jnp.arange(len(draws)), draws))[1]


@functools.partial(jax.vmap, in_axes=(0, None, None))
def _values(written: Int[Array, "L"], length: Length, modulus: int) -> Int[Array, ""]:
    """Returns the value of an expression with brackets modulo a number: of each row of a batch.

    It is read once. Each open bracket has a number so far, 0 at first, and how the next one changes it.
    """
    kinds = written - modulus  # negative for digits
    is_number = (kinds < 0) | (kinds == _CLOSE)  # or its end

    def step(state: tuple[Array, ...], at: Array) -> tuple[tuple[Array, ...], None]:
        outside, depth, total, operator, negative = state
        kind = kinds[at]
        before = outside[depth - 1]  # total and operator in front of the bracket
        closes, opens = kind == _CLOSE, kind == _OPEN
        number = jnp.where(closes, total, jnp.where(negative, -written[at], written[at]))
        total, operator = jnp.where(closes, before, jnp.stack([total, operator]))
        changed = jnp.stack([total + number, total - number, total * number])[operator] % modulus
        follows = (at > 0) & is_number[at - 1]  # or a minus is a sign
        is_operator = (kind >= 0) & (kind < _OPEN)
        after = (
            jnp.where(opens, outside.at[depth].set(jnp.stack([total, operator])), outside),
            depth + opens - closes,
            jnp.where(opens, 0, jnp.where(is_number[at], changed, total)),
            jnp.where(opens, _PLUS, jnp.where(is_operator & follows, kind, operator)),
            is_operator & ~follows,
        )
        return jax.tree.map(lambda new, old: jnp.where(at < length, new, old), after, state), None

    nothing = jnp.int32(0)
    outside = jnp.zeros((len(written) // 4 + 2, 2), jnp.int32)  # a bracket has three more symbols at least
    start = (outside, nothing, nothing, jnp.int32(_PLUS), jnp.bool_(False))
    return jax.lax.scan(step, start, jnp.arange(len(written)))[0][2]


TASKS: tuple[Task, ...] = (
    ModularArithmetic(name="modular_arithmetic"),
    ModularArithmeticBrackets(name="modular_arithmetic_brackets"),
    SolveEquation(name="solve_equation"),
)
