"""The analysis as a user starts it: which files it leaves, what it says, where its numbers come from."""

import dataclasses
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from experiments.boxworld import analysis, episodes, load, measures, pictures, video
from experiments.boxworld.engine import Impala
from experiments.runtime.checkpoints import Checkpoints
from experiments.runtime.workdir import Workdir
from simplicial import boxworld, win_rates
from tests.experiments.boxworld.player import few_types
from tests.experiments.boxworld.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

PICTURES = (
    "virtual_attention",
    "pair_attention",
    "pair_deviation",
    "pair_phases",
    "landmark_attention",
    "standard_attention",
)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """What a run of two small simplicial agents leaves: checkpoints at two and four. They learned nothing."""
    path, config = tmp_path_factory.mktemp("analysis") / "run", small()
    Workdir(path, config).close()
    checkpoints = Checkpoints(path / "checkpoints", every=2, keep=2)
    state = Impala(config).initial()
    checkpoints.save(2, state, {})
    later = jax.tree.map(lambda leaf: 1.5 * leaf, state.params)
    checkpoints.save(4, dataclasses.replace(state, params=later), {})
    checkpoints.close()
    return path


@pytest.mark.slow
def test_everything_of_a_simplicial_agent(tmp_path, workdir, capsys):
    out = tmp_path / "out"
    files = analysis.run(workdir, out, run_seed=1, episodes_each=20, scale=16)
    assert {path.name for path in out.iterdir()} == {path.name for path in files.values()}
    names = {f"{name}.png" for name in PICTURES}
    names |= {
        "episode.gif",
        "episode.json",
        "pairs.json",
        "win_rates.png",
        "win_rates_over_training.png",
        "win_rates.json",
    }
    if video.can_write_mp4():
        names.add("episode.mp4")
    assert {path.name for path in files.values()} == names
    for path in files.values():
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert len(np.unique(np.asarray(image.convert("L")))) > 20, f"{path.name} shows something"
    printed = capsys.readouterr().out
    assert "simplicial agent after 640 environment steps" in printed
    assert "after 320 steps: solved 0." in printed
    assert "win_rates.json" in printed
    assert "skipping virtual_attention" not in printed

    episode = json.loads((out / "episode.json").read_text())
    assert episode["puzzle"] == [1, 0, 0]
    assert len(episode["actions"]) == len(episode["rewards"]) == episode["steps"] <= 12
    rates = json.loads((out / "win_rates.json").read_text())
    assert list(rates["steps"]) == ["320", "640"]
    for record in rates["steps"].values():
        (row,) = record["types"].values()
        assert row["episodes"] == 20
        assert row["solved"] + row["died"] + row["capped"] == pytest.approx(1)
        assert row["interval"][0] <= row["solved"] <= row["interval"][1]


def counts(solved):
    """Returns made-up counts of two types, ten boards of each."""
    solved = jnp.asarray([solved, 2 * solved])
    return win_rates.Evaluation(
        puzzles=jnp.asarray([(1, 0, 0), (1, 1, 2)]), episodes=jnp.asarray([10, 10]), solved=solved,
        died=10 - solved, capped=0 * solved, steps=solved, solved_steps=solved,
    )  # fmt: skip


@pytest.mark.parametrize("step", [None, 2])
def test_rates_are_measured_at_every_checkpoint_or_at_the_one_named(tmp_path, monkeypatch, capsys, step):
    """With the run's seed and the settings of the command line; the episode is that of the last one."""
    loaded, measured, drawn = [], [], []

    def load_it(path, *, step=None, seed=0):
        loaded.append((step, seed))
        number = step or 4
        return dataclasses.replace(few_types(), step=number, frames=160 * number)

    def measure(player, **settings):
        measured.append((player.step, settings))
        record = {"overall": {"solved": 0.1 * player.step, "standard_error": 0.05}, "types": {}}
        return counts(player.step), record

    monkeypatch.setattr(load, "load", load_it)
    monkeypatch.setattr(load, "steps", lambda path: [2, 4])
    monkeypatch.setattr(measures, "by_type", measure)
    monkeypatch.setattr(
        analysis, "draw_episode", lambda player, out, **settings: drawn.append((player, settings)) or {}
    )
    playing = {"seed": 3, "cap": 9, "greedy": True}
    showing = {"puzzle": (1, 1, 2), "scale": 20, "fps": 7.0}
    files = analysis.run(
        tmp_path, tmp_path / "out", step=step, run_seed=1, episodes_each=20, **showing, **playing
    )
    steps = [2, 4] if step is None else [2]
    assert measured == [(number, {"episodes_each": 20, **playing}) for number in steps]
    assert {seed for _, seed in loaded} == {1}
    ((player, settings),) = drawn
    assert player.step == steps[-1]
    assert {name: settings[name] for name in (*showing, *playing)} == {**showing, **playing}
    names = {"win_rates", "win_rates.json"} | ({"win_rates_over_training"} if step is None else set())
    assert set(files) == names
    assert all(path.stat().st_size for path in files.values())
    record = json.loads((tmp_path / "out" / "win_rates.json").read_text())
    assert list(record["steps"]) == [str(160 * number) for number in steps]
    assert record["steps"]["320"]["overall"]["solved"] == 0.2
    printed = capsys.readouterr().out
    assert "after 320 steps: solved 0.200 (+- 0.050) of boards" in printed
    assert f"small agent after {160 * steps[-1]} environment steps" in printed
    assert "win_rates.json" in printed


