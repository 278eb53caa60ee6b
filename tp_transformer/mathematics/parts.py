"""How the questions of a set are cut into parts that are drawn independently, each in about a minute."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Protocol

from tp_transformer.mathematics.modules import EXTRAPOLATE, LEVELS

SPEEDS: Mapping[str, float] = types.MappingProxyType(
    {
        "algebra__linear_1d": 1500,
        "algebra__linear_1d_composed": 390,
        "algebra__linear_2d": 1200,
        "algebra__linear_2d_composed": 370,
        "algebra__polynomial_roots": 110,
        "algebra__polynomial_roots_composed": 110,
        "algebra__sequence_next_term": 470,
        "algebra__sequence_nth_term": 390,
        "arithmetic__add_or_sub": 4400,
        "arithmetic__add_or_sub_in_base": 12000,
        "arithmetic__add_sub_multiple": 4500,
        "arithmetic__div": 12000,
        "arithmetic__mixed": 2400,
        "arithmetic__mul": 6300,
        "arithmetic__mul_div_multiple": 2400,
        "arithmetic__nearest_integer_root": 1600,
        "arithmetic__simplify_surd": 67,
        "calculus__differentiate": 45,
        "calculus__differentiate_composed": 150,
        "comparison__closest": 1700,
        "comparison__closest_composed": 670,
        "comparison__kth_biggest": 3100,
        "comparison__kth_biggest_composed": 870,
        "comparison__pair": 2100,
        "comparison__pair_composed": 570,
        "comparison__sort": 3300,
        "comparison__sort_composed": 630,
        "measurement__conversion": 1500,
        "measurement__time": 66000,
        "numbers__base_conversion": 20000,
        "numbers__div_remainder": 10000,
        "numbers__div_remainder_composed": 490,
        "numbers__gcd": 3900,
        "numbers__gcd_composed": 430,
        "numbers__is_factor": 18000,
        "numbers__is_factor_composed": 510,
        "numbers__is_prime": 5900,
        "numbers__is_prime_composed": 450,
        "numbers__lcm": 3800,
        "numbers__lcm_composed": 610,
        "numbers__list_prime_factors": 12000,
        "numbers__list_prime_factors_composed": 540,
        "numbers__place_value": 20000,
        "numbers__place_value_composed": 580,
        "numbers__round_number": 8500,
        "numbers__round_number_composed": 860,
        "polynomials__add": 180,
        "polynomials__coefficient_named": 320,
        "polynomials__collect": 620,
        "polynomials__compose": 190,
        "polynomials__evaluate": 450,
        "polynomials__evaluate_composed": 240,
        "polynomials__expand": 200,
        "polynomials__simplify_power": 850,
        "probability__swr_p_level_set": 7300,
        "probability__swr_p_sequence": 8500,
        "extrapolate/algebra__polynomial_roots_big": 92,
        "extrapolate/arithmetic__add_or_sub_big": 4300,
        "extrapolate/arithmetic__add_sub_multiple_longer": 2700,
        "extrapolate/arithmetic__div_big": 15000,
        "extrapolate/arithmetic__mixed_longer": 1400,
        "extrapolate/arithmetic__mul_big": 7600,
        "extrapolate/arithmetic__mul_div_multiple_longer": 1300,
        "extrapolate/comparison__closest_more": 1000,
        "extrapolate/comparison__kth_biggest_more": 1500,
        "extrapolate/comparison__sort_more": 9.7,
        "extrapolate/measurement__conversion": 4400,
        "extrapolate/numbers__place_value_big": 22000,
        "extrapolate/numbers__round_number_big": 9800,
        "extrapolate/probability__swr_p_level_set_more_samples": 7500,
        "extrapolate/probability__swr_p_sequence_more_samples": 9700,
    }
)
"""Questions a second on one core (2026, SymPy 1.14): in training and to interpolate, and to extrapolate."""

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
    return SPEEDS[f"{EXTRAPOLATE}/{module}" if split == EXTRAPOLATE else module]


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
