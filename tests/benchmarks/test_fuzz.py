"""The fuzz: what it finds is found, some readers in this process, and some in a worker that dies."""

import collections
import os
import pickle
import random
import subprocess

import pytest

from benchmarks import fuzz, launching
from benchmarks.reliability import damage, trial
from benchmarks.reliability.reader import Reader, canonical

CHEAP = (
    "PyTorch, zip", "PyTorch, legacy", "vocabulary", "questions in text files", "text", "GLUE, RTE", "SQuAD",
    "FOLIO", "CLUTRR", "predictions", "metrics, continued", "a run's directory", "best of fine-tuning",
    "record of kinship", "tables of kernels",
)  # fmt: skip
CASES = 27
"""Of each: every kind of damage."""


@pytest.fixture(scope="module")
def watch():
    return trial.Watch()


def tried(reader, tmp_path, watch, numbers, others=()):
    valid = tmp_path / "valid"
    valid.mkdir()
    reader.make(valid)
    meaning = trial.warm(reader, valid, tmp_path, watch)
    return [
        trial.attempt(reader, valid, meaning, tmp_path, list(others), number, 7, watch) for number in numbers
    ]


@pytest.mark.parametrize("name", CHEAP)
def test_no_damage_goes_wrong(name, tmp_path, watch):
    """Every kind, of the readers that need no model."""
    reader = fuzz.readers()[name]
    found = tried(reader, tmp_path, watch, range(CASES))
    assert not [outcome for outcome in found if outcome.result not in fuzz.FINE]
    counts = collections.Counter(outcome.result for outcome in found)
    assert counts[trial.REFUSED] >= 5, counts


def make(folder):
    (folder / "file").write_bytes(b"0123456789" * 20)


def plainly(folder):
    return (folder / "file").read_bytes()


def failing(folder):
    raise KeyError("x")


def nameless(folder):
    raise ValueError("something is wrong")


def starting(folder):
    subprocess.run(["true"], check=True)
    return plainly(folder)


def running(folder):
    exec(compile("1", str(folder / "file"), "exec"))
    return plainly(folder)


def unpickling(folder):
    try:
        pickle.loads(pickle.dumps(os.getcwd).replace(b"getcwd", b"getpid"))
    finally:
        return plainly(folder)  # noqa: B012


def half_writing(folder):
    (folder / "out").write_bytes(b"half")
    raise ValueError(f"{folder} is damaged")


def leaving(folder):
    (folder / ".file.tmp").touch()
    return plainly(folder)


def elsewhere(folder):
    (folder.parent / "elsewhere").touch()
    return plainly(folder)


def changing(folder):
    found = plainly(folder)
    (folder / "file").write_bytes(b"")
    return found


def exhausting(folder):
    raise MemoryError


FINDINGS = {
    failing: "other error",
    nameless: "no name",
    starting: "executed",
    running: "executed",
    unpickling: "executed",
    half_writing: "half-written",
    leaving: "half-written",
    elsewhere: "executed",
    changing: "half-written",
    exhausting: "memory",
    plainly: "undetected",
}


@pytest.mark.parametrize("read", FINDINGS)
def test_what_a_bad_reader_does_is_found(read, tmp_path, watch):
    """Each by its own name; the valid file is read rightly before."""
    valid = tmp_path / "valid"
    valid.mkdir()
    make(valid)
    writes = ["out"] if read is half_writing else []
    reader = Reader("bad", "here", make, ["file"], read, checked=True, writes=writes)
    outcome = trial.attempt(reader, valid, plainly(valid), tmp_path, [], 0, 7, watch)
    assert outcome.result == FINDINGS[read], outcome
    assert reader.files(valid) == [valid / "file"]


def test_a_case_depends_on_its_name_and_number_only(tmp_path, watch):
    reader = Reader("plain", "here", make, ["file"], plainly)
    first = tried(reader, tmp_path, watch, [5, 6])
    os.rename(tmp_path / "valid", tmp_path / "before")
    assert tried(reader, tmp_path, watch, [6]) == first[1:]


@pytest.mark.parametrize("kind", damage.KINDS)
def test_damage_is_damage(kind):
    content = b'{"steps": 12, "loss": [1, 2]}\n' * 9
    draw = random.Random(1)
    for _ in range(20):
        assert damage.damaged(content, kind, draw) != content
    assert damage.damaged(b"1", kind, draw) != b"1"


def test_all_kinds_are_taken_in_turn():
    kinds = {damage.chosen(number) for number in range(CASES)}
    assert kinds == {*damage.KINDS, damage.SWAPPED, damage.PLANTED, damage.GONE}


def test_meanings_differ_by_any_number():
    values = [1, 1.0, "1", [1], (1, 2), {"a": 1}, {"a": 2}, None, True, b"1"]
    assert len({canonical(value) for value in values}) == len(values)


@pytest.mark.slow
def test_a_worker_that_dies_is_a_finding_and_another_continues(monkeypatch):
    """The process is killed from outside between two cases, as a crash would."""
    asked = fuzz.Worker.ask

    def ask(worker, name, number):
        if number == 1:
            worker._process.kill()
        return asked(worker, name, number)

    monkeypatch.setattr(fuzz.Worker, "ask", ask)
    found = fuzz.fuzz(["vocabulary"], [("vocabulary", number) for number in range(3)], 0)
    assert [case["result"] in fuzz.FINE for case in found] == [True, False, True]
    assert found[1]["result"] == "death"
    assert found[1]["message"].startswith("status -9")


def test_the_table_counts():
    names = ["vocabulary", "FOLIO"]
    assert launching.share(5, names) == {"vocabulary": 3, "FOLIO": 2}
    found = [
        {"reader": name, "case": number, "kind": "cut", "file": "f", "result": result, "message": ""}
        for number, (name, result) in enumerate(
            [("FOLIO", "refused"), ("FOLIO", "hang"), ("vocabulary", "read")]
        )
    ]
    rows = fuzz.summarize(found, fuzz.readers())
    assert [(row["reader"], row["refused"], row["read"], row["findings"]) for row in rows] == [
        ("FOLIO", 1, 0, {"hang": 1}),
        ("vocabulary", 0, 1, {}),
    ]
    machine = {"date": "2026-11-22", "cpus": 2, "versions": {"jax": "0.12", "python": "3.12"}}
    result = {
        "readers": rows,
        "machine": machine,
        "command": "c",
        "commit": "0",
        "seconds": 1,
        "cpu_seconds": 1,
    }
    text = fuzz.table({**result, "kinds": {"cut": 3}})
    assert "3 cases, 2 readers: 1 refused" in text
    assert "| 1 hang |" in text
