"""Curves of time and memory: programs of a curve compute the same, what ends a curve, page and figure."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import growth
from benchmarks.peers.comparing import JaxProgram, difference

ROOT = Path(__file__).resolve().parents[3]


pytestmark = pytest.mark.usefixtures("compiled_quickly", "drawn_by_numpy")

PLAIN = {curve.plain: name for name, curve in growth.CURVES.items() if curve.plain is not None}
"""One curve of each plain function."""


@pytest.mark.parametrize("name", PLAIN.values())
def test_the_plain_program_is_ours(name):
    curve = growth.CURVES[name]
    subject = curve.make(5)
    found = [
        program.arrays("forward", program.call("forward")())
        for program in (JaxProgram(subject), growth.program_of(growth.PLAIN, curve, subject))
    ]
    assert difference(found[1], found[0]).greatest < 1e-5


def test_programs_are_those_that_exist():
    assert growth.CURVES["trans, T"].programs == ("ours", "plain JAX", "PyTorch, eager")
    assert growth.CURVES["trilinear attention, N"].programs == ("ours", "plain JAX")
    assert growth.CURVES["FOLNet layer, T"].programs == ("ours", "PyTorch, eager")


def test_sizes_are_those_of_the_axis():
    """The size that a curve names is that of its arrays."""
    assert growth.virtual(9).inputs[0].shape[1] == 9
    assert growth.trans(6).inputs[0].shape[2:] == (6, 6)


def test_points_have_a_time_and_at_least_the_memory_of_the_inputs():
    curve = growth.CURVES["trans, T"]
    found = list(growth.points(curve, growth.OURS, (3, 5), longest=9.0, block_seconds=1e-3))
    assert [point["size"] for point in found] == [3, 5]
    for point in found:
        assert point["seconds"] > 0
        if growth.STATUS.exists():
            subject = curve.make(point["size"])
            assert point["bytes"] >= 3 * subject.inputs[0].nbytes  # both inputs and the cotangent


def test_a_long_call_and_an_error_end_a_curve():
    curve = growth.CURVES["trans, T"]
    assert [p["size"] for p in growth.points(curve, growth.OURS, (3, 5), 1e-9, 1e-3)] == [3]

    def make(size):
        if size == 4:
            raise MemoryError("no room")
        return growth.trans(size)

    broken = growth.Curve((3, 4, 5), make)
    assert list(growth.points(broken, growth.OURS, (3, 4, 5), 9.0, 1e-3))[1:] == [
        {"size": 4, "failed": "MemoryError: no room"}
    ]


@pytest.mark.skipif(not growth.STATUS.exists(), reason="the status of a process is read from Linux")
def test_the_greatest_use_of_memory_is_counted_anew():
    def greatest() -> int:
        return growth.resident("VmHWM") or 0

    before = growth.forgotten() or 0
    held = np.ones(2**23)
    assert greatest() >= before + held.nbytes
    del held
    growth.forgotten()
    assert 0 < greatest() < before + 2**25


def test_page_and_figure(tmp_path):
    assert growth.shown({"size": 4096, "seconds": 3.0624, "bytes": 2**30}) == "4,096 | 3,062 | 1,024.0"
    point = {"size": 64, "seconds": 0.0123, "bytes": 3 * 2**20}
    curves = {
        "trans, T": {
            "ours": [point],
            "plain JAX": [{"size": 64, "failed": "MemoryError: a | b"}],
            "PyTorch, eager": [{**point, "bytes": None}],
        },
        "agent, B": {"ours": [point, {**point, "size": 128}]},
    }
    record = {
        "date": "2026-11-23",
        "devices": {"kind": "cpu", "cpus": 2},
        "versions": {"jax": "0.12"},
        "command": "python -m benchmarks.peers.growth",
        "load": 0.1,
        "curves": curves,
    }
    growth.written(tmp_path / "growth.json", record)
    text = (tmp_path / "growth.md").read_text()
    assert "| trans, T | ours | 64 | 12.3 | 3.0 |" in text
    assert "| trans, T | plain JAX | 64 | MemoryError: a / b | |" in text
    assert "| trans, T | PyTorch, eager | 64 | 12.3 |  |" in text
    assert json.loads((tmp_path / "growth.json").read_text())["curves"] == curves
    assert (tmp_path / "growth.png").stat().st_size > 1000
    times, memory = growth.figure(curves).axes[0], growth.figure(curves).axes[2]
    assert (times.get_title(), memory.get_xlabel()) == ("trans", "T")
    assert times.lines[0].get_ydata() == [12.3]
    assert [list(line.get_ydata()) for line in memory.lines] == [[3.0], [], []]


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks.peers.growth", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow  # starts processes
def test_the_program(tmp_path):
    done = run("--small", "--only=2-simplicial", "--block-seconds=0.01", f"--out={tmp_path}/growth.json")
    assert done.returncode == 0, done.stderr
    curves = json.loads((tmp_path / "growth.json").read_text())["curves"]
    assert len(curves) == 3
    for found in curves.values():
        assert [point["size"] for point in found["ours"]] == [2, 3]
        assert [point["size"] for point in found["plain JAX"]] == [2, 3]
    refused = run("--small", "--only=trans", "--memory=0.2", "--out=")
    assert "| trans, T | ours | 2 | RuntimeError" in refused.stdout or "exit status" in refused.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--only=nothing", "--only: got 'nothing', expected a part of"),
        ("--longest=0", "--longest: got 0.0, expected a positive number"),
        ("--block-seconds=-1", "--block-seconds: got -1.0"),
        ("--curve=trans", "--curve, --program: got 'trans', ''"),
    ],
)
def test_mistakes(given, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["growth", given])
    with pytest.raises(SystemExit) as stopped:
        growth.main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
