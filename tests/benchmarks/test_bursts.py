"""Tests of bursts: a run starts or continues from whichever state is further, and is packed."""

import dataclasses
import json

import pytest

from benchmarks import bursts, collect, machine
from experiments import boxworld, runtime
from experiments.boxworld import load
from tests.experiments.boxworld.small import small as small_boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow  # trains and measures several times
def test_a_burst_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch):
    small = dataclasses.replace(
        boxworld.EXPERIMENT, presets=lambda name: small_boxworld(steps=100_000, seeds=1)
    )
    monkeypatch.setattr(boxworld, "EXPERIMENT", small)
    monkeypatch.setattr(bursts, "AGENTS", ("relational",))
    experiment = boxworld.EXPERIMENT
    released, runs = tmp_path / "results" / "relational", tmp_path / "runs"

    def burst(runs, name):
        bursts.burst(released.parent, runs, tmp_path / name, 8.0)
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
            bursts.burst(released.parent, behind.parent, tmp_path / "third" / "boxworld", 8.0)
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
    with pytest.raises(ValueError, match=r"relational: damaged packed run: "):
        list(collect.collect(found, tmp_path / "collected", tmp_path / "tables"))
