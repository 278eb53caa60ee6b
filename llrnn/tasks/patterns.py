"""The tasks of Hu and Murfet's experiments: copying a string along a pattern of steps.

All tasks use a function f(string, pattern): it emits string[j], adds the next step of the pattern (which
repeats) to j, and stops as soon as j is past the end. Pattern (1) copies, (0, 1) repeats every symbol.
Source: the authors' repository (dmurfet/deeplinearlogic, version 11 of their code); the paper itself has no
experiments.

The tape has ten symbols: contents 0 to 7, of which 7 is also the divider of the multiple pattern tasks, the
start symbol 8 and the end symbol 9. Position 0 has the start symbol, then come the content `a` and end
symbols. The answer is the target from the first end symbol on and is padded with end symbols.

`length` counts the symbols of `a`. The authors also count start and end, so their N is `length + 2`.

Axis letters: B sequences, L content positions, T positions of the tape, P steps of a pattern.
"""

import abc
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from llrnn.tasks.base import Batch, Length, Split, Task

DIVIDER, START, END = 7, 8, 9
NUM_CONTENTS = 8
NUM_SYMBOLS = 10

type Pattern = tuple[int, ...]
type Drawn = tuple[Int[Array, "B L"], Int[Array, "B T"], Int[Array, "B"]]
type DrawnPatterns = tuple[Int[Array, "B P"], Int[Array, "B"]]


@functools.cache
def emitted(pattern: Pattern, length: int) -> int:
    """Returns the number of symbols that f emits on a string of the given length."""
    count = position = 0
    while position < length:
        position += pattern[count % len(pattern)]
        count += 1
    return count


def _check_patterns(name: str, patterns: tuple[Pattern, ...]) -> None:
    if not patterns:
        raise ValueError(f"{name}: got (), expected at least one pattern")
    for pattern in patterns:
        if not pattern or sum(pattern) <= 0:
            raise ValueError(
                f"{name}: got {pattern}, expected steps with a positive sum, without which f never ends"
            )


