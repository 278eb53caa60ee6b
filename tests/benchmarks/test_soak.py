"""The soak: of programs that stand in for an experiment, and of an experiment."""

import json
import random
import sys

import pytest

from benchmarks import soak
from benchmarks.reliability import subjects
from experiments.registry import EXPERIMENTS

STANDS_IN = '''
"""Adds up squares, keeps the sum every ten steps, and resumes from there."""
import json, sys, time
from pathlib import Path

workdir, forgets = Path(sys.argv[-1].removeprefix("--workdir=")), sys.argv[1] == "forgets"
workdir.mkdir(exist_ok=True)
starts = workdir / ".starts"
if forgets:  # that it was started before is something it must not see
    starts.write_text(starts.read_text() + "1" if starts.exists() else "1")
(workdir / ".lock").write_text("taken")
state = workdir / "state.json"
step, total = json.loads(state.read_text()) if state.exists() else (0, 0)
total += len(starts.read_text()) if forgets else 0
while step < 100:
    time.sleep(0.002)
    step, total = step + 1, total + step * step
    if step % 10 == 0:
        new = workdir / ".state.new"
        new.write_text(json.dumps([step, total]))
        new.replace(state)
line = {"step": step, "loss": total, "train_seconds": time.time()}
(workdir / "metrics.jsonl").write_text(json.dumps(line) + "\\n")
(workdir / "summary.json").write_text(json.dumps({"params_sha256": str(total), "wall_seconds": time.time()}))
'''


def soaked(tmp_path, kind, kills=3):
    program = tmp_path / "program.py"
    program.write_text(STANDS_IN, encoding="utf-8")
    subject = subjects.Subject("stand-in", (sys.executable, "-I", "-S", str(program), kind))
    room = tmp_path / "room"
    room.mkdir()
    printed = []
    return soak.soak(subject, kills, room, random.Random(3), printed.append), printed


def test_every_experiment_is_soaked(tmp_path):
    assert set(subjects.changed(tmp_path)) == set(EXPERIMENTS)


def test_a_run_that_resumes_rightly_is_equal_although_clocks_differ(tmp_path):
    found, printed = soaked(tmp_path, "resumes")
    assert found["equal"]
    assert found["repeated_equal"]
    assert len(found["kills"]) == 3 == sum(run["kills"] for run in found["runs"])
    assert {"parameters", "metrics.jsonl", "summary.json", "state.json"} == set(found["compared"])
    assert all(kill["signal"] == "SIGKILL" and kill["status"] == -9 for kill in found["kills"])
    assert sum("kill " in line for line in printed) == 3
    assert json.loads(json.dumps(found)) == found


def test_a_run_that_forgets_is_reported(tmp_path):
    found, _ = soaked(tmp_path, "forgets")
    assert found["repeated_equal"]
    assert not found["equal"]
    unlike = [run["differences"] for run in found["runs"] if not run["equal"]]
    assert "parameters" in unlike[0]
    result = {"experiments": [found], "command": "c", "machine": MACHINE, "commit": "0123", "seconds": 60.0}
    text = soak.table({**result, "kills": 3, "runs": 1, "equal_runs": 0})
    assert f"differs: {', '.join(unlike[0])}" in text


MACHINE = {"date": "2026-11-22", "cpus": 2, "platform": "cpu", "versions": {"jax": "0.12", "python": "3.12"}}


def test_a_run_that_fails_by_itself_is_an_error(tmp_path):
    subject = subjects.Subject("fails", (sys.executable, "-I", "-S", "-c", "raise SystemExit('no room')"))
    with pytest.raises(RuntimeError, match=r"ended with 1: no room"):
        soak.soak(subject, 1, tmp_path, random.Random(0), print)


def test_only_clocks_and_pictures_are_left_out_of_a_comparison(tmp_path):
    summary = {"params_sha256": "a", "train_seconds": 1.0, "devices": {"count": 1}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0, "train_seconds": 3.0}\n')
    (tmp_path / "picture.png").write_bytes(b"1")
    before = soak.fingerprint(tmp_path)
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"train_seconds": 2.0}))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0, "train_seconds": 4.0}\n')
    (tmp_path / "picture.png").write_bytes(b"2")
    assert not soak.differences(before, soak.fingerprint(tmp_path))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5, "train_seconds": 4.0}\n')
    (tmp_path / "more.tsv").write_text("x")
    assert soak.differences(before, soak.fingerprint(tmp_path)) == ["metrics.jsonl", "more.tsv"]
    (tmp_path / "summary.json").unlink()
    with pytest.raises(ValueError, match=r"got no summary\.json, expected a finished run"):
        soak.fingerprint(tmp_path)


@pytest.mark.slow
def test_an_experiment_killed_three_times(tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    kinship = subjects.all_subjects(tmp_path / "data")["kinship"]
    found = soak.soak(kinship, 3, room, random.Random(5), print)
    assert found["equal"], found["runs"]
    assert {"parameters", "checkpoint", "metrics.jsonl", "predictions.jsonl"} <= set(found["compared"])
