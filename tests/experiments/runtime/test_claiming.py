"""Tests of the runner of comparisons: resumption, the record, and what it refuses."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import claimed  # pyrefly: ignore[missing-import]
import numpy as np
import pytest

from experiments.runtime import claim_records, claiming, claims
from experiments.runtime.looping import NonFiniteLoss

pytestmark = pytest.mark.usefixtures("committed", "compiled_quickly")

HERE = Path(__file__).parent
CLOCK = ("date", "commit", "seconds", "train_seconds")


def without_clock(value):
    if isinstance(value, dict):
        return {name: without_clock(item) for name, item in value.items() if name not in CLOCK}
    return [without_clock(item) for item in value] if isinstance(value, list) else value


def test_lines_of_all_claims_are_written(uninterrupted):
    """Each has its models, seeds, chosen settings, budgets and the declaration's commit."""
    lines = {line["id"]: line for line in claims.read(uninterrupted / "out")}
    assert list(lines) == ["slope.optimizer", "slope.optimizer.close"]
    line = lines["slope.optimizer"]
    assert line["ours"]["name"] == "SGD"
    assert line["ours"]["seeds"] == [0, 1, 2]
    assert line["ours"]["steps"] == 20
    assert [entry["name"] for entry in line["baselines"]] == ["Adam"]
    assert line["baselines"][0]["compared"] is True
    assert line["fixed_beforehand"] == "c0ffee"
    assert line["search_seeds"] == [100]
    assert (line["holds"], lines["slope.optimizer.close"]["holds"]) == (True, True)
    for entry, rate in ((line["ours"], 0.1), (line["baselines"][0], 0.1)):
        assert entry["settings"] == {"lr": rate}
        assert entry["seconds"] == [0.2] * 3
        assert entry["parameters"] == 1


def test_the_search_decides_the_settings(uninterrupted):
    """The reported runs have the setting that was best on the search seeds."""
    record = claimed.record_of(uninterrupted)
    for model in ("SGD", "Adam"):
        searched = {
            line["settings"]["lr"]: line["measurements"]["distance"]
            for line in record.lines
            if line["kind"] == "search" and line["model"] == model
        }
        assert len(searched) == 2
        used = {
            line["settings"]["lr"]
            for line in record.lines
            if line["kind"] == "reported" and line["model"] == model
        }
        assert used == {min(searched, key=searched.__getitem__)}


def test_a_search_run_that_diverges_rules_its_setting_out(tmp_path):
    """It is recorded, and not repeated; a reported run that diverges ends the session."""

    def diverging(config, *, workdir, parallel="jit"):
        if (config.optimizer, config.lr) == ("sgd", 0.1) or config.seed == 1:
            raise NonFiniteLoss("the loss is not finite", 7, None)
        return claimed.simulated(config, workdir=workdir)

    experiment = dataclasses.replace(claimed.EXPERIMENT, main=diverging)
    claimed.run(claimed.comparison(), tmp_path, experiment, seeds=[0])
    lines = claimed.record_of(tmp_path).lines
    diverged = [(line["model"], line["settings"], line["diverged"]) for line in lines if "diverged" in line]
    assert diverged == [("SGD", {"lr": 0.1}, 7)]
    used = [line["settings"] for line in lines if line["kind"] == "reported" and line["model"] == "SGD"]
    assert used == [{"lr": 0.01}]
    with pytest.raises(NonFiniteLoss):
        claimed.run(claimed.comparison(), tmp_path, experiment)
    assert sum("diverged" in line for line in claimed.record_of(tmp_path).lines) == 1
    # What it counts with may be declared.
    declared = claimed.comparison(diverged=lambda config: {"distance": 100.0 * config.lr})
    assert "diverged_code" in declared.declaration()
    (tmp_path / "other").mkdir()
    lines = claimed.run(declared, tmp_path / "other", experiment)
    assert [line["ours"]["per_seed"][1] for line in lines] == pytest.approx(2 * [1.0])
    record = claimed.record_of(tmp_path / "other").lines
    assert [line["seed"] for line in record if "diverged" in line and line["kind"] == "reported"] == [1, 1]
    done = claiming.finished(declared, tmp_path / "other" / "out")
    assert {piece.seed for piece in done} == {0, 2}  # one that diverged has no bits to repeat


