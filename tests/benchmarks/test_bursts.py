"""Bursts: a run is begun or gone on with, whichever is further; what time cuts short is packed."""

import dataclasses
import json

import pytest

from benchmarks import bursts, collect, machine, records
from benchmarks.learning import boxworld, kinship
from experiments import runtime
from experiments.boxworld import load
from tests.experiments.boxworld.small import small as small_boxworld
from tests.experiments.kinship.small import small as small_kinship

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def presented(monkeypatch, room, config):
    """Has an experiment's presets be one config, and its agents one."""
    experiment = dataclasses.replace(room.ROOM.experiment, presets=lambda name: config())
    monkeypatch.setattr(room, "ROOM", dataclasses.replace(room.ROOM, experiment=experiment))


@pytest.mark.slow  # trains and measures several times
def test_a_burst_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch):
    presented(monkeypatch, boxworld, lambda: small_boxworld(steps=100_000, seeds=1))
    monkeypatch.setattr(boxworld, "AGENTS", ("relational",))
    experiment = boxworld.ROOM.experiment
    released, runs = tmp_path / "results" / "relational", tmp_path / "runs"

    def burst(runs, name):
        bursts.burst_of_boxworld(released.parent, runs, tmp_path / name, 8.0)
        (tmp_path / name / "relational").rename(tmp_path / f"{name}-agent")
        return load.load(tmp_path / f"{name}-agent")

    first = burst(runs, "first")
    assert (first.run.agent.kind, first.agent.num_virtual_entities) == ("relational", 0)
    assert first.step > 0
    assert {path.name for path in (tmp_path / "first-agent").iterdir()} >= {
        "config.json", "metrics.jsonl", "summary.json", "state.safetensors", "types.png",
    }  # fmt: skip
    # Nothing was released: it goes on in its own directory.
    second = burst(runs, "second")
    assert second.step > first.step
    assert dataclasses.replace(second.run, session_seconds=0.0) == dataclasses.replace(
        first.run, session_seconds=0.0
    )
    # On a machine without that directory, and on one whose directory is behind, it goes on with the released.
    released.parent.mkdir()
    (tmp_path / "second-agent").rename(released)
    behind = tmp_path / "others" / "relational"
    assert bursts.resume(experiment, None, tmp_path / "first-agent", behind) == first.run
    assert bursts.step_of(behind) == first.step
    bursts.resume(experiment, None, released, behind)
    assert bursts.step_of(behind) == second.step
    assert bursts.step_of(behind.with_name("relational-1")) == first.step

    # Ended early, it is packed as far as it came; what is further stays.
    def ended(config, workdir):
        raise runtime.Preempted("stopped by SIGTERM")

    with monkeypatch.context() as patch:
        patch.setattr(bursts.boxworld_train, "train", ended)
        with pytest.raises(runtime.Preempted):
            bursts.burst_of_boxworld(released.parent, behind.parent, tmp_path / "third" / "boxworld", 8.0)
    found = tmp_path / "third"
    summary = json.loads((released / "summary.json").read_text())
    devices = summary["devices"]
    where = {"platform": devices["platform"], "chip": devices["kind"], "versions": summary["versions"]}
    machine.write(found / "machine.json", {**where, "date": "2026-11-22"})
    printed = list(collect.collect(found, tmp_path / "collected", tmp_path / "tables"))
    target = tmp_path / "collected" / "boxworld" / "relational"
    assert printed == [f"{target}: step {second.step}"]
    (found / "boxworld" / "relational").rename(tmp_path / "away")
    (tmp_path / "first-agent").rename(found / "boxworld" / "relational")
    printed = list(collect.collect(found, tmp_path / "collected", tmp_path / "tables"))
    assert printed == [f"{target}: kept, at step {second.step}; this folder's is at {first.step}"]

    # A weight that was changed on the way is noticed.
    file = found / "boxworld" / "relational" / "state.safetensors"
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    begin, _ = header["params/logits/kernel"]["data_offsets"]
    content[8 + length + begin] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"relational is damaged: "):
        list(collect.collect(found, tmp_path / "collected", tmp_path / "tables"))


@pytest.mark.slow  # trains two models
def test_a_run_goes_on_from_what_was_collected(tmp_path, monkeypatch):
    monkeypatch.setattr(bursts, "reserve", lambda seconds: 0.0)
    monkeypatch.setattr(bursts, "SEEDS", 1)
    base = small_kinship(baselines=("bert",), steps=6)
    results, found = tmp_path / "results" / "kinship", tmp_path / "found"
    presented(monkeypatch, kinship, lambda: dataclasses.replace(base))
    whole, ended = bursts.kinship_train.train, []

    def cut(config, workdir):
        """Ends the second run after its first log interval."""
        seconds = 1e-6 if len(ended) == 1 else 0.0
        ended.append(config.model)
        return whole(dataclasses.replace(config, session_seconds=seconds), workdir)

    monkeypatch.setattr(bursts.kinship_train, "train", cut)
    printed = bursts.burst_of_kinship(results, tmp_path / "runs", found / "kinship", 1e4)
    assert printed.startswith("1 runs finished; accelerator-bert-0 is at step 2")
    (line,) = records.read(found / "kinship")
    assert (line["model"], line["steps"]) == ("j.a", 6)
    devices = line["devices"]
    where = {"platform": devices["platform"], "chip": devices["kind"], "versions": line["versions"]}
    machine.write(found / "machine.json", {**where, "date": "2026-11-22"})
    printed = list(collect.collect(found, tmp_path / "results", tmp_path / "tables"))
    assert printed[-1] == f"{results / 'unfinished' / 'accelerator-bert-0'}: step 2"
    assert (results / "learning.md").exists()

    # Another machine, with nothing but the results: the same end as in one go.
    printed = bursts.burst_of_kinship(results, tmp_path / "others", tmp_path / "more" / "kinship", 1e4)
    assert printed == "1 runs finished"
    (line,) = records.read(tmp_path / "more" / "kinship")
    straight = whole(base.for_model("bert"), None)
    assert line["params_sha256"] == straight.summary["params_sha256"]
    machine.write(tmp_path / "more" / "machine.json", json.loads((found / "machine.json").read_text()))
    list(collect.collect(tmp_path / "more", tmp_path / "results", tmp_path / "tables"))
    assert [line["model"] for line in records.read(results)] == ["j.a", "bert"]
    assert not list((results / "unfinished").iterdir())
    assert bursts.burst_of_kinship(results, tmp_path / "runs", tmp_path / "x", 1e4) == "0 runs finished"
