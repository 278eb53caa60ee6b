"""Runs of several real processes, with a few CPU devices each, over the loopback interface."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import several  # pyrefly: ignore[missing-import]

from experiments.runtime import processes
from tests.experiments import small_run
from tests.on_devices import ROOT

SCRIPT = Path(__file__).with_name("several.py")


@contextlib.contextmanager
def running(count, devices, what, workdir, script=SCRIPT, **environment):
    """Starts the processes of a run, and ends them with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    variables = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "PYTHONFAULTHANDLER": "1",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        **environment,
    }
    with contextlib.ExitStack() as stack:
        started = []
        for index in range(count):
            meeting = [address, str(count), str(index)] if count > 1 else []
            command = [sys.executable, str(script), what, str(workdir), *meeting]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = stack.enter_context(subprocess.Popen(command, env=variables, **pipes))
            stack.callback(process.kill)
            started.append(process)
        yield started


def answers(count, devices, what, workdir, script=SCRIPT, **environment):
    """Returns the last line that each process of a run has printed."""
    with running(count, devices, what, workdir, script, **environment) as started:
        ends = [process.communicate(timeout=300) for process in started]
    for process, (_, errors) in zip(started, ends, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(output.splitlines()[-1]) for output, _ in ends]


def end_of(process, seconds):
    """Returns the errors of a process when it has ended, or its stack if it does not end."""
    try:
        return process.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # faulthandler shows the stack of each thread
        return process.communicate()[1]


def until(true, started):
    """Waits for a condition while the processes are running."""
    last = time.monotonic() + 120
    while not true():
        assert time.monotonic() < last
        assert all(process.poll() is None for process in started)
        time.sleep(0.2)


