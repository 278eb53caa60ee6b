"""Evaluation of fine-tuned models, the best model of a run, and files of predictions."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from experiments import runtime
from experiments.folnet_finetune import errors, kinds
from experiments.folnet_finetune.config import Config
from experiments.folnet_finetune.data import AnyTask, Data, sequential
from experiments.folnet_finetune.kinds import Measured, Split
from experiments.folnet_finetune.model import apply
from experiments.folnet_pretrain import cards
from experiments.runtime import mesh, processes
from experiments.runtime.workdir import WorkdirError, read_json, write_json
from folnet.tasks import own
from logic_zoo.writing import write_whole

MAIN = "main"
"""Name of the metric that selects the best checkpoint and the best setting of a sweep."""
BEST, PREDICTIONS = "best", "predictions"
"""Names in a run's directory: of the best model, and of its predictions."""


class Measure:
    """Evaluates a model on splits of a task."""

    def __init__(self, config: Config, model: Any, data: Data, parallel: str | runtime.Layout = "jit"):
        """Prepares the evaluation of a model on `data`; it is compiled on first use."""
        self._config, self._data, self._kind = config, data, kinds.of(data.task)
        devices = runtime.Layout.of(parallel).mesh_to_measure()
        even = config.eval_batch_size % devices.shape[mesh.AXIS] == 0
        self._split = NamedSharding(devices, PartitionSpec(mesh.AXIS) if even else PartitionSpec())
        self._apply = jax.jit(functools.partial(apply, model))

    def logits(self, params: Any, split: Split) -> tuple[np.ndarray, ...]:
        """Returns the model's logits for all rows of a split, in order."""
        found: list[np.ndarray] = []
        for rows, batch in sequential(split, self._config):
            out = self._apply(params, jax.device_put(batch, self._split))
            parts = jax.device_get(jax.tree.leaves(out))
            if not found:
                tokens = split.features.input_ids.shape[1:]
                shapes = [
                    tokens + part.shape[2:] if self._kind.per_token else part.shape[1:] for part in parts
                ]
                found = [
                    np.zeros((split.rows, *s), part.dtype) for s, part in zip(shapes, parts, strict=True)
                ]
            for whole, part in zip(found, parts, strict=True):
                # For a window cut to a shorter length, the rest is padding, whose logits are never used.
                whole[rows, : part.shape[1]] = part[: len(rows)]
        return tuple(found)

    def __call__(self, params: Any, split: Split, *, threshold: float | None = None) -> Measured:
        """Evaluates a split.

        `threshold` is for spans: by how much "no answer" must beat the best span, for scores and predictions;
        a test split takes that of the development split, `kinds.THRESHOLD` of its scores. None means 0 for
        the scores, and for the predictions the value with the best F1 on this split. Only then are the best
        values among the scores.
        """
        return self._kind.measured(split, self.logits(params, split), threshold)

    def development(self, params: Any) -> dict[str, float]:
        """Returns all metrics of the development splits and `main`; empty if there is no such split."""
        measured = {split.name: self(params, split).metrics for split in self._data.dev}
        return named(measured) | ({MAIN: main_metric(self._data.task, measured)} if measured else {})


