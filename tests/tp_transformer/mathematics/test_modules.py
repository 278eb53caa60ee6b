"""Names of modules and splits, and errors for unknown ones."""

import pytest

from tp_transformer.mathematics.modules import (
    EXTRAPOLATION_MODULES,
    MODULES,
    SPLITS,
    check_modules,
    modules_of,
    unknown,
)


def test_counts():
    """56 modules and 15 for extrapolation; measurement__conversion is in both."""
    assert len(set(MODULES)) == len(MODULES) == 56
    assert len(set(EXTRAPOLATION_MODULES)) == len(EXTRAPOLATION_MODULES) == 15
    assert set(MODULES) & set(EXTRAPOLATION_MODULES) == {"measurement__conversion"}


def test_modules_of():
    """All splits but extrapolation have the 56 modules."""
    assert modules_of("extrapolate") == EXTRAPOLATION_MODULES
    assert all(modules_of(split) == MODULES for split in (*SPLITS, "train") if split != "extrapolate")


def test_check_modules():
    """All modules by default; otherwise without duplicates, in the given order."""
    assert check_modules("train", None) == MODULES
    assert check_modules("train", ["numbers__gcd", "arithmetic__mul", "numbers__gcd"]) == (
        "numbers__gcd",
        "arithmetic__mul",
    )


def test_known_names_are_listed_in_order():
    assert "expected one of a, b, c" in str(unknown("letter", "z", ["c", "a", "b"]))


def test_three_names_are_suggested():
    names = [f"{letter}: a name that is long" for letter in "dbca"]
    for name in ("e: a name that is long", "long"):
        hint = str(unknown("name", name, names)).split("such as ")[1]
        assert len(hint.split(", ")) == 3
    assert hint == ", ".join(f"{letter}: a name that is long" for letter in "abc")


def test_names_that_share_half_their_letters_are_similar():
    assert str(unknown("name", "abcd", ["abwxyz", "abvw"])).endswith("expected a known name such as abvw")


@pytest.mark.parametrize(
    ("split", "modules", "message"),
    [
        (
            "train",
            ["algebra__linear1d"],
            "got 'algebra__linear1d', expected a known name such as algebra__linear_1d, ",
        ),
        ("train", ["surd"], "a known name such as arithmetic__simplify_surd"),
        ("train", ["qqq"], "expected one of algebra__linear_1d, "),
        ("extrapolate", ["numbers__place_value"], "a known name such as numbers__place_value_big"),
        ("train", [], "at least one module"),
        ("train", "numbers__gcd", "got the string 'numbers__gcd'"),
        ("test", None, "split: got 'test', expected"),
        ("interpolation", None, "a known name such as interpolate"),
    ],
)
def test_refusals(split, modules, message):
    """Unknown names are reported with similar known names."""
    with pytest.raises(ValueError, match=message):
        check_modules(split, modules)
