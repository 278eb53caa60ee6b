"""The modules (kinds of question) of the Mathematics Dataset, and the splits they come in."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

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
"""Questions a second on one core (2026, SymPy 1.14), of each module of training and of `interpolate`."""

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
"""The same of each module of `extrapolate`."""

EXTRAPOLATION_MODULES = tuple(EXTRAPOLATION_SPEEDS)
"""The 15 modules of `extrapolate`: bigger numbers, more terms, more samples than were trained on."""

LEVELS = ("train-easy", "train-medium", "train-hard")
"""The training splits, each with a third of the range of entropy (Saxton et al. 2019)."""

TRAIN, INTERPOLATE, EXTRAPOLATE = "train", "interpolate", "extrapolate"
"""All training splits as one, as the paper trains on them; and the two test splits."""

TEST = (INTERPOLATE, EXTRAPOLATE)
SPLITS = (*LEVELS, *TEST)
"""The splits that have files of their own."""


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that does not exist, with those nearest to it."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if not near:  # part of a name, such as "linear", is like no whole name
        near = [candidate for candidate in known if name and name in candidate][:3]
    hint = f"the nearest are {', '.join(near)}" if near else f"expected one of {', '.join(known)}"
    return ValueError(f"{kind} must be a known name, got {name!r}; {hint}")


def modules_of(split: str) -> tuple[str, ...]:
    """The modules that a split has.

    Raises:
        ValueError: there is no such split.
    """
    if split not in (*SPLITS, TRAIN):
        raise unknown("split", split, (*SPLITS, TRAIN))
    return EXTRAPOLATION_MODULES if split == EXTRAPOLATE else MODULES


def check_modules(split: str, modules: Sequence[str] | None) -> tuple[str, ...]:
    """The modules asked for, each once; all of the split's for None.

    Raises:
        ValueError: a split or module does not exist, or nothing is asked for.
    """
    known = modules_of(split)
    if modules is None:
        return known
    if isinstance(modules, str):
        raise ValueError(f"modules must be a sequence of names, got the string {modules!r}")
    for module in modules:
        if module not in known:
            raise unknown(f"modules of {split}", module, known)
    if not modules:
        raise ValueError("modules must name at least one module, got none")
    return tuple(dict.fromkeys(modules))