def named(measured: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns the metrics of all splits in one dictionary; with several, names start with the split's."""
    found = {}
    for split, metrics in measured.items():
        kind = split.partition("_")[2]
        before = f"{kind}/" if len(measured) > 1 else ""
        found |= {before + name: value for name, value in metrics.items()}
    return found


def main_metric(task: AnyTask, measured: Mapping[str, Mapping[str, float]]) -> float:
    """Returns the metric by which the authors' programs select checkpoints.

    It is the mean of the kind's main metrics (for MNLI, over both splits).
    """
    values = [metrics[name] for metrics in measured.values() for name in kinds.of(task).main]
    return float(np.mean(values))


class Best:
    """The best parameters of a run, in a directory for `from_pretrained` or, without a workdir, in memory.

    They are written before the run's checkpoint of the same step: a run killed between the two recomputes the
    same parameters, bit for bit.
    """

    RECORD = "metrics.json"

    def __init__(
        self,
        directory: Path | None,
        model: Any,
        data: Data,
        card: Callable[[Mapping[str, float]], str] | None = None,
    ):
        """Continues from the record in `directory`, if there is one; `card` writes a model card from one."""
        self._directory, self._model, self._data, self._card = directory, model, data, card
        self._held: Any = None
        self.record: dict[str, Any] | None = None
        """The step and all metrics of the best parameters; None before the first."""
        if directory is not None and (directory / self.RECORD).is_file():
            self.record = read_json(directory / self.RECORD)
            for name in ("step", MAIN):
                if not isinstance(value := self.record.get(name), int | float):
                    raise WorkdirError(
                        f"{directory / self.RECORD}: damaged: {name}: got {value!r:.60}, expected a number"
                    )

    def offer(self, step: int, metrics: Mapping[str, float], params: Any) -> None:
        """Stores the parameters if their main metric is better than the best so far."""
        if self.record is not None and metrics[MAIN] <= self.record[MAIN]:
            return
        record = {"step": step, **metrics}
        if self._directory is None:
            self._held = jax.device_get(params)
        elif runtime.is_first():
            self._model.save_pretrained(self._directory, params)
            self._data.tokenizer.save_pretrained(self._directory)
            if self._card is not None:
                write_whole(self._directory / cards.FILE, self._card(record))
            write_json(self._directory / self.RECORD, record)
        self.record = record

    def params(self) -> Any:
        """Returns the best parameters, from memory or from the directory."""
        if self._directory is None:
            return self._held
        return type(self._model).from_pretrained(self._directory)[1]


def conclude(
    config: Config,
    measure: Measure,
    best: Best,
    data: Data,
    params: Any,
    last: dict[str, Any],
    workdir: Path | None,
) -> dict[str, Any]:
    """Returns a run's results for its summary and writes the best model's predictions.

    `params` are the last parameters, and `last` has their step and metrics. Test splits are answered at the
    best threshold of the development split. Without a workdir, nothing is written.

    Returns:
        `last` and `best` (the step and all metrics of the development splits; without such a split the best
        is the last), `test` (the best parameters' metrics where labels are published), `predictions` (file
        names relative to the workdir), and a description of the run; of data of your own also `own`, the
        kind of rows and their columns, of classes in them `confusion`, by split (see `errors`), and
        `cut_off`, how many texts were truncated, if any were.
    """
    record, chosen = best.record, params
    if record is None:
        record = last
    elif record["step"] != last["step"]:
        processes.gathered(0)  # waits until the first process has written the best parameters
        chosen = best.params()
    tested, files, confused = {}, [], {}
    for split in data.measured if config.predict else [s for s in data.test if s.labelled]:
        of_test = split in data.test
        found = measure(chosen, split, threshold=record.get(kinds.THRESHOLD) if of_test else None)
        if of_test and split.labelled:
            tested[split.name] = found.metrics
        if config.predict and workdir is not None and runtime.is_first():
            kind = kinds.of(data.task)
            files += kind.write(workdir / PREDICTIONS, split, found)
            if isinstance(data.task, own.OwnTask) and split.labelled:
                confused |= _write_errors(workdir / PREDICTIONS, data.task, split, found)
    splits = (data.train, *data.measured)
    cut_off = {split.name: getattr(split.features, "cut_off", 0) for split in splits}
    return {
        "task": config.task,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "rows": {split.name: split.rows for split in splits},
        "left_out": list(getattr(data.train.examples, "skipped", ())),
        "vocabulary": data.tokenizer.fingerprint,
        "last": last,
        "best": record,
        "test": named(tested),
        "predictions": [f"{PREDICTIONS}/{name}" for name in files],
        **({"own": kinds.reading(data.task)} if isinstance(data.task, own.OwnTask) else {}),
        **({"confusion": confused} if confused else {}),
        **({"cut_off": cut_off} if any(cut_off.values()) else {}),
    }


def _write_errors(
    directory: Path, task: own.OwnTask[Any, Any], split: Split, found: Measured
) -> dict[str, list[list[int]]]:
    """Writes the worst errors, and of classes a picture of what is confused; returns its counts by split."""
    stem, kind = f"{task.name}_{split.name}", kinds.of(task)
    if kind.chooses:
        write_whole(directory / f"{stem}_errors.jsonl", "".join(errors.worst(kind.wrong(split, found))))
    if not task.classes:
        return {}
    labels: Any = kind.labels(split.examples)
    counts = errors.confusion(labels, found.predictions, len(task.classes))
    if runtime.can_draw():
        what = "words" if isinstance(task, own.WordTask) else "rows"
        figure = errors.figure_of(task.classes, counts, f"{len(labels)} {what} of {split.name}")
        runtime.plots.save(figure, directory / f"{stem}_confusion.png")
    return {split.name: counts.tolist()}
