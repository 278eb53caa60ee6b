"""The LLRNN experiment as a user starts it: presets, mistakes on the command line, a run and its files."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.llrnn import config as presets
from experiments.llrnn import figures as llrnn_figures
from experiments.llrnn import train as llrnn
from experiments.llrnn.config import CellConfig, Config, TaskOptions
from llrnn import model as models
from llrnn import tasks
from tests import on_devices

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PRESETS = (
    "quick",
    "copy",
    "word_problem",
    "length_generalization",
    *(f"authors_{task}" for task in presets.AUTHORS_TASKS),
)
SHORT = Config(
    batch_size=8, steps=4, log_every=2, checkpoint_every=2, eval_every=2, eval_examples=6, final_examples=6
)


def short(**fields) -> Config:
    return dataclasses.replace(SHORT, **fields)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset):
    presets.get_config(preset).validate()


@pytest.mark.parametrize("cell", ["pattern_ntm", "multiple_pattern_ntm", "polynomial_ntm"])
def test_the_authors_presets_take_their_other_models(cell):
    config = presets.get_config("authors_pattern_4")
    dataclasses.replace(config, cell=dataclasses.replace(config.cell, name=cell)).validate()


@pytest.mark.parametrize("cell", models.CELLS)
def test_any_cell_can_take_the_place_of_a_presets(cell, caplog):
    """What the flag `--config.cell.name=CELL` does; only what the user did not choose is left out."""
    config = presets.get_config("copy")
    config.cell.name = cell
    config.cell.features = 9
    config.validate()
    presets.get_config("word_problem").validate()
    made = config.cell.make()
    assert made.features == 9
    assert getattr(made, "memory_size", 64) == 64
    if cell == "elman":
        assert "elman has no erase, memory_size, memory_width, powers, sharpen" in caplog.text


def test_every_task_of_the_authors_has_a_preset_at_its_own_lengths():
    for task in presets.AUTHORS_TASKS:
        config = presets.get_config(f"authors_{task}")
        assert config.make_task() == tasks.make(task)
        assert (config.batch_size, config.cell.features, config.lr) == (250, 100, 1e-4)
    assert set(presets.AUTHORS_TASKS) < set(tasks.NAMES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "nonsense"}, r"task='nonsense' is not one of copy, repeat_copy.*bucket_sort"),
        ({"cell": CellConfig(name="gru")}, r"no cell is called 'gru'; there are .*higher_order.*ntm"),
        ({"cell": CellConfig(name="lstm", powers=(1,))}, r"cell 'lstm' has no option powers"),
        ({"cell": CellConfig(activation="gelu")}, r"activation='gelu' is not one of relu, tanh"),
        ({"baseline": CellConfig(name="gru")}, r"no cell is called 'gru'"),
        ({"task_options": TaskOptions(group="S3")}, r"options of copy must be among .*got 'group'"),
        ({"optimizer": "adamw"}, r"optimizer='adamw' is not one of adam, rmsprop, sgd"),
        ({"lr": -1.0}, r"lr=-1.0 must be at least 0"),
        ({"clip": float("nan")}, r"clip=nan must be at least 0"),
    ],
)
def test_a_mistake_in_a_config_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        short(**change).validate()


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
        (f"{config}:quick", "--config.task=nonsense"): "is not one of copy, repeat_copy",
        (f"{config}:quick", "--config.lr=x"): "could not convert string to float: 'x'",
        (f"{config}:quick", "--config.batchsize=3"): "did you mean batch_size?",
        (f"{config}:quick", "--config.cell.featurs=3"): "did you mean features?",
        (f"{config}:slow",): "those there are: quick, copy, word_problem",
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
    results = llrnn.main(config, workdir=tmp_path / "run")
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

    again = llrnn.main(config, workdir=tmp_path / "run")
    assert again["ntm"].summary == summary
    assert again["baseline"].step == results["baseline"].step


@pytest.mark.slow
def test_evaluation_counts_what_a_loop_over_lengths_counts():
    """One compiled program for all lengths against the task asked for each length by itself."""
    task = tasks.make("group_powers", group="S4", operators=3, held_out=3, test_lengths=(3, 9))
    config = short(
        task="group_powers",
        cell=CellConfig(name="higher_order", features=4, update="linear", coupling="given", max_power=7),
    )
    model = config.make_model(task)
    params = model.init(jax.random.key(1), np.zeros((1, 2, 11), np.float32))["params"]
    found = llrnn.make_evaluation(task, model, 12)(params)
    assert set(found) == {f"{split}/error_{length}" for split in task.splits for length in (3, 8, 9)}
    for name, counts in found.items():
        split, length = name.split("/error_")
        key = jax.random.fold_in(jax.random.key(llrnn.EVALUATION_SEED), int(length))
        batch = task.sample(key, 12, int(length), max_length=9, split=split)
        answers = np.argmax(np.asarray(llrnn.predict(model, params, task.encode(batch.tokens))), axis=-1)
        wrong = [
            [answers[b, t] != batch.targets[b, t] for t in range(9) if batch.mask[b, t]] for b in range(12)
        ]
        assert counts == {
            "wrong": sum(map(sum, wrong)),
            "symbols": sum(map(len, wrong)),
            "sequences_wrong": sum(map(any, wrong)),
            "sequences": sum(map(bool, wrong)),
        }


def test_summary_of_counts():
    counts = {"wrong": 3, "symbols": 60, "sequences_wrong": 2, "sequences": 12}
    summary = llrnn.summarize(counts)
    assert summary["error"] == pytest.approx(0.05)
    assert summary["sequences_right"] == pytest.approx(10 / 12)
    low, high = summary["sequences_right_interval"]
    assert low < 10 / 12 < high


@pytest.mark.slow
def test_a_run_cut_short_and_continued_is_the_run_that_was_not(tmp_path):
    config = short(
        task="word_problem",
        task_options=TaskOptions(group="S3", train_lengths=(1, 4), test_lengths=(4,)),
        cell=CellConfig(name="second_order", features=4, update="linear", normalize=True),
    )
    whole = llrnn.train(config, tmp_path / "whole")
    llrnn.train(dataclasses.replace(config, steps=2), tmp_path / "cut")
    continued = llrnn.train(config, tmp_path / "cut")
    assert continued.summary["params_sha256"] == whole.summary["params_sha256"]


def test_the_score_of_a_string_task_is_the_mean_accuracy():
    """A model that always answers 0 is right as often as 0 is the answer."""
    task = tasks.make("parity")
    assert isinstance(task, tasks.StringTask)
    config = short(task="parity", cell=CellConfig(name="elman", features=2))
    model = config.make_model(task)
    params = model.init(jax.random.key(0), np.zeros((1, 3, sum(task.fields)), np.float32))["params"]
    params["outputs"] = {"kernel": np.zeros((2, 2), np.float32), "bias": np.array([1, 0], np.float32)}
    shares = []
    for length in range(41, 44):
        key = jax.random.fold_in(jax.random.key(llrnn.EVALUATION_SEED), length)
        batch = task.sample(key, 20, length, max_length=43)
        mask = np.asarray(batch.mask)
        shares.append(np.mean(np.asarray(batch.targets)[mask] == 0))
    assert llrnn.score(task, model, params, 20, range(41, 44)) == pytest.approx(np.mean(shares))


@pytest.mark.slow
def test_figures_of_held_out_pairs(tmp_path):
    config = short(
        task="group_powers",
        task_options=TaskOptions(
            group="S4", operators=3, held_out=2, train_lengths=(1, 3), test_lengths=(3,)
        ),
        cell=CellConfig(name="higher_order", features=4, update="linear", coupling="given", max_power=7),
    )
    llrnn.main(config, workdir=tmp_path / "run")
    assert (tmp_path / "run" / "held_out.png").stat().st_size > 5000
    labels = llrnn_figures.labels({"a": config})
    assert labels == {"a": "higher order"}
    assert llrnn_figures.shown("pattern_ntm") == "pattern NTM"


@pytest.mark.slow
def test_eight_devices_train_as_one_in_all_modes():
    """SGD, bit-comparable up to the order of sums; in processes of their own."""
    script = HERE / "parity.py"
    eight, one = on_devices.outcomes(script, (8, ("jit", "shard_map", "pmap")), (1, ("jit",)))
    assert set(eight) == {"jit", "shard_map", "pmap"}
    for name, params in eight.items():
        np.testing.assert_allclose(params, one["jit"], rtol=1e-4, atol=1e-6, err_msg=name)


def test_every_cell_by_name_has_a_config():
    """A number, switch or word of a cell of ours can be set on the command line."""
    settable = {field.name for field in dataclasses.fields(CellConfig)}
    for name in models.CELLS:
        if name == "lstm":
            continue
        cell = models.make_cell(name, features=4)
        plain = {
            field
            for field in models.cell_fields(name)
            if isinstance(getattr(cell, field), bool | int | str | tuple)
        }
        assert plain - settable - EXPERTS == set(), name


EXPERTS = {"squash", "source", "polynomials"}
"""Fields that only Python sets: the draft's own equations, which were seen to fail, and nested tuples."""
