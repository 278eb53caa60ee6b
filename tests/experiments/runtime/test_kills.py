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


def test_sigterm_saves_and_says_so_and_a_second_process_is_kept_out(launch, tmp_path):
    workdir = tmp_path / "run"
    command = [f"--config={CONFIG}:killable", f"--workdir={workdir}"]
    process = start(*command, cwd=tmp_path)
    wait_for(process, lambda: lines(workdir) >= 2)
    status, message = launch(tmp_path, *command)
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
    "unknown mode": (["--parallel=threads"], ["auto|jit|shard_map|pmap"]),
    "unknown flag": (["--work=here"], ["work"]),
    "not a flag": (["quick"], ["arguments: got 'quick', expected flags only"]),
    "other devices": (["--mesh=data:3"], ["mesh: got data:3,model:1 for 3 devices, expected sizes for 1"]),
    "an address of no run": (
        ["--distributed=off", "--coordinator_address=host:1"],
        ["distributed: got 'off', expected no address"],
    ),
    "one process too many": (
        ["--coordinator_address=host:1", "--num_processes=2", "--process_id=3"],
        ["process_id: got 3, expected 0 <= process_id < num_processes=2"],
    ),
}


ENDS = {
    101: (1, "the loss is nan at step 3; the last good checkpoint is runs/20"),
    102: (2, "none of the 2 checkpoints can be restored"),
    103: (143, "stopped by SIGTERM at step 5"),
    104: (2, "the workdir is in use"),
}
"""Exit status and message of the errors in `launches.py`, by seed."""


BEGINS = {
    "--config=mine.py:fast --config.steps=10": "mine-fast: jit, 10",
    "--config=regression:killable --parallel=pmap": "regression-killable: pmap, 300",
    "--config regression:killable --workdir=runs/mine": "mine: jit, 300",
    "--flagfile=flags.txt --parallel=jit": "regression-killable: jit, 20",
    "--fsdp --config.lr=1 --config.cores=2": "regression-quick: jit fsdp, 60",
    "--config.cores=2": "regression-quick: shard_map, 60",
    "--config.cores=2 --config.accumulate=2": "regression-quick: jit, 60",
    "--config.cores=2 --parallel=jit": "regression-quick: jit, 60",
}
"""What the stand-in of a run in `launches.py` says."""


@pytest.fixture(scope="module")
def launch(tmp_path_factory, compiled):
    """Returns a function of a directory, arguments, and whether a run is real, to its status and output.

    The program of each is a fork of one process, which has imported what it needs.
    """
    with start(
        cwd=tmp_path_factory.mktemp("launches"), program="launches.py", stdin=subprocess.PIPE
    ) as process:
        assert process.stdout is not None

        def launch(directory, *arguments, real=True):
            print(json.dumps([str(directory), arguments, real]), file=process.stdin, flush=True)
            answer = process.stdout.readline()
            assert answer, process.communicate()
            return json.loads(answer)

        yield launch
        process.kill()


@pytest.fixture(scope="module")
def refusals(tmp_path_factory, launch):
    """Returns the messages for each of `REFUSED`, `ENDS` and `BEGINS`, all started in one directory with a
    file of presets, and the files left there.
    """
    directory = tmp_path_factory.mktemp("refused")
    text = CONFIG.read_text(encoding="utf-8").replace("quick=quick", "fast=quick")
    (directory / "mine.py").write_text(text, encoding="utf-8")
    (directory / "flags.txt").write_text("--config=killable\n--config.steps=20\n", encoding="utf-8")
    cases = {case: arguments for case, (arguments, _) in REFUSED.items()}
    cases |= {seed: [f"--config.seed={seed}"] for seed in ENDS} | {line: line.split() for line in BEGINS}
    answers = {case: launch(directory, *arguments, real=False) for case, arguments in cases.items()}
    left = {path.name for path in directory.iterdir()} - {"mine.py", "flags.txt", "__pycache__"}
    return answers, left


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_flags_are_reported_in_one_line_before_anything_is_written(refusals, case):
    answers, left = refusals
    status, message = answers[case]
    assert status == 2
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    for part in REFUSED[case][1]:
        assert part in message
    assert not left


def test_the_status_of_a_run_that_fails_says_how(refusals):
    """1 for a loss that is not finite, 143 after a SIGTERM as in a shell, 2 for the directory."""
    for seed, (status, message) in ENDS.items():
        assert refusals[0][seed] == [status, f"error: {message}\n"]


def test_presets_and_files_of_ones_own_begin(refusals):
    """A file is found in the current directory; each begins in a directory of its name, as the flags say."""
    for arguments, shown in BEGINS.items():
        assert refusals[0][arguments] == [0, f"runs/{shown} steps\n"]


def parallel_of(launch, directory, *arguments):
    """Returns how a run, which must succeed, was parallel."""
    status, message = launch(directory, *arguments)
    assert status == 0, message
    return json.loads((directory / "runs" / "regression-quick" / "summary.json").read_text())["parallel"]


def test_a_run_on_cores_as_devices_continues_on_one(launch, tmp_path):
    assert parallel_of(launch, tmp_path, "--config.steps=20", "--config.cores=2") == "shard_map"
    assert parallel_of(launch, tmp_path, "--config.steps=40") == "jit"


def test_a_run_continues_on_one_device_if_its_parts_need_all_rows(launch, tmp_path):
    """The parts are those it has recorded; the command line leaves them open."""
    assert parallel_of(launch, tmp_path, "--config.steps=20", "--config.accumulate=2") == "jit"
    assert parallel_of(launch, tmp_path, "--config.steps=40", "--config.cores=2") == "jit"


def test_a_run_from_start_to_end_then_another_config_in_its_workdir(launch, tmp_path):
    status, message = launch(tmp_path, "--config.steps=20", "--config.data.shape=(3, 4)")
    assert status == 0, message
    workdir = tmp_path / "runs" / "regression-quick"
    assert json.loads((workdir / "config.json").read_text())["data"]["shape"] == [3, 4]
    assert json.loads((workdir / "summary.json").read_text())["step"] == 20
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    status, message = launch(tmp_path, "--config.lr=0.5", "--config.steps=10")
    assert status == 2
    assert "lr: got 0.5, expected 0.05" in message
    assert "steps: got 10, expected 20" in message
    assert "data.shape: got [], expected [3, 4]" in message
    assert "Traceback" not in message
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
