"""How the questions of a set are cut into parts that are drawn independently, each in about a minute."""

import dataclasses
from typing import TYPE_CHECKING

from tp_transformer.mathematics.modules import EXTRAPOLATE, EXTRAPOLATION_SPEEDS, LEVELS, SPEEDS

if TYPE_CHECKING:
    from tp_transformer.mathematics.sources import Generator

PART_SECONDS = 60.0
SMALLEST, LARGEST = 32, 65536


@dataclasses.dataclass(frozen=True, order=True)
class Part:
    """Some of the questions of a module in a split."""

    split: str
    module: str
    number: int
    count: int

    @property
    def seconds(self) -> float:
        """About how long one core draws at it."""
        return self.count / _speed(self.split, self.module)


def _speed(split: str, module: str) -> float:
    return (EXTRAPOLATION_SPEEDS if split == EXTRAPOLATE else SPEEDS)[module]


def part_size(split: str, module: str) -> int:
    """Questions in a part: a power of two that takes a minute at most, within 32 and 65,536.

    It decides which questions a seed gives: changing `SPEEDS` changes data sets.
    """
    most = max(1.0, _speed(split, module) * PART_SECONDS)
    return min(max(2 ** (int(most).bit_length() - 1), SMALLEST), LARGEST)


def parts_of(source: "Generator", split: str, module: str | None = None) -> list[Part]:
    """The parts of a split, or of one of its modules."""
    count = source.train // 3 if split in LEVELS else source.test
    parts = []
    for name in source.modules(split) if module is None else (module,):
        size = part_size(split, name)
        parts += [
            Part(split, name, number, min(size, count - first))
            for number, first in enumerate(range(0, count, size))
        ]
    return parts
