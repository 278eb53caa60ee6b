"""Curves of BoxWorld runs: the points, the published curves and the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from experiments.boxworld import figures, pictures
from experiments.boxworld.config import AgentConfig, BoardConfig
from experiments.runtime.workdir import config_dict
from tests.experiments.boxworld.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly", "looks")

ROOT = Path(__file__).parents[3]


def records(lines=40, episodes=100, solved=0.25):
    """A record in which every interval is alike."""
    return [
        {
            "step": step, "frames": 1e6 * step, "train_seconds": 2.0 * step, "episodes": float(episodes),
            "solved": solved, "type/1/episodes": episodes // 4, "type/1/solved": episodes // 8,
            "type/2-1-3/episodes": episodes // 2, "type/2-1-3/solved": 0,
        }
        for step in range(1, lines + 1)
    ]  # fmt: skip


def test_a_point_stands_on_enough_episodes():
    found = figures.curve(records())
    assert found is not None
    np.testing.assert_array_equal(found.frames, 1e6 * np.arange(4, 41, 4))  # 4 lines: 400 episodes
    np.testing.assert_array_equal(found.seconds, 2 * np.arange(4, 41, 4))
    np.testing.assert_allclose(found.solved, 0.25)
    assert np.all((found.low > 0.2) & (found.low < 0.25) & (found.high > 0.25) & (found.high < 0.3))
    of_type = figures.curve(records(), "1")
    assert of_type is not None
    np.testing.assert_allclose(of_type.solved, 12 / 25)
    assert len(of_type.solved) == 2  # 25 episodes a line
    assert figures.curve(records(3)) is None


def test_intervals_without_an_end_count_for_nothing():
    lines = records()
    lines[3] |= {"episodes": 0.0, "solved": None}
    found = figures.curve(lines)
    assert found is not None
    np.testing.assert_allclose(found.solved, 0.25)
    assert found.frames[0] == 5e6


def test_long_records_are_drawn_with_few_points():
    found = figures.curve(records(6000, episodes=1000), points=60)
    assert found is not None
    assert len(found.frames) == 60


def labels_of(figure):
    return [line.get_label() for line in figure.axes[0].get_lines()]


def test_the_published_curve_is_drawn_where_the_environment_is_the_papers():
    paper = small(board=BoardConfig())
    drawn = figures.compare({"simplicial": (paper, records())})
    assert labels_of(drawn["solved"]) == ["simplicial", "simplicial, as published"]
    published = drawn["solved"].axes[0].get_lines()[1]
    assert published.get_ydata()[2] == 0.832
    assert labels_of(figures.compare({"a": (small(), records())})["solved"]) == ["a"]
    others: list[Any] = [{"learn_from": "demonstrations"}, {"first": "demonstrations"}, {"init_from": "run"}]
    for fields in others:
        taught = small(board=BoardConfig(), **fields)
        assert labels_of(figures.compare({"a": (taught, records())})["solved"]) == ["a"]
    relational = small(board=BoardConfig(), agent=AgentConfig(kind="relational"))
    both = figures.compare({"simplicial": (paper, records()), "relational": (relational, records())})
    assert len(labels_of(both["solved"])) == 4
    assert set(both) == {"solved", "time", "types_over_time_simplicial", "types_over_time_relational"}
    assert figures.compare({"a": (paper, records(2))}) == {}


def test_time_is_that_of_training():
    figure = figures.compare({"a": (small(), records())})["time"]
    np.testing.assert_array_equal(figure.axes[0].get_lines()[0].get_xdata(), 2 * np.arange(4, 41, 4))
    assert figure.axes[0].get_xlabel() == "seconds of training"


def test_bars_have_their_intervals():
    policies = {
        name: {
            puzzle: {"solved": solved, "interval": [solved - 0.1, solved + 0.05]}
            for puzzle, solved in zip(("1", "2-1-3"), both, strict=True)
        }
        for name, both in {"trained": (0.5, 0.6), "random policy": (0.2, 0.3)}.items()
    }
    axes = figures.by_type(policies).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2-1-3"]
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [bar.get_height() for bar in bars] == [0.5, 0.6, 0.2, 0.3]
    middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
    np.testing.assert_allclose(middles, [-0.2, 0.8, 0.2, 1.2], atol=1e-6)
    for container, solved in zip(axes.containers[::2], ((0.5, 0.6), (0.2, 0.3)), strict=True):
        drawn: Any = container
        for ((_, low), (_, high)), value in zip(drawn.lines[2][0].get_segments(), solved, strict=True):
            assert (low, high) == pytest.approx((value - 0.1, value + 0.05))
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["trained", "random policy"]


def test_the_published_numbers():
    """Those that the paper's text states: .83 after 1e9 steps for both, then .98 and .92; curves rise."""
    at = dict(zip(figures.PUBLISHED_FRAMES, zip(*figures.PUBLISHED.values(), strict=True), strict=True))
    np.testing.assert_allclose(at[1e9], (0.83, 0.83), atol=0.006)
    np.testing.assert_allclose(at[5e9], (0.98, 0.92), atol=0.01)
    for curve in (figures.PUBLISHED_FRAMES, *figures.PUBLISHED.values()):
        assert (np.diff(curve) > 0).all()
    assert figures.PUBLISHED_FRAMES[-1] == pytest.approx(5.5e9, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "divisor", "unit"), [(2.9, 1, "seconds"), (3.1, 60, "minutes"), (181, 3600, "hours")]
)
def test_long_trainings_are_drawn_in_minutes_or_hours(seconds, divisor, unit):
    """The unit is the largest of which there are more than two, here in forty lines."""
    lines = [{**line, "train_seconds": seconds * line["step"]} for line in records()]
    axes = figures.compare({"a": (small(), lines)})["time"].axes[0]
    assert axes.get_xlabel() == f"{unit} of training"
    found = np.asarray(axes.get_lines()[0].get_xdata())
    np.testing.assert_allclose(found, seconds * np.arange(4, 41, 4) / divisor)


