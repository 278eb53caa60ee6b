"""Readers of records for the fuzz: metrics, configs and summaries of runs, results, tables, measurements."""

import dataclasses
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import kernel_cases, measured
from benchmarks.reliability.reader import Reader, write_lines
from experiments.folnet_finetune.measures import Best
from experiments.kinship import measures as kinship_measures
from experiments.llrnn.config import Config as LLRNNConfig
from experiments.registry import experiment_of
from experiments.runtime import metrics, releasing
from experiments.runtime.workdir import Workdir, config_dict, write_json
from kernels import tables


def _write_metrics(folder: Path) -> None:
    lines = [{"step": step, "loss": 1 / step, "train_seconds": 0.1 * step} for step in range(1, 9)]
    write_lines(folder / "metrics.jsonl", lines)


def _resume_metrics(folder: Path) -> Any:
    writer = metrics.MetricsWriter(folder, 6)
    writer.write(7, {"loss": 0.5})
    writer.close()
    return metrics.read(folder / "metrics.jsonl")


def _write_workdir(folder: Path) -> None:
    (folder / "run").mkdir()
    write_json(folder / "run" / "config.json", config_dict(LLRNNConfig()))
    write_json(folder / "run" / "summary.json", {"step": 3, "metrics": {"loss": 0.5}, "results": {}})


def _open_workdir(folder: Path) -> Any:
    run = Workdir(folder / "run", LLRNNConfig())
    try:
        return run.read_summary(), (folder / "run" / "config.json").read_text()
    finally:
        run.close()


def _read_config(folder: Path) -> Any:
    experiment_of(folder / "run")
    return releasing.read_run_config(LLRNNConfig, folder / "run")


def _read_best(folder: Path) -> Any:
    best = Best(folder, None, None)  # pyrefly: ignore[bad-argument-type] -- neither is asked
    if best.record is None:
        raise ValueError(f"{folder} has no record")
    return best.record


def _write_kinship(folder: Path) -> None:
    lines = [
        {"preset": "quick", "model": "j.a", "seed": seed, "accuracies": {"2": 0.5}, "curve": [[1, 0.5, 0.25]]}
        for seed in range(3)
    ]
    write_lines(folder / "learning.jsonl", lines)


def _read_kinship(folder: Path) -> Any:
    found = kinship_measures.of_preset(folder / "learning.jsonl", "quick")
    return [
        [list(point) for point in kinship_measures.points(line)] for lines in found.values() for line in lines
    ]


_LINE = {"operation": "trans", "kind": {"dtype": "float32"}, "sizes": {"T": 64}, "backend": "gpu"}
_TABLE = {
    "chip": "A",
    "fastest": [_LINE | {"record": "results"}],
    "blocks": [_LINE | {"direction": "forward", "blocks": {"T": 32}}],
}


def _read_tables(folder: Path) -> Any:
    kind, sizes = {"dtype": "float32"}, {"T": 64}
    try:
        with mock.patch.object(tables, "FOLDER", folder):
            tables.read.cache_clear()
            fastest = tables.fastest("A", "trans", kind, sizes)
            return tables.read(), fastest, tables.blocks("A", "trans", "gpu", "forward", kind, sizes)
    finally:
        tables.read.cache_clear()


def _write_measured(folder: Path) -> None:
    there = {"platform": "cpu", "chip": "Test chip", "versions": {"jax": "0.12"}, "date": "2026-11-21"}
    devices = {"platform": "cpu", "kind": "Test chip"}
    operation = sorted(measured.OPERATIONS)[0]
    named = {"operation": operation, "case": "small", "direction": kernel_cases.DIRECTIONS[0]}
    line = {"operation": operation, "kind": {}, "sizes": {"T": 64}, "backend": "gpu"}
    contents = {
        "machine": there,
        "training_kinship": {
            **there,
            "devices": devices,
            "rows": [{"name": "step", "problems_per_second": {"median": 10.0}}],
        },
        "checks_one": {**there, "rows": [{**named, "implementation": "xla", "errors": [0.5], "holds": True}]},
        "kernels_one": {**there, "rows": [{**named, "paths": {"xla": {"seconds": 0.5, "blocks": [0.5]}}}]},
        "tables/Test": {"chip": "Test chip", "blocks": [{**line, "direction": "forward", "blocks": {}}]},
    }
    (folder / "tables").mkdir()
    for name, content in contents.items():
        write_json(folder / f"{name}.json", content)


_WORKDIR = "experiments.runtime.workdir"
_METRICS, _BEST = "experiments.runtime.metrics", "experiments.folnet_finetune.measures"
_RUNS, _KINSHIP = "experiments.runtime.releasing", "experiments.kinship.measures"
_RUN = {"writes": ["run/.lock", "run/config.json"], "whole": lambda folder: None}
READERS: tuple[Reader, ...] = (
    Reader("metrics, continued", _METRICS, _write_metrics, ["*.jsonl"], _resume_metrics, writes=["*.jsonl"]),
    Reader("a run's directory", _WORKDIR, _write_workdir, ["run/*.json"], _open_workdir, **_RUN),
    Reader("a run's config", _RUNS, _write_workdir, ["run/config.json"], _read_config),
    Reader(
        "best of fine-tuning",
        _BEST,
        lambda folder: write_json(folder / "metrics.json", {"step": 4, "main": 0.5, "accuracy": 0.5}),
        ["*.json"],
        _read_best,
    ),
    Reader("record of kinship", _KINSHIP, _write_kinship, ["*.jsonl"], _read_kinship),
    Reader(
        "folder of the accelerator",
        "benchmarks.measured",
        _write_measured,
        ["**/*.json"],
        lambda folder: dataclasses.asdict(measured.read(folder)),
    ),
    Reader(
        "tables of kernels",
        "kernels.tables",
        lambda folder: write_json(folder / "chip.json", _TABLE),
        ["*.json"],
        _read_tables,
    ),
)
