"""The length-generalisation tasks of Deletang et al., "Neural networks and the Chomsky hierarchy" (2022).

The input is the string, one symbol per step, followed by an empty symbol for every symbol of the answer, the
target at these steps. The empty symbol is the last of the input alphabet. With `computation`, other empty
symbols, the last but one of the alphabet, come in between. The definitions follow the authors'
code (google-deepmind/neural_networks_chomsky_hierarchy), which trains on lengths 1 to 40 and tests on longer
strings. Of tasks that are not defined at all lengths, `min_length` is the first at which ours are. This
module has the tasks on strings; `llrnn.tasks.expressions` and `llrnn.tasks.binary` have the others.

Axis letters: B sequences, L symbols of the string, A symbols of the answer.
"""

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import ClassVar, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from llrnn.tasks.base import Batch, Length, Split, Task

SCORED_LENGTHS = range(41, 501)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StringTask(Task):
    """A string of symbols 0 to `symbols` - 1 and its answer.

    Attributes:
      computation: steps between the string and its answer, as a multiple of the string's length; the authors
        tune it for models with a tape, which often have to go back to its start.
    """

    train_lengths: tuple[int, int] = (1, 40)
    test_lengths: tuple[int, ...] = tuple(SCORED_LENGTHS)
    computation: int = 0

    end: ClassVar[int | None] = None
    """The symbol that ends an answer, the last that is scored; None if all answers are equally long."""

    @property
    @abc.abstractmethod
    def symbols(self) -> int:
        """The number of symbols of a string."""

    @property
    def fields(self) -> tuple[int, ...]:
        """One field, with the symbols and the empty symbols, of which there are two with `computation`."""
        return (self.symbols + (2 if self.computation else 1),)

    def __post_init__(self):
        super().__post_init__()
        if self.computation < 0:
            raise ValueError(f"computation of {self.name}: got {self.computation}, expected at least 0")

    def string_length(self, length: Length) -> Length:
        """Returns the number of symbols of a string, if not every length has strings."""
        return length

    def output_length(self, length: Length) -> Length:
        """Returns the number of symbols in the answer, an integer unless `length` is traced."""
        return length

    def steps(self, length: int) -> int:
        """Returns the length of the string, the computation and the answer together."""
        return (1 + self.computation) * length + cast(int, self.output_length(length))

    @abc.abstractmethod
    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B _"]]:
        """Returns strings, whose symbols from `length` on are ignored, and what `_answer` needs to know."""

    @abc.abstractmethod
    def _answer(self, drawn: Int[Array, "B _"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        """Returns the symbols of the answers at the positions `index`."""

    def _sample(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, split: Split
    ) -> Batch:
        strings, drawn = self._draw(key, batch_size, length, max_length)
        time, end = jnp.arange(self.steps(max_length)), self.string_length(length)
        start = (1 + self.computation) * end
        padded = jnp.pad(strings, ((0, 0), (0, len(time) - max_length)))
        empty = jnp.where(time < start, self.symbols, sum(self.fields) - 1)
        tokens = jnp.where((time < end)[None], padded, empty[None]).astype(jnp.int32)
        asked = (time >= start) & (time < start + self.output_length(length))
        index = jnp.where(asked, time - start, 0)
        targets = jnp.where(asked[None], self._answer(drawn, length, index), 0).astype(jnp.int32)
        mask = jnp.broadcast_to(asked[None], targets.shape) & self._up_to_the_end(targets)
        return Batch(tokens[..., None], targets, mask)

    def _up_to_the_end(self, targets: Int[Array, "B T"]) -> Bool[Array, "B T"]:
        ends = targets == (-1 if self.end is None else self.end)
        return jnp.cumsum(ends, axis=1) - ends == 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformStringTask(StringTask):
    """Strings of uniform, independent symbols; the answer depends on the string alone.

    Attributes:
      alphabet: the number of symbols.
    """

    alphabet: int = 2

    def __post_init__(self):
        super().__post_init__()
        if self.alphabet < 2:
            raise ValueError(f"alphabet: got {self.alphabet}, expected at least 2")

    @property
    def symbols(self) -> int:
        """The number of symbols of a string."""
        return self.alphabet

    @property
    def num_outputs(self) -> int:
        """The number of symbols; the empty symbol is never a target."""
        return self.alphabet

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B L"]]:
        strings = jax.random.randint(key, (batch_size, max_length), 0, self.alphabet, dtype=jnp.int32)
        return strings, strings

    def _check_alphabet(self, size: int) -> None:
        if self.alphabet != size:
            raise ValueError(f"alphabet of {self.name}: got {self.alphabet}, expected {size}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneSymbolTask(StringTask):
    """Base class of tasks whose answer is one symbol."""

    def output_length(self, length: Length) -> Length:
        """Returns 1, the length of the answer."""
        return 1

    @abc.abstractmethod
    def _symbol(self, drawn: Int[Array, "B _"], length: Length) -> Int[Array, "B"]:
        """Returns the answers."""

    def _answer(self, drawn: Int[Array, "B _"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        return jnp.broadcast_to(self._symbol(drawn, length)[:, None], (len(drawn), len(index)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity(OneSymbolTask, UniformStringTask):
    """The parity of the number of ones; a regular task."""

    def __post_init__(self):
        super().__post_init__()
        self._check_alphabet(2)

    def _symbol(self, drawn: Int[Array, "B L"], length: Length) -> Int[Array, "B"]:
        return jnp.sum(_before(drawn, length, 0), axis=1) % 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleNavigation(OneSymbolTask, UniformStringTask):
    """The end of a walk on a circle from position 0, where symbols 0, 1, 2 move by -1, 0, 1; a regular task.

    Attributes:
      cycle: the number of positions on the circle.
    """

    alphabet: int = 3
    cycle: int = 5

    def __post_init__(self):
        super().__post_init__()
        self._check_alphabet(3)
        if self.cycle < 2:
            raise ValueError(f"cycle: got {self.cycle}, expected at least 2")

    @property
    def num_outputs(self) -> int:
        """The number of positions on the circle."""
        return self.cycle

    def _symbol(self, drawn: Int[Array, "B L"], length: Length) -> Int[Array, "B"]:
        return jnp.sum(_before(drawn, length, 1) - 1, axis=1) % self.cycle


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvenPairs(OneSymbolTask, UniformStringTask):
    """1 if the number of places where neighbours differ is odd, otherwise 0; a regular task."""

    def __post_init__(self):
        super().__post_init__()
        self._check_alphabet(2)

    def _symbol(self, drawn: Int[Array, "B L"], length: Length) -> Int[Array, "B"]:
        return (drawn[:, 0] != drawn[:, length - 1]).astype(jnp.int32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReverseString(UniformStringTask):
    """The reversed string; a deterministic context-free task."""

    def _answer(self, drawn: Int[Array, "B L"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        return drawn[:, length - 1 - index]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicateString(UniformStringTask):
    """The string twice; a context-sensitive task."""

    def output_length(self, length: Length) -> Length:
        """Returns twice the length of the string."""
        return 2 * length

    def _answer(self, drawn: Int[Array, "B L"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        return drawn[:, index % length]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OddsFirst(UniformStringTask):
    """The symbols at odd positions, then those at even positions, from 0; a context-sensitive task.

    This follows the authors' code; their description counts from 1 (s1 s3 s5 ... s2 s4 ...).
    """

    def _answer(self, drawn: Int[Array, "B L"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        odds = length // 2
        return drawn[:, jnp.where(index < odds, 2 * index + 1, 2 * (index - odds))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketSort(UniformStringTask):
    """The symbols in increasing order; a context-sensitive task."""

    alphabet: int = 5

    def _answer(self, drawn: Int[Array, "B L"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        return jnp.sort(_before(drawn, length, self.alphabet), axis=1)[:, index]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MissingDuplicateString(OneSymbolTask):
    """The symbol that is missing from a binary string written twice; a context-sensitive task.

    Symbol 2 stands in its place; strings of odd lengths have a symbol 3 at their end.
    """

    train_lengths: tuple[int, int] = (2, 40)

    symbols = 4  # two, the missing one, and the end of a string of odd length
    num_outputs = 2
    min_length = 2  # twice a string of one symbol

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B 1"]]:
        key, place_key = jax.random.split(key)
        once = jax.random.randint(key, (batch_size, max_length), 0, 2, dtype=jnp.int32)
        half = length // 2
        place = jax.random.randint(place_key, (batch_size, 1), 0, 2 * half)
        time = jnp.arange(max_length)[None]
        twice = jnp.where(time < 2 * half, jnp.where(time == place, 2, once[:, time[0] % half]), 3)
        return twice, jnp.take_along_axis(once, place % half, axis=1)

    def _symbol(self, drawn: Int[Array, "B 1"], length: Length) -> Int[Array, "B"]:
        return drawn[:, 0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StackManipulation(StringTask):
    """The stack that instructions leave, from its top down and ended by 2; a deterministic context-free task.

    A string is a stack of symbols 0 and 1, bottom first, and at least one instruction: 2 pops, which an empty
    stack ignores, 3 pushes a 0, and 4 pushes a 1. A string of length 1 is a stack alone.
    """

    end: ClassVar[int | None] = 2

    symbols = 5  # two of the stack, and three instructions
    num_outputs = 3  # the two symbols of the stack, and the end

    def output_length(self, length: Length) -> Length:
        """Returns the number of symbols of the largest stack and of its end."""
        return length + 1

    def _draw(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B _"]]:
        size_key, key, action_key = jax.random.split(key, 3)
        height = jax.random.randint(size_key, (batch_size, 1), 1, jnp.maximum(length, 2))
        shape, time = (batch_size, max_length), jnp.arange(max_length)[None]
        stack = jax.random.randint(key, shape, 0, 2, dtype=jnp.int32)
        actions = jax.random.randint(action_key, shape, 2, 5, dtype=jnp.int32)
        strings = jnp.where(time < height, stack, actions)
        return strings, jax.vmap(_final_stack, (0, None))(strings, length)

    def _answer(self, drawn: Int[Array, "B _"], length: Length, index: Int[Array, "A"]) -> Int[Array, "B A"]:
        height, stack = drawn[:, :1], drawn[:, 1:]
        symbols = jnp.take_along_axis(stack, height - 1 - index[None], axis=1)
        return jnp.where(index[None] < height, symbols, jnp.where(index[None] == height, 2, 0))


def _final_stack(string: Int[Array, "L"], length: Length) -> Int[Array, "_"]:
    """Returns the height of the stack after a string of `length`, and then the stack, bottom first."""

    def step(state: tuple[Array, Array], at: Array) -> tuple[tuple[Array, Array], None]:
        height, stack = state
        pushed = string[at] != 2
        stack = stack.at[height].set(jnp.where(pushed, string[at] % 3, stack[height]))
        after = jnp.where(pushed, height + 1, jnp.maximum(height - 1, 0))
        return (jnp.where(at < length, after, height), stack), None

    start = (jnp.int32(0), jnp.zeros(len(string) + 1, jnp.int32))
    (height, stack), _ = jax.lax.scan(step, start, jnp.arange(len(string)))
    return jnp.concatenate([height[None], stack])


def _before(strings: Int[Array, "B L"], length: Length, filler: int) -> Int[Array, "B L"]:
    """Replaces the symbols from `length` on by a filler."""
    return jnp.where((jnp.arange(strings.shape[1]) < length)[None], strings, filler)


def deletang_score(
    accuracy_by_length: Mapping[int, float], *, lengths: Iterable[int] = SCORED_LENGTHS
) -> float:
    """Computes the score of Deletang et al., the unweighted mean of the accuracies at lengths 41 to 500.

    An accuracy is the fraction of correct symbols in the answers, from 0 to 1; lengths that are not scored
    are ignored. The paper reports the best score over its runs, in per cent. (Its example script starts at
    42, the paper says 41.) Only the default `lengths` give the paper's number.

    Raises:
      ValueError: there are no lengths, a scored length is missing, or an accuracy is not between 0 and 1.
    """
    scored = tuple(lengths)
    if not scored:
        raise ValueError("lengths: got none, expected at least one length")
    missing = [length for length in scored if length not in accuracy_by_length]
    if missing:
        raise ValueError(
            f"accuracy_by_length: got no accuracy for {len(missing)} lengths, starting at {missing[0]}, "
            f"expected all scored lengths, {min(scored)} to {max(scored)}"
        )
    for length in scored:
        if not 0.0 <= (value := accuracy_by_length[length]) <= 1.0:
            raise ValueError(f"accuracy_by_length: got {value} at length {length}, expected 0 to 1")
    return sum(float(accuracy_by_length[length]) for length in scored) / len(scored)


TASKS: tuple[Task, ...] = (
    Parity(name="parity"),
    CycleNavigation(name="cycle_navigation"),
    EvenPairs(name="even_pairs"),
    ReverseString(name="reverse_string"),
    StackManipulation(name="stack_manipulation"),
    DuplicateString(name="duplicate_string"),
    MissingDuplicateString(name="missing_duplicate_string"),
    OddsFirst(name="odds_first"),
    BucketSort(name="bucket_sort"),
)
