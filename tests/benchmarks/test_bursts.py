"""Tests of bursts: a run starts or continues from whichever state is further, and is packed."""

import dataclasses
import json
import shutil
from typing import Any, ClassVar

import pytest

from benchmarks import bursts, collect, machine
from experiments import boxworld, runtime
from experiments.boxworld import load
from experiments.runtime.checkpoints import Checkpoints
from experiments.runtime.workdir import config_dict, write_json
from tests.experiments.boxworld.small import small as small_boxworld
from tests.experiments.runtime.test_packing import abstract, state

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """The config of a run that is not trained here."""

    experiment: ClassVar[str] = "line"


EXPERIMENT = runtime.Experiment(
    Config, lambda name: Config(), lambda *_: None, abstract_state=lambda _: abstract()
)


def saved(workdir, step, steps=9):
    """Writes a run with one checkpoint."""
    checkpoints = Checkpoints(workdir / "checkpoints", every=1, keep=2)
    checkpoints.save(step, state(), {})
    checkpoints.close()
    write_json(workdir / "config.json", config_dict(Config(steps=steps)))
    return workdir


def test_the_end_of_a_session_is_kept_for_its_evaluation():
    """Half a minute, or a quarter of a short session."""
    assert [bursts.reserve(seconds) for seconds in (540.0, 120.0, 40.0)] == [30.0, 30.0, 10.0]


def test_whichever_has_more_steps_continues(tmp_path):
    """A run that is behind is renamed, and its config with it; without any, the run is new."""
    released, workdir, new = tmp_path / "released", tmp_path / "runs" / "agent", Config(steps=3)
    assert bursts.step_of(workdir) is None
    assert bursts.resume(EXPERIMENT, new, released, workdir) is new
    assert not workdir.exists()
    saved(workdir, 5)
    assert bursts.step_of(workdir) == 5
    assert bursts.resume(EXPERIMENT, new, released, workdir) == Config(steps=9)
    assert bursts.pack(EXPERIMENT, new, workdir, released) == "0.0 MB"
    assert bursts.resume(EXPERIMENT, new, released, workdir) == Config(steps=9)  # equal: nothing is moved
    assert [path.name for path in workdir.parent.iterdir()] == ["agent"]
    for number in (1, 2):
        shutil.rmtree(workdir)
        saved(workdir, 2, steps=4)
        assert bursts.resume(EXPERIMENT, new, released, workdir) == Config(steps=9)
        assert bursts.step_of(workdir) == 5
        assert bursts.step_of(workdir.with_name(f"agent-{number}")) == 2


@pytest.mark.parametrize("ended", [False, True])
def test_a_session_trains_for_its_time_and_is_packed_when_it_is_ended(tmp_path, ended):
    """Ended by a signal, it is packed as far as it came; otherwise its caller does that."""
    workdir, out, seen = tmp_path / "run", tmp_path / "out", []

    def train(config, folder):
        seen.append((config.session_seconds, folder))
        saved(folder, 1)
        if ended:
            raise runtime.Preempted("stopped by SIGTERM")
        return "result"

    arguments: Any = (EXPERIMENT, train, Config(), 100.0, tmp_path / "released", workdir, out)
    if ended:
        with pytest.raises(runtime.Preempted):
            bursts.resume_and_train(*arguments)
        assert (out / "state.safetensors").exists()
    else:
        assert bursts.resume_and_train(*arguments) == (Config(session_seconds=75.0), "result")
        assert not out.exists()
    assert seen == [(75.0, workdir)]


@pytest.mark.slow  # trains and measures several times
def test_a_burst_starts_where_the_last_one_stopped(tmp_path, monkeypatch):
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
    # Nothing was released: the run continues in its own directory.
    second = burst(runs, "second")
    assert second.step > first.step
    assert dataclasses.replace(second.run, session_seconds=0.0) == dataclasses.replace(
        first.run, session_seconds=0.0
    )
    # Without that directory, and with one that is behind, the released run is continued.
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