def test_interrupted_three_times_it_gives_the_uninterrupted_lines(uninterrupted, tmp_path):
    """In the search, in the middle of a reported run, and between models; runs continue from checkpoints."""
    for evaluations in (6, 15, 7):
        claimed.killed(evaluations, claimed.comparison(), tmp_path)
    claimed.run(claimed.comparison(), tmp_path)
    assert_equal(tmp_path, uninterrupted)


def test_real_runs_are_continued_from_their_checkpoints(tmp_path):
    """Killed in the second of four runs and in the third, which have four evaluations each."""
    models = tuple(dataclasses.replace(model, search=({},)) for model in claimed.comparison().models)
    small = claimed.comparison(models=models, seeds=(0, 1), search_seeds=(), search_by="")
    claimed.run(small, tmp_path / "calm", claimed.EXPERIMENT)
    for evaluations in (6, 5):
        claimed.killed(evaluations, small, tmp_path / "killed", claimed.EXPERIMENT)
    assert len(claimed.record_of(tmp_path / "killed").lines) == 1 + 2
    assert len(claimed.run(small, tmp_path / "killed", claimed.EXPERIMENT)) == 2
    assert_equal(tmp_path / "killed", tmp_path / "calm")


def assert_equal(folder, other):
    """The lines are equal but for times, and so are the parameters of all runs."""
    found, expected = (without_clock(claims.read(one / "out")) for one in (folder, other))
    assert found == expected
    hashes = [[line.get("params_sha256") for line in claimed.record_of(one).lines] for one in (folder, other)]
    assert hashes[0] == hashes[1]
    assert len({digest for digest in hashes[0] if digest}) == sum(map(bool, hashes[0]))


def test_a_session_ends_in_time_and_is_continued(uninterrupted, tmp_path):
    """With almost no seconds each session still makes progress; the end is the same."""
    sessions = 0
    while True:
        sessions += 1
        try:
            lines = claimed.run(claimed.comparison(), tmp_path, seconds=0.05)
        except claiming.Interrupted:
            continue
        break
    assert sessions > 3
    assert without_clock(lines) == without_clock(claims.read(uninterrupted / "out"))


