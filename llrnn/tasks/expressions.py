"""The tasks on expressions of Deletang et al. (2022), whose values are modulo a number.

`llrnn.tasks.chomsky` describes the form of strings and answers.

Axis letters: B sequences, L symbols of the string.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from llrnn.tasks.base import Length, Task
from llrnn.tasks.chomsky import OneSymbolTask

_PLUS, _MINUS, _OPEN, _CLOSE, _UNKNOWN, _EQUALS = range(6)
"""Symbols other than digits, from the first number that is no digit."""
_TIMES = 2
"""In expressions without brackets."""


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
    """The value of an expression of digits, +, - and brackets; a deterministic context-free task.

    After the digits come the symbols +, -, ( and ). Expressions are d, -d, (d), (-d) and, of 5 symbols and
    more, (l+r) and (l-r) with l of a uniform length.
    """

    @property
    def symbols(self) -> int:
        """The digits, two operators and two brackets."""
        return self.modulus + 4

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B 1"]]:
        strings, signs = _draw_expressions(key, batch_size, length, max_length, self.modulus)
        return strings, jnp.sum(signs * strings, axis=1, keepdims=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveEquation(ModularTask):
    """The digit x for which an equation holds; a deterministic context-free task.

    The equation is an expression of `ModularArithmeticBrackets`, in which x stands for one digit, then = and
    its value. The symbols x and = are the last ones.
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
        strings, signs = _draw_expressions(key, batch_size, left, max_length, self.modulus)
        value = jnp.sum(signs * strings, axis=1, keepdims=True) % self.modulus
        # The first digit from a uniform place on, as the authors choose it; after the last, from the start.
        place = jax.random.randint(place_key, (batch_size, 1), 0, left)
        distance = jnp.where(signs != 0, (time - place) % left, max_length)
        x = jnp.argmin(distance, axis=1, keepdims=True)
        solution = jnp.take_along_axis(strings, x, axis=1)
        strings = jnp.where(time == x, self.modulus + _UNKNOWN, strings)
        strings = jnp.where(time == left, self.modulus + _EQUALS, strings)
        return jnp.where(time > left, value, strings), solution


def _draw_expressions(
    key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, modulus: int
) -> tuple[Int[Array, "B L"], Int[Array, "B L"]]:
    """Draws expressions with brackets of one length.

    Returns:
      The symbols, and of each digit the sign, 1 or -1, with which it is added to the value; 0 elsewhere. Both
      are 0 from `length` on.
    """
    draws = jax.random.uniform(key, (batch_size, max_length, 3))
    return jax.vmap(lambda drawn: _expand(drawn, length, modulus))(draws)


def _expand(
    draws: Float[Array, "L 3"], length: Length, modulus: int
) -> tuple[Int[Array, "L"], Int[Array, "L"]]:
    """Draws one expression from left to right, with what is still to come on a stack.

    An item of the stack is -1 - s for the symbol s, or 2 n + (0 if it is added, 1 if it is subtracted) for an
    expression of n symbols. Each step takes an item, gives the first symbol of its expansion, and puts the
    others back. As each of them has a symbol at least, the stack has never more than `length` items.
    """

    def symbol(number: int) -> Array:
        return jnp.int32(-1 - modulus - number)

    def step(state: tuple[Array, Array], inputs: tuple[Array, Array]) -> tuple[tuple[Array, Array], tuple]:
        stack, height = state
        time, (of_digit, of_length, of_operator) = inputs[0], inputs[1]
        item = stack[height - 1]
        size, subtracted = item // 2, item % 2
        digit = jnp.floor(of_digit * modulus).astype(jnp.int32)
        left = 1 + jnp.floor(of_length * (size - 4)).astype(jnp.int32)
        minus = (of_operator < 0.5).astype(jnp.int32)
        operator = jnp.where(minus == 1, symbol(_MINUS), symbol(_PLUS))
        right = 2 * (size - 3 - left) + (subtracted + minus) % 2
        kind = jnp.where(item < 0, 0, jnp.minimum(size, 5))  # 0 for a symbol
        first = jnp.stack([-1 - item, digit, _in(_MINUS), _in(_OPEN), _in(_OPEN), _in(_OPEN)])[kind]
        rest, count = jax.lax.switch(
            jnp.asarray([0, 0, 1, 2, 2, 3])[kind],
            [
                lambda: (jnp.zeros(4, jnp.int32), 0),
                lambda: (jnp.stack([3 - subtracted, *[jnp.int32(0)] * 3]), 1),
                lambda: (jnp.stack([symbol(_CLOSE), item - 4, *[jnp.int32(0)] * 2]), 2),
                lambda: (jnp.stack([symbol(_CLOSE), right, operator, 2 * left + subtracted]), 4),
            ],
        )
        stack = jax.lax.dynamic_update_slice(stack, rest, (height - 1,))
        inside = time < length
        sign = jnp.where(inside & (kind == 1), 1 - 2 * subtracted, 0)
        height = jnp.where(inside, height - 1 + count, height)
        return (stack, height), (first, sign)

    def _in(number: int) -> Array:
        return jnp.int32(modulus + number)

    stack = jnp.zeros(len(draws) + 4, jnp.int32).at[0].set(2 * length)
    _, (symbols, signs) = jax.lax.scan(step, (stack, jnp.int32(1)), (jnp.arange(len(draws)), draws))
    return symbols, signs


TASKS: tuple[Task, ...] = (
    ModularArithmetic(name="modular_arithmetic"),
    ModularArithmeticBrackets(name="modular_arithmetic_brackets"),
    SolveEquation(name="solve_equation"),
)