def test_generalization_is_measured_on_demand(tmp_path, monkeypatch, capsys):
    """With as many boards as of each type; which must not be none."""
    played = []
    found = {"larger boards": {"agent": {"solved": 0.75}, "chance": {"solved": 0.5}}}
    monkeypatch.setattr(load, "load", lambda path, **_: few_types())
    monkeypatch.setattr(load, "steps", lambda path: [4])
    monkeypatch.setattr(
        measures, "by_type", lambda *_, **__: (counts(1), {"overall": {"solved": 0.1, "standard_error": 0.1}})
    )
    monkeypatch.setattr(measures, "generalization", lambda *_, **given: played.append(given) or found)
    monkeypatch.setattr(analysis, "draw_episode", lambda *_, **__: {})
    files = analysis.run(tmp_path, tmp_path, episodes_each=20, seed=5, cap=9, generalization=True)
    assert played == [{"episodes": 20, "seed": 5, "cap": 9}]
    record = json.loads(files["generalization.json"].read_text())
    assert record == {"agent": "small agent", "environments": found}
    assert "larger boards: solved 0.750 (a random policy: 0.500)" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--episodes: got 0, expected at least 1 with --generalization"):
        analysis.run(tmp_path, tmp_path, episodes_each=0, generalization=True)


def test_a_simplicial_agent_gets_everything(tmp_path, monkeypatch):
    """Figures of its virtual entities too, and the record of an episode that can be played again."""
    given = []
    statistics = {"player": [0.1, 0.2], "other entities": [0.1, 0.3]}
    phases = {phase: [[0.1, 0.2, 0.3, 0.4]] * 2 for phase in episodes.PHASES}
    monkeypatch.setattr(episodes, "play", lambda player, key, **kwargs: given.append((key, kwargs)))
    monkeypatch.setattr(episodes, "pair_statistics", lambda boards, block: statistics)
    monkeypatch.setattr(episodes, "pair_phases", lambda boards, block: phases)
    files = analysis.draw_episode(
        few_types(), tmp_path, puzzle=(1, 1, 2), seed=2, cap=7, scale=16, fps=5, formats=("gif",)
    )
    assert given == [(jax.random.key(2), {"cap": 7, "greedy": False})]
    assert set(files) == {*PICTURES, "pairs", "episode.gif", "episode"}
    record = json.loads(files["pairs"].read_text())
    assert record["deviation"]["player"] == {"boards": 2, "mean": 0.15, "standard_error": 0.05}
    of_phase = {"boards": 2, "mean": [0.1, 0.2, 0.3, 0.4], "standard_error": [0.0] * 4}
    assert record["phases"] == dict.fromkeys(episodes.PHASES, of_phase)
    assert (record["agent"], record["seed"]) == ("small agent", 2)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in files.values()}
    record = json.loads(files["episode"].read_text())
    for_boards, _ = jax.random.split(jax.random.key(2))
    boards = jax.device_get(win_rates.boards_of(for_boards, [(1, 1, 2)], 16, few_types().config))
    board = jax.tree.map(lambda leaf: leaf[record["boards_tried"] - 1], boards)
    assert record["shortest"] == boxworld.shortest_solution(board)
    step, state, rewards = jax.jit(boxworld.step), board, []
    for action in record["actions"]:
        state, outcome = step(state, action, few_types().config)
        rewards.append(float(outcome.reward))
    assert record["rewards"] == rewards
    assert record["steps"] == len(rewards) <= 7
    assert record["ending"] == ("solved" if rewards[-1] == 10 else "given up")
    assert record["moments"][-1] == record["steps"] - 1
    with Image.open(files["episode.gif"]) as image:
        assert image.info["duration"] == 200


