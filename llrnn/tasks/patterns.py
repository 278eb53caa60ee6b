"""The tasks of Hu and Murfet's experiments: copying a string along a pattern of steps.

The common function is f(string, pattern): emit string[j], then add the next step of the pattern (which
repeats) to j, and stop as soon as j is past the end. Pattern (1) copies, (0, 1) repeats every symbol.
Source: the authors' repository (dmurfet/deeplinearlogic, version 11 of their code); the paper itself has no
experiments.

The tape has ten symbols: contents 0 to 7, of which 7 is also the divider of the multiple pattern tasks, 8 to
start and 9 to end. Position 0 holds the start, then comes the content `a`, then end symbols; the answer is
aligned with the end of the input (its first symbol is asked for when the first end symbol is read) and padded
with end symbols.

`length` counts the symbols of `a`. The authors count the start and the end too, so their N is `length + 2`.

Axis letters: B sequences, L content positions, T positions of the tape, P steps of a pattern.
"""

import abc
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from llrnn.tasks.base import Batch, Length, Task

DIVIDER, START, END = 7, 8, 9
NUM_CONTENTS = 8
NUM_SYMBOLS = 10

type Pattern = tuple[int, ...]


@functools.cache
def emitted(pattern: Pattern, length: int) -> int:
    """How many symbols f emits on a string of a length."""
    count = position = 0
    while position < length:
        position += pattern[count % len(pattern)]
        count += 1
    return count


def _check_patterns(name: str, patterns: tuple[Pattern, ...]) -> None:
    if not patterns:
        raise ValueError(f"{name} must hold at least one pattern, got ()")
    for pattern in patterns:
        if not pattern or sum(pattern) <= 0:
            raise ValueError(f"{name} must have steps with a positive sum, or f never ends; got {pattern}")


