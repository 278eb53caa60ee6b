"""Tests of tables of claims: numbers, columns, rows, and the markers in pages."""

import pytest

from experiments.runtime import claim_tables


def line(name, values, *others, **fields):
    return {
        "id": name,
        "claim": f"{name} is good (small): yes",
        "measure": "accuracy",
        "paper": None,
        "target": None,
        "level": 0.95,
        "higher_is_better": True,
        "ours": {
            "name": "ours",
            "per_seed": values,
            "seconds": [3.2, 9.6],
            "parameters": 1234,
            "steps": [5, 7],
        },
        "baselines": [
            {"name": f"other{place}", "per_seed": other, "parameters": 99, "compared": True}
            for place, other in enumerate(others)
        ],
        "holds": None,
        "fixed_beforehand": None,
        "commit": "0123456789abcdef",
        **fields,
    }


LINES = [line("a.x", [0.5, 0.75], [0.25]), line("a.y", [1.0], holds=False), line("b", [0.001], holds=True)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.97912, "0.979"),
        (1.0, "1"),
        (0.99996, "0.99996"),
        (2.0004, "2.0004"),
        (0.0013916, "0.00139"),
        (4.9006, "4.9"),
        (999.6, "999.6"),
        (1000.4, "1,000"),
        (5376441.18, "5,376,441"),
        (16, "16"),
        (1234567, "1,234,567"),
        (-0.25, "-0.25"),
        (0.0, "0"),
    ],
)
def test_numbers(value, text):
    """Three digits that count, never an exponent for large ones."""
    assert claim_tables.number(value) == text


def rows(text):
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in text.splitlines()]


def test_rows_in_the_order_of_patterns():
    """A claim that two patterns match has one row."""
    found = rows(claim_tables.table(LINES, ["b", "a.*", "a.x"], ["id", "ours", "baselines"]))
    assert found == [
        ["claim", "measured, per seed", "baselines, per seed"],
        ["---", "---", "---"],
        ["`b`", "ours: 0.001", ""],
        ["`a.x`", "ours: 0.5, 0.75", "other0: 0.25"],
        ["`a.y`", "ours: 1", ""],
    ]


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ("holds", ["no hypothesis", "**no**", "yes"]),
        ("mean", ["0.625 (-0.963 to 2.21)", "1", "0.001"]),
        ("blocks", ["0.625 (0.5 to 0.75)", "1", "0.001"]),
        ("baseline_means", ["other0: 0.25", "", ""]),
        ("strongest", ["other0: 0.25", "-", "-"]),
        ("parameters", ["1,234; 99", "1,234", "1,234"]),
        ("steps", ["5 to 7"] * 3),
        ("seconds", ["3 to 10"] * 3),
        ("paper", ["not asked"] * 3),
        ("subject", ["a.x is good", "a.y is good", "b is good"]),
        ("values", ["0.5, 0.75", "1", "0.001"]),
        ("fixed", ["no"] * 3),
        ("commit", ["0123456789ab"] * 3),
        ("target", ["-"] * 3),
        ("against", ["other0", "", ""]),
        ("expected", ["not said"] * 3),
    ],
)
def test_columns(column, cells):
    """Each shows its part of the line."""
    assert [row[0] for row in rows(claim_tables.table(LINES, ["*"], [f"{column}=heading"]))] == [
        "heading",
        "---",
        *cells,
    ]


@pytest.mark.parametrize(
    ("values", "fields", "strongest"),
    [
        ([[0.2, 0.4], [0.3, 0.6], [0.5, 0.3]], {}, "other1: 0.45 (0.3 to 0.6)"),
        ([[0.2, 0.4], [0.3, 0.6], [0.5, 0.3]], {"higher_is_better": False}, "other0: 0.3 (0.2 to 0.4)"),
        ([[], [0.5, 0.5]], {}, "other1: 0.5"),
        ([[0.3, 0.3, 0.3], [0.1, 0.1, 0.9]], {}, "other0: 0.3"),
    ],
)
def test_the_strongest_baseline_has_the_best_median(values, fields, strongest):
    """Median and range of one whose seeds differ."""
    found = claim_tables.table([line("a", [1.0], *values, **fields)], ["a"], ["strongest"])
    assert rows(found)[2] == [strongest]


