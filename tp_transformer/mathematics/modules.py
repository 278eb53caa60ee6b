"""The modules (kinds of question) of the Mathematics Dataset, and the splits they come in."""

import difflib
from collections.abc import Iterable, Sequence

MODULES = (
    "algebra__linear_1d",
    "algebra__linear_1d_composed",
    "algebra__linear_2d",
    "algebra__linear_2d_composed",
    "algebra__polynomial_roots",
    "algebra__polynomial_roots_composed",
    "algebra__sequence_next_term",
    "algebra__sequence_nth_term",
    "arithmetic__add_or_sub",
    "arithmetic__add_or_sub_in_base",
    "arithmetic__add_sub_multiple",
    "arithmetic__div",
    "arithmetic__mixed",
    "arithmetic__mul",
    "arithmetic__mul_div_multiple",
    "arithmetic__nearest_integer_root",
    "arithmetic__simplify_surd",
    "calculus__differentiate",
    "calculus__differentiate_composed",
    "comparison__closest",
    "comparison__closest_composed",
    "comparison__kth_biggest",
    "comparison__kth_biggest_composed",
    "comparison__pair",
    "comparison__pair_composed",
    "comparison__sort",
    "comparison__sort_composed",
    "measurement__conversion",
    "measurement__time",
    "numbers__base_conversion",
    "numbers__div_remainder",
    "numbers__div_remainder_composed",
    "numbers__gcd",
    "numbers__gcd_composed",
    "numbers__is_factor",
    "numbers__is_factor_composed",
    "numbers__is_prime",
    "numbers__is_prime_composed",
    "numbers__lcm",
    "numbers__lcm_composed",
    "numbers__list_prime_factors",
    "numbers__list_prime_factors_composed",
    "numbers__place_value",
    "numbers__place_value_composed",
    "numbers__round_number",
    "numbers__round_number_composed",
    "polynomials__add",
    "polynomials__coefficient_named",
    "polynomials__collect",
    "polynomials__compose",
    "polynomials__evaluate",
    "polynomials__evaluate_composed",
    "polynomials__expand",
    "polynomials__simplify_power",
    "probability__swr_p_level_set",
    "probability__swr_p_sequence",
)
"""The 56 modules of the training splits and of `interpolate`."""

EXTRAPOLATION_MODULES = (
    "algebra__polynomial_roots_big",
    "arithmetic__add_or_sub_big",
    "arithmetic__add_sub_multiple_longer",
    "arithmetic__div_big",
    "arithmetic__mixed_longer",
    "arithmetic__mul_big",
    "arithmetic__mul_div_multiple_longer",
    "comparison__closest_more",
    "comparison__kth_biggest_more",
    "comparison__sort_more",
    "measurement__conversion",
    "numbers__place_value_big",
    "numbers__round_number_big",
    "probability__swr_p_level_set_more_samples",
    "probability__swr_p_sequence_more_samples",
)
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
    """The modules asked for, or all of the split's.

    Args:
        split: one of `SPLITS`, or "train".
        modules: names; None: all.

    Returns:
        The names, each once.

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
