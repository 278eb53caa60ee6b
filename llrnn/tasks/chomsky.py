"""The length-generalisation tasks of Deletang et al., "Neural networks and the Chomsky hierarchy" (2022).

The input is the string, one symbol per step, followed by an empty symbol for every symbol of the answer, the
target at these steps. The empty symbol is the last of the input alphabet. The definitions follow the authors'
code (google-deepmind/neural_networks_chomsky_hierarchy), which trains on lengths 1 to 40 and tests on longer
strings.

Axis letters: B sequences, L symbols of the string, A symbols of the answer.
"""

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from llrnn.tasks.base import Batch, Length, Split, Task

SCORED_LENGTHS = range(41, 501)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StringTask(Task):
    """Strings of uniform, independent symbols 0 to `alphabet` - 1; subclasses define the answer.

    Attributes:
      alphabet: the number of symbols.
    """

    alphabet: int = 2

    def __post_init__(self):
        super().__post_init__()
        if self.alphabet < 2:
            raise ValueError(f"alphabet: got {self.alphabet}, expected at least 2")

    @property
    def fields(self) -> tuple[int, ...]:
        """One field, with the symbols and the empty symbol."""
        return (self.alphabet + 1,)

    @property
    def num_outputs(self) -> int:
        """The number of symbols; the empty symbol is never a target."""
        return self.alphabet

    def output_length(self, length: Length) -> Length:
        """Returns the number of symbols in the answer, an integer unless `length` is traced."""
        return length

    def steps(self, length: int) -> int:
        """Returns the length of the string and its answer together."""
        return length + cast(int, self.output_length(length))

    @abc.abstractmethod
    def _answer(
        self, strings: Int[Array, "B L"], length: Length, index: Int[Array, "A"]
    ) -> Int[Array, "B A"]:
        """Returns the symbols of the answers at the positions `index`, ignoring strings from `length` on."""

    def _sample(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, split: Split
    ) -> Batch:
        strings = jax.random.randint(key, (batch_size, max_length), 0, self.alphabet, dtype=jnp.int32)
        time = jnp.arange(self.steps(max_length))
        padded = jnp.pad(strings, ((0, 0), (0, len(time) - max_length)))
        tokens = jnp.where((time < length)[None], padded, self.alphabet)
        end = length + self.output_length(length)
        asked = (time >= length) & (time < end)
        index = jnp.where(asked, time - length, 0)
        targets = jnp.where(asked[None], self._answer(strings, length, index), 0)
        mask = jnp.broadcast_to(asked[None], targets.shape)
        return Batch(tokens[..., None], targets.astype(jnp.int32), mask)


class _Total(StringTask):
    """Base class of tasks whose answer is one symbol, the sum of the symbols modulo the number of outputs."""

    zero = 0  # the symbol that contributes 0; a symbol s contributes s - zero

    def output_length(self, length: Length) -> Length:
        """Returns 1, the length of the answer."""
        return 1

    def _answer(
        self, strings: Int[Array, "B L"], length: Length, index: Int[Array, "A"]
    ) -> Int[Array, "B A"]:
        total = jnp.sum(_before(strings, length, self.zero) - self.zero, axis=1, keepdims=True)
        return jnp.broadcast_to(total % self.num_outputs, (len(strings), len(index)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity(_Total):
    """The parity of the number of ones; a regular task."""

    def __post_init__(self):
        super().__post_init__()
        if self.alphabet != 2:
            raise ValueError(f"alphabet of {self.name}: got {self.alphabet}, expected 2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleNavigation(_Total):
    """The end of a walk on a circle from position 0, where symbols 0, 1, 2 move by -1, 0, 1; a regular task.

    Attributes:
      cycle: the number of positions on the circle.
    """

    alphabet: int = 3
    cycle: int = 5

    zero = 1

    def __post_init__(self):
        super().__post_init__()
        if self.alphabet != 3:
            raise ValueError(f"alphabet of {self.name}: got {self.alphabet}, expected 3")
        if self.cycle < 2:
            raise ValueError(f"cycle: got {self.cycle}, expected at least 2")

    @property
    def num_outputs(self) -> int:
        """The number of positions on the circle."""
        return self.cycle


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReverseString(StringTask):
    """The reversed string; a deterministic context-free task."""

    def _answer(
        self, strings: Int[Array, "B L"], length: Length, index: Int[Array, "A"]
    ) -> Int[Array, "B A"]:
        return strings[:, length - 1 - index]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicateString(StringTask):
    """The string twice; a context-sensitive task."""

    def output_length(self, length: Length) -> Length:
        """Returns twice the length of the string."""
        return 2 * length

    def _answer(
        self, strings: Int[Array, "B L"], length: Length, index: Int[Array, "A"]
    ) -> Int[Array, "B A"]:
        return strings[:, index % length]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OddsFirst(StringTask):
    """The symbols at odd positions, then those at even positions, from 0; a context-sensitive task.

    This follows the authors' code; their description counts from 1 (s1 s3 s5 ... s2 s4 ...).
    """

    def _answer(
        self, strings: Int[Array, "B L"], length: Length, index: Int[Array, "A"]
    ) -> Int[Array, "B A"]:
        odds = length // 2
        return strings[:, jnp.where(index < odds, 2 * index + 1, 2 * (index - odds))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketSort(StringTask):
    """The symbols in increasing order; a context-sensitive task."""

    alphabet: int = 5

    def _answer(
        self, strings: Int[Array, "B L"], length: Length, index: Int[Array, "A"]
    ) -> Int[Array, "B A"]:
        return jnp.sort(_before(strings, length, self.alphabet), axis=1)[:, index]


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


_LENGTHS = {"train_lengths": (1, 40), "test_lengths": tuple(SCORED_LENGTHS)}

TASKS: tuple[Task, ...] = (
    Parity(name="parity", **_LENGTHS),
    CycleNavigation(name="cycle_navigation", **_LENGTHS),
    ReverseString(name="reverse_string", **_LENGTHS),
    DuplicateString(name="duplicate_string", **_LENGTHS),
    OddsFirst(name="odds_first", **_LENGTHS),
    BucketSort(name="bucket_sort", **_LENGTHS),
)
