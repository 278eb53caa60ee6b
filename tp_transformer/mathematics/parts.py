"""Division of a question set into parts that are drawn independently, each in about a minute."""

import dataclasses
from typing import Protocol, runtime_checkable

from tp_transformer.mathematics.modules import (
    EXTRAPOLATE,
    EXTRAPOLATION_SPEEDS,
    LEVELS,
    SPEEDS,
    FileSplit,
    Split,
)

PART_SECONDS = 60.0
SMALLEST, LARGEST = 32, 65536


@runtime_checkable
class Sizes(Protocol):
    """Sizes of a question set, such as a `Generator`."""

    @property
    def train(self) -> int:
        """Questions per module in the three training splits together."""
        ...

    @property
    def test(self) -> int:
        """Questions per module in each test split."""
        ...

    def modules(self, split: Split) -> tuple[str, ...]:
        """Returns the modules of a split."""
        ...


@dataclasses.dataclass(frozen=True, order=True)
class Part:
    """A numbered part of the questions of a module in a split."""

    split: FileSplit
    module: str
    number: int
    count: int

    @property
    def seconds(self) -> float:
        """Approximate time one core needs to draw the part."""
        return self.count / _speed(self.split, self.module)


def _speed(split: FileSplit, module: str) -> float:
    return float((EXTRAPOLATION_SPEEDS if split == EXTRAPOLATE else SPEEDS)[module])


def part_size(split: FileSplit, module: str) -> int:
    """Returns the size of a part: a power of two that takes at most a minute, from 32 to 65,536.

    The size determines which questions a seed gives, so changing `SPEEDS` changes data sets.
    """
    most = _speed(split, module) * PART_SECONDS
    return min(max(2 ** (int(most).bit_length() - 1), SMALLEST), LARGEST)


def parts_of(source: Sizes, split: FileSplit, module: str | None = None) -> list[Part]:
    """Lists the parts of a split, or of one of its modules."""
    count = source.train // 3 if split in LEVELS else source.test
    parts = []
    for name in source.modules(split) if module is None else (module,):
        size = part_size(split, name)
        parts += [
            Part(split, name, number, min(size, count - first))
            for number, first in enumerate(range(0, count, size))
        ]
    return parts
