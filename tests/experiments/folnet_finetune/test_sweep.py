"""Sweeps: their runs, finished runs that are not repeated, medians, and the table."""

import dataclasses
import json
import statistics

import pytest

from experiments import runtime
from experiments.folnet_finetune import sweep
from experiments.folnet_finetune.grid import GridConfig, Setting
from experiments.runtime.workdir import config_dict, write_json
from tests.experiments.folnet_finetune import small as small_finetune

LR = (0.1, 0.2)


@pytest.fixture
def config(tmp_path):
    """Two learning rates and three seeds; an epoch of 5 examples has 3 steps."""
    grid = GridConfig(lr=LR, batch_size=(2,), epochs=(4,), warmup=(0.25,))
    return small_finetune.small(tmp_path, tmp_path, sweep="16gb", seeds=3, grid=grid)


def score(config):
    """Returns a made-up score; the best setting is neither the last nor the one with the highest score."""
    return {0.1: (0.5, 0.9, 0.6), 0.2: (0.95, 0.3, 0.4)}[config.lr][config.seed % 3]


class Trainer:
    """Writes the files of a run without training a model."""

    def __init__(self, diverging=(), short=(), stopped=False):
        self.asked, self._diverging, self._short, self._stopped = [], diverging, short, stopped

    def __call__(self, config, directory):
        self.asked.append((config.lr, config.seed))
        directory.mkdir(parents=True, exist_ok=True)
        begun = dataclasses.replace(config, accumulate=2)  # as a run chooses it when it begins
        write_json(directory / "config.json", config_dict(begun))
        if (config.lr, config.seed) in self._diverging:
            raise runtime.NonFiniteLoss("the loss is nan", 3, None)
        step = config.steps - ((config.lr, config.seed) in self._short)
        for name in ("checkpoints", "best", "predictions"):
            (directory / name).mkdir(exist_ok=True)
        best = {"step": 2, "accuracy": score(config), "main": score(config)}
        last = {"step": step, "accuracy": 0.25, "main": 0.25}
        results = {"best": best, "last": last, "test": {"accuracy": score(config) / 2}}
        summary = {"step": step, "train_seconds": 1.0, "results": results}
        summary |= {"stopped": True} if self._stopped else {}
        write_json(directory / "summary.json", summary)
        return summary


def test_each_run_has_a_folder_and_is_made_once(config, tmp_path):
    trainer, again = Trainer(), Trainer()
    report = sweep.run_all(config, 5, tmp_path, trainer)
    assert trainer.asked == [(lr, seed) for lr in LR for seed in range(3)]
    assert report.runs[1].directory == "lr0.1-batch2-epochs4-warmup0.25/seed1"
    assert json.loads((tmp_path / report.runs[1].directory / "config.json").read_text())["steps"] == 12
    assert sweep.run_all(config, 5, tmp_path, again) == report
    assert again.asked == []
    more = Trainer()
    (tmp_path / report.runs[4].directory / "summary.json").unlink()  # as a run that is killed
    sweep.run_all(config, 5, tmp_path, more)
    assert more.asked == [(0.2, 1)]
    changed = dataclasses.replace(config, weight_decay=0.5)  # another run, which is refused
    other = Trainer()
    sweep.run_all(changed, 5, tmp_path, other)
    assert len(other.asked) == 6
    later = Trainer()
    sweep.run_all(dataclasses.replace(config, seed=6), 5, tmp_path / "later", later)
    assert later.asked == [(lr, seed) for lr in LR for seed in (6, 7, 8)]


def test_medians_decide(config, tmp_path):
    report = sweep.run_all(config, 5, tmp_path, Trainer())
    first, second = report.table
    assert (first["lr"], second["lr"]) == LR
    assert first["best"] == {"accuracy": 0.6, "main": 0.6}
    assert second["best"]["main"] == statistics.median([0.95, 0.3, 0.4])
    assert (second["least"], second["greatest"]) == (0.3, 0.95)
    assert first["test"] == {"accuracy": 0.3}
    kept = json.loads((tmp_path / "sweep.json").read_text())
    assert kept["chosen"] == {"lr": 0.1, "batch_size": 2, "epochs": 4, "warmup": 0.25}
    assert kept["runs"] == {"finished": 6, "planned": 6}
    assert kept["table"] == json.loads(json.dumps(report.table))
    lines = (tmp_path / "sweep.md").read_text().splitlines()
    assert lines[0] == "# rte: 6 of 6 runs"
    assert lines[-2] == "| 0.1 | 2 | 4 | 0.25 | 3 | 60.0 | 60.0 | 50.0 to 90.0 | 25.0 | 30.0 |"
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


