"""How the questions of a set are cut into parts that are drawn independently, each in about a minute."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Protocol

from tp_transformer.mathematics_modules import EXTRAPOLATE, LEVELS

SPEEDS: Mapping[str, float] = types.MappingProxyType(
    {
        "algebra__linear_1d": 960,
        "algebra__linear_1d_composed": 310,
        "algebra__linear_2d": 670,
        "algebra__linear_2d_composed": 260,
        "algebra__polynomial_roots": 110,
        "algebra__polynomial_roots_composed": 91,
        "algebra__sequence_next_term": 340,
        "algebra__sequence_nth_term": 340,
        "arithmetic__add_or_sub": 2500,
        "arithmetic__add_or_sub_in_base": 4900,
        "arithmetic__add_sub_multiple": 2000,
        "arithmetic__div": 4500,
        "arithmetic__mixed": 1200,
        "arithmetic__mul": 3200,
        "arithmetic__mul_div_multiple": 1000,
        "arithmetic__nearest_integer_root": 1400,
        "arithmetic__simplify_surd": 74,
        "calculus__differentiate": 48,
        "calculus__differentiate_composed": 140,
        "comparison__closest": 920,
        "comparison__closest_composed": 450,
        "comparison__kth_biggest": 810,
        "comparison__kth_biggest_composed": 440,
        "comparison__pair": 1300,
        "comparison__pair_composed": 370,
        "comparison__sort": 910,
        "comparison__sort_composed": 370,
        "measurement__conversion": 340,
        "measurement__time": 65000,
        "numbers__base_conversion": 7500,
        "numbers__div_remainder": 3400,
        "numbers__div_remainder_composed": 390,
        "numbers__gcd": 3000,
        "numbers__gcd_composed": 340,
        "numbers__is_factor": 4200,
        "numbers__is_factor_composed": 340,
        "numbers__is_prime": 3000,
        "numbers__is_prime_composed": 350,
        "numbers__lcm": 1800,
        "numbers__lcm_composed": 390,
        "numbers__list_prime_factors": 5300,
        "numbers__list_prime_factors_composed": 380,
        "numbers__place_value": 6500,
        "numbers__place_value_composed": 430,
        "numbers__round_number": 4900,
        "numbers__round_number_composed": 610,
        "polynomials__add": 140,
        "polynomials__coefficient_named": 100,
        "polynomials__collect": 530,
        "polynomials__compose": 170,
        "polynomials__evaluate": 390,
        "polynomials__evaluate_composed": 190,
        "polynomials__expand": 62,
        "polynomials__simplify_power": 550,
        "probability__swr_p_level_set": 16,
        "probability__swr_p_sequence": 71,
        "extrapolate/algebra__polynomial_roots_big": 100,
        "extrapolate/arithmetic__add_or_sub_big": 2400,
        "extrapolate/arithmetic__add_sub_multiple_longer": 970,
        "extrapolate/arithmetic__div_big": 4100,
        "extrapolate/arithmetic__mixed_longer": 580,
        "extrapolate/arithmetic__mul_big": 3300,
        "extrapolate/arithmetic__mul_div_multiple_longer": 540,
        "extrapolate/comparison__closest_more": 530,
        "extrapolate/comparison__kth_biggest_more": 370,
        "extrapolate/comparison__sort_more": 1.3,
        "extrapolate/measurement__conversion": 2600,
        "extrapolate/numbers__place_value_big": 7500,
        "extrapolate/numbers__round_number_big": 3000,
        "extrapolate/probability__swr_p_level_set_more_samples": 0.76,
        "extrapolate/probability__swr_p_sequence_more_samples": 5,
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
