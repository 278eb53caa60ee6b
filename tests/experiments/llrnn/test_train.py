"""The LLRNN experiment as a user starts it: mistakes on the command line, a run and its files."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import runtime
from experiments.llrnn import train
from experiments.llrnn.config import CellConfig, TaskOptions
from tests import on_devices
from tests.experiments.llrnn.small import short

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.llrnn", *arguments],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_mistakes_on_the_command_line_end_in_one_line_before_anything_is_written(tmp_path):
    config = "--config=experiments/llrnn/config.py"
    mistakes = {
        (f"{config}:quick", "--config.task=nonsense"): "expected one of 'copy', 'repeat_copy'",
        (f"{config}:quick", "--config.optimizer=adamw"): "optimizer: got 'adamw', expected one of 'adam'",
        (f"{config}:quick", "--config.lr=x"): "could not convert string to float: 'x'",
        (f"{config}:quick", "--config.batchsize=3"): "did you mean batch_size?",
        (f"{config}:quick", "--config.cell.featurs=3"): "did you mean features?",
        (f"{config}:slow",): "expected one of 'quick', 'copy', 'word_problem'",
    }
    workdir = tmp_path / "run"
    started = {arguments: start(*arguments, f"--workdir={workdir}") for arguments in mistakes}
    ended = {arguments: process.communicate(timeout=120) for arguments, process in started.items()}
    for arguments, (output, errors) in ended.items():
        assert started[arguments].returncode == 2, (arguments, errors)
        assert mistakes[arguments] in errors
        assert output == ""
        assert len(errors.strip().splitlines()) == 1
    assert not workdir.exists()


def test_a_run_leaves_its_record_and_pictures_and_finished_runs_return_at_once(tmp_path):
    config = short(
        task="copy",
        task_options=TaskOptions(train_lengths=(1, 3), test_lengths=(3, 5)),
        cell=CellConfig(name="ntm", features=6, memory_size=6, memory_width=3, powers=(0, 1)),
        baseline=CellConfig(name="lstm", features=5),
    )
    results = train.main(config, workdir=tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").iterdir() if not path.name.startswith(".")}
    assert files == {
        "config.json", "metrics.jsonl", "summary.json", "checkpoints", "baseline",
        "error_by_length.png", "addresses.png",
    }  # fmt: skip
    records = runtime.metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert [record["step"] for record in records] == [2, 4]
    assert set(records[-1]) >= {"loss", "error", "eval/train/error_3", "eval/train/error_5"}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["results"]["train/error_5"]["symbols"] == 6 * 5
    assert summary["params_sha256"] == runtime.params_sha256(results["ntm"].params)
    assert results["baseline"].train_seconds >= round(results["ntm"].train_seconds, 1)

    again = train.main(config, workdir=tmp_path / "run")
    assert again["ntm"].summary == summary
    assert again["baseline"].step == results["baseline"].step


@pytest.mark.slow
def test_a_run_cut_short_and_continued_is_the_run_that_was_not(tmp_path):
    config = short(
        task="word_problem",
        task_options=TaskOptions(group="S3", train_lengths=(1, 4), test_lengths=(4,)),
        cell=CellConfig(name="second_order", features=4, update="linear", normalize=True),
    )
    whole = train.train(config, tmp_path / "whole")
    train.train(dataclasses.replace(config, steps=2), tmp_path / "cut")
    continued = train.train(config, tmp_path / "cut")
    assert continued.summary["params_sha256"] == whole.summary["params_sha256"]


@pytest.mark.slow
def test_eight_devices_train_as_one_in_all_modes():
    """SGD, bit-comparable up to the order of sums; in processes of their own."""
    script = HERE / "parity.py"
    eight, one = on_devices.outcomes(script, (8, ("jit", "shard_map", "pmap")), (1, ("jit",)))
    assert set(eight) == {"jit", "shard_map", "pmap"}
    for name, params in eight.items():
        np.testing.assert_allclose(params, one["jit"], rtol=1e-4, atol=1e-6, err_msg=name)
