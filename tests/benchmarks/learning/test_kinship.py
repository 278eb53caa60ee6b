"""Lines of the record, the table made of them, and what it allows to be said."""

import dataclasses

import pytest

from benchmarks import records
from benchmarks.learning import kinship as learning
from benchmarks.learning.kinship import ROOM
from tests.experiments.kinship.small import small


def line(model, seed, value, steps=(2, 4), **changes):
    return {
        "preset": "ablation", "model": model, "seed": seed, "parameters": 1234, "form": "graph",
        "train_lengths": [2, 3], "metric_lengths": [3, 4], "metric": {"name": "the mean", "value": value},
        "accuracies": {"2": 1.0, "3": value, "4": value, "held_out/4": 0.0}, "test_problems": 7,
        "steps": steps[-1], "train_seconds": 3.2, "commit": "0123456789abcdef", "date": "2026-01-01",
        "curve": [[step, step / 2, value - 0.01 * (steps[-1] - step)] for step in steps],
        "devices": {"cpus": 2}, "versions": {"jax": "0"}, "command": "python -m x", **changes,
    }  # fmt: skip


def test_what_may_be_said_depends_on_the_intervals():
    assert learning.verdict([0.8, 0.81, 0.82], [0.5, 0.51, 0.52]) == "higher, the intervals are apart"
    assert learning.verdict([0.5, 0.51, 0.52], [0.8, 0.81, 0.82]) == "lower, the intervals are apart"
    assert learning.verdict([0.5, 0.7, 0.9], [0.4, 0.6, 0.8]) == "nothing, the intervals overlap"
    assert learning.verdict([0.5], [0.4, 0.6]) == "nothing (one seed)"


def test_equal_steps_are_the_last_that_all_runs_came_to():
    runs = [line("a", 0, 0.5, (2, 4, 5)), line("b", 0, 0.5, (2, 4, 6, 8))]
    assert learning.equal_step(runs) == 4
    assert learning.equal_step([*runs, line("c", 0, 0.5, (3,))]) is None


def test_the_table_has_every_run_and_the_means(tmp_path):
    lines = [line("jmc.atp", seed, 0.8 + seed / 100) for seed in (0, 1)]
    lines += [line("j.at", seed, 0.5, steps=(2, 4, 8)) for seed in (0, 1)]
    text = ROOM.draw(lines, tmp_path / "out")
    assert (tmp_path / "out" / "learning.md").read_text() == text
    assert "| FOLNet jmc.atp | 1,234 | 1 | 0.810 | 0.810 | 4 | 3 | 0123456789ab |" in text
    assert "| FOLNet j.at | 1,234 | 0 | 0.460 | 0.500 | 8 | 3 | 0123456789ab |" in text
    assert "| FOLNet j.at | 2 | 0.460 (0.460 to 0.460) | 0.500 (0.500 to 0.500) |" in text
    assert "| FOLNet jmc.atp | 1.000 | 0.805 | 0.805 |" in text
    assert "equal steps are 4" in text
    assert "after equal time higher, the intervals are apart." in text
    names = {f"ablation_{figure}.png" for figure in ("by_length", "by_steps", "by_seconds")}
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == names


def test_a_run_that_is_made_again_takes_the_place_of_its_line(tmp_path):
    made, out = [], tmp_path / "out"

    def main(config, *, workdir):
        made.append((config.model, config.seed, config.lr, config.baselines, workdir.name))
        return {config.model: None}

    def lines(run):
        return [line(run.config.model, run.config.seed, 0.75)]

    experiment = dataclasses.replace(
        ROOM.experiment, main=main, presets=lambda name: small(baselines=("bert",), lrs=(1e-3,), lr=2e-3)
    )
    room = dataclasses.replace(ROOM, experiment=experiment)
    records.write(out, [line("j.a", 0, 0.25), line("t5", 0, 0.25)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "lines_of", lambda room, run: lines(run))
        found = records.claim(room, "ablation", ("j.a", "bert"), 2, tmp_path, out)
    assert made == [
        ("j.a", 0, 2e-3, (), "ablation-j.a-0"),
        ("bert", 0, 1e-3, (), "ablation-bert-0"),
        ("j.a", 1, 2e-3, (), "ablation-j.a-1"),
        ("bert", 1, 1e-3, (), "ablation-bert-1"),
    ]
    assert found == records.read(out)
    assert {(line["model"], line["seed"]): line["metric"]["value"] for line in found} == {
        ("t5", 0): 0.25,
        **{(model, seed): 0.75 for model in ("j.a", "bert") for seed in (0, 1)},
    }


def test_an_unknown_model_is_refused_before_anything_is_run(tmp_path):
    with pytest.raises(ValueError, match="nobody"):
        records.claim(ROOM, "ablation", ("nobody",), 1, tmp_path / "runs", tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_gives_a_line(tmp_path):
    config = dataclasses.replace(small(), seed=1)
    results = ROOM.experiment.main(config, workdir=tmp_path / "run")
    (found,) = records.lines_of(ROOM, records.Run("ablation", config, tmp_path / "run", results))
    assert (found["model"], found["seed"], found["steps"]) == ("j.a", 1, 4)
    assert "--config.seed=1" in found["command"]
    assert ROOM.table([found]).count("\n| FOLNet j.a") == 3
