"""The LLRNN experiment as a user starts it: mistakes on the command line, a run and its files."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.llrnn import load, measures, train
from experiments.llrnn.parts import CellConfig, TaskOptions
from tests import on_devices
from tests.experiments.llrnn import solved
from tests.experiments.llrnn.small import LEARNED, short

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


@pytest.mark.slow  # starts six programs
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


@pytest.mark.usefixtures("compiled_quickly")
def test_a_run_leaves_its_record_and_pictures_and_finished_runs_return_at_once(tmp_path, monkeypatch):
    config = short(
        task="copy",
        task_options=TaskOptions(train_lengths=(1, 3), test_lengths=(3, 5)),
        cell=CellConfig.of("elman", features=5),
        baseline=CellConfig.of("elman", features=5),  # whose programs are compiled already
        checkpoint_every=100,  # the baseline makes many updates
    )
    results = train.main(config, workdir=tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").iterdir() if not path.name.startswith(".")}
    assert files == {
        "config.json", "metrics.jsonl", "summary.json", "checkpoints", "baseline",
        "error_by_length.png",
    }  # fmt: skip
    records = runtime.metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert [record["step"] for record in records] == [2, 4]
    assert set(records[-1]) >= {"loss", "error", "eval/train/error_3", "eval/train/error_5"}
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["results"]["train/error_5"]["symbols"] == 6 * 5
    assert summary["params_sha256"] == runtime.params_sha256(results["elman"].params)
    assert results["baseline"].train_seconds >= round(results["elman"].train_seconds, 1)
    assert results["baseline"].step > 4

    monkeypatch.setattr(train.figures, "draw", lambda workdir, configs, results: None)
    again = train.main(config, workdir=tmp_path / "run")
    assert again["elman"].summary == summary
    assert again["baseline"].step == results["baseline"].step

    opened = load.open_model(tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, opened.params, results["elman"].params)


@pytest.mark.usefixtures("compiled_quickly")
def test_every_training_length_is_drawn_and_the_sequences_are_new():
    """The numbers of scored steps of the word problem are its lengths."""
    options = TaskOptions(group="Z3", train_lengths=(2, 5), test_lengths=(5,))
    config = short(task="word_problem", task_options=options, cell=CellConfig.of("elman", features=2))
    sample = cast(Any, train.make_training(config).sample)
    keys = jax.random.split(jax.random.key(0), 400)
    batches = jax.jit(jax.vmap(lambda key: sample(key, 0)))(keys)
    lengths = np.asarray(batches.mask.sum(axis=-1))
    assert batches.tokens.shape == (400, 8, 5, 1)
    assert (lengths == lengths[:, :1]).all()
    counts = np.bincount(lengths[:, 0], minlength=6)
    assert (counts[:2] == 0).all()
    assert np.all(np.abs(counts[2:] - 100) < 40)
    words = np.asarray(batches.tokens).reshape(-1, 5)
    assert len(np.unique(words, axis=0)) == 3**5
    assert np.all(np.abs(np.bincount(words.ravel()) - words.size / 3) < 300)


@pytest.mark.usefixtures("compiled_quickly")
def test_the_loss_is_the_cross_entropy_at_the_scored_steps():
    """Against NumPy, for logits that are the state of a cell with known parameters."""
    training = train.make_training(solved.CONFIG)
    task = solved.make_task()
    params = solved.params(confused=(2, 4))

    @jax.jit
    def run(key):
        batch = task.sample(key, 7, 3, max_length=5, split="held_out")
        return batch, training.loss(params, batch, key)

    batch, sums = run(jax.random.key(1))
    logits = np.eye(6)[[0, 1, 3, 3, 5, 5]][solved.products(batch.tokens)]
    entropy = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
        logits, np.asarray(batch.targets)[..., None], -1
    ).squeeze(-1)
    mask = np.asarray(batch.mask)
    assert 0 < mask.sum() < mask.size
    np.testing.assert_allclose(sums.numerator, entropy[mask].sum(), rtol=1e-5)
    assert sums.denominator == mask.sum()
    wrong, symbols = sums.metrics["error"]
    assert (wrong, symbols) == (np.isin(solved.products(batch.tokens), (2, 4))[mask].sum(), mask.sum())
    assert set(sums.metrics) == {"error"}


@pytest.mark.usefixtures("compiled_quickly")
def test_a_run_is_evaluated_with_few_sequences_and_concluded_with_many(monkeypatch):
    handed = {}
    monkeypatch.setattr(runtime, "fit", lambda config, **given: handed.update(given))
    # There is a single split, and the longest sequences are not the last of a set.
    options = dataclasses.replace(solved.CONFIG.task_options, held_out=0, test_lengths=(2, 8))
    train.train(dataclasses.replace(solved.CONFIG, task_options=options), None)
    params = solved.params(confused=(1,))
    errors, results = handed["evaluate"](params), handed["conclude"](params)
    assert set(errors) == set(results) == {f"train/error_{length}" for length in (2, 3, 8)}
    assert {result["sequences"] for result in results.values()} == {9}
    assert results["train/error_8"]["symbols"] == 9 * 8
    for name, error in errors.items():
        wrong = error * 12 * int(name.removeprefix("train/error_"))
        assert wrong == pytest.approx(round(wrong))
    assert errors != {name: result["error"] for name, result in results.items()}


@pytest.mark.parametrize("examples", [0, 5])
def test_string_tasks_have_a_score_when_it_is_asked_for(examples, monkeypatch):
    handed = {}
    monkeypatch.setattr(runtime, "fit", lambda config, **given: handed.update(given))
    monkeypatch.setattr(measures, "make_evaluation", lambda task, model, count: lambda params: {})
    monkeypatch.setattr(measures, "score", lambda task, model, params, count: (task.name, params, count))
    cell = CellConfig.of("elman", features=2)
    train.train(short(task="parity", cell=cell, score_examples=examples), None)
    assert handed["conclude"]("weights") == ({"score": ("parity", "weights", 5)} if examples else {})


@pytest.mark.parametrize(("seconds", "limit"), [(0.0, 0.1), (0.31, 0.4), (7.0, 7.0)])
def test_the_baseline_trains_afterwards_for_as_long(seconds, limit, monkeypatch, tmp_path):
    runs, clock, step = [], [100.0], 4
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def fake(config, workdir, parallel):
        runs.append((config, workdir, parallel))
        clock[0] += 4
        return runtime.FitResult(None, None, step, {}, {}, seconds, {})

    monkeypatch.setattr(train, "train", fake)
    monkeypatch.setattr(train.figures, "draw", lambda *_: pytest.fail("draws without a folder"))
    config = short(
        cell=CellConfig.of("elman", features=3), baseline=CellConfig.of("lstm", features=2), lr=0.5
    )
    results = train.main(config, workdir=None, parallel="pmap")
    assert list(results) == ["elman", "baseline"]
    (first, *_), (second, *_) = runs
    assert first is config
    assert [run[1:] for run in runs] == [(None, "pmap")] * 2
    assert (second.cell, second.has_baseline, second.lr) == (config.baseline, False, 0.5)
    assert (second.max_seconds, second.steps) == (limit, 10**9)
    assert second.batch_size == config.batch_size
    assert dataclasses.replace(config, baseline_lr=0.25).for_baseline(1.0).lr == 0.25
    runs.clear()
    alone = dataclasses.replace(config, baseline=CellConfig())
    assert list(train.main(alone, workdir=None)) == ["elman"]
    assert len(runs) == 1
    runs.clear()
    timed = dataclasses.replace(config, session_seconds=9.0)  # of both
    train.main(timed, workdir=None)
    assert [run[0].session_seconds for run in runs] == [9.0, 5.0]
    step = 2  # the session has ended it
    assert list(train.main(timed, workdir=tmp_path)) == ["elman"]


@pytest.mark.slow
def test_a_run_cut_short_and_continued_is_the_run_that_was_not(tmp_path):
    config = short(
        task="word_problem",
        task_options=TaskOptions(group="S3", train_lengths=(1, 4), test_lengths=(4,)),
        cell=CellConfig.of("second_order", features=4, update="linear", normalize=True),
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


def test_a_config_with_restarts_has_starts_that_are_not_measured(tmp_path, monkeypatch):
    """Their accuracy is per symbol."""
    fitted = []
    monkeypatch.setattr(train, "_fit", lambda config, workdir, parallel, more: fitted.append((workdir, more)))

    def search(config, workdir, fit, *, accuracy):
        fit(config, workdir / "start", None)
        fit(config, workdir, dict)
        return config, workdir, accuracy({"error": 0.25})

    monkeypatch.setattr(train.restarts, "train", search)
    config = short(restarts=2, restart_steps=2, steps=4, log_every=2)
    assert train.train(config, tmp_path) == (config, tmp_path, 0.75)
    assert fitted == [(tmp_path / "start", None), (tmp_path, dict)]


@pytest.mark.usefixtures("compiled_quickly")
def test_prices_of_operators_are_added_to_the_loss():
    """With their weights, once per scored symbol; a baseline after the run has none."""
    weighted = dataclasses.replace(LEARNED, operator_length=0.25, orthogonality=0.5)
    task = train.make_training(LEARNED)

    @jax.jit
    def computed(key):
        assert task.sample is not None
        params, batch = task.init(key), task.sample(key, 0)
        losses = (each.loss(params, batch, key) for each in (task, train.make_training(weighted)))
        model = LEARNED.make_model(LEARNED.make_task())
        return *losses, measures.operator_lengths(model, params), measures.orthogonality(model, params)

    plain, found, lengths, defects = computed(jax.random.key(0))
    added = (found.numerator - plain.numerator) / found.denominator
    np.testing.assert_allclose(added, 0.25 * lengths + 0.5 * defects, rtol=1e-4)
    for name, wanted in (("operator_length", lengths), ("orthogonality", defects)):
        mean, count = found.metrics[name]
        np.testing.assert_allclose(mean / count, wanted, rtol=1e-5)
        assert wanted > 0.01
        assert name not in plain.metrics
    baseline = weighted.for_baseline(1.0)
    assert (baseline.operator_length, baseline.orthogonality, baseline.entropy) == (0, 0, 0)


def test_a_cell_without_commands_has_no_entropy():
    config = dataclasses.replace(LEARNED, cell=CellConfig.of("elman", features=2))
    with pytest.raises(ValueError, match="entropy: got a weight above 0, expected 0 for a cell"):
        train.train(config, None)
