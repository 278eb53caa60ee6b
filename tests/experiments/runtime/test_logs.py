"""Logs besides `metrics.jsonl`: the same numbers, continued where a run is; without libraries, refused."""

import dataclasses
import importlib.util
import os
import sys
import types
from typing import Any

import pytest

from experiments.runtime import logs
from experiments.runtime.config import LOGS, RunConfig, check_logs
from experiments.runtime.metrics import MetricsWriter

SETTINGS = {"seed": 0, "data.name": "kinship"}


def opened(name, workdir, step=0) -> MetricsWriter:
    """Opens the metrics of a run with one log besides."""
    return MetricsWriter(
        workdir,
        step,
        logs=lambda: logs.open_logs((name,), workdir, step, project="kinship", settings=SETTINGS),
    )


def test_tensorboard_has_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboardX")
    writer = opened("tensorboard", tmp_path)
    writer.write(10, {"loss": 0.25, "eval/error": float("nan")})
    writer.sync()
    writer.close()
    (events,) = (tmp_path / "tensorboard").iterdir()
    records = list(read_events(events))
    assert [
        (event.step, value.tag, value.simple_value) for event in records for value in event.summary.value
    ] == [(10, "loss", 0.25)]


def read_events(path):
    """Reads TensorBoard's framing: length, checksum of the length, event, checksum of the event."""
    from tensorboardX.proto.event_pb2 import Event  # pyrefly: ignore[missing-module-attribute]

    data = path.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        yield Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]


class FakeWandb(types.ModuleType):
    """Records what W&B is told."""

    def __init__(self):
        super().__init__("wandb")
        self.asked: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def Settings(self, **given):
        return given

    def init(self, **given):
        self.asked.append(given)
        return types.SimpleNamespace(
            id=given["id"] or "drawn",
            log=lambda values, step: self.logged.append((step, values)),
            finish=self._end,
        )

    def _end(self):
        self.finished += 1


def test_wandb_continues_its_run(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    for first, loss in ((1, 0.5), (2, 0.25)):
        writer = opened("wandb", tmp_path, first - 1)
        writer.write(first, {"loss": loss, "eval/error": float("inf")})
        writer.sync()
        writer.close()
    assert fake.logged == [(1, {"loss": 0.5}), (2, {"loss": 0.25})]
    assert fake.finished == 2
    before, after = fake.asked
    assert (before["id"], after["id"]) == (None, "drawn")
    assert (before["project"], before["name"], before["dir"]) == ("kinship", tmp_path.name, str(tmp_path))
    assert (before["config"], before["resume"]) == (SETTINGS, "allow")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    opened("wandb", tmp_path, 2).close()
    assert fake.asked[-1]["project"] == "mine"


class FakeMLflow:
    """A server in memory, with the few calls of MLflow's client that are used."""

    experiments: dict[str, str]
    runs: dict[str, Any]

    def __init__(self, tracking_uri):
        self.uri = tracking_uri

    def get_experiment_by_name(self, name):
        found = self.experiments.get(name)
        return found and types.SimpleNamespace(experiment_id=found)

    def create_experiment(self, name):
        self.experiments[name] = f"experiment {len(self.experiments)}"
        return self.experiments[name]

    def create_run(self, experiment, run_name):
        name = f"run {len(self.runs)}"
        self.runs[name] = types.SimpleNamespace(
            experiment=experiment, name=run_name, status="RUNNING", metrics=[], params={}, uri=self.uri
        )
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=name))

    def log_batch(self, run, metrics=(), params=()):
        self.runs[run].metrics += metrics
        self.runs[run].params |= dict(params)

    def update_run(self, run, status):
        self.runs[run].status = status

    def get_run(self, run):
        names = {metric.key for metric in self.runs[run].metrics}
        return types.SimpleNamespace(data=types.SimpleNamespace(metrics=dict.fromkeys(names, 0.0)))

    def get_metric_history(self, run, name):
        return [metric for metric in self.runs[run].metrics if metric.key == name]

    def set_terminated(self, run):
        self.runs[run].status = "FINISHED"


@dataclasses.dataclass
class FakeMetric:
    """MLflow's entity, in its order."""

    key: str
    value: float
    timestamp: int
    step: int


