"""The length-generalisation tasks of Deletang et al., "Neural networks and the Chomsky hierarchy" (2022).

A string is read symbol by symbol, then an empty symbol for every symbol of the answer, which is asked for
there. The alphabet of the input has the empty symbol behind those of the string. Definitions are those of the
authors' code (google-deepmind/neural_networks_chomsky_hierarchy), which trains on lengths 1 to 40 and tests
on longer ones.

Axis letters: B sequences, L symbols of the string, A symbols of the answer.
"""

import abc
import dataclasses
from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from llrnn.tasks.base import Batch, Length, Task

SCORED_LENGTHS = range(41, 501)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StringTask(Task):
    """Strings of symbols 0 to `alphabet` - 1, uniform and independent; a subclass says what is asked for.

    Attributes:
      alphabet: the number of symbols.
    """

    alphabet: int = 2

    def __post_init__(self):
        super().__post_init__()
        if self.alphabet < 2:
            raise ValueError(f"alphabet must be at least 2, got {self.alphabet}")

    @property
    def fields(self) -> tuple[int, ...]:
        """One field: the symbols and the empty symbol."""
        return (self.alphabet + 1,)

    @property
    def num_outputs(self) -> int:
        """The symbols."""
        return self.alphabet

    def output_length(self, length: int) -> int:
        """The number of symbols asked for."""
        return length

    def steps(self, length: int) -> int:
        """The string and its answer."""
        return length + self.output_length(length)

    @abc.abstractmethod
    def _answer(
        self, strings: Int[Array, "B L"], length: Length, index: Int[Array, "A"]
    ) -> Int[Array, "B A"]:
        """The symbols of the answers at some places; what is behind `length` in the strings is ignored."""

    def _sample(self, key: Array, batch_size: int, length: Length, max_length: int, split: str) -> Batch:
        strings = jax.random.randint(key, (batch_size, max_length), 0, self.alphabet, dtype=jnp.int32)
        time = jnp.arange(self.steps(max_length))
        padded = jnp.pad(strings, ((0, 0), (0, len(time) - max_length)))
        tokens = jnp.where((time < length)[None], padded, self.alphabet)
        # The same arithmetic also counts with a traced length.
        end = length + self.output_length(length)  # pyrefly: ignore[bad-argument-type]
        asked = (time >= length) & (time < end)
        index = jnp.where(asked, time - length, 0)
        targets = jnp.where(asked[None], self._answer(strings, length, index), 0)
        mask = jnp.broadcast_to(asked[None], targets.shape)
        return Batch(tokens[..., None], targets.astype(jnp.int32), mask)


class _Total(StringTask):
    """One answer: what the symbols count in all, modulo the number of outputs."""

    zero = 0  # the symbol that counts 0; the others count what they are greater

    def output_length(self, length: int) -> int:
        """One."""
        return 1

    def _answer(self, strings: Array, length: Length, index: Array) -> Array:
        total = jnp.sum(_before(strings, length, self.zero) - self.zero, axis=1, keepdims=True)
        return jnp.broadcast_to(total % self.num_outputs, (len(strings), len(index)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity(_Total):
    """Whether the number of ones is odd. Regular."""

    def __post_init__(self):
        super().__post_init__()
        if self.alphabet != 2:
            raise ValueError(f"alphabet must be 2 for parity, got {self.alphabet}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CycleNavigation(_Total):
    """Where a walk on a circle ends: symbols 0, 1, 2 move by -1, 0, 1 from position 0. Regular.

    Attributes:
      cycle: the number of positions on the circle.
    """

    alphabet: int = 3
    cycle: int = 5

    zero = 1

    def __post_init__(self):
        super().__post_init__()
        if self.alphabet != 3 or self.cycle < 2:
            raise ValueError(f"alphabet must be 3 and cycle at least 2, got {self.alphabet} and {self.cycle}")

    @property
    def num_outputs(self) -> int:
        """The positions."""
        return self.cycle


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReverseString(StringTask):
    """The string backwards. Deterministic context-free."""

    def _answer(self, strings: Array, length: Length, index: Array) -> Array:
        return strings[:, length - 1 - index]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicateString(StringTask):
    """The string twice. Context-sensitive."""

    def output_length(self, length: int) -> int:
        """Twice the string."""
        return 2 * length

    def _answer(self, strings: Array, length: Length, index: Array) -> Array:
        return strings[:, index % length]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OddsFirst(StringTask):
    """The symbols at odd places, then those at even places, counted from 0. Context-sensitive.

    The authors' description counts from 1 (s1 s3 s5 ... s2 s4 ...); this is what their code does.
    """

    def _answer(self, strings: Array, length: Length, index: Array) -> Array:
        odds = length // 2
        return strings[:, jnp.where(index < odds, 2 * index + 1, 2 * (index - odds))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketSort(StringTask):
    """The symbols in increasing order. Context-sensitive."""

    alphabet: int = 5

    def _answer(self, strings: Array, length: Length, index: Array) -> Array:
        return jnp.sort(_before(strings, length, self.alphabet), axis=1)[:, index]


def _before(strings: Int[Array, "B L"], length: Length, filler: int) -> Int[Array, "B L"]:
    """The strings with a filler from `length` on."""
    return jnp.where((jnp.arange(strings.shape[1]) < length)[None], strings, filler)


def deletang_score(
    accuracy_by_length: Mapping[int, float], *, lengths: Iterable[int] = SCORED_LENGTHS
) -> float:
    """The score of Deletang et al.: the mean of the accuracies at lengths 41 to 500, every length alike.

    An accuracy is the share of right symbols of the answers, from 0 to 1; lengths that are not scored are
    ignored. The paper reports the best score over its runs, in per cent. (Their example script begins at 42,
    the paper says 41.) Other `lengths` than the default do not give the paper's number.

    Raises:
      ValueError: a scored length is missing, or an accuracy is not between 0 and 1.
    """
    scored = tuple(lengths)
    if not scored:
        raise ValueError("lengths must hold at least one length, got none")
    missing = [length for length in scored if length not in accuracy_by_length]
    if missing:
        raise ValueError(
            f"accuracy_by_length must have every length from {min(scored)} to {max(scored)} that is scored; "
            f"{len(missing)} are missing, the first is {missing[0]}"
        )
    for length in scored:
        if not 0.0 <= (value := accuracy_by_length[length]) <= 1.0:
            raise ValueError(
                f"accuracy_by_length must hold shares from 0 to 1, got {value} at length {length}"
            )
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
