"""Lines of the record, the table made of them, and what it allows to be said."""

import dataclasses
import json

import pytest

from benchmarks import kinship_learning as learning
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


def write(out, lines):
    out.mkdir(exist_ok=True)
    (out / learning.RECORD).write_text("".join(json.dumps(line) + "\n" for line in lines))


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
    write(tmp_path / "out", lines)
    learning.draw(tmp_path / "out")
    text = (tmp_path / "out" / "learning.md").read_text()
    assert "| FOLNet jmc.atp | 1,234 | 1 | 0.810 | 0.810 | 4 | 3 | 0123456789ab |" in text
    assert "| FOLNet j.at | 1,234 | 0 | 0.460 | 0.500 | 8 | 3 | 0123456789ab |" in text
    assert "| FOLNet j.at | 2 | 0.460 (0.460 to 0.460) | 0.500 (0.500 to 0.500) |" in text
    assert "| FOLNet jmc.atp | 1.000 | 0.805 | 0.805 |" in text
    assert "equal steps are 4" in text
    assert "after equal time higher, the intervals are apart." in text
    names = {f"ablation_{figure}.png" for figure in ("by_length", "by_steps", "by_seconds")}
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == names


def test_a_run_that_is_made_again_takes_the_place_of_its_line(tmp_path, monkeypatch):
    made = []

    def run(preset, config, workdir):
        made.append((config.model, config.seed, config.lr, config.baselines, workdir.name))
        return line(config.model, config.seed, 0.75)

    monkeypatch.setattr(learning, "run", run)
    write(tmp_path / "out", [line("j.a", 0, 0.25), line("t5", 0, 0.25)])
    config = small(baselines=("bert",), lrs=(1e-3,), lr=2e-3)
    lines = learning.claim("ablation", config, ("j.a", "bert"), 2, tmp_path, tmp_path / "out")
    assert made == [
        ("j.a", 0, 2e-3, (), "ablation-j.a-0"),
        ("bert", 0, 1e-3, (), "ablation-bert-0"),
        ("j.a", 1, 2e-3, (), "ablation-j.a-1"),
        ("bert", 1, 1e-3, (), "ablation-bert-1"),
    ]
    assert lines == learning.read(tmp_path / "out")
    assert {(line["model"], line["seed"]): line["metric"]["value"] for line in lines} == {
        ("t5", 0): 0.25,
        **{(model, seed): 0.75 for model in ("j.a", "bert") for seed in (0, 1)},
    }


@pytest.mark.slow
def test_a_run_gives_a_line(tmp_path):
    config = dataclasses.replace(small(), seed=1)
    found = learning.run("ablation", config, tmp_path / "run")
    assert (found["model"], found["seed"], found["steps"]) == ("j.a", 1, 4)
    assert "--config.seed=1" in found["command"]
    assert learning.table({"j.a": [found]}, "ablation").count("\n| FOLNet j.a") == 3
