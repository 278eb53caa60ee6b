"""The tasks on binary numbers of Deletang et al. (2022).

`llrnn.tasks.chomsky` describes the form of strings and answers.

Axis letters: B sequences, L symbols of the string, A symbols of the answer, N digits.
"""

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from llrnn.tasks.base import Length, Task
from llrnn.tasks.chomsky import StringTask


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TwoNumbers(StringTask):
    """Base class of tasks on two positive binary numbers, lowest bit first, with a symbol 2 between them.

    The length of the first is uniform; a number is uniform among those of its length, with leading zeros.
    """

    train_lengths: tuple[int, int] = (3, 40)

    end: ClassVar[int | None] = 2

    symbols = 3  # two bits and what separates the numbers
    num_outputs = 3  # two bits and the end
    min_length = 3  # two numbers of one bit

    @abc.abstractmethod
    def _result(self, first: Int[Array, "B L"], second: Int[Array, "B L"]) -> Int[Array, "B N"]:
        """Returns the digits of the result, lowest first, before carries."""

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
        bits = jnp.max(drawn * (1 + place)[None], axis=1, keepdims=True)
        padded = jnp.pad(drawn, ((0, 0), (0, 1)))[:, index]
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
        exact = jnp.einsum("bi,bki->bk", first.astype(jnp.float32), shifted)
        return exact.astype(jnp.int32)  # counts below 2^24


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeSqrt(StringTask):
    """The square root of a positive binary number, rounded down, both highest bit first; context-sensitive.

    A number is uniform among those of its length, and its root has half as many bits, with leading zeros.
    """

    symbols = num_outputs = 2

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
    size = pairs.shape[1] + 2

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
    _, bits = jax.lax.scan(step, (start, start), jnp.moveaxis(pairs, 1, 0))
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
    BinaryAddition(name="binary_addition"),
    BinaryMultiplication(name="binary_multiplication"),
    ComputeSqrt(name="compute_sqrt"),
)
