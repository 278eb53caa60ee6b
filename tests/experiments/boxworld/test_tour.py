"""BoxWorld on the tour."""

import types
from typing import Any

import pytest

from experiments.boxworld import analysis, tour
from experiments.boxworld.config import BoardConfig
from experiments.runtime import releasing
from tests.experiments.boxworld.small import small

FOUND: dict[str, Any] = {
    "solved": 0.12345, "interval": [0.1, 0.2], "died": 0.3, "capped": 0.5766, "episodes": 7,
}  # fmt: skip


def test_rows_of_a_table():
    assert tour.rows_of({"agent": FOUND, "chance": {**FOUND, "died": 0.0}}) == [
        {
            "policy": policy, "boards solved": "0.123", "95% interval": "0.100 to 0.200", "trap taken": died,
            "given up": "0.577", "boards": "7",
        }
        for policy, died in (("agent", "0.300"), ("chance", "0.000"))
    ]  # fmt: skip


def test_the_longest_run_of_the_papers_environment_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(releasing, "released", dict)
    assert tour.best_weights() is None
    frames = {
        "boxworld/a": 10,
        "boxworld/b": 30,
        "boxworld/c": 20,
        "boxworld/other board": 99,
        "llrnn/d": 100,
    }
    monkeypatch.setattr(releasing, "released", lambda: {name: tmp_path / name for name in frames})
    monkeypatch.setattr(
        releasing,
        "read_run_config",
        lambda kind, path: small(board=BoardConfig(rows=9 if path.name == "other board" else None)),
    )
    monkeypatch.setattr(
        tour.load, "load", lambda path: types.SimpleNamespace(frames=frames[f"boxworld/{path.name}"])
    )
    assert tour.best_weights() == tmp_path / "boxworld" / "b"


@pytest.mark.parametrize("is_own", [True, False])
def test_a_stop_shows_the_best_agent_or_the_one_trained_there(tmp_path, monkeypatch, is_own):
    """The best one here is relational: it has no virtual entities whose attention could be shown."""
    config, best, loaded = small(), tmp_path / "best", []
    shown = {"episode.gif": tmp_path / "e.gif", "landmark_attention": tmp_path / "l.png"}
    if is_own:
        shown["virtual_attention"] = tmp_path / "v.png"
    result = types.SimpleNamespace(step=10_000, train_seconds=12.4, results={"agent": FOUND})
    monkeypatch.setattr(tour, "main", lambda given, workdir: result)
    monkeypatch.setattr(tour, "best_weights", lambda: None if is_own else best)
    run = config if is_own else small(steps=9)
    trained = types.SimpleNamespace(run=run, frames=1_234_567, name="relational agent")
    monkeypatch.setattr(tour.load, "load", lambda path: loaded.append(path) or trained)
    monkeypatch.setattr(analysis, "draw_episode", lambda *args, **kwargs: shown)
    stop = tour.tour_stop(tmp_path, config)
    assert loaded == [tmp_path if is_own else best]
    assert "1.6 million steps in 12 s" in stop.meaning  # 10,000 iterations of 160 steps
    assert stop.rows == tour.rows_of(result.results)
    attention = tmp_path / ("v.png" if is_own else "l.png")
    assert list(stop.figures) == [tmp_path / "solved.png", tmp_path / "e.gif", attention]
    whose = "the agent trained here" if is_own else "a released relational agent after 1.23e+06 steps"
    assert whose in stop.figures[shown["episode.gif"]]
