"""The program: its record and page, and what ends it badly."""

import json
import sys
import types

import jax
import numpy as np
import pytest

from benchmarks import steps
from benchmarks.peers import libraries
from benchmarks.peers.training import __main__ as program
from benchmarks.peers.training import subjects
from experiments.runtime import memory

BATCHES = tuple({"x": np.full(2, number)} for number in range(1, 5))


class Sum:
    """A parameter that grows by the sum of each batch."""

    def __init__(self, factor=1.0):
        self.facts = {"parameters": 1, "parts": 1, "peak_bytes": 10**6, "operations": 10}
        self.total, self.factor = np.zeros(1), factor

    def nudge(self, seed):
        self.total = np.zeros(1)

    def __call__(self, batch):
        self.total = self.total + self.factor * batch["x"].sum()
        return self.total[0]

    def loss(self, result):
        return float(result)

    def params(self):
        return {"total": self.total}


@pytest.fixture
def run(monkeypatch):
    """Returns a function that runs the program on two subjects, with PyTorch replaced by `Sum`."""
    before = jax.config.jax_default_matmul_precision

    def made(sizes):
        return {
            name: lambda name=name: subjects.Subject(name, "sum", "2", BATCHES, Sum, {}, {})  # pyrefly: ignore
            for name in ("one agent", "another")
        }

    monkeypatch.setattr(subjects, "subjects", made)
    monkeypatch.setattr(memory, "keep_large_blocks", lambda limit: limit > 0)
    monkeypatch.setattr(steps, "matrix_rate", lambda size, seconds, dtype: 1e9)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "somewhere")

    def run(*arguments, factor=1.0, package="numpy"):
        side = types.SimpleNamespace(programs=lambda subject: {"theirs": lambda start: Sum(factor)})
        monkeypatch.setitem(sys.modules, "benchmarks.peers.training.torch_steps", side)
        library = libraries.Library("Theirs", package, package, "unused")
        monkeypatch.setitem(libraries.LIBRARIES, "torch", library)
        monkeypatch.setattr(sys, "argv", ["training", "--blocks=2", "--block-seconds=0.001", *arguments])
        return program.main()

    yield run
    jax.config.update("jax_default_matmul_precision", before)


def test_the_record_and_its_page(run, tmp_path, capsys):
    out = tmp_path / "training.json"
    assert run(f"--out={out}") == 0
    record = json.loads(out.read_text())
    assert [row["subject"] for row in record["rows"]] == ["one agent", "another"]
    assert record["geometric_means"]["theirs"]["median"] > 0
    assert record["operations_per_second"] == 1e9
    assert {"date", "commit", "versions", "devices", "load", "threads", "tolerance", "kept_mib"} <= set(
        record
    )
    assert record["command"].startswith("python -m benchmarks.peers.training --blocks=2")
    page = out.with_suffix(".md").read_text()
    assert page.count("| theirs |") == 2
    assert "Geometric mean of the ratios of theirs: " in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {13}
    assert "times as long" in capsys.readouterr().out


def test_a_part_of_the_subjects_has_no_mean(run, tmp_path):
    out = tmp_path / "training.json"
    assert run("--only=agent", f"--out={out}") == 0
    record = json.loads(out.read_text())
    assert [row["subject"] for row in record["rows"]] == ["one agent"]
    assert record["geometric_means"] == {}


def test_another_course_ends_it_badly(run, tmp_path):
    out = tmp_path / "training.json"
    assert run(f"--out={out}", factor=1.1) == 1
    assert "| not timed, results differ: the first step by" in out.with_suffix(".md").read_text()
    assert json.loads(out.read_text())["geometric_means"] == {}


def test_without_the_library_it_says_so_and_ends_well(run, tmp_path, capsys):
    out = tmp_path / "training.json"
    assert run(f"--out={out}", package="no_such_library") == 0
    assert json.loads(out.read_text())["rows"] == []
    assert "no_such_library is not installed" in capsys.readouterr().out


def test_what_the_budget_leaves_out_is_named(run, tmp_path, capsys):
    out = tmp_path / "training.json"
    assert run("--budget=0", f"--out={out}") == 0
    assert json.loads(out.read_text())["not_measured"] == ["one agent", "another"]
    assert "not measured, budget exhausted: one agent, another" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "--only=tensorflow",
            "--only: got 'tensorflow', expected a part of a subject's name (one agent; another)",
        ),
        ("--blocks=0", "--blocks: got 0, expected at least 1"),
        ("--block-seconds=0", "--block-seconds: got 0.0, expected a positive number"),
    ],
)
def test_bad_flags_are_refused_before_any_work(run, tmp_path, capsys, given, message):
    with pytest.raises(SystemExit) as stopped:
        run(given, f"--out={tmp_path}/training.json")
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
