"""The page shows the contents of the record."""

from benchmarks.peers import table

RATIO = {"median": 2.5, "least": 2.0, "greatest": 3.0}
ROW = {
    "subject": "trans",
    "shape": "T=128",
    "direction": "gradient",
    "ours": {"seconds": 0.0123456},
    "peers": {
        "PyTorch, eager": {"seconds": 1.5, "times_as_long": RATIO, "difference": 2e-7},
        "PyTorch, compiled": {"failed": "InductorError: no | compiler"},
        "Theirs": {"difference": 0.5, "differs": "output 0 by 5e-1 of its maximum"},
        "Late": {"left_out": "budget exhausted"},
    },
}
RECORD = {
    "date": "2026-11-22",
    "devices": {"kind": "cpu", "cpus": 2},
    "versions": {"python": "3.12", "jax": "0.12", "flax": "0.12"},
    "commit": "0123456789abcdef",
    "command": "python -m benchmarks.peers",
    "threads": 2,
    "load": 0.1,
    "kept_mib": 1024,
    "tolerance": {"forward": 1e-4, "gradient": 1e-3},
    "peers": {
        "PyTorch": {"version": "2.15", "threads": 2},
        "tokamax": {"absent": "tokamax is not installed"},
    },
    "rows": [ROW],
    "not_measured": ["FOLNet layer"],
}


def test_the_page():
    lines = table.page(RECORD).splitlines()
    start = "| trans | T=128 | forward and backward |"
    cells = [line.removeprefix(start).strip() for line in lines if line.startswith(start)]
    assert cells == [
        "PyTorch, eager | 12.3 | 1500 | 2.50 (2.00 to 3.00) | 2e-07 |",
        "PyTorch, compiled | | | failed: InductorError: no / compiler | |",
        "Theirs | | | not timed, results differ: output 0 by 5e-1 of its maximum | |",
        "Late | | | skipped: budget exhausted | |",
    ]
    text = "\n".join(lines)
    assert "commit 0123456789ab," in text
    assert "- PyTorch: version 2.15; threads 2." in text
    assert "- tokamax: skipped, tokamax is not installed." in text
    assert "the budget was exhausted: FOLNet layer" in text
    assert "kept freed blocks of memory of up to 1024 MiB" in text
    assert "returned large blocks of memory to the system" in table.page({**RECORD, "kept_mib": 0})


def test_the_mean_of_all_ratios_but_those_of_plain_python():
    ahead, behind = ({"times_as_long": {**RATIO, "median": median}} for median in (8.0, 0.5))
    other = {"peers": {"tokamax": behind, "Late": {"left_out": "-"}}}
    rows = [ROW, {"peers": {"plain Python": ahead}}, other]
    assert table.summary(rows)[1] == ("Geometric mean of the 2 ratios without plain Python: 1.12; 1 below 1.")
    assert table.summary([]) == []


def test_every_row_of_the_table_has_its_columns():
    table_lines = [line for line in table.page(RECORD).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table_lines} == {9}
