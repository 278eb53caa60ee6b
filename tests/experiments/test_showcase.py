"""The showcase: its page, and each released model at work on a few inputs."""

import re
import types
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime, showcase
from experiments.boxworld import episodes, measures, video
from experiments.boxworld import showcase as boxworld
from experiments.kinship import showcase as kinship
from experiments.llrnn import showcase as llrnn
from experiments.mathematics import showcase as mathematics
from experiments.registry import EXPERIMENTS
from simplicial import win_rates
from tests.experiments.pages import read_page

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_the_page_shows_what_is_released_and_what_was_trained(tmp_path, monkeypatch, capsys):
    seeds = []

    def stop(name):
        def run(directory, _):
            directory.mkdir(parents=True)
            (directory / "picture.png").write_bytes(b"")
            rows = [{"model": name}]
            return runtime.Stop(f"About {name}", "why", rows, {directory / "picture.png": "shown"}, "but")

        return run

    def shown(name):
        def run(directory, seed):
            seeds.append(seed)
            return stop(name)(directory, seed)

        return run

    def experiment(name, with_model):
        return runtime.Experiment(
            type("Named", (runtime.RunConfig,), {"experiment": name}),
            lambda preset: cast(Any, preset),
            main=lambda config, workdir: None,
            tour_stop=stop(f"{name} trained"),
            showcase=shown(name) if with_model else None,
        )

    experiments = {
        name: experiment(name, name != "empty") for name in ("boxworld", "empty", showcase.FASTEST)
    }
    monkeypatch.setattr(showcase, "EXPERIMENTS", experiments)
    showcase.make(tmp_path / "out", 17)
    assert seeds == [17, 17]
    text = (tmp_path / "out" / "index.html").read_text()
    page = read_page(text)
    assert page.images == ["boxworld/picture.png", "llrnn/picture.png", "llrnn/trained/picture.png"]
    assert "(seed 17)" in text
    assert "About llrnn trained" in capsys.readouterr().out
    showcase.make(tmp_path / "out", 18)  # a finished one starts from the beginning
    assert "(seed 18)" in (tmp_path / "out" / "index.html").read_text()


def test_one_model_of_each_paper_is_shown():
    shown = [name for name, experiment in EXPERIMENTS.items() if experiment.showcase]
    assert sorted(shown) == ["boxworld", "kinship", "llrnn", "mathematics"]


def test_boards_are_played_by_the_agent_and_at_random(tmp_path, monkeypatch):
    """In short: what is played, with keys of their own, and the counts and the clip of the page."""
    asked, keys = [], []

    def play(policy, params, boards, config, key, cap):
        asked.append((boards, cap))
        keys.append(key)
        ends = jnp.arange(4) < (1 if policy is measures.random_policy else 3)
        return win_rates.Played(ends, ~ends, jnp.full(4, 7))

    def reset_batch(key, count, config):
        keys.append(key)
        return types.SimpleNamespace(player=np.zeros((count, 2)))

    def first_solved(trained, key, puzzle, cap):
        keys.append(key)
        return types.SimpleNamespace(ending="solved", steps=7), None

    monkeypatch.setattr(boxworld, "BOARDS", 4)
    monkeypatch.setattr(boxworld, "boxworld", types.SimpleNamespace(reset_batch=reset_batch))
    monkeypatch.setattr(win_rates, "play", play)
    monkeypatch.setattr(episodes, "first_solved", first_solved)
    monkeypatch.setattr(episodes, "virtual_views", lambda episode: ["views"])
    monkeypatch.setattr(video, "frames", lambda episode, views: (episode.steps, views))
    monkeypatch.setattr(video, "write_gif", lambda frames, path: (path, frames)[0])
    stop = boxworld.showcase(tmp_path, 3)
    shown = [
        tuple(row[name] for name in ("policy", "boards solved", "95% interval", "boards"))
        for row in stop.rows
    ]
    assert shown == [("agent", "75.0%", "30.1% to 95.4%", "4"), ("random", "25.0%", "4.6% to 69.9%", "4")]
    (boards, cap), (same, _) = asked
    assert (boards.player.shape[0], cap) == (4, 400)
    assert same is boards
    for_boards, played, again, clip = (tuple(jax.random.key_data(key).tolist()) for key in keys)
    assert played == again
    assert len({for_boards, played, clip}) == 3
    assert stop.figures == {
        tmp_path / "episode.gif": "A new board, played by the agent: solved after 7 steps."
    }


@pytest.mark.slow
def test_an_agent_solves_new_boards(tmp_path, monkeypatch):
    monkeypatch.setattr(boxworld, "BOARDS", 20)
    stop = boxworld.showcase(tmp_path, 3)
    assert [row["policy"] for row in stop.rows] == ["agent", "random"]
    solved = [float(row["boards solved"].rstrip("%")) / 100 for row in stop.rows]
    assert solved[0] > 0.75 > 0.4 > solved[1]
    ((clip, caption),) = stop.figures.items()
    assert clip.read_bytes().startswith(b"GIF")
    assert re.search(r"solved after \d+ steps", caption)


def test_questions_are_answered_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(mathematics, "QUESTIONS", 12)
    stop = mathematics.showcase(tmp_path, 3)
    assert [row["module"] for row in stop.rows] == [
        *["numbers: place value"] * 4,
        *["comparison: pair"] * 4,
    ]
    for row in stop.rows:
        assert row[""] == ("right" if row["answer"] == row["model's answer"] else "wrong")
    digits = re.search(r"(\d+) of 12 on numbers: place value", stop.meaning)
    assert digits is not None
    assert int(digits[1]) >= 10  # .99 after training


def test_kinship_of_new_families_is_inferred(tmp_path, monkeypatch):
    monkeypatch.setattr(kinship, "PROBLEMS", 3)
    first, other = (kinship.showcase(tmp_path, seed) for seed in (3, 4))
    assert [row["facts"] for row in first.rows] == ["2", "4", "6", "8", "10"]
    assert first.rows[0]["answer"] == first.rows[0]["FOLNet's answer"]  # all chains of 2 after training
    assert other.rows[0]["story"] != first.rows[0]["story"]
    assert (tmp_path / "by_length.png").exists()


def test_new_sequences_are_copied(tmp_path, monkeypatch):
    monkeypatch.setattr(llrnn, "SEQUENCES", 5)
    stop = llrnn.showcase(tmp_path, 3)
    assert [row["right"] for row in stop.rows] == ["50 of 50", "100 of 100", "200 of 200"]
    assert (tmp_path / "addresses.png").exists()