def _walk(
    pattern: Int[Array, "P"], period: Length, length: Length, size: int
) -> tuple[Int[Array, "{size}"], Int[Array, ""]]:
    """Returns the positions that f reads, and the number of them before it ends.

    A position before the beginning counts from the end of the string, as Python's negative indices do in the
    authors' code for the fourth variable pattern task.
    """
    steps = pattern[jnp.arange(size - 1) % period]
    positions = jnp.concatenate([jnp.zeros(1, steps.dtype), jnp.cumsum(steps)])
    # f ends when it is past the end once, even if later steps lead back.
    before_end = jax.lax.cummax(positions) < length
    return positions % length, jnp.sum(before_end)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TapeTask(Task):
    """A task on the tape of the module's docstring; subclasses draw the content and compute the answer."""

    @property
    def fields(self) -> tuple[int, ...]:
        """One field of ten symbols."""
        return (NUM_SYMBOLS,)

    @property
    def num_outputs(self) -> int:
        """The number of symbols, 10."""
        return NUM_SYMBOLS

    @abc.abstractmethod
    def output_length(self, length: int) -> int:
        """Returns N_out, the length of the longest answer to a content of at most `length` symbols."""

    def steps(self, length: int) -> int:
        """Returns N + N_out, where N = length + 2 counts the start and the end."""
        return length + 2 + self.output_length(length)

    @abc.abstractmethod
    def _draw(self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, size: int) -> Drawn:
        """Returns contents (ignored from `length` on), answers of `size` symbols, and their lengths."""

    def _sample(
        self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, split: Split
    ) -> Batch:
        size = self.steps(max_length)
        content, answer, count = self._draw(key, batch_size, length, max_length, size)
        time = jnp.arange(size)
        tokens = jnp.pad(content, ((0, 0), (1, size - 1 - max_length)))
        tokens = jnp.where((time == 0)[None], START, jnp.where((time <= length)[None], tokens, END))
        index = time - (length + 1)
        answered = (index >= 0)[None] & (index[None] < count[:, None])
        targets = jnp.where(answered, answer[:, jnp.clip(index, 0)], END)
        # As in the authors' code, a step is scored if any sequence of the batch has an answer there. So
        # shorter answers are scored on end symbols too.
        mask = jnp.broadcast_to(jnp.any(answered, axis=0)[None], targets.shape)
        return Batch(tokens.astype(jnp.int32)[..., None], targets.astype(jnp.int32), mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatternTask(TapeTask):
    """A task with one fixed pattern: copy, repeat copy, pattern 1 to 5.

    Attributes:
      pattern: the steps of the pattern.
    """

    pattern: Pattern

    def __post_init__(self):
        super().__post_init__()
        _check_patterns("pattern", (self.pattern,))

    def output_length(self, length: int) -> int:
        """Returns the length of the answer to a content of `length` symbols."""
        return emitted(self.pattern, length)

    def _draw(self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, size: int) -> Drawn:
        content = jax.random.randint(key, (batch_size, max_length), 0, NUM_CONTENTS, dtype=jnp.int32)
        positions, count = _walk(jnp.array(self.pattern), len(self.pattern), length, size)
        return content, content[:, positions], jnp.broadcast_to(count, (batch_size,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiplePatternTask(TapeTask):
    """A task in which the divider 7 splits the content into pieces, each read along the next pattern.

    After the last pattern the first one follows again. The divider is not emitted. An empty piece emits
    nothing but uses up its pattern.

    Attributes:
      patterns: the patterns, in order.
      force_divider: put a divider at a random position; otherwise the content may have none.
    """

    patterns: tuple[Pattern, ...]
    force_divider: bool = False

    def __post_init__(self):
        super().__post_init__()
        _check_patterns("patterns", self.patterns)

    def output_length(self, length: int) -> int:
        """Returns `length` times the most symbols that a pattern emits per symbol.

        For the authors' patterns this is their 2 (N - 2).
        """
        most = max(-(-emitted(pattern, n) // n) for pattern in self.patterns for n in range(1, length + 1))
        return most * length

    def _draw(self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, size: int) -> Drawn:
        content_key, divider_key = jax.random.split(key)
        content = jax.random.randint(content_key, (batch_size, max_length), 0, NUM_CONTENTS, dtype=jnp.int32)
        if self.force_divider:
            forced = jax.random.randint(divider_key, (batch_size,), 0, length, dtype=jnp.int32)
            content = jnp.where(jnp.arange(max_length)[None] == forced[:, None], DIVIDER, content)
        answer, count = jax.vmap(functools.partial(self._answer, length=length, size=size))(content)
        return content, answer, count

    def _answer(
        self, content: Int[Array, "L"], length: Length, size: int
    ) -> tuple[Int[Array, "{size}"], Int[Array, ""]]:
        max_length = content.shape[0]
        emits = jnp.array([[emitted(p, n) for n in range(max_length + 1)] for p in self.patterns])
        walks = jnp.array([np.cumsum([0, *np.resize(p, size - 1)]) for p in self.patterns])

        inside = jnp.arange(max_length) < length
        divider = inside & (content == DIVIDER)
        piece = jnp.cumsum(divider) - divider  # a divider belongs to the piece it ends
        none = jnp.zeros(max_length + 1, jnp.int32)
        sizes = none.at[piece].add(inside & ~divider)
        widths = none.at[piece].add(inside)
        starts = jnp.cumsum(widths) - widths
        pattern = jnp.arange(max_length + 1) % len(self.patterns)
        counts = emits[pattern, sizes]
        ends = jnp.cumsum(counts)

        time = jnp.arange(size)
        # The piece whose symbols are emitted at each time.
        now = jnp.minimum(jnp.searchsorted(ends, time, side="right"), max_length)
        step = time - (ends - counts)[now]
        position = walks[pattern[now], step] % jnp.maximum(sizes[now], 1)
        return content[starts[now] + position], ends[-1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VariablePatternTask(TapeTask):
    """A task whose content is a pattern, the start symbol 8, and a string to read along that pattern.

    Steps are written modulo 8: -1 as 7 and -2 as 6. (The authors' code writes them modulo 10, because it uses
    them as indices into a list of ten one-hot vectors; -2 then looks like the 8 that ends the pattern, and -1
    like the end symbol.)

    Subclasses draw the patterns.

    Attributes:
      truncate: truncate answers to the authors' tape, N_out = 2 (N - 2). The default keeps every answer, on a
        tape several times as long, since a pattern such as (0, 0, 0, 1) emits every symbol four times.
    """

    truncate: bool = False

    @property
    @abc.abstractmethod
    def max_pattern(self) -> int:
        """The length of the longest pattern."""

    @property
    def min_length(self) -> int:
        """The shortest length: the longest pattern, the separator, and one symbol."""
        return self.max_pattern + 2

    def output_length(self, length: int) -> int:
        """Returns twice the content's length if truncated, otherwise the length of the longest answer."""
        return 2 * length if self.truncate else self._longest(length)

    @abc.abstractmethod
    def _longest(self, length: int) -> int:
        """Returns the length of the longest answer to a content of the given length."""

    @abc.abstractmethod
    def _draw_patterns(self, key: PRNGKeyArray, batch_size: int) -> DrawnPatterns:
        """Returns patterns and their lengths; steps after the length are ignored."""

    def _draw(self, key: PRNGKeyArray, batch_size: int, length: Length, max_length: int, size: int) -> Drawn:
        pattern_key, content_key = jax.random.split(key)
        pattern, period = self._draw_patterns(pattern_key, batch_size)
        content = jax.random.randint(content_key, (batch_size, max_length), 0, NUM_CONTENTS, dtype=jnp.int32)
        index = jnp.arange(max_length)[None]
        written = jnp.pad(pattern % NUM_CONTENTS, ((0, 0), (0, max_length - self.max_pattern)))
        content = jnp.where(index < period[:, None], written, content)
        content = jnp.where(index == period[:, None], START, content)
        positions, count = jax.vmap(functools.partial(_walk, size=size))(pattern, period, length - 1 - period)
        return content, jnp.take_along_axis(content, positions + period[:, None] + 1, axis=1), count


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedPatternTask(VariablePatternTask):
    """Variable pattern 1 and 2: a pattern drawn uniformly from a list.

    Attributes:
      patterns: the list of patterns.
    """

    patterns: tuple[Pattern, ...]

    def __post_init__(self):
        _check_patterns("patterns", self.patterns)
        super().__post_init__()

    @property
    def max_pattern(self) -> int:
        """The length of the longest pattern in the list."""
        return max(len(pattern) for pattern in self.patterns)

    def _longest(self, length: int) -> int:
        return max(emitted(pattern, length - 1 - len(pattern)) for pattern in self.patterns)

    def _draw_patterns(self, key: PRNGKeyArray, batch_size: int) -> DrawnPatterns:
        padded = jnp.array([p + (0,) * (self.max_pattern - len(p)) for p in self.patterns])
        choice = jax.random.randint(key, (batch_size,), 0, len(self.patterns), dtype=jnp.int32)
        return padded[choice], jnp.array([len(p) for p in self.patterns])[choice]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomPatternTask(VariablePatternTask):
    """Variable pattern 3 and 4: a pattern of uniform length, then with uniform steps of positive sum.

    Attributes:
      step_range: the smallest and the largest step, both inclusive.
      longest_pattern: the maximum length of a pattern.
    """

    step_range: tuple[int, int]
    longest_pattern: int = 8

    def __post_init__(self):
        super().__post_init__()
        low, high = self.step_range
        if high < 1 or not 0 <= high - low < NUM_CONTENTS:
            raise ValueError(
                f"step_range: got {self.step_range}, expected (low, high) with high >= 1 and "
                f"low <= high < low + {NUM_CONTENTS}"
            )
        if self.longest_pattern < 1:
            raise ValueError(f"longest_pattern: got {self.longest_pattern}, expected at least 1")

    @property
    def max_pattern(self) -> int:
        """The maximum length of a pattern, the field `longest_pattern`."""
        return self.longest_pattern

    def _longest(self, length: int) -> int:
        low, _ = self.step_range
        if low > 0:  # every step advances by at least that; the pattern (low,) leaves the longest string
            return -(-(length - 2) // low)
        # One round of a pattern of p steps advances by at least 1, so n symbols take at most n rounds.
        return max(p * (length - 1 - p) for p in range(1, self.max_pattern + 1))

    def _draw_patterns(self, key: PRNGKeyArray, batch_size: int) -> DrawnPatterns:
        period_key, key = jax.random.split(key)
        period = jax.random.randint(period_key, (batch_size,), 1, self.max_pattern + 1, dtype=jnp.int32)
        used = jnp.arange(self.max_pattern)[None] < period[:, None]
        low, high = self.step_range

        def redraw(carry):
            key, pattern = carry
            key, draw_key = jax.random.split(key)
            steps = jax.random.randint(draw_key, pattern.shape, low, high + 1, dtype=jnp.int32)
            keep = jnp.sum(pattern, axis=1, keepdims=True) > 0
            return key, jnp.where(keep, pattern, jnp.where(used, steps, 0))

        def unfinished(carry):
            return jnp.any(jnp.sum(carry[1], axis=1) <= 0)

        _, pattern = jax.lax.while_loop(unfinished, redraw, (key, jnp.zeros(used.shape, jnp.int32)))
        return pattern, period


# The authors' default lengths, then those of their recorded runs. Their numbers are greater by 2, since they
# count start and end.
_AT_30 = {"train_lengths": (5, 28), "test_lengths": (33,)}
_AT_30_TWICE = {"train_lengths": (5, 28), "test_lengths": (33, 58)}
_AT_100 = {"test_lengths": (98,)}
_FIVE = ((1,), (2,), (0, 1), (0, 2), (1, 2))
_NINETEEN = (
    *_FIVE,
    *((0, 1, 0), (0, 1, 1), (0, 1, 2), (0, 2, 0), (0, 2, 1), (0, 2, 2), (1, 1, 2), (1, 2, 2)),
    *((0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 1, 2), (0, 1, 1, 2), (0, 1, 0, 2), (0, 2, 0, 2)),
)

TASKS: tuple[Task, ...] = (
    PatternTask(name="copy", pattern=(1,), train_lengths=(5, 28), test_lengths=(33, 98)),
    PatternTask(name="repeat_copy", pattern=(0, 1), **_AT_30_TWICE),
    PatternTask(name="pattern_1", pattern=(0, 1, 1), **_AT_30),
    PatternTask(name="pattern_2", pattern=(0, 2), **_AT_30),
    PatternTask(name="pattern_3", pattern=(0, 2, -1), **_AT_30),
    PatternTask(name="pattern_4", pattern=(0, 2, 1, 2, -2, -1), **_AT_30),
    PatternTask(name="pattern_5", pattern=(4, 1, 1, -4), **_AT_30),
    MultiplePatternTask(name="multiple_pattern_1", patterns=((1,), (0, 1)), **_AT_30_TWICE),
    MultiplePatternTask(
        name="multiple_pattern_2", patterns=((1,), (0, 1)), force_divider=True, **_AT_30_TWICE
    ),
    MultiplePatternTask(name="multiple_pattern_3", patterns=((1,), (0, 1), (0, 2)), **_AT_30_TWICE),
    MultiplePatternTask(name="multiple_pattern_4", patterns=((0, 1), (2, -1)), **_AT_30_TWICE),
    ListedPatternTask(name="variable_pattern_1", patterns=_FIVE, train_lengths=(8, 28), test_lengths=(33,)),
    ListedPatternTask(name="variable_pattern_2", patterns=_NINETEEN, train_lengths=(11, 78), **_AT_100),
    RandomPatternTask(name="variable_pattern_3", step_range=(0, 2), train_lengths=(18, 78), **_AT_100),
    RandomPatternTask(name="variable_pattern_4", step_range=(-2, 2), train_lengths=(18, 78), **_AT_100),
)