def test_differences_are_taken_by_seed():
    """Of compared baselines only; with an interval at the level of the line."""
    several = line("a", [0.5, 0.9, 0.7], [0.4, 0.7, 0.4], [0.0, 0.0, 0.0])
    several["ours"]["seeds"], several["baselines"][0]["seeds"] = [0, 1, 2], [0, 2, 3]
    several["baselines"][1]["compared"] = False
    assert rows(claim_tables.table([several], ["a"], ["differences"]))[2] == [
        "other0: 0.05 (-0.585 to 0.685)"
    ]


def test_an_expectation_and_an_attempt_given_up_are_shown():
    """What was expected does not change what was found; a try without its seeds refutes nothing."""
    found = line("a", [1.0], expected=True, holds=False, given_up=True)
    assert rows(claim_tables.table([found], ["a"], ["expected", "holds"]))[2] == ["yes", "given up"]
    found = line("a", [1.0], expected=False, holds=False)
    assert rows(claim_tables.table([found], ["a"], ["expected", "holds"]))[2] == ["no", "**no**"]


def test_a_baseline_that_the_claim_does_not_compare_with_is_shown_apart_if_it_is_better():
    """A claim without a hypothesis has what it is seen against."""
    several = line("a", [1.0], [0.5], [0.7])
    several["baselines"][1]["compared"] = False
    found = claim_tables.table([several], ["a"], ["strongest"])
    assert rows(found)[2] == ["other0: 0.5; only reported, other1: 0.7"]
    lower = {**several, "higher_is_better": False}
    assert rows(claim_tables.table([lower], ["a"], ["strongest"]))[2] == ["other0: 0.5"]
    several["baselines"][0]["compared"] = False
    assert rows(claim_tables.table([several], ["a"], ["strongest"]))[2] == ["other1: 0.7"]


def test_claims_that_differ_in_a_part_share_a_row():
    """The part may stand anywhere in the id; the longer of two parts wins."""
    lines = [
        line("s.one.forward.other", [2.0, 4.0, 3.0]),
        line("s.one.gradient.other", [1.0]),
        line("s.two.forward.other", [5.0]),
        line("s.two.forward.other.big", [6.0]),
    ]
    columns = ["subject", "@forward", "@gradient=with gradients", "@forward.other.big"]
    assert rows(claim_tables.table(lines, ["s.*"], columns)) == [
        ["", "@forward", "with gradients", "@forward.other.big"],
        ["---"] * 4,
        ["s.one.forward.other is good", "3 (2 to 4)", "1", "-"],
        ["s.two.forward.other is good", "5", "-", "-"],
        ["s.two.forward.other.big is good", "-", "-", "6"],
    ]


def test_a_bar_in_a_cell_does_not_end_it():
    """Markdown would take it for the next cell."""
    assert "k\\|v" in claim_tables.table([line("a", [1.0], claim="k|v")], ["a"], ["claim"])


PAGE = """# Title

<!-- claims: a.x b; columns: id, holds=confirmed? -->
stale
<!-- end of claims -->

Text.
"""


def test_pages_are_filled_between_markers():
    """Nothing else changes, and a second time nothing does."""
    filled = claim_tables.filled(PAGE, LINES)
    assert filled.startswith(
        "# Title\n\n<!-- claims: a.x b; columns: id, holds=confirmed? -->\n\n| claim | confirmed? |"
    )
    assert filled.endswith("| `b` | yes |\n\n<!-- end of claims -->\n\nText.\n")
    assert "stale" not in filled
    assert claim_tables.filled(filled, LINES) == filled


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (PAGE.replace("a.x", "c.*"), r"claims: got 'c\.\*', expected the id"),
        (PAGE.replace("id,", "ids,"), "columns: got 'ids', expected some of"),
        (PAGE.replace("; columns: ", " "), "expected IDS; columns: NAMES"),
        (PAGE.replace("<!-- end of claims -->", ""), "marker without"),
    ],
)
def test_wrong_markers_are_refused(page, message):
    """Each names what is wrong."""
    with pytest.raises(ValueError, match=message):
        claim_tables.filled(page, LINES)


def test_pages(tmp_path):
    """README, docs and results, as far as they have tables."""
    for name in ("README.md", "docs/a.md", "docs/deep/b.md", "results/c/d.md", "other/e.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(PAGE if name != "docs/a.md" else "text")
    found = [str(page.relative_to(tmp_path)) for page in claim_tables.pages(tmp_path)]
    assert found == ["README.md", "docs/deep/b.md", "results/c/d.md"]
