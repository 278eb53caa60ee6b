"""Logs of a run besides `metrics.jsonl`: TensorBoard, Weights & Biases, MLflow, each from its own library.

    python -m experiments.boxworld --log=tensorboard,wandb

Where a log goes is the library's own setting: WANDB_MODE=offline keeps W&B's in the run's directory, and
MLFLOW_TRACKING_URI names MLflow's server, whose default here is a database in that directory. A continued run
continues its log.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from experiments.runtime.config import MLFLOW, TENSORBOARD, WANDB
from experiments.runtime.workdir import read_json, write_json

IDS = "logs.json"
"""File in a run's directory with the ids of its logs on servers."""


class Log(Protocol):
    """What a run writes to."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds the finite metrics of a step."""

    def flush(self) -> None:
        """Writes out what was added."""

    def close(self) -> None:
        """Ends this session's log."""


def open_logs(
    names: Sequence[str], workdir: Path, step: int, *, project: str, settings: Mapping[str, Any]
) -> list[Log]:
    """Opens the logs of a run that continues from a step.

    Args:
        names: some of `config.LOGS`, whose libraries are installed.
        workdir: the run's directory, whose name is that of the run.
        step: the last step whose metrics are kept.
        project: W&B's project or MLflow's experiment.
        settings: the run's settings, shown by servers.
    """
    kinds: dict[str, Any] = {TENSORBOARD: _TensorBoard, WANDB: _Wandb, MLFLOW: _MLflow}
    return [kinds[name](workdir, step, project, settings) for name in names]


class _TensorBoard:
    def __init__(self, workdir: Path, step: int, project: str, settings: Mapping[str, Any]):
        from tensorboardX import SummaryWriter

        del project, settings
        self._writer = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """W&B counts steps up by itself and drops what is older, so a repeated step is logged once."""

    def __init__(self, workdir: Path, step: int, project: str, settings: Mapping[str, Any]):
        import wandb  # pyrefly: ignore[missing-import]

        del step
        known = _known(workdir)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", project),
            name=workdir.name,
            dir=str(workdir),
            id=known.get(WANDB),
            resume="allow",
            config=dict(settings),
            reinit="create_new",
            settings=wandb.Settings(silent=True),
        )
        _keep(workdir, known, WANDB, self._run.id)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def flush(self) -> None:
        """W&B's own process writes on."""

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    """Steps that the server has already are not sent again."""

    def __init__(self, workdir: Path, step: int, project: str, settings: Mapping[str, Any]):
        from mlflow import MlflowClient  # pyrefly: ignore[missing-import]
        from mlflow.entities import Metric, Param  # pyrefly: ignore[missing-import]

        del step
        self._metric: Any = Metric
        default = f"sqlite:///{(workdir / 'mlflow.db').absolute()}"
        self._client = MlflowClient(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", default))
        known = _known(workdir)
        if MLFLOW not in known:
            found = self._client.get_experiment_by_name(project)
            experiment = found.experiment_id if found else self._client.create_experiment(project)
            run = self._client.create_run(experiment, run_name=workdir.name)
            parameters = [Param(name, str(value)[:500]) for name, value in settings.items()]
            self._client.log_batch(run.info.run_id, params=parameters)
            _keep(workdir, known, MLFLOW, run.info.run_id)
            known = _known(workdir)
        self._run = known[MLFLOW]
        self._client.update_run(self._run, status="RUNNING")
        self._last = -1
        for name in self._client.get_run(self._run).data.metrics:
            history = self._client.get_metric_history(self._run, name)
            self._last = max(self._last, *(metric.step for metric in history))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if step <= self._last:
            return
        now = int(time.time() * 1000)
        metrics = [self._metric(_allowed(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def flush(self) -> None:
        """Each batch is written when it is logged."""

    def close(self) -> None:
        self._client.set_terminated(self._run)


def _allowed(name: str) -> str:
    """Returns a metric's name with the characters that MLflow allows."""
    return "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)


def _known(workdir: Path) -> dict[str, str]:
    path = workdir / IDS
    return {name: str(value) for name, value in read_json(path).items()} if path.exists() else {}


def _keep(workdir: Path, known: Mapping[str, str], name: str, value: str) -> None:
    if known.get(name) != value:
        write_json(workdir / IDS, {**known, name: value})