def test_mlflow_continues_its_run_and_has_each_step_once(tmp_path, monkeypatch):
    """A run that is killed after a step and continues from a checkpoint before it repeats that step."""
    FakeMLflow.experiments, FakeMLflow.runs = {}, {}
    entities = types.ModuleType("mlflow.entities")
    entities.Metric, entities.Param = FakeMetric, lambda name, value: (name, value)  # type: ignore[attr-defined]
    mlflow = types.ModuleType("mlflow")
    mlflow.MlflowClient = FakeMLflow  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    writer = opened("mlflow", tmp_path)
    for step in (1, 2):
        writer.write(step, {"accuracy/k=2": step / 4})
    ((name, run),) = FakeMLflow.runs.items()
    assert (run.status, run.name, run.experiment) == ("RUNNING", tmp_path.name, "experiment 0")
    assert (run.params, run.uri) == ({"seed": "0", "data.name": "kinship"}, f"sqlite:///{tmp_path}/mlflow.db")
    writer._logs = ()  # as when it is killed: nobody ends the log
    writer.close()
    writer = opened("mlflow", tmp_path, 1)
    for step in (2, 3):
        writer.write(step, {"accuracy/k=2": step / 4, "loss": float("nan")})
    writer.close()
    assert list(FakeMLflow.runs) == [name]
    assert run.status == "FINISHED"
    assert [(metric.key, metric.step, metric.value) for metric in run.metrics] == [
        ("accuracy/k_2", step, step / 4) for step in (1, 2, 3)
    ]


def test_wandb_itself_offline(tmp_path, monkeypatch):
    """The library, where it is installed, writes into the run's directory without a server."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for first in (1, 2):
        writer = opened("wandb", tmp_path, first - 1)
        writer.write(first, {"loss": 0.5, "accuracy/k=2": 0.25})
        writer.close()
    files = [path for path in (tmp_path / "wandb").rglob("*.wandb") if path.stat().st_size]
    assert len(files) == 2
    assert all(b"accuracy/k=2" in path.read_bytes() for path in files)


def test_mlflow_itself_in_a_file(tmp_path, monkeypatch):
    """The library, where it is installed with its database, answers from the run's directory."""
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow import MlflowClient  # pyrefly: ignore[missing-import]

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for first in (1, 2):
        writer = opened("mlflow", tmp_path, first - 1)
        writer.write(first, {"loss": first / 4, "accuracy/k=2": 0.25})
        writer.close()
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("kinship")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.status, run.info.run_name) == ("FINISHED", tmp_path.name)
    assert run.data.params == {"seed": "0", "data.name": "kinship"}
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(metric.step, metric.value) for metric in history] == [(1, 0.25), (2, 0.5)]


def test_nothing_is_opened_by_processes_that_do_not_write(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.runtime.processes.is_first", lambda: False)
    writer = MetricsWriter(tmp_path, 0, logs=lambda: pytest.fail("opened"))
    writer.write(1, {"loss": 0.5})
    writer.sync()
    writer.close()
    assert os.listdir(tmp_path) == []


def test_logs_are_asked_for_by_name(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else object())
    assert RunConfig(log=("mlflow",), tensorboard=True).logs == ("tensorboard", "mlflow")
    assert RunConfig(log=("tensorboard",), tensorboard=True).logs == ("tensorboard",)
    RunConfig(log=("mlflow", "tensorboard")).validate()
    with pytest.raises(ValueError, match=r"^log: got 'neptune', expected some of 'tensorboard', 'wandb', "):
        RunConfig(log=("neptune",)).validate()
    with pytest.raises(ValueError, match=r"^log: got \('mlflow', 'mlflow'\), expected each once"):
        RunConfig(log=("mlflow", "mlflow")).validate()
    message = r"^log: got 'wandb', expected wandb to be installed \(pip install 'logic-zoo\[wandb\]'\)"
    with pytest.raises(ValueError, match=message):
        RunConfig(log=("wandb",)).validate()
    for name, module in LOGS.items():
        monkeypatch.setattr(importlib.util, "find_spec", lambda asked, of=module: None if asked == of else 1)
        with pytest.raises(ValueError, match=f"^log: got '{name}', expected {module} to be installed"):
            check_logs((name,))
