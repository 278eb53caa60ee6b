"""The analysis as a user starts it: which files it leaves, what it says, where its numbers come from."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from experiments import boxworld_analysis, boxworld_episodes, boxworld_video, boxworld_weights
from simplicial import analysis, boxworld
from tests.experiments.boxworld_player import compiled_quickly, small_player

ROOT = Path(__file__).resolve().parents[2]
PICTURES = (
    "virtual_attention",
    "pair_attention",
    "pair_deviation",
    "landmark_attention",
    "standard_attention",
)


@pytest.fixture(scope="module", autouse=True)
def _compiled_quickly():
    with compiled_quickly():
        yield


@pytest.fixture
def few_types():
    """Environments of two types of puzzles, so that little has to be played."""
    config = boxworld.BRIDGE.replace(max_length=1)

    def player(kind="simplicial"):
        return dataclasses.replace(small_player(kind), config=config)

    return player


@pytest.fixture
def run(monkeypatch, few_types):
    """`boxworld_analysis.run` on a run with two checkpoints."""

    def start(out, kind="simplicial", **arguments):
        def load(path, *, step=None, seed=0):
            assert seed == arguments.get("run_seed", 0)
            player = few_types(kind)
            return dataclasses.replace(player, step=step or 20, frames=(step or 20) * 10**6)

        monkeypatch.setattr(boxworld_weights, "load", load)
        monkeypatch.setattr(boxworld_weights, "steps", lambda path: [10, 20])
        settings: dict[str, Any] = {"cap": 12, "scale": 16, **arguments}
        return boxworld_analysis.run(Path("somewhere"), out, **settings)

    return start


def test_everything_of_a_simplicial_agent(tmp_path, run, capsys):
    files = run(tmp_path / "out", episodes_each=20)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in files.values()}
    names = {f"{name}.png" for name in PICTURES}
    names |= {"episode.gif", "episode.json", "win_rates.png", "win_rates_over_training.png", "win_rates.json"}
    if boxworld_video.can_write_mp4():
        names.add("episode.mp4")
    assert {path.name for path in files.values()} == names
    for path in files.values():
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert len(np.unique(np.asarray(image.convert("L")))) > 20, f"{path.name} shows something"
    told = capsys.readouterr().out
    assert "small agent after 20 M steps" in told
    assert "after 10 M steps: solves 0." in told
    assert "win_rates.json" in told
    assert "no virtual_attention" not in told

    episode = json.loads((tmp_path / "out" / "episode.json").read_text())
    assert episode["puzzle"] == [1, 1, 2]
    assert len(episode["actions"]) == len(episode["rewards"]) == episode["steps"] <= 12
    rates = json.loads((tmp_path / "out" / "win_rates.json").read_text())
    assert list(rates["steps"]) == ["10000000", "20000000"]
    for record in rates["steps"].values():
        assert set(record["types"]) == {"L = 1, no bridge", "(1,1,2)"}
        for row in record["types"].values():
            assert row["episodes"] == 20
            assert row["solved"] + row["died"] + row["capped"] == pytest.approx(1)
            assert row["interval"][0] <= row["solved"] <= row["interval"][1]


def test_a_relational_agent_gets_what_makes_sense(tmp_path, run, monkeypatch, capsys):
    """And a line for what does not, and for the MP4 without an encoder."""
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    files = run(tmp_path, kind="relational", episodes_each=0, run_seed=1)
    assert {path.name for path in files.values()} == {
        "landmark_attention.png", "standard_attention.png", "episode.gif", "episode.json",
    }  # fmt: skip
    told = capsys.readouterr().out
    assert "it has no virtual entities: no virtual_attention, pair_attention, pair_deviation" in told
    assert "no episode.mp4: an MP4 needs imageio-ffmpeg" in told


def test_measured_is_what_is_played(few_types):
    """Shares are those of `analysis.evaluate`; overall is as the environment draws its boards."""
    player = few_types()
    counts, record = boxworld_analysis.measure(player, episodes_each=40, seed=3, cap=150)
    policy = boxworld_episodes.Policy(player.agent)
    again = jax.device_get(
        analysis.evaluate(policy, player.params, player.config, jax.random.key(3), episodes=40, cap=150)
    )
    jax.tree.map(np.testing.assert_array_equal, counts, again)
    assert 0 < counts.solved[0] < 40
    row = record["types"]["L = 1, no bridge"]
    assert row["solved"] == counts.solved[0] / 40
    assert row["mean_steps"] == counts.steps[0] / 40
    assert row["steps_over_shortest"] > 1
    shares = counts.solved / 40
    assert record["overall"]["solved"] == pytest.approx(shares.mean())
    error = np.sqrt((shares * (1 - shares)).sum() / 40) / 2
    assert record["overall"]["standard_error"] == pytest.approx(error)


def test_the_usual_puzzle():
    assert boxworld_analysis.usual_puzzle(boxworld.BRIDGE) == (2, 2, 4)
    assert boxworld_analysis.usual_puzzle(boxworld.STANDARD) == (2, 0, 0)
    assert boxworld_analysis.usual_puzzle(boxworld.BRIDGE.replace(max_length=1)) == (1, 1, 2)


@pytest.mark.parametrize(
    ("frames", "label"), [(12, "12"), (1234, "1.23 k"), (5_500_000, "5.5 M"), (2_350_000_000, "2.35 G")]
)
def test_steps_label(frames, label):
    assert boxworld_analysis.steps_label(frames) == label


def test_refuses(tmp_path, few_types):
    with pytest.raises(ValueError, match="formats"):
        boxworld_analysis.draw_episode(few_types(), tmp_path, name="x", formats=("avi",))
    with pytest.raises(ValueError, match=r"\(2, 1, 2\)"):
        boxworld_analysis.draw_episode(few_types(), tmp_path, name="x", puzzle=(2, 1, 2))
    assert list(tmp_path.iterdir()) == []


def test_mistakes_on_the_command_line(tmp_path):
    """Told in a line, before anything is written."""
    out = tmp_path / "out"
    mistakes = {
        (f"--weights={tmp_path}/nothing", f"--out={out}"): "is not a run of experiments.boxworld",
        (f"--weights={tmp_path}", f"--out={out}", "--puzzle=2,1"): "--puzzle=2,1 must be L,s,t",
    }
    started = {
        arguments: subprocess.Popen(
            [sys.executable, "-m", "experiments.boxworld_analysis", *arguments],
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for arguments in mistakes
    }
    for arguments, process in started.items():
        told, _ = process.communicate(timeout=180)
        assert process.returncode != 0
        assert mistakes[arguments] in told
        assert "Traceback" not in told
    assert not out.exists()
