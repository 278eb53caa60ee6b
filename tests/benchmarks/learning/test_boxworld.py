"""The record of claims about learning in BoxWorld: its lines, its table, its picture."""

from pathlib import Path

from benchmarks import records
from benchmarks.learning.boxworld import ROOM


def line(agent, seed, solved):
    share = {"solved": solved, "interval": [solved - 0.02, solved + 0.02]}
    return {
        "agent": agent, "seed": seed, "parameters": 9, "steps": 4_000_000, "train_seconds": 1.5,
        "commit": "abc",
        "results": {"agent": share, "chance": {"solved": 0.1, "interval": [0.08, 0.12]}},
        "curve": {"steps": [1e6, 2e6, 4e6], "solved": [0.1, 0.2, solved]},
    }  # fmt: skip


def test_the_table_has_a_row_a_run(tmp_path):
    lines = [line("simplicial", seed, 0.5 + seed / 10) for seed in range(3)] + [
        line("relational", 0, 0.6)
    ] * 2
    ROOM.draw(lines, tmp_path)
    text = (tmp_path / "learning.md").read_text()
    assert text.count("| simplicial | 9 |") == 3
    assert "| 0.700 | 0.680 to 0.720 | 0.100 | 0.080 to 0.120 | 4000000 | 1.5 | abc |" in text
    assert (tmp_path / "learning.png").stat().st_size > 5000


def test_the_published_lines_bear_out_the_claim():
    """Every run in results/ is better than chance by a margin outside both intervals."""
    lines = records.read(Path(__file__).parents[3] / "results" / ROOM.folder)
    assert lines
    for found in [line["results"] for line in lines]:
        assert found["agent"]["interval"][0] > found["chance"]["interval"][1]
