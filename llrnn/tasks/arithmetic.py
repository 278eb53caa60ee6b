"""The tasks on numbers of Deletang et al. (2022): expressions modulo a number, and binary numbers.

`llrnn.tasks.chomsky` describes the form of strings and answers.

Axis letters: B sequences, L symbols of the string, A symbols of the answer, N digits.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from llrnn.tasks.base import Length, Task
from llrnn.tasks.chomsky import StringTask, _OneSymbol

_PLUS, _MINUS, _OPEN, _CLOSE, _UNKNOWN, _EQUALS = range(6)
"""Symbols other than digits, from the first number that is no digit."""
_TIMES = 2
"""In expressions without brackets."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModularTask(_OneSymbol):
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

    @property
    def min_length(self) -> int:
        """3, as of x=1."""
        return 3

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
        return (stack, height), (jnp.where(inside, first, 0), sign)

    def _in(number: int) -> Array:
        return jnp.int32(modulus + number)

    stack = jnp.zeros(len(draws) + 4, jnp.int32).at[0].set(2 * length)
    _, (symbols, signs) = jax.lax.scan(step, (stack, jnp.int32(1)), (jnp.arange(len(draws)), draws))
    return symbols, signs


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TwoNumbers(StringTask):
    """Base class of tasks on two positive binary numbers, lowest bit first, with a symbol 2 between them.

    The length of the first is uniform; a number is uniform among those of its length, with leading zeros.
    """

    train_lengths: tuple[int, int] = (3, 40)

    end: ClassVar[int | None] = 2

    @property
    def symbols(self) -> int:
        """Two bits and what separates the numbers."""
        return 3

    @property
    def num_outputs(self) -> int:
        """Two bits and the end."""
        return 3

    @property
    def min_length(self) -> int:
        """3, two numbers of one bit."""
        return 3

    def _result(self, first: Int[Array, "B L"], second: Int[Array, "B L"]) -> Int[Array, "B N"]:
        """Returns the digits of the result, lowest first, before carries."""
        raise NotImplementedError

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B N"]]:
        size_key, first_key, second_key = jax.random.split(key, 3)
        size = jax.random.randint(size_key, (batch_size, 1), 1, length - 1)
        first = _draw_positive(first_key, size, max_length)
        second = _draw_positive(second_key, length - 1 - size, max_length)
        time = jnp.arange(max_length)[None]
        moved = jnp.take_along_axis(second, jnp.maximum(time - size - 1, 0), axis=1)
        strings = jnp.where(time < size, first, jnp.where(time == size, 2, moved))
        return strings, _with_carries(self._result(first, second))

    def _answer(self, drawn: Int[Array, "B N"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        place = jnp.arange(drawn.shape[1])
        bits = 1 + jnp.max(jnp.where(drawn == 1, place, -1), axis=1, keepdims=True)
        padded = jnp.pad(drawn, ((0, 0), (0, 1)))[:, jnp.minimum(index, drawn.shape[1])]
        return jnp.where(index[None] == bits, 2, padded)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinaryAddition(_TwoNumbers):
    """The sum of two numbers, lowest bit first, without leading zeros, ended by 2; context-sensitive."""

    def output_length(self, length: Length) -> Length:
        """Returns one more than the length of the string, as in the authors' code."""
        return length + 1

    def _result(self, first: Int[Array, "B L"], second: Int[Array, "B L"]) -> Int[Array, "B L"]:
        return first + second


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinaryMultiplication(_TwoNumbers):
    """The product of two numbers, lowest bit first, without leading zeros, ended by 2; context-sensitive."""

    def _result(self, first: Int[Array, "B L"], second: Int[Array, "B L"]) -> Int[Array, "B L"]:
        """The bits of both together are fewer than L, and so are those of the product."""
        size = first.shape[1]
        place = jnp.arange(size)
        shifted = jnp.pad(second, ((0, 0), (size, 0)))[:, size + place[:, None] - place[None]]
        exact = jnp.einsum("bi,bki->bk", first.astype(jnp.float32), shifted.astype(jnp.float32))
        return exact.astype(jnp.int32)  # counts below 2^24


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeSqrt(StringTask):
    """The square root of a positive binary number, rounded down, both highest bit first; context-sensitive.

    A number is uniform among those of its length, and its root has half as many bits, with leading zeros.
    """

    @property
    def symbols(self) -> int:
        """Two bits."""
        return 2

    @property
    def num_outputs(self) -> int:
        """Two bits."""
        return 2

    def output_length(self, length: Length) -> Length:
        """Returns half the length, rounded up."""
        return (length + 1) // 2

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B N"]]:
        sizes = jnp.broadcast_to(jnp.asarray(length), (batch_size, 1))
        lowest_first = _draw_positive(key, sizes, max_length)
        strings = lowest_first[:, jnp.maximum(length - 1 - jnp.arange(max_length), 0)]
        even = jnp.pad(strings, ((0, 0), (1, 1)))  # a zero in front makes an odd length even
        start = 1 - length % 2 + jnp.arange(2 * self.output_length(max_length))
        return strings, _square_root(even[:, start].reshape(batch_size, -1, 2))

    def _answer(self, drawn: Int[Array, "B N"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        return drawn[:, index]


def _draw_positive(key: PRNGKeyArray, bits: Int[Array, "B 1"], max_bits: int) -> Int[Array, "B {max_bits}"]:
    """Draws numbers uniformly from 1 to 2^bits - 1, lowest bit first; 0 from `bits` on.

    The number of zeros above the highest one has a geometric distribution, cut off at `bits`.
    """
    key, zeros_key = jax.random.split(key)
    chance = jax.random.uniform(zeros_key, bits.shape)
    zeros = jnp.floor(-jnp.log2(1 - chance * (1 - 2.0**-bits))).astype(jnp.int32)
    highest = bits - 1 - jnp.clip(zeros, 0, bits - 1)
    drawn = jax.random.randint(key, (len(bits), max_bits), 0, 2, dtype=jnp.int32)
    place = jnp.arange(max_bits)[None]
    return jnp.where(place == highest, 1, jnp.where(place < highest, drawn, 0))


def _with_carries(digits: Int[Array, "B N"]) -> Int[Array, "B N"]:
    """Returns the bits of sum_i digits_i 2^i, which has at most N."""

    def step(carry: Array, digit: Array) -> tuple[Array, Array]:
        total = carry + digit
        return total // 2, total % 2

    _, bits = jax.lax.scan(step, jnp.zeros_like(digits[:, 0]), digits.T)
    return bits.T


def _square_root(pairs: Int[Array, "B N 2"]) -> Int[Array, "B N"]:
    """Returns the bits of the square roots of numbers in pairs of bits, highest first.

    The method by hand: a bit is 1 if 4 root + 1 can be subtracted from the remainder, to which each step
    appends a pair. Root and remainder are bits, lowest first; N + 2 of them suffice.
    """
    count, size = pairs.shape[1], pairs.shape[1] + 2

    def step(state: tuple[Array, Array], pair: Array) -> tuple[tuple[Array, Array], Array]:
        remainder, root = state
        remainder = jnp.concatenate([pair[:, ::-1], remainder[:, : size - 2]], axis=1)
        ones, zeros = jnp.ones_like(pair[:, :1]), jnp.zeros_like(pair[:, :1])
        difference, negative = _subtract(
            remainder, jnp.concatenate([ones, zeros, root[:, : size - 2]], axis=1)
        )
        bit = jnp.where(negative, 0, 1)
        remainder = jnp.where(negative[:, None], remainder, difference)
        return (remainder, jnp.concatenate([bit[:, None], root[:, : size - 1]], axis=1)), bit

    start = jnp.zeros((len(pairs), size), jnp.int32)
    _, bits = jax.lax.scan(step, (start, start), jnp.moveaxis(pairs, 1, 0), length=count)
    return bits.T


def _subtract(a: Int[Array, "B N"], b: Int[Array, "B N"]) -> tuple[Int[Array, "B N"], Bool[Array, "B"]]:
    """Returns the bits of a - b modulo 2^N, lowest first, and whether it is negative."""

    def join(low: tuple[Array, Array], high: tuple[Array, Array]) -> tuple[Array, Array]:
        """Of digits that borrow, and of digits that borrow if the ones below do."""
        return high[0] | (high[1] & low[0]), low[1] & high[1]

    borrows, _ = jax.lax.associative_scan(join, (a < b, a <= b), axis=1)
    below = jnp.pad(borrows[:, :-1], ((0, 0), (1, 0)))
    return (a - b - below) % 2, borrows[:, -1]


TASKS: tuple[Task, ...] = (
    ModularArithmetic(name="modular_arithmetic"),
    ModularArithmeticBrackets(name="modular_arithmetic_brackets"),
    SolveEquation(name="solve_equation"),
    BinaryAddition(name="binary_addition"),
    BinaryMultiplication(name="binary_multiplication"),
    ComputeSqrt(name="compute_sqrt"),
)
