"""What is measured of a fine-tuned model, the best of a run, and predictions in files."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from experiments import runtime
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.data import VOCABULARY, AnyTask, Data, Split, sequential
from experiments.folnet_finetune.model import apply
from experiments.runtime import mesh, processes
from experiments.runtime.workdir import WorkdirError, read_json, write_json
from folnet import tasks
from folnet.tasks.files import write_whole

MAIN = "main"
"""The metric that checkpoints, and settings of a sweep, are chosen by."""
THRESHOLD = "f1/best_threshold"
BEST, PREDICTIONS = "best", "predictions"
"""In a run's directory, the best model and what it says."""


class Measured(NamedTuple):
    """A split, measured."""

    metrics: dict[str, float]
    """By the task's names for them; none of a split without labels."""
    predictions: Any
    """As the task's `write_predictions` takes them."""
    logits: tuple[np.ndarray, ...]
    """[N, C], or of begin and end [W, T] each."""


class Measure:
    """Measures splits of a task by a model."""

    def __init__(self, config: Config, model: Any, data: Data, parallel: str | runtime.Layout = "jit"):
        """Takes them; compiles at the first use."""
        self._config, self._data = config, data
        devices = runtime.Layout.of(parallel).mesh_to_measure()
        even = config.eval_batch_size % devices.shape[mesh.AXIS] == 0
        self._split = NamedSharding(devices, PartitionSpec(mesh.AXIS) if even else PartitionSpec())
        self._apply = jax.jit(functools.partial(apply, model))

    def logits(self, params: Any, split: Split) -> tuple[np.ndarray, ...]:
        """The model's logits of all rows of a split, in order."""
        found: list[np.ndarray] = []
        for rows, batch in sequential(split, self._config):
            out = self._apply(params, jax.device_put(batch, self._split))
            parts = jax.device_get(jax.tree.leaves(out))
            if not found:
                spans = not isinstance(self._data.task, tasks.SequenceTask)
                width = split.features.input_ids.shape[1:] if spans else parts[0].shape[1:]
                found = [np.zeros((split.rows, *width), part.dtype) for part in parts]
            for whole, part in zip(found, parts, strict=True):
                # Of a window that was cut to a shorter length the rest is padding, which is never asked for.
                whole[rows, : part.shape[1]] = part[: len(rows)]
        return tuple(found)

    def __call__(self, params: Any, split: Split, *, threshold: float | None = None) -> Measured:
        """Measures a split.

        `threshold` is SQuAD's: how much better no answer must be than the best span. None is 0 for the
        scores, and for the predictions the value at which this split's F1 is best.
        """
        task, logits = self._data.task, self.logits(params, split)
        if isinstance(task, tasks.SequenceTask):
            predictions = task.predict(logits[0])
            scores = task.score(split.examples, predictions) if split.labelled else {}
            return Measured(scores, predictions, logits)
        start, end = logits
        answers = task.answers(split.examples, split.features, start, end, threshold=threshold or 0.0)
        scores = task.score(split.examples, answers)
        if threshold is None:
            answers = [answer.at(scores[THRESHOLD]) for answer in answers]
        return Measured(scores, answers, logits)

    def development(self, params: Any) -> dict[str, float]:
        """All metrics of the development splits, and `main`; nothing if there is no such split."""
        measured = {split.name: self(params, split).metrics for split in self._data.dev}
        return named(measured) | ({MAIN: main_metric(self._data.task, measured)} if measured else {})