def _walk(pattern: Int[Array, "P"], period: Length, length: Length, size: int) -> tuple[Array, Array]:
    """The positions that f reads, [size], and how many of them come before its end.

    A position before the beginning counts from the end of the string: so Python's negative indices made it in
    the authors' code, for the fourth variable pattern task.
    """
    steps = pattern[jnp.arange(size - 1) % period]
    positions = jnp.concatenate([jnp.zeros(1, steps.dtype), jnp.cumsum(steps)])
    # Past the end once is the end, whatever comes after.
    before_end = jax.lax.cummax(positions) < length
    return positions % length, jnp.sum(before_end)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TapeTask(Task):
    """A task on the tape described above; a subclass draws the content and computes the answer."""

    @property
    def fields(self) -> tuple[int, ...]:
        """One field of ten symbols."""
        return (NUM_SYMBOLS,)

    @property
    def num_outputs(self) -> int:
        """The ten symbols."""
        return NUM_SYMBOLS

    @abc.abstractmethod
    def output_length(self, length: int) -> int:
        """N_out: room for the longest answer to a content of at most `length` symbols."""

    def steps(self, length: int) -> int:
        """N + N_out, where N = length + 2 counts the start and the end."""
        return length + 2 + self.output_length(length)

    @abc.abstractmethod
    def _draw(
        self, key: Array, batch_size: int, length: Length, max_length: int, size: int
    ) -> tuple[Int[Array, "B L"], Int[Array, "B T"], Int[Array, "B"]]:
        """Contents (what is behind `length` is ignored), answers of `size` symbols, and how many count."""

    def _sample(self, key: Array, batch_size: int, length: Length, max_length: int, split: str) -> Batch:
        size = self.steps(max_length)
        content, answer, count = self._draw(key, batch_size, length, max_length, size)
        time = jnp.arange(size)
        tokens = jnp.pad(content, ((0, 0), (1, size - 1 - max_length)))
        tokens = jnp.where((time == 0)[None], START, jnp.where((time <= length)[None], tokens, END))
        index = time - (length + 1)
        answered = (index >= 0)[None] & (index[None] < count[:, None])
        targets = jnp.where(answered, answer[:, jnp.clip(index, 0)], END)
        # As the authors score: every step at which some sequence of the batch has an answer. Where outputs
        # differ in length, the shorter ones are so asked for their end symbol too.
        mask = jnp.broadcast_to(jnp.any(answered, axis=0)[None], targets.shape)
        return Batch(tokens.astype(jnp.int32)[..., None], targets.astype(jnp.int32), mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatternTask(TapeTask):
    """One fixed pattern: copy, repeat copy, pattern 1 to 5."""

    pattern: Pattern

    def __post_init__(self):
        super().__post_init__()
        _check_patterns("pattern", (self.pattern,))

    def output_length(self, length: int) -> int:
        """The length of the answer."""
        return emitted(self.pattern, length)

    def _draw(self, key: Array, batch_size: int, length: Length, max_length: int, size: int):
        content = jax.random.randint(key, (batch_size, max_length), 0, NUM_CONTENTS)
        positions, count = _walk(jnp.array(self.pattern), len(self.pattern), length, size)
        return content, content[:, positions], jnp.broadcast_to(count, (batch_size,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiplePatternTask(TapeTask):
    """The divider 7 cuts the content into pieces, each of which is read along the next pattern.

    After the last pattern comes the first again. The divider is not emitted. An empty piece emits nothing but
    uses up its pattern.

    Attributes:
      patterns: the patterns, in turn.
      force_divider: put a divider at a random position; without it there may be none.
    """

    patterns: tuple[Pattern, ...]
    force_divider: bool = False

    def __post_init__(self):
        super().__post_init__()
        _check_patterns("patterns", self.patterns)

    def output_length(self, length: int) -> int:
        """The most that a pattern emits for a symbol, times `length`; the authors' 2 (N - 2) for theirs."""
        most = max(-(-emitted(pattern, n) // n) for pattern in self.patterns for n in range(1, length + 1))
        return most * length

    def _draw(self, key: Array, batch_size: int, length: Length, max_length: int, size: int):
        content_key, divider_key = jax.random.split(key)
        content = jax.random.randint(content_key, (batch_size, max_length), 0, NUM_CONTENTS)
        if self.force_divider:
            forced = jax.random.randint(divider_key, (batch_size,), 0, length)
            content = jnp.where(jnp.arange(max_length)[None] == forced[:, None], DIVIDER, content)
        answer, count = jax.vmap(functools.partial(self._answer, length=length, size=size))(content)
        return content, answer, count

    def _answer(self, content: Int[Array, "L"], length: Length, size: int) -> tuple[Array, Array]:
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
        # The piece that is emitted from.
        now = jnp.minimum(jnp.searchsorted(ends, time, side="right"), max_length)
        step = time - (ends - counts)[now]
        position = walks[pattern[now], step] % jnp.maximum(sizes[now], 1)
        return content[starts[now] + position], ends[-1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VariablePatternTask(TapeTask):
    """The content is a pattern, the start symbol 8, and a string to read along that pattern.

    A step is written modulo 8: -1 as 7 and -2 as 6. (The authors' code writes it modulo 10, because it
    indexes a list of ten one-hot vectors with it, so that -2 looks like the 8 that ends the pattern and -1
    like the end.)

    A subclass says where patterns come from.

    Attributes:
      truncate: cut answers to the authors' tape, N_out = 2 (N - 2). The default has room for every answer,
        which takes a tape several times as long, since a pattern such as (0, 0, 0, 1) emits every symbol four
        times.
    """

    truncate: bool = False

    @property
    @abc.abstractmethod
    def max_pattern(self) -> int:
        """The length of the longest pattern."""

    @property
    def min_length(self) -> int:
        """Room for the longest pattern, the separator, and one symbol."""
        return self.max_pattern + 2

    def output_length(self, length: int) -> int:
        """Twice the content if truncated, otherwise the longest answer there can be."""
        return 2 * length if self.truncate else self._longest(length)

    @abc.abstractmethod
    def _longest(self, length: int) -> int:
        """The longest answer to any content of a length."""

    @abc.abstractmethod
    def _draw_patterns(self, key: Array, batch_size: int) -> tuple[Int[Array, "B P"], Int[Array, "B"]]:
        """Patterns and their lengths; what is behind the length is ignored."""

    def _draw(self, key: Array, batch_size: int, length: Length, max_length: int, size: int):
        pattern_key, content_key = jax.random.split(key)
        pattern, period = self._draw_patterns(pattern_key, batch_size)
        content = jax.random.randint(content_key, (batch_size, max_length), 0, NUM_CONTENTS)
        index = jnp.arange(max_length)[None]
        written = jnp.pad(pattern % NUM_CONTENTS, ((0, 0), (0, max_length - self.max_pattern)))
        content = jnp.where(index < period[:, None], written, content)
        content = jnp.where(index == period[:, None], START, content)
        positions, count = jax.vmap(functools.partial(_walk, size=size))(pattern, period, length - 1 - period)
        return content, jnp.take_along_axis(content, positions + period[:, None] + 1, axis=1), count


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListedPatternTask(VariablePatternTask):
    """Variable pattern 1 and 2: a pattern of a list, each as likely as the others."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self):
        _check_patterns("patterns", self.patterns)
        super().__post_init__()

    @property
    def max_pattern(self) -> int:
        """The longest of the list."""
        return max(len(pattern) for pattern in self.patterns)

    def _longest(self, length: int) -> int:
        return max(emitted(pattern, length - 1 - len(pattern)) for pattern in self.patterns)

    def _draw_patterns(self, key: Array, batch_size: int):
        padded = jnp.array([p + (0,) * (self.max_pattern - len(p)) for p in self.patterns])
        choice = jax.random.randint(key, (batch_size,), 0, len(self.patterns))
        return padded[choice], jnp.array([len(p) for p in self.patterns])[choice]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomPatternTask(VariablePatternTask):
    """Variable pattern 3 and 4: a uniform length, then uniform steps among those with a positive sum.

    Attributes:
      step_range: the least and the greatest step.
      longest_pattern: the greatest length of a pattern.
    """

    step_range: tuple[int, int]
    longest_pattern: int = 8

    def __post_init__(self):
        super().__post_init__()
        low, high = self.step_range
        if not -NUM_CONTENTS < low <= high or high < 1 or high - low >= NUM_CONTENTS:
            raise ValueError(
                f"step_range must be (low, high), high >= 1, of at most {NUM_CONTENTS} steps, "
                f"got {self.step_range}"
            )
        if self.longest_pattern < 1:
            raise ValueError(f"longest_pattern must be at least 1, got {self.longest_pattern}")

    @property
    def max_pattern(self) -> int:
        """The greatest length of a pattern."""
        return self.longest_pattern

    def _longest(self, length: int) -> int:
        # Once round a pattern of p steps advances by at least 1: n symbols end within n rounds.
        return max(p * (length - 1 - p) for p in range(1, self.max_pattern + 1))

    def _draw_patterns(self, key: Array, batch_size: int):
        period_key, key = jax.random.split(key)
        period = jax.random.randint(period_key, (batch_size,), 1, self.max_pattern + 1)
        used = jnp.arange(self.max_pattern)[None] < period[:, None]
        low, high = self.step_range

        def redraw(carry):
            key, pattern = carry
            key, draw_key = jax.random.split(key)
            steps = jax.random.randint(draw_key, pattern.shape, low, high + 1)
            keep = jnp.sum(pattern, axis=1, keepdims=True) > 0
            return key, jnp.where(keep, pattern, jnp.where(used, steps, 0))

        def unfinished(carry):
            return jnp.any(jnp.sum(carry[1], axis=1) <= 0)

        _, pattern = jax.lax.while_loop(unfinished, redraw, (key, jnp.zeros(used.shape, jnp.int32)))
        return pattern, period


# The authors' defaults and, behind them, the lengths of their recorded runs; theirs are two greater (see
# above).
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
