"""How the questions of a set are cut into parts that are drawn independently, each in about a minute."""

import dataclasses
from typing import Protocol

from tp_transformer.mathematics_modules import LEVELS

SPEEDS: dict[str, float] = {}
PART_SECONDS = 60.0
SMALLEST, LARGEST = 32, 65536


class Specification(Protocol):
    """What there is to know of a set to cut it; see `mathematics_sources.Generator`."""

    @property
    def train(self) -> int:
        """Questions a module in the three training splits together."""
        ...

    @property
    def test(self) -> int:
        """Questions a module in each test split."""
        ...

    def modules(self, split: str, /) -> tuple[str, ...]:
        """Modules of a split."""
        ...


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
    return SPEEDS.get(f"{split}/{module}", SPEEDS[module])


def part_size(split: str, module: str) -> int:
    """Questions a part: a power of two that takes a minute at most, within 32 and 65,536.

    It decides which questions a seed gives: changing `SPEEDS` changes data sets.
    """
    most = max(1.0, _speed(split, module) * PART_SECONDS)
    return min(max(2 ** (int(most).bit_length() - 1), SMALLEST), LARGEST)


def count_of(specification: Specification, split: str) -> int:
    """Questions a module has in a split."""
    return specification.train // 3 if split in LEVELS else specification.test


def parts_of(specification: Specification, split: str, module: str | None = None) -> list[Part]:
    """The parts of a split, or of one of its modules."""
    count = count_of(specification, split)
    parts = []
    for name in specification.modules(split) if module is None else (module,):
        size = part_size(split, name)
        parts += [
            Part(split, name, number, min(size, count - first))
            for number, first in enumerate(range(0, count, size))
        ]
    return parts
