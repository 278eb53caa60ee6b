"""The modules (kinds of question) of the Mathematics Dataset, and its splits."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

Level = Literal["train-easy", "train-medium", "train-hard"]
FileSplit = Literal[Level, "interpolate", "extrapolate"]
"""Splits with their own files."""

Split = Literal["train", FileSplit]
TFDSSplit = Literal["train", "test"]

SPEEDS: Mapping[str, float] = {
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
}
"""Questions per second on one core (2026, SymPy 1.14), for modules of training and `interpolate`."""

MODULES = tuple(SPEEDS)
"""The 56 modules of the training splits and of `interpolate`."""

EXTRAPOLATION_SPEEDS: Mapping[str, float] = {
    "algebra__polynomial_roots_big": 92,
    "arithmetic__add_or_sub_big": 4300,
    "arithmetic__add_sub_multiple_longer": 2700,
    "arithmetic__div_big": 15000,
    "arithmetic__mixed_longer": 1400,
    "arithmetic__mul_big": 7600,
    "arithmetic__mul_div_multiple_longer": 1300,
    "comparison__closest_more": 1000,
    "comparison__kth_biggest_more": 1500,
    "comparison__sort_more": 9.7,
    "measurement__conversion": 4400,
    "numbers__place_value_big": 22000,
    "numbers__round_number_big": 9800,
    "probability__swr_p_level_set_more_samples": 7500,
    "probability__swr_p_sequence_more_samples": 9700,
}
"""Questions per second for each module of `extrapolate`."""

EXTRAPOLATION_MODULES = tuple(EXTRAPOLATION_SPEEDS)
"""The 15 modules of `extrapolate`: larger numbers, more terms, more samples than in training."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""The training splits, each with a third of the range of entropy (Saxton et al. 2019)."""

TRAIN: Final = "train"
"""All training splits combined, as the paper trains on them."""

INTERPOLATE: Final = "interpolate"
EXTRAPOLATE: Final = "extrapolate"

TEST: tuple[FileSplit, ...] = (INTERPOLATE, EXTRAPOLATE)
SPLITS: tuple[FileSplit, ...] = get_args(FileSplit)
"""The splits with their own files: the three levels and the two test splits."""


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """Returns the error for a name that does not exist, with a hint at similar names."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if not near:  # part of a name, such as "linear", resembles no whole name
        near = [candidate for candidate in known if name and name in candidate][:3]
    hint = f"a known name such as {', '.join(near)}" if near else f"one of {', '.join(known)}"
    return ValueError(f"{kind}: got {name!r}, expected {hint}")


def modules_of(split: Split) -> tuple[str, ...]:
    """Returns the names of the modules of a split.

    Raises:
        ValueError: the split does not exist.
    """
    if split not in get_args(Split):
        raise unknown("split", split, get_args(Split))
    return EXTRAPOLATION_MODULES if split == EXTRAPOLATE else MODULES


def check_modules(split: Split, modules: Sequence[str] | None) -> tuple[str, ...]:
    """Returns `modules` without duplicates, or all modules of the split for None.

    Raises:
        ValueError: the split or a module does not exist, or `modules` is empty.
    """
    known = modules_of(split)
    if modules is None:
        return known
    if isinstance(modules, str):
        raise ValueError(f"modules: got the string {modules!r}, expected a sequence of names")
    for module in modules:
        if module not in known:
            raise unknown(f"modules of {split}", module, known)
    if not modules:
        raise ValueError("modules: got none, expected at least one module")
    return tuple(dict.fromkeys(modules))