def test_several_runs_have_the_units_of_the_longest(monkeypatch):
    """And no published curve unless all are of the paper's environment; one type has no curves by type."""
    drawn = []
    monkeypatch.setattr(
        figures.runtime.plots, "curve_figure", lambda curves, **settings: drawn.append((curves, settings))
    )
    monkeypatch.setattr(pictures, "over_training", lambda curves, **settings: list(curves))
    short = [{**line, "frames": line["frames"] / 1e3} for line in records()]
    long = [{**line, "frames": 1e2 * line["frames"], "train_seconds": 200 * line["step"]} for line in short]
    one_type = [{name: value for name, value in line.items() if "2-1-3" not in name} for line in long]
    runs = {"short": (small(board=BoardConfig()), short), "long": (small(), one_type)}
    found = figures.compare(runs)
    assert set(found) == {"solved", "time", "types_over_time_short"}
    assert found["types_over_time_short"] == [(1, 0, 0), (2, 1, 3)]
    (solved, of_solved), (_, of_time) = drawn
    assert of_solved["xlabel"] == "steps / 10⁶"
    assert of_time["xlabel"] == "hours of training"
    assert {label: part[0][-1] for label, part in solved.items()} == pytest.approx({"short": 0.04, "long": 4})


@pytest.mark.slow
def test_the_command_line(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config_dict(small())))
        (tmp_path / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in records()))

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "experiments.boxworld.figures", *arguments, f"--out={tmp_path / 'out'}"],
            cwd=ROOT, env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip

    done = run(f"--runs={tmp_path / 'one'},{tmp_path / 'two'}")
    assert done.returncode == 0, done.stderr
    drawn = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"solved.png", "time.png"} <= drawn
    assert "expected a run of experiments.boxworld" in run(f"--runs={tmp_path}").stderr


@pytest.mark.parametrize(("frames", "unit"), [(5.5e9, 1e9), (1e8, 1e9), (9e7, 1e6), (1e5, 1e6), (9e4, 1e3)])
def test_units_are_read_easily(frames, unit):
    assert figures._unit(frames)[0] == unit
