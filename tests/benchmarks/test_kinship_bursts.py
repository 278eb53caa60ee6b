"""Bursts of kinship: what is missing is run, a run that time cuts short is packed and gone on with."""

import dataclasses
import json

import pytest

from benchmarks import collect, kinship_learning, machine
from benchmarks import kinship_bursts as bursts
from experiments.kinship import train as kinship
from tests.experiments.kinship.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_runs_that_have_a_line_are_not_run_again():
    base = small(baselines=("bert",))
    done = [{"preset": "p", "model": "bert", "seed": 0}, {"preset": "other", "model": "j.a", "seed": 1}]
    names = [bursts.name_of("p", config) for config in bursts.missing("p", base, 2, done)]
    assert names == ["p-j.a-0", "p-j.a-1", "p-bert-1"]
    assert base.seed == 0


@pytest.mark.slow  # trains two models
def test_a_run_goes_on_from_what_was_collected(tmp_path, monkeypatch):
    monkeypatch.setattr(bursts, "reserve", lambda seconds: 0.0)
    base = small(baselines=("bert",), steps=6)
    results, found = tmp_path / "results" / "kinship", tmp_path / "found"
    whole, ended = kinship.train, []

    def cut(config, workdir):
        """Ends the second run after its first log interval."""
        seconds = 1e-6 if len(ended) == 1 else 0.0
        ended.append(config.model)
        return whole(dataclasses.replace(config, session_seconds=seconds), workdir)

    monkeypatch.setattr(kinship, "train", cut)
    told = bursts.burst("p", base, 1, 1e4, results, tmp_path / "runs", found / "kinship")
    assert told.startswith("1 runs finished; p-bert-0 is at step 2")
    (line,) = kinship_learning.read(found / "kinship")
    assert (line["model"], line["steps"]) == ("j.a", 6)
    devices = line["devices"]
    where = {"platform": devices["platform"], "chip": devices["kind"], "versions": line["versions"]}
    machine.write(found / "machine.json", {**where, "date": "2026-11-22"})
    told = list(collect.collect(found, tmp_path / "results", tmp_path / "tables"))
    assert told[-1] == f"{results / 'unfinished' / 'p-bert-0'}: step 2"
    assert (results / "learning.md").exists()

    # Another machine, with nothing but the results: the same end as in one go.
    told = bursts.burst("p", base, 1, 1e4, results, tmp_path / "others", tmp_path / "more" / "kinship")
    assert told == "1 runs finished"
    (line,) = kinship_learning.read(tmp_path / "more" / "kinship")
    straight = whole(base.for_model("bert"), None)
    assert line["params_sha256"] == straight.summary["params_sha256"]
    machine.write(tmp_path / "more" / "machine.json", json.loads((found / "machine.json").read_text()))
    list(collect.collect(tmp_path / "more", tmp_path / "results", tmp_path / "tables"))
    assert [line["model"] for line in kinship_learning.read(results)] == ["j.a", "bert"]
    assert not list((results / "unfinished").iterdir())
    assert bursts.burst("p", base, 1, 1e4, results, tmp_path / "runs", tmp_path / "x") == "0 runs finished"
