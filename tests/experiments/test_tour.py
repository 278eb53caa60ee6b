"""The tour: its page, starting over, continuing, and errors."""

import dataclasses
from typing import Any, cast

import pytest
from absl import app

from experiments import runtime, tour
from experiments.boxworld import figures as boxworld_figures
from experiments.llrnn import config as presets
from experiments.registry import EXPERIMENTS
from tests.experiments.boxworld.small import small as small_boxworld
from tests.experiments.folnet_pretrain import small as small_folnet
from tests.experiments.mathematics.small import small as small_mathematics
from tests.experiments.pages import read_page


def tiny():
    return dataclasses.replace(
        presets.quick(),
        task_options=presets.TaskOptions(group="S4", train_lengths=(1, 2), test_lengths=(2,)),
        baseline=presets.CellConfig.of("lstm", features=2),
        steps=2, log_every=1, checkpoint_every=1, eval_every=1, batch_size=4, eval_examples=4,
        final_examples=4,
    )  # fmt: skip


def show(monkeypatch, stops, presets=None):
    """Makes a tour of these stops only."""
    experiments = {
        name: runtime.Experiment(
            type("Named", (runtime.RunConfig,), {"experiment": name}),
            lambda preset, name=name: cast(Any, (presets or {}).get(name)),
            main=lambda config, workdir: None,
            tour_stop=stop,
        )
        for name, stop in stops.items()
    }
    monkeypatch.setattr(tour, "EXPERIMENTS", experiments)


def test_a_page_of_stops(tmp_path, monkeypatch, capsys):
    """Titles, tables and figures in order, without a network; the tables are also printed."""

    def stop(name):
        def run(directory, config):
            directory.mkdir(parents=True)
            (directory / "picture.png").write_bytes(b"")
            rows = [{"model": f"{name} < 3", "error": "0.1"}]
            return runtime.Stop(f"About {name}", "why", rows, {directory / "picture.png": "shown"}, "but")

        return run

    show(monkeypatch, {name: stop(name) for name in ("first", "second")})
    tour.make(tmp_path / "tour")
    page = read_page((tmp_path / "tour" / "index.html").read_text())
    assert page.images == ["first/picture.png", "second/picture.png"]
    assert {"About first", "second < 3", "but"} <= set(page.words)
    assert "second < 3  0.1" in capsys.readouterr().out


@pytest.mark.slow  # every experiment, although in small
def test_the_tour_makes_a_page_with_every_result(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(boxworld_figures, "LEAST_EPISODES", 5)
    stops = {name: one.tour_stop for name, one in EXPERIMENTS.items() if one.tour_stop}
    del stops["kinship"]  # whose stop needs more problems than a test has; it is tested by itself
    configs = {
        "boxworld": small_boxworld(seeds=1),
        "mathematics": small_mathematics(),
        "folnet_pretrain": small_folnet.small(small_folnet.write_text(tmp_path), baseline="transformer"),
        "llrnn": tiny(),
    }
    show(monkeypatch, stops, configs)
    out = tmp_path / "tour"
    tour.make(out)
    page = read_page((out / "index.html").read_text())
    assert page.images == [
        "boxworld/solved.png", "boxworld/episode/episode.gif", "boxworld/episode/landmark_attention.png",
        "mathematics/learning.png", "mathematics/accuracy_interpolate.png", "mathematics/roles.png",
        "folnet_pretrain/loss_by_steps.png", "folnet_pretrain/loss_by_seconds.png",
        "folnet_pretrain/filled.png",
        "llrnn/held_out.png", "llrnn/error_by_length.png",
    ]  # fmt: skip
    assert all((out / image).exists() for image in page.images)
    assert not any(link.startswith(("http", "//")) for link in page.links)
    assert {"higher order", "LSTM", "chance"} <= set(page.words)
    shown = capsys.readouterr().out
    assert "higher order" in shown
    assert str(out / "index.html") in shown

    # Interrupted, and the preset changed since: afresh.
    nothing = runtime.Stop("t", "m", [{"a": "1"}], {}, "c")
    show(
        monkeypatch,
        dict.fromkeys(stops, lambda directory, config: nothing) | {"llrnn": stops["llrnn"]},
        configs | {"llrnn": dataclasses.replace(tiny(), seed=1)},
    )
    (out / "index.html").unlink()
    tour.make(out)
    assert "starting over" in capsys.readouterr().out
    assert '"seed": 1' in (out / "llrnn" / "config.json").read_text()


def test_a_finished_tour_starts_afresh_and_an_interrupted_one_continues(tmp_path):
    run = tmp_path / "llrnn" / "config.json"
    run.parent.mkdir()
    run.write_text("{}")
    tour.start_afresh_if_finished(tmp_path)
    assert run.exists()
    (tmp_path / "index.html").write_text("finished")
    tour.start_afresh_if_finished(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_tour_continues(tmp_path, monkeypatch):
    calls = []

    def stop(directory, config):
        calls.append(directory)
        return runtime.Stop("t", "m", [{"a": "1"}], {}, "c")

    show(monkeypatch, {"s": stop})
    assert tour.run_stop(tour.EXPERIMENTS["s"], tmp_path).title == "t"
    assert calls == [tmp_path]


def test_a_directory_that_is_not_a_tour_is_left_alone(tmp_path):
    for name in ("thesis.tex", *(f"work{number}" for number in range(30))):
        (tmp_path / name).write_text("precious")
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(app.UsageError, match=r"contains 'thesis\.tex', expected an empty directory or"):
        tour.start_afresh_if_finished(tmp_path)
    assert (tmp_path / "index.html").read_text() == "mine"