def lines(workdir):
    """Returns the metrics without times."""
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "train_seconds"} for record in records]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Runs two processes; returns their folder, and the messages and errors that each recorded."""
    folder = tmp_path_factory.mktemp("pair")
    return folder, *answers(2, 1, "telling", folder)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one\ntwo"), "one"),
        (KeyError(), "KeyError"),
        (OSError("\n a "), "a"),
        (OSError("x" * 301), "x" * 300),
    ],
)
def test_an_error_in_one_line(error, line):
    assert processes.first_line(error) == line


def test_values_are_exchanged_exactly_and_failures_are_shared(pair):
    _, first, second = pair
    for name in ("numbers", "texts", "total", "few", "sum", "made", "whole"):
        assert first[name] == second[name], name
    assert first["numbers"] == [[1e-9, 2.0], [1 + 1e-9, 2.0]]  # not rounded to float32
    assert first["texts"] == ["", "ab"]
    assert first["total"] == [2**41 + 1, 1]
    assert (first["share"], second["share"]) == ([0, 2, 4], [1, 3])
    assert (first["few"], first["sum"]) == (7, 0 + 1 + 4 + 9 + 16)
    assert first["rows"] == {"x": [[0, 1], [2, 3]], "n": 3}
    assert second["rows"] == {"x": [[4, 5], [6, 7]], "n": 3}
    assert first["whole"] == [[[0, 5], [1, 5]], 3]
    assert first["made"] == "0"
    assert second["failed"]["error"] == "ZeroDivisionError"
    assert first["failed"] == {
        "error": "ValueError",
        "message": f"process 1 of 2: {second['failed']['message']}",
    }


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        (
            "rate",
            "WorkdirError",
            "different settings:\n  process 1: got lr=0.2, expected lr=0.1 as in process 0",
        ),
        ("apart", "WorkdirError", "must be on a file system shared by all processes"),
        ("stray", "CheckpointError", "different settings:\n  process 1: got checkpoints [] in {0}/stray/1"),
    ],
)
def test_processes_that_do_not_fit_together_all_say_so(pair, what, error, message):
    for answer in pair[1:]:
        assert answer["disagreeing"][what]["error"] == error
        assert message.format(pair[0]) in answer["disagreeing"][what]["message"]


def test_command_lines_that_differ_are_reported_before_the_run_begins(pair):
    for answer in pair[1:]:
        launched = answer["disagreeing"]["launched"]
        assert launched.startswith("error: the 2 processes were started with different settings:\n")
        assert (
            f"process 1: got workdir={pair[0]}/launched/1, expected workdir={pair[0]}/launched/0" in launched
        )
    assert not (pair[0] / "launched").exists()


def test_two_processes_learn_what_one_does(pair, tmp_path):
    """Each feeds its rows; an evaluation counts each of 19 questions once."""
    folder, first, second = pair
    assert first["trained"] == second["trained"]
    one = several.trained(tmp_path)
    np.testing.assert_allclose(first["trained"]["w"], one["w"], rtol=1e-5, atol=1e-6)
    curves = lines(folder / "run"), lines(tmp_path)
    assert [record["step"] for record in curves[0]] == [2, 4, 6, 8, 10, 12]
    for ours, theirs in zip(*curves, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert curves[0][-1]["eval/counted"] == 19


@pytest.mark.slow
@pytest.mark.parametrize("way", ["jit", "shard_map", "pmap", "fsdp"])
def test_two_processes_of_four_devices_learn_what_one_of_eight_does(tmp_path, way):
    """The curve is the same up to the order of sums, and an evaluation counts each of 19 questions once."""
    environment = {"FSDP": "1"} if way == "fsdp" else {"WAY": way}
    (one,) = answers(1, 8, "trained", tmp_path / "one", **environment)
    two = answers(2, 4, "trained", tmp_path / "two", **environment)
    assert two[0].pop("metrics") == two[1].pop("metrics")  # by the first process's clock, too
    assert two[0] == two[1]
    np.testing.assert_allclose(two[0]["w"], one["w"], rtol=1e-5, atol=1e-6)
    curves = lines(tmp_path / "one"), lines(tmp_path / "two")
    assert [record["step"] for record in curves[0]] == [2, 4, 6, 8, 10, 12]
    for ours, theirs in zip(*curves, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert curves[1][-1]["eval/counted"] == 19
    summary = json.loads((tmp_path / "two" / "summary.json").read_text())
    assert (summary["devices"]["count"], summary["devices"]["processes"]) == (8, 2)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", small_run.EXPERIMENTS)
def test_every_experiment_learns_the_same_in_two_processes(tmp_path, experiment):
    """Covers all that a program does except figures: data, training, evaluation, checkpoints, results.

    The order of sums changes an agent's gradient by a relative 1e-4 (its normalizations amplify rounding).
    """
    small_run.prepare(experiment, tmp_path)
    script = Path(small_run.__file__)
    answers(1, 8, experiment, tmp_path / "one", script)
    answers(2, 4, experiment, tmp_path / "two", script)
    curves = lines(tmp_path / "one"), lines(tmp_path / "two")
    assert len(curves[0]) >= 2
    bound = 3e-4 if experiment == "boxworld" else 1e-5
    for ours, theirs in zip(*curves, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            expected = theirs[name]  # None: nothing to be averaged
            assert value == (expected and pytest.approx(expected, rel=bound, abs=bound / 10)), name
    ends = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("one", "two")]
    assert [end["devices"]["processes"] for end in ends] == [1, 2]
    assert ends[0].keys() == ends[1].keys()
    assert len(list((tmp_path / "two" / "checkpoints").glob("[0-9]*"))) >= 1


@pytest.mark.slow
def test_a_checkpoint_of_two_processes_continues_with_any_number_of_devices(tmp_path):
    """A finished run is restored with the same bits on 1, 2 and 8 devices of one process."""
    two = answers(2, 4, "trained", tmp_path, FSDP="1")
    for devices in (1, 2, 8):
        (one,) = answers(1, devices, "trained", tmp_path)
        assert one["w"] == two[0]["w"]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_is_killed_the_other_says_so_and_the_pair_can_continue(tmp_path, victim):
    checkpoints = tmp_path / "checkpoints"

    def saved():
        return [int(path.name) for path in checkpoints.glob("[0-9]*") if path.name.isdigit()]

    with running(2, 2, "slowly", tmp_path) as started:
        until(saved, started)
        started[victim].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        _, errors = started[1 - victim].communicate(timeout=100)
        assert time.monotonic() - killed < 60
    assert started[1 - victim].returncode != 0
    assert "start all processes again with the same command" in errors
    assert str(checkpoints) in errors
    before, reached = max(saved()), lines(tmp_path)[-1]["step"]  # later steps are repeated

    with running(2, 2, "slowly", tmp_path) as started:
        until(lambda: lines(tmp_path)[-1]["step"] > max(before + 4, reached), started)
        started[0].send_signal(signal.SIGTERM)  # one is enough: all stop at the same step
        errors = [end_of(process, seconds=60) for process in started]
    assert all("stopped by SIGTERM at step" in error for error in errors), errors
    steps = [record["step"] for record in lines(tmp_path)]
    assert steps == list(range(2, steps[-1] + 1, 2))
    assert max(saved()) == steps[-1] > before


SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "a[1-2]", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (SLURM, "SLURM"),
        (SLURM | {"SLURM_NTASKS": "1"}, None),
        ({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2"}, None),  # a batch script, not one of its tasks
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "Open MPI"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),  # a pod, but not of an indexed job
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, "Kubernetes"),
        ({"TPU_WORKER_HOSTNAMES": "t1,t2"}, "Cloud TPU"),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
    ],
)
def test_surroundings_that_have_several_processes(environment, expected):
    assert processes.surroundings_of_several(environment) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("auto", "host:1"),
            "num_processes, process_id: got none, .* coordinator_address is given",
        ),
        *(
            (("auto", address, 2, 0), f"coordinator_address: got '{address}', expected HOST:PORT")
            for address in ("host", "host:x", "8080")
        ),
        (("auto", "host:1", 2, 2), "process_id: got 2, expected 0 <= process_id < num_processes=2"),
        (("auto", "host:1", 0, 0), "num_processes: got 0, expected at least 1"),
        (("off", "host:1", 2, 0), "distributed: got 'off', expected no address"),
        (("maybe",), "distributed: got 'maybe', expected one of 'auto', 'on', 'off'"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_connected(connected, arguments, message):
    with pytest.raises(ValueError, match=message):
        processes.connect(*arguments)
    assert connected == []


@pytest.fixture
def connected(monkeypatch):
    """What the processes would be connected with."""
    calls = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: calls.append(given))
    for name in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"):
        monkeypatch.delenv(f"JAX_{name}", raising=False)
    return calls


def test_processes_are_connected_as_asked(connected, monkeypatch):
    """By flags, by the environment, or by what JAX finds; dead ones are noticed after half a minute."""
    seconds = {"heartbeat_timeout_seconds": 30, "shutdown_timeout_seconds": 3600}
    pair = {"coordinator_address": "host:1", "num_processes": 2, "process_id": 1}
    processes.connect("auto")
    assert connected == []
    processes.connect("auto", "host:1", 2, 1)
    processes.connect("on")
    assert connected == [pair | seconds, dict.fromkeys(pair) | seconds]
    for name, value in pair.items():
        monkeypatch.setenv(f"JAX_{name.upper()}", str(value))
    processes.connect("off")
    processes.connect("auto")
    processes.connect("auto", process_id=0)
    assert connected[2:] == [pair | seconds, pair | {"process_id": 0} | seconds]
    processes.connect("auto", "host:1", 1, 0)  # a single process is enough
    assert connected[4:] == [{"coordinator_address": "host:1", "num_processes": 1, "process_id": 0} | seconds]


def test_processes_that_are_not_found_are_reported(connected, monkeypatch):
    def refused(**given):
        raise RuntimeError("deadline exceeded\nand more")

    monkeypatch.setattr(jax.distributed, "initialize", refused)
    given = r"using coordinator_address=host:1, num_processes=2, process_id=0\): deadline exceeded; for"
    with pytest.raises(ValueError, match=given):
        processes.connect("auto", "host:1", 2, 0)
    with pytest.raises(ValueError, match=r"using no address\): deadline exceeded; for a run of one process"):
        processes.connect("on")


def test_a_tpu_is_a_machine_with_its_library_and_its_devices(monkeypatch, tmp_path):
    there = [Path("/dev/accel0")]
    monkeypatch.setenv("JAX_PLATFORMS", "tpu,cpu")
    monkeypatch.setattr(processes.importlib.util, "find_spec", lambda name: name == "libtpu" or None)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: there if pattern.startswith("accel") else [])
    assert processes.surroundings_of_several({}) == "Cloud TPU"
    there.clear()
    assert processes.surroundings_of_several({}) is None
    there.append(Path("/dev/accel0"))
    monkeypatch.setattr(processes.importlib.util, "find_spec", lambda name: None)
    assert processes.surroundings_of_several({}) is None
    monkeypatch.setattr(processes.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: there if self.name == "vfio" else [])
    assert processes.surroundings_of_several({}) == "Cloud TPU"
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert processes.surroundings_of_several({}) is None


def test_a_process_that_ends_early_leaves_a_message_unless_it_said_why(monkeypatch, tmp_path):
    """A helper process prints the message unless this process writes to it before it ends."""
    helpers = []

    class Helper:
        def __init__(self, command, **_):
            self.command = command
            helpers.append(self)

        def communicate(self, word):
            self.word = word

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes.subprocess, "Popen", Helper)
    for error, expected in ((None, b"."), (KeyError, b"."), (OSError, None)):
        with contextlib.suppress(KeyError, OSError), processes.last_words(tmp_path, unless=(KeyError,)):
            if error is not None:
                raise error
        assert getattr(helpers[-1], "word", None) == expected
    monkeypatch.undo()
    command = helpers[0].command
    assert "process 0 of 2 ended early" in command[-1]
    assert f"in {tmp_path}/checkpoints, start all processes again" in command[-1]
    for word, printed in ((b".", ""), (b"", f"{command[-1]}\n")):
        done = subprocess.run(command, input=word, capture_output=True, check=True)
        assert done.stderr.decode() == printed


@pytest.mark.parametrize(
    ("other", "message"),
    [("a", "process 1: got nothing, expected b as"), ("a\nb\nc", "process 1: got c, expected nothing as")],
)
def test_a_setting_that_only_one_process_has_is_a_difference(monkeypatch, other, message):
    monkeypatch.setattr(processes, "gathered_texts", lambda text: [text, other, text])
    with pytest.raises(OSError, match=f"the 3 processes were started with .*:\n  {message} in process 0$"):
        processes.check_alike(["a", "b"], OSError)
    monkeypatch.setattr(processes, "gathered_texts", lambda text: [text, "b\na"])
    processes.check_alike(["a", "b"], OSError)


def test_a_number_of_the_environment_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "two")
    with pytest.raises(ValueError, match="JAX_NUM_PROCESSES: got 'two'"):
        processes.connect("auto", "host:1")


def test_one_process_talks_to_nobody(tmp_path):
    processes.connect()
    assert processes.gathered([1.5]).tolist() == [[1.5]]
    assert processes.gathered_texts("a") == ["a"]
    assert list(processes.share("abc")) == ["a", "b", "c"]
    with processes.last_words(tmp_path):
        pass