@pytest.mark.parametrize("keep", ["chosen", "all"])
def test_what_is_kept_of_finished_runs(config, tmp_path, keep):
    """All results and predictions, and the best setting's models; nothing is trained again."""
    config.keep = keep
    report = sweep.run_all(config, 5, tmp_path, Trainer())
    for run in report.runs:
        left = {path.name for path in (tmp_path / run.directory).iterdir() if path.is_dir()}
        model = {"best"} if keep == "all" or run.setting.lr == 0.1 else set()
        assert left == {"predictions"} | model | ({"checkpoints"} if keep == "all" else set())
    again = Trainer()
    assert sweep.run_all(config, 5, tmp_path, again) == report
    assert again.asked == []


def test_models_wait_for_all_seeds_of_a_setting(config, tmp_path):
    """Models are kept until all seeds of a setting are known, since its median may still change."""
    config.session_seconds = 60.0
    report = sweep.run_all(config, 5, tmp_path, Trainer(short=[(0.2, 1)]))
    assert report.table[0]["lr"] == 0.2
    assert all((tmp_path / run.directory / "best").exists() for run in report.runs)


def test_a_setting_that_diverges_is_not_chosen(config, tmp_path):
    """A diverged run is not repeated."""
    report = sweep.run_all(config, 5, tmp_path, Trainer(diverging=[(0.1, 1)]))
    assert [row["lr"] for row in report.table] == [0.2, 0.1]
    assert report.table[1]["diverged"] == 1
    again, other = Trainer(), Trainer()
    sweep.run_all(config, 5, tmp_path, again)
    assert again.asked == []
    sweep.run_all(dataclasses.replace(config, clip=1.0), 5, tmp_path / "elsewhere", other)
    assert len(other.asked) == 6
    lines = (tmp_path / "sweep.md").read_text().splitlines()
    assert "| 1 diverged |" in lines[-1]
    assert lines[-1].count("|") == lines[-2].count("|")


def test_a_session_that_is_over_ends_the_sweep(config, tmp_path):
    """Finished runs are in the table; running again continues."""
    config.session_seconds = 60.0
    trainer = Trainer(short=[(0.1, 2)])
    report = sweep.run_all(config, 5, tmp_path, trainer)
    assert trainer.asked == [(0.1, 0), (0.1, 1), (0.1, 2)]
    assert len(report.runs) == 2
    assert json.loads((tmp_path / "sweep.json").read_text())["runs"] == {"finished": 2, "planned": 6}
    again = Trainer()
    assert len(sweep.run_all(config, 5, tmp_path, again).runs) == 6
    assert again.asked == [(0.1, 2), (0.2, 0), (0.2, 1), (0.2, 2)]


def test_the_sessions_seconds_are_of_all_runs_together(config, tmp_path, monkeypatch):
    """Each run gets what is left of them; the sweep ends when nothing is, before the next run."""
    clock = iter([100.0, 110.0, 135.0, 160.0])
    monkeypatch.setattr(sweep.time, "monotonic", lambda: next(clock))
    config.session_seconds, left = 60.0, []
    trainer = Trainer()

    def run(one, directory):
        left.append(one.session_seconds)
        return trainer(one, directory)

    assert len(sweep.run_all(config, 5, tmp_path, run).runs) == 2
    assert left == [50.0, 25.0]


def test_a_run_that_its_time_has_ended_is_finished(config, tmp_path):
    """With fewer steps than planned: it counts, and is not repeated."""
    config.max_seconds = 1.0
    again = Trainer()
    assert len(sweep.run_all(config, 5, tmp_path, Trainer(short=[(0.1, 0)])).runs) == 6
    sweep.run_all(config, 5, tmp_path, again)
    assert again.asked == []


def test_a_run_that_has_stopped_early_is_finished(config, tmp_path):
    again, early = Trainer(), [(lr, seed) for lr in LR for seed in range(3)]
    runs = sweep.run_all(config, 5, tmp_path, Trainer(short=early, stopped=True)).runs
    assert (len(runs), sweep.run_all(config, 5, tmp_path, again).runs) == (6, runs)
    assert again.asked == []


def test_without_a_development_split_nothing_is_chosen_by(config, tmp_path):
    """For CLUTRR as published by its authors, the table has test medians in the order of the sweep."""
    setting = Setting(0.1, 2, 4, 0.25)
    runs = [
        sweep.Run(
            setting, seed, "", {"best": {"step": 9}, "last": {"step": 9}, "test": {"accuracy/k=2": score}}
        )
        for seed, score in enumerate((0.5, 0.25, 1.0))
    ]
    (row,) = sweep.tabulate(runs)
    assert (row["best"], row["last"], row["test"]) == ({}, {}, {"accuracy/k=2": 0.5})
    text = sweep.markdown(config, [row], 3, 3)
    gone = {**setting._asdict(), "seeds": [0], "diverged": 1}
    lines = sweep.markdown(config, [gone, row], 4, 4).splitlines()
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert text.splitlines()[-1] == "| 0.1 | 2 | 4 | 0.25 | 3 |  |  | 50.0 |"
