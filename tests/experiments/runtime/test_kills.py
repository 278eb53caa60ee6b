"""Runs started as users start them, and killed at various moments."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.runtime import metrics

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CONFIG = HERE / "regression_config.py"
COMPILED = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """A directory for a shared compilation cache, since compilation is half of the start-up time."""
    COMPILED["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path_factory.mktemp("compiled"))


def start(*arguments, cwd, program="regression.py", **pipes):
    environment = {**os.environ, **COMPILED, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    command = [sys.executable, str(HERE / program), *arguments]
    return subprocess.Popen(command, env=environment, cwd=cwd, text=True, **pipes)


def finish(process):
    output, errors = process.communicate(timeout=120)
    return process.returncode, output + errors


def wait_for(process, condition):
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"the run ended before its time: {process.communicate()}")
        time.sleep(0.002)


def lines(workdir):
    path = workdir / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def interrupted_save(workdir):
    return list((workdir / "checkpoints").glob("*.orbax-checkpoint-tmp"))


def saving_anew(workdir, old):
    return lambda: set(interrupted_save(workdir)) - old


def last_step(workdir):
    return max((record["step"] for record in metrics.read(workdir / "metrics.jsonl")), default=0)


def reached(workdir, step):
    return lambda: last_step(workdir) >= step


def without_time(workdir):
    records = metrics.read(workdir / "metrics.jsonl")
    return [{key: value for key, value in record.items() if key != "train_seconds"} for record in records]


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_with_the_same_bits(tmp_path):
    calm, hard = tmp_path / "calm", tmp_path / "hard"
    command = [f"--config={CONFIG}:killable"]
    reference = start(*command, f"--workdir={calm}", cwd=tmp_path)
    moments = random.Random(20261121)
    during_save = 0
    for attempt in range(4):
        process = start(*command, f"--workdir={hard}", cwd=tmp_path)
        wait_for(process, lambda: (hard / ".lock").exists())
        if attempt % 2:
            # In the middle of a save: its directory is there and has not got its name yet. Leftovers do not
            # count.
            wait_for(process, saving_anew(hard, set(interrupted_save(hard))))
        else:
            wait_for(process, reached(hard, last_step(hard) + 5 * moments.randint(2, 8)))
            time.sleep(moments.uniform(0, 0.05))
        process.kill()
        finish(process)
        assert process.returncode == -signal.SIGKILL
        during_save += bool(interrupted_save(hard))
        assert not (hard / "summary.json").exists()
    assert during_save >= 1
    assert finish(start(*command, f"--workdir={hard}", cwd=tmp_path))[0] == 0
    assert finish(reference)[0] == 0
    summaries = [json.loads((workdir / "summary.json").read_text()) for workdir in (calm, hard)]
    assert summaries[0]["params_sha256"] == summaries[1]["params_sha256"]
    assert summaries[0]["step"] == summaries[1]["step"] == 300
    assert without_time(calm) == without_time(hard)


def test_sigterm_saves_and_says_so_and_a_second_process_is_kept_out(tmp_path):
    workdir = tmp_path / "run"
    command = [f"--config={CONFIG}:killable", f"--workdir={workdir}"]
    process = start(*command, cwd=tmp_path)
    wait_for(process, lambda: lines(workdir) >= 2)
    status, message = finish(start(*command, cwd=tmp_path))
    assert status == 2
    assert "in use by another process" in message
    assert "Traceback" not in message
    process.terminate()
    status, message = finish(process)
    step = max(record["step"] for record in metrics.read(workdir / "metrics.jsonl"))
    assert status == 143
    assert f"stopped by SIGTERM at step {step} of 300" in message
    assert (workdir / "checkpoints" / str(step)).is_dir()
    assert "Traceback" not in message


REFUSED = {
    "unknown preset": ([f"--config={CONFIG}:nonsense"], ["nonsense", "'quick', 'killable'"]),
    "unknown preset by name": (
        ["--config=nonsense"],
        ["got 'nonsense', expected one of 'quick'"],
    ),
    "unknown preset of a name": (["--config=regression:slow"], ["'slow'", "'quick', 'killable'"]),
    "another experiment's": (["--config=llrnn:quick"], ["got 'llrnn:quick'", "regression:PRESET or FILE.py"]),
    "no preset": ([f"--config={CONFIG}"], ["'quick', 'killable'"]),
    "no file": (["--config=missing.py:quick"], ["missing.py"]),
    "no file to override": (["--config=missing.py:quick", "--config.lr=1"], ["missing.py"]),
    "not a number": (["--config.lr=x"], ["config.lr", "'x'"]),
    "misspelt": (["--config.learn=1"], ["--config.learn: no such field", "lr"]),
    "misspelt after a file": (
        [f"--config={CONFIG}:killable", "--config.lrr=1"],
        ["(did you mean lr?)"],
    ),
    "misspelt within": (
        ["--config.data.input=1"],
        ["no such field (did you mean inputs?)"],
    ),
    "within a number": (["--config.lr.x=1"], ["--config.lr.x: no such field: lr is a plain value"]),
    "not a tuple of ints": (["--config.data.shape=(1,x)"], ["data.shape", "tuple[int, ...]"]),
    "not a choice": (["--config.optimizer=lion"], ["optimizer: got 'lion'", "'sgd', 'adam'"]),
    "not a multiple": (["--config.checkpoint_every=15"], ["checkpoint_every: got 15", "log_every=10"]),
    "unknown mode": (["--parallel=threads"], ["jit|shard_map|pmap"]),
    "unknown flag": (["--work=here"], ["work"]),
    "not a flag": (["quick"], ["arguments: got 'quick', expected flags only"]),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """Returns the messages for each of `REFUSED`, all started in one empty directory, and the files left
    there.
    """
    directory = tmp_path_factory.mktemp("refused")
    process = start(cwd=directory, program="launches.py", stdin=subprocess.PIPE)
    lines = json.dumps([arguments for arguments, _ in REFUSED.values()])
    output, errors = process.communicate(lines, timeout=120)
    assert process.returncode == 0, errors
    return dict(zip(REFUSED, json.loads(output), strict=True)), list(directory.iterdir())


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_flags_are_told_in_one_line_before_anything_is_written(refusals, case):
    answers, left = refusals
    status, message = answers[case]
    assert status == 2
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    for part in REFUSED[case][1]:
        assert part in message
    assert not left


def test_a_users_own_file_of_presets(tmp_path):
    """The file is found relative to the current directory, and builds on the experiment's config."""
    text = (
        CONFIG.read_text(encoding="utf-8")
        .replace("def quick", "def fast")
        .replace("quick=quick", "fast=fast")
    )
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    status, message = finish(start("--config=mine.py:fast", "--config.steps=10", cwd=tmp_path))
    assert status == 0, message
    config = json.loads((tmp_path / "runs" / "mine-fast" / "config.json").read_text())
    assert (config["experiment"], config["steps"]) == ("regression", 10)


def test_a_run_from_start_to_end_then_another_config_in_its_workdir(tmp_path):
    status, message = finish(start("--config.steps=20", "--config.data.shape=(3, 4)", cwd=tmp_path))
    assert status == 0, message
    workdir = tmp_path / "runs" / "regression-quick"
    assert json.loads((workdir / "config.json").read_text())["data"]["shape"] == [3, 4]
    assert json.loads((workdir / "summary.json").read_text())["step"] == 20
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    status, message = finish(start("--config.lr=0.5", "--config.steps=10", cwd=tmp_path))
    assert status == 2
    assert "lr: got 0.5, expected 0.05" in message
    assert "steps: got 10, expected 20" in message
    assert "data.shape: got [], expected [3, 4]" in message
    assert "Traceback" not in message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