@pytest.fixture
def calls(monkeypatch):
    """Arguments of what plays and draws, by name; an episode is given in `calls["played"]`."""
    found = {}

    def noting(module, name, result=lambda: None):
        def note(*args, **settings):
            found.setdefault(name, []).append((args, settings))
            return result()

        monkeypatch.setattr(module, name, note)

    noting(episodes, "first_solved", lambda: (found["played"], 1))
    noting(episodes, "play")
    noting(episodes, "pair_statistics", dict)
    noting(episodes, "pair_phases", dict)
    noting(episodes, "landmark_views", dict)
    for name in ("board_figure", "pair_figure", "deviation_figure", "phases_figure", "standard_figure"):
        noting(pictures, name)
    noting(analysis.runtime.plots, "save")
    noting(video, "frames")
    return found


@pytest.fixture(scope="module")
def played():
    return episodes.first_solved(few_types(), jax.random.key(2), (1, 1, 2), attempts=1, cap=2)[0]


@pytest.mark.parametrize(("blocks", "shown"), [(1, 0), (2, 1), (3, 1)])
def test_the_second_block_is_shown_or_the_only_one(tmp_path, calls, played, blocks, shown):
    """Of every head; the statistics are over at most 60 steps."""
    attention = (*played.attention, played.attention[0])[:blocks]
    calls["played"] = dataclasses.replace(played, attention=attention)
    agent = few_types().agent.clone(num_two_simplicial_heads=2)
    player = dataclasses.replace(few_types(), agent=agent)
    analysis.draw_episode(player, tmp_path, cap=100, greedy=True, formats=())
    ((_, settings),) = calls["first_solved"]
    assert settings == {"cap": 100, "greedy": True}
    drawn = [(settings["block"], settings["head"]) for _, settings in calls["pair_figure"]]
    assert drawn == [(shown, 0), (shown, 1)]
    ((_, settings),) = calls["play"]
    assert settings == {"cap": 60, "greedy": True}
    assert calls["pair_statistics"] == calls["pair_phases"] == [((None,), {"block": shown})]
    assert len(calls["deviation_figure"]) == len(calls["phases_figure"]) == 1


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_the_clip_of_a_relational_agent_shows_at_most_two_blocks(tmp_path, calls, played, blocks):
    """And its figure the player and the Gem's only lock."""
    block = dataclasses.replace(played.attention[0], virtual=None, pairs=None)
    calls["played"] = dataclasses.replace(played, attention=(block,) * blocks)
    player = dataclasses.replace(few_types(), config=boxworld.STANDARD)
    analysis.draw_episode(player, tmp_path, formats=())
    ((_, names), _), ((_, shown), settings) = calls["landmark_views"]
    assert names == ("player", "Gem lock")
    assert shown == ("player",)
    assert list(settings["blocks"]) == list(range(min(blocks, 2)))
    assert "pair_figure" not in calls


def test_a_relational_agent_gets_what_makes_sense(tmp_path, monkeypatch, capsys):
    """And a line for what does not, and for the MP4 without an encoder."""
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr(load, "load", lambda *args, **kwargs: few_types("relational"))
    files = analysis.run(Path("somewhere"), tmp_path, episodes_each=0, cap=12, scale=16)
    assert {path.name for path in files.values()} == {
        "landmark_attention.png", "standard_attention.png", "episode.gif", "episode.json",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert "no virtual entities: skipping virtual_attention and pairs" in printed
    assert "skipping episode.mp4: MP4 output needs imageio-ffmpeg" in printed


def test_the_usual_puzzle():
    assert analysis.usual_puzzle(boxworld.BRIDGE) == (2, 2, 4)
    assert analysis.usual_puzzle(boxworld.STANDARD) == (2, 0, 0)
    assert analysis.usual_puzzle(boxworld.BRIDGE.replace(max_length=1)) == (1, 1, 2)


@pytest.mark.parametrize(
    ("frames", "label"), [(12, "12"), (1234, "1.23 k"), (5_500_000, "5.5 M"), (2_350_000_000, "2.35 G")]
)
def test_steps_label(frames, label):
    assert analysis.steps_label(frames) == label


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="formats"):
        analysis.draw_episode(few_types(), tmp_path, formats=("avi",))
    with pytest.raises(ValueError, match=r"\(2, 1, 2\)"):
        analysis.draw_episode(few_types(), tmp_path, puzzle=(2, 1, 2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["2,1", "2,1,x", "2,-1,3", "2;1;3", ""])
def test_a_puzzle_that_is_none(text):
    with pytest.raises(ValueError, match=r"--puzzle: got .*, expected L,s,t such as 2,1,3"):
        analysis.parse_puzzle(text)


def test_a_puzzle():
    assert analysis.parse_puzzle("2,1,3") == (2, 1, 3)
    assert analysis.parse_puzzle(None) is None
