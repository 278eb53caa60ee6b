"""BoxWorld on the tour."""

from experiments.boxworld import tour


def test_rows_of_a_table(boxworld_run):
    rows = tour.rows_of(boxworld_run[1].results)
    assert [row["policy"] for row in rows] == ["agent", "seed 0", "seed 1", "chance"]
    assert all(len(row) == len(rows[0]) for row in rows)


def test_the_longest_run_of_the_papers_environment_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(tour, "RELEASED", tmp_path)
    assert tour.best_weights() is None