def named(measured: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Metrics of all splits in one dictionary; with several, names begin with the kind of split."""
    found = {}
    for split, metrics in measured.items():
        kind = split.partition("_")[2]
        before = f"{kind}/" if len(measured) > 1 else ""
        found |= {before + name: value for name, value in metrics.items()}
    return found


def main_metric(task: AnyTask, measured: Mapping[str, Mapping[str, float]]) -> float:
    """What the authors' programs choose by: of SQuAD the F1 at the best threshold, else the mean of the
    task's metrics (one or two), and of MNLI over both splits.
    """
    names = task.metrics if isinstance(task, tasks.SequenceTask) else (f"{task.metrics[0]}/best",)
    values = [metrics[name] for metrics in measured.values() for name in names]
    return float(np.mean(values))


class Best:
    """The best parameters of a run: a directory for `from_pretrained`, or in memory where nothing is kept.

    It is written before the run's checkpoint of the same step: a run that is killed between both computes
    the same again, bit for bit.
    """

    RECORD = "metrics.json"

    def __init__(self, directory: Path | None, model: Any, data: Data):
        """Continues from what the directory holds."""
        self._directory, self._model, self._data = directory, model, data
        self._held: Any = None
        self.record: dict[str, Any] | None = None
        """`step` and all metrics of the best; None if there is none yet."""
        if directory is not None and (directory / self.RECORD).is_file():
            self.record = read_json(directory / self.RECORD)
            for name in ("step", MAIN):
                if not isinstance(value := self.record.get(name), int | float):
                    raise WorkdirError(f"{directory / self.RECORD} is damaged: {name} is {value!r:.60}")

    def offer(self, step: int, metrics: Mapping[str, float], params: Any) -> None:
        """Keeps the parameters if they are better than those before."""
        if self.record is not None and metrics[MAIN] <= self.record[MAIN]:
            return
        record = {"step": step, **metrics}
        if self._directory is None:
            self._held = jax.device_get(params)
        elif runtime.is_first():
            self._model.save_pretrained(self._directory, params)
            self._data.tokenizer.save(self._directory / VOCABULARY)
            write_json(self._directory / self.RECORD, record)
        self.record = record

    def params(self) -> Any:
        """The best parameters."""
        if self._directory is None:
            return self._held
        return type(self._model).from_pretrained(self._directory)[1]


def write_predictions(directory: Path, task: AnyTask, split: Split, measured: Measured) -> list[str]:
    """Writes a split's predictions as its benchmark takes them.

    GLUE's table for its server; SQuAD's answers and null odds; for FOLIO and CLUTRR, which have no server,
    JSON lines with prediction, label and the class's probability. Returns the names of the files.
    """
    if isinstance(task, tasks.GlueTask):
        return [task.write_predictions(directory, split.name, split.examples, measured.predictions).name]
    if isinstance(task, tasks.SquadTask):
        path = task.write_predictions(directory, split.name, measured.predictions)
        return [path.name, f"{path.stem}_null_odds.json"]
    logits = measured.logits[0].astype(np.float64)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    sure = odds.max(axis=1) / odds.sum(axis=1)
    lines = []
    for example, number, probability in zip(split.examples, measured.predictions, sure, strict=True):
        line = {"index": example.index, "prediction": task.written(number)}
        line |= {} if example.label is None else {"label": task.written(example.label)}
        line |= {"group": example.group} if example.group else {}
        lines.append(json.dumps(line | {"probability": round(float(probability), 6)}) + "\n")
    return [write_whole(directory / f"{task.name}_{split.name}.jsonl", "".join(lines)).name]


def conclude(
    config: Config,
    measure: Measure,
    best: Best,
    data: Data,
    params: Any,
    last: dict[str, Any],
    workdir: Path | None,
) -> dict[str, Any]:
    """The results of a run with parameters `params`, whose `step` and metrics are `last`, for its summary.

    Writes the best model's predictions, unless `workdir` is None.

    Returns:
        `last` and `best` (`step` and all metrics of the development splits; without such a split the best is
        the last), `test` (metrics of the best where labels are published), `predictions` (file names below
        the workdir), and what was trained.
    """
    record, chosen = best.record, params
    if record is None:
        record = last
    elif record["step"] != last["step"]:
        processes.gathered(0)  # the first process has written it
        chosen = best.params()
    tested, files = {}, []
    for split in data.measured if config.predict else [s for s in data.test if s.labelled]:
        found = measure(chosen, split)
        if split in data.test and split.labelled:
            tested[split.name] = found.metrics
        if config.predict and workdir is not None and runtime.is_first():
            files += write_predictions(workdir / PREDICTIONS, data.task, split, found)
    return {
        "task": config.task,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "rows": {split.name: split.rows for split in (data.train, *data.measured)},
        "left_out": list(getattr(data.train.examples, "skipped", ())),
        "vocabulary": data.tokenizer.fingerprint,
        "last": last,
        "best": record,
        "test": named(tested),
        "predictions": [f"{PREDICTIONS}/{name}" for name in files],
    }