@pytest.mark.parametrize("seconds", [3.0, 2.0])
def test_a_session_without_a_second_left_begins_no_run(seconds, tmp_path, monkeypatch):
    """Each run takes three; a config with 0 seconds would have no limit."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def main(config, *, workdir):
        clock[0] += 3
        return claimed.simulated(dataclasses.replace(config, session_seconds=0.0), workdir=workdir)

    with pytest.raises(claiming.Interrupted, match="the session's time is up"):
        claimed.run(
            claimed.comparison(), tmp_path, dataclasses.replace(claimed.SIMULATED, main=main), seconds=seconds
        )
    assert len(claimed.record_of(tmp_path).lines) == 1


def test_finished_runs_are_not_repeated(uninterrupted, tmp_path):
    """The record alone is enough to write the lines, on a machine that never saw the runs."""
    claimed.copied(uninterrupted, tmp_path)
    (tmp_path / "out" / "claims.jsonl").unlink()
    never = dataclasses.replace(claimed.SIMULATED, main=None)
    lines = claimed.run(claimed.comparison(), tmp_path, never)
    assert lines == claims.read(uninterrupted / "out")


def test_some_seeds_first(begun, tmp_path):
    """No line is written before all declared seeds are done."""
    assert {line["seed"] for line in claimed.record_of(begun).lines if line["kind"] == "reported"} == {1}
    assert claims.read(begun / "out") == []
    claimed.copied(begun, tmp_path)
    assert len(claimed.run(claimed.comparison(), tmp_path)) == 2


def test_a_run_is_repeated_from_nothing(uninterrupted, tmp_path):
    """Its bits are compared with the record, which gets a line; a run that came out otherwise is seen."""
    claimed.copied(uninterrupted, tmp_path)
    pieces = claiming.finished(claimed.comparison(), tmp_path / "out")
    assert len(pieces) == 6

    def again(experiment):
        arguments = {"out": tmp_path / "out", "workdir": tmp_path / "new"}
        return claiming.again(claimed.comparison(), experiment, pieces[4], **arguments)

    def other(config, *, workdir):
        return claimed.simulated(dataclasses.replace(config, lr=0.03), workdir=workdir)

    with pytest.MonkeyPatch.context() as patch:
        here = claiming.surroundings()
        other_cores = {**here, "devices": {**here["devices"], "cpus": here["devices"]["cpus"] + 1}}
        patch.setattr(claiming, "surroundings", lambda: other_cores)
        assert claiming.finished(claimed.comparison(), tmp_path / "out") == []
    assert again(claimed.SIMULATED)
    assert not again(dataclasses.replace(claimed.SIMULATED, main=other))
    *before, first, second = claimed.record_of(tmp_path).lines
    assert before == claimed.record_of(uninterrupted).lines
    assert [(line["kind"], line["seed"], line["model"], line["same"]) for line in (first, second)] == [
        ("again", 2, "SGD", True),
        ("again", 2, "SGD", False),
    ]
    assert claimed.run(claimed.comparison(), tmp_path) == claims.read(uninterrupted / "out")
    assert not list((tmp_path / "new" / "slope.optimizer").iterdir())
    held = claim_records.Held(tmp_path / "new" / "slope.optimizer", wait=False)
    with held, pytest.raises(ValueError, match="another process uses"):
        again(claimed.SIMULATED)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": [9, 1, 7]}, r"seeds: got \[7, 9\], expected some of \(0, 1, 2\)"),
        ({"data": Path("x")}, "data: got x, expected no folder"),
    ],
)
def test_arguments_outside_the_declaration(arguments, message, tmp_path):
    """They are refused before anything is written."""
    with pytest.raises(ValueError, match=message):
        claimed.run(claimed.comparison(), tmp_path, **arguments)
    assert not (tmp_path / "out").exists()


def test_an_unfair_comparison_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="Adam: search: got 1 settings, expected 2"):
        claimed.run(claimed.edited(search=({"lr": 0.1},)), tmp_path)
    assert not (tmp_path / "runs").exists()


def test_data_reach_the_config_and_not_the_declaration(tmp_path):
    """Another machine has its data elsewhere."""

    def with_data(config, folder):
        return dataclasses.replace(config, optimizer=folder.name)

    comparison = claimed.comparison(with_data=with_data, data_command="make data")
    with pytest.raises(
        ValueError, match=r"data: got None, expected the folder of its data \(made by make data\)"
    ):
        claimed.run(comparison, tmp_path)
    claimed.run(comparison, tmp_path, data=Path("a/sgd"), seeds=[0])
    configs = [json.loads(file.read_text()) for file in tmp_path.glob("runs/*/*/config.json")]
    assert {config["optimizer"] for config in configs} == {"sgd"}
    assert comparison.declaration()["models"][1]["config"]["optimizer"] == "adam"
    small = dataclasses.replace(
        comparison, with_data=lambda config, folder: dataclasses.replace(config, batch_size=0)
    )
    with pytest.raises(ValueError, match="batch_size: got 0, expected at least 1"):
        claimed.run(
            small, tmp_path / "small", dataclasses.replace(claimed.SIMULATED, main=None), data=Path("a")
        )


def test_another_number_of_parameters_is_refused(tmp_path):
    """A declared number that the run does not have is an error, not a note."""
    models = tuple(dataclasses.replace(model, parameters=100) for model in claimed.comparison().models)

    def main(config, *, workdir):
        params = {"slope": np.float32(3), "more": np.zeros((2, 3))}
        return dataclasses.replace(claimed.simulated(config, workdir=workdir), params=params)

    with pytest.raises(ValueError, match="SGD: parameters: got 7 in the run, expected the declared 100"):
        claimed.run(
            claimed.comparison(models=models), tmp_path, dataclasses.replace(claimed.SIMULATED, main=main)
        )


def test_budgets_share_runs(tmp_path):
    """Two budgets with as many steps are one run, and two runs otherwise."""
    lines = claimed.run(claimed.two_budgets(), tmp_path)
    assert [line["level"] for line in lines] == [0.975, 0.975]
    assert [line["baselines"][0]["steps"] for line in lines] == [10, 20]
    assert lines[0]["ours"] == lines[1]["ours"]
    assert sum(line["kind"] == "reported" for line in claimed.record_of(tmp_path).lines) == 9


def test_progress_counts_runs(uninterrupted):
    """The table has a row for each model, with what is done and what is needed."""
    rows = claiming.progress_table(
        claimed.comparison(seeds=(0, 1, 2, 9)), claimed.record_of(uninterrupted)
    ).splitlines()
    assert [row.split()[0] for row in rows] == ["slope.optimizer", "SGD", "Adam"]
    assert [row.split()[1::2] for row in rows[1:]] == [["2/2", "3/4"]] * 2


def test_progress_shows_the_mean_of_what_the_first_claim_is_about(uninterrupted):
    first, second = claimed.comparison().claims
    steps = claimed.comparison(claims=(dataclasses.replace(first, value="steps"), second))
    rows = claiming.progress_table(steps, claimed.record_of(uninterrupted)).splitlines()
    assert [row.split()[2::2] for row in rows[1:]] == [["20", "20"]] * 2


def test_a_damaged_record_is_named(tmp_path):
    """File and line, before anything is trained."""
    file = tmp_path / "out" / "claims" / "slope.optimizer.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text('{"kind": "search"}\n{"kind": "other"}\n')
    with pytest.raises(ValueError, match=r"slope.optimizer.jsonl, line 2"):
        claimed.run(claimed.comparison(), tmp_path)


def test_two_processes_do_not_share_a_comparison(tmp_path):
    """The second is refused; its runs would fight for directories."""
    folder = tmp_path / "runs" / "slope.optimizer"
    folder.mkdir(parents=True)
    with claim_records.Held(folder, wait=False), pytest.raises(ValueError, match="another process"):
        claimed.run(claimed.comparison(), tmp_path)


def test_two_processes_add_to_one_record(tmp_path):
    """Each has other seeds; what one adds the other keeps."""
    lines = [{"kind": "search", "seed": seed} for seed in range(3)]
    first, second = claimed.record_of(tmp_path), claimed.record_of(tmp_path)
    for record, line in zip((first, second, first), lines, strict=True):
        record.add(line)
    assert claimed.record_of(tmp_path).lines == first.lines == lines


def test_step_times():
    """One median for each model."""
    comparison = claimed.comparison()
    seconds = iter((1.0, 20.0, 5.0, 60.0, 3.0, 40.0))  # of runs that take turns
    blocks = []

    def main(config, *, workdir):
        blocks.append((config.optimizer, config.seed, config.steps))
        assert config == config.hardly_evaluated()
        result = claimed.simulated(config, workdir=workdir)
        return {"model": dataclasses.replace(result, train_seconds=next(seconds))}

    experiment = dataclasses.replace(claimed.EXPERIMENT, main=main)
    assert claiming.step_times(comparison, experiment, steps=10) == {"SGD": 0.3, "Adam": 4.0}
    assert blocks == [(name, seed, 10) for seed in (0, 1, 2) for name in ("sgd", "adam")]


def test_step_times_are_those_of_reading_the_data():
    """Without the folder, every run would draw questions anew; other configs would be timed."""
    comparison = claimed.comparison(
        with_data=lambda config, folder: dataclasses.replace(config, optimizer=folder.name)
    )
    read = []

    def main(config, *, workdir):
        read.append(config.optimizer)
        return claimed.simulated(config, workdir=workdir)

    experiment = dataclasses.replace(claimed.EXPERIMENT, main=main)
    with pytest.raises(ValueError, match="data: got None, expected the folder of its data for slope"):
        claiming.step_times(comparison, experiment, steps=10)
    assert not read
    claiming.step_times(comparison, experiment, steps=10, data=Path("a/sgd"), blocks=1)
    assert read == ["sgd", "sgd"]


@pytest.mark.slow
def test_killed_three_times_it_gives_the_uninterrupted_lines(tmp_path):
    """SIGKILL at moments spread over search and reported runs."""

    def start(name, **pipes):
        command = [
            sys.executable,
            str(HERE / "claimed.py"),
            str(tmp_path / name),
            str(tmp_path / f"{name}-runs"),
        ]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(HERE.parents[2])}
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)

    plain, _ = start("plain").communicate(timeout=300)
    for lines in (2, 6, 9):
        process, file = start("killed"), tmp_path / "killed" / "claims" / "slope.optimizer.jsonl"
        while not (file.exists() and file.read_text().count("\n") >= lines):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.15)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    killed, _ = start("killed").communicate(timeout=300)
    found, expected = (
        [without_clock(json.loads(line)) for line in text.splitlines()[-2:]] for text in (killed, plain)
    )
    assert found == expected
    assert len(found) == 2
