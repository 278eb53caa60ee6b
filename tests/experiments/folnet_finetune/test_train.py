"""FOLNet's fine-tuning: user errors, runs and their files, and sweeps."""

import dataclasses
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.folnet_finetune import data, measures, model, train
from experiments.folnet_finetune.grid import GridConfig
from folnet import (
    FOLNet,
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
    parameters,
    tasks,
)
from tests import on_devices
from tests.experiments.folnet_finetune import small as small_finetune
from tests.experiments.folnet_finetune.small import small
from tests.folnet import small_tasks

pytestmark = pytest.mark.usefixtures("compiled_quickly")


ROOT = Path(__file__).resolve().parents[3]


class Killed(BaseException):
    """An exception that no code catches."""


def run(config, workdir) -> Any:
    """Runs training with one device and returns the result, or the report for several runs."""
    return train.main(config, workdir=workdir)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return small_finetune.checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def rte(checkpoint, tmp_path_factory):
    """Three examples in batches of two: two steps an epoch, the second of one example; without a break."""
    folder = tmp_path_factory.mktemp("rte")
    config = small(small_finetune.write_rte(folder), checkpoint, epochs=2)
    return config, folder / "run", run(config, workdir=folder / "run")


def test_missing_files_are_reported_before_anything_is_compiled(tmp_path, monkeypatch):
    """The error lists everything in one line; nothing is read, drawn or written."""
    monkeypatch.setattr(train, "train", None)  # calling it would fail
    monkeypatch.setattr(train.data, "open_data", None)
    config = small(tmp_path / "nowhere", tmp_path / "none")
    with pytest.raises(runtime.WorkdirError) as raised:
        train.main(config, workdir=tmp_path / "run")
    message = str(raised.value)
    assert "(no such directory), expected rte's train: RTE/train.tsv; validation: RTE/dev.tsv" in message
    assert "Get it: curl -LO" in message
    assert f"checkpoint: got {tmp_path / 'none'}, expected a directory" in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_what_was_read_is_kept_in_a_workdir_that_is_new_or_empty(tmp_path):
    """Of one with other files, which is not a run's, the loop says so."""
    for name in ("new", "empty", "full"):
        if name != "new":
            (tmp_path / name).mkdir()
        if name == "full":
            (tmp_path / name / "thesis.tex").touch()
        train._keep_data({"rows": "3"}, tmp_path / name)
        assert (tmp_path / name / train.DATA).exists() == (name != "full")
    train._keep_data({"rows": "3"}, tmp_path / "new")
    with pytest.raises(runtime.WorkdirError, match=r"started with other data \(rows changed since\)"):
        train._keep_data({"rows": "4"}, tmp_path / "empty")


@pytest.mark.slow
def test_mistakes_on_the_command_line_are_one_line(tmp_path):
    """JAX compiles nothing before the error, as its log of compilations shows."""
    small_finetune.write_rte(tmp_path)
    rows = (tmp_path / "RTE/dev.tsv").read_text() + "9\tone\n"
    (tmp_path / "RTE/dev.tsv").write_text(rows)
    small_tasks.tokenizer().save(tmp_path / "vocab.txt")
    scratch = ["--config.checkpoint=", f"--config.vocabulary={tmp_path / 'vocab.txt'}"]
    command = [
        sys.executable, "-m", "experiments.folnet_finetune",
        "--config=rte", f"--workdir={tmp_path / 'run'}",
    ]  # fmt: skip
    for flags, message in (
        (
            ["--config.data_dir=/nowhere"],
            "data_dir: directory: got /nowhere (no such directory), expected rte's train",
        ),
        ([f"--config.data_dir={tmp_path}", *scratch], "dev.tsv, line 5: got 2 columns, expected 4"),
        (
            ["--config.sweep=16gb", "--config.grid.lr=(0.1,)", "--config.grid.warmup=(2.0,)"],
            "warmup: got 2.0",
        ),
        (["--config.epoch=3"], "--config.epoch: no such field (did you mean epochs?)"),
    ):
        done = subprocess.run(
            [*command, *flags], cwd=ROOT, capture_output=True, text=True, check=False,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "JAX_LOG_COMPILES": "1"},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_leaves_its_record_the_best_model_and_predictions(rte, checkpoint):
    config, workdir, result = rte
    files = {path.name for path in workdir.iterdir() if not path.name.startswith(".")}
    assert files == {"config.json", "metrics.jsonl", "summary.json", "checkpoints", "best", "predictions"}
    rows = runtime.metrics.read(workdir / "metrics.jsonl")
    assert [row["step"] for row in rows] == [2, 4]
    assert all({"loss", "accuracy", "eval/accuracy", "eval/main"} <= set(row) for row in rows)
    found = result.results
    assert result.step == found["last"]["step"] == 4
    assert found["rows"] == {"train": 3, "validation": 3, "test": 1}
    best = max(rows, key=lambda row: row["eval/main"])  # of equal ones the first
    assert found["best"] == {
        "step": best["step"],
        "accuracy": best["eval/accuracy"],
        "main": best["eval/main"],
    }
    assert found["predictions"] == ["predictions/RTE_validation.tsv", "predictions/RTE.tsv"]
    written = tasks.SEQUENCE_TASKS["rte"]
    dev = written.examples(config.data_dir, "validation")
    predictions = written.read_predictions(workdir / "predictions/RTE_validation.tsv", dev)
    assert written.score(dev, predictions)["accuracy"] == best["eval/accuracy"]
    tuned, params = FOLNetForSequenceClassification.from_pretrained(workdir / "best")
    begun = parameters.flatten(FOLNet.from_pretrained(checkpoint)[1])
    assert tuned.config.num_labels == 2
    if best["step"] == 4:
        chex.assert_trees_all_equal(params, jax.tree.map(np.asarray, dict(result.params)))
    trained = parameters.flatten(params["folnet"])
    assert any((array != begun[name]).any() for name, array in trained.items())
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == found["parameters"]


def test_patience_counts_evaluations_since_the_best(rte, tmp_path, monkeypatch):
    """Also of a run that continues, whose best parameters are in its directory."""
    config, _, _ = rte
    config = dataclasses.replace(config, patience=2, eval_every=3, steps=30)
    opened, seen = train.open_data(config), []
    monkeypatch.setattr("experiments.runtime.loop", lambda *given, **named: seen.append(named["stop"]))
    (tmp_path / "run" / "best").mkdir(parents=True)
    record = tmp_path / "run" / "best" / "metrics.json"
    for patience in (2, 0):
        train.train(dataclasses.replace(config, patience=patience), opened, tmp_path / "new")
        record.write_text('{"step": 6, "main": 0.5}', encoding="utf-8")
        train.train(dataclasses.replace(config, patience=patience), opened, tmp_path / "run")
    fresh, continued, *without = seen
    assert [fresh(step) for step in (3, 6, 30)] == [False] * 3
    assert [continued(step) for step in (3, 6, 9, 12, 15)] == [False, False, False, True, True]
    assert not any(stop(step) for stop in without for step in (6, 12, 30))


def test_a_run_has_the_configs_settings_and_its_own_batches(rte, monkeypatch):
    """Seed, batch size, accumulation, layout, and of several processes each one's rows."""
    config, _, _ = rte
    config = dataclasses.replace(config, seed=5, accumulate=2)
    opened, seen = train.open_data(config), []

    def make(task, parallel):
        seen.append((task, parallel))

    def stop(program, batches, config, tuned):
        seen.append((batches, config, tuned))
        raise Killed

    monkeypatch.setattr(train, "Program", make)
    monkeypatch.setattr(train, "Tuning", stop)
    with pytest.raises(Killed):
        train.train(config, opened, None, "pmap")
    (task, parallel), (batches, resolved, tuned) = seen
    assert (task.seed, task.batch_size, task.accumulate, parallel) == (5, 2, 2, "pmap")
    assert (resolved, tuned.config) == (config.resolved(3), model.make(config).config)
    wanted = data.Batches(opened.train.features, config)
    for step in (0, 3):
        chex.assert_trees_all_equal(batches(step), wanted(step))
    monkeypatch.setattr("jax.process_count", lambda: 2)
    monkeypatch.setattr("jax.process_index", lambda: 1)
    chex.assert_trees_all_equal(batches(0), {name: array[1:] for name, array in wanted(0).items()})


def test_several_runs_need_a_workdir_and_are_a_sweep(monkeypatch, tmp_path):
    """Several seeds or settings, each trained with its own config and the rows of the data."""
    opened: Any = types.SimpleNamespace(train=types.SimpleNamespace(rows=7))
    monkeypatch.setattr(train, "open_data", lambda config: opened)
    monkeypatch.setattr(train, "train", lambda *arguments: types.SimpleNamespace(summary=arguments))
    monkeypatch.setattr(train.sweep, "run_all", lambda *arguments: arguments)
    one = small(tmp_path, tmp_path)
    assert run_with(one, None).summary == (one, opened, None, "pmap")
    assert run_with(one, tmp_path).summary == (one, opened, tmp_path, "pmap")
    for several in (dataclasses.replace(one, seeds=2), dataclasses.replace(one, sweep="16gb")):
        with pytest.raises(ValueError, match="workdir: got None, expected a directory for several runs"):
            run_with(several, None)
        config, rows, workdir, trained = run_with(several, tmp_path)
        assert (config, rows, workdir) == (several, 7, tmp_path)
        assert trained(one, tmp_path / "x") == (one, opened, tmp_path / "x", "pmap")


def run_with(config, workdir) -> Any:
    return train.main(config, workdir=workdir, parallel="pmap")


def test_a_workdir_stays_with_its_data(rte, tmp_path):
    """A finished run refuses to continue with a table in which a row has changed."""
    config, workdir, _ = rte
    small_finetune.write_rte(tmp_path)
    path = tmp_path / "RTE/train.tsv"
    path.write_text(path.read_text().replace("it is a book", "it is a car", 1))
    other = train.open_data(dataclasses.replace(config, data_dir=str(tmp_path)))
    with pytest.raises(runtime.WorkdirError, match=r"other data \(tokens of train changed since"):
        train.train(config, other, workdir)
    (tmp_path / "RTE/test.tsv").unlink()
    other = train.open_data(dataclasses.replace(config, data_dir=str(tmp_path)))
    with pytest.raises(runtime.WorkdirError, match=r"has no config\.json but is not empty"):
        train.train(config, other, tmp_path)


@pytest.mark.slow
def test_a_killed_run_continues_with_the_same_bits(rte, tmp_path, monkeypatch):
    """The run is killed between saving the best model of step 4 and its checkpoint."""
    config, workdir, straight = rte
    offer = measures.Best.offer

    def killed(self, step, metrics, params):
        offer(self, step, metrics, params)
        if step == 4:
            raise Killed

    monkeypatch.setattr(measures.Best, "offer", killed)
    with pytest.raises(Killed):
        train.main(config, workdir=tmp_path / "run")
    monkeypatch.setattr(measures.Best, "offer", offer)
    assert sorted(int(path.name) for path in (tmp_path / "run/checkpoints").iterdir()) == [2]
    again = run(config, workdir=tmp_path / "run")
    chex.assert_trees_all_equal(straight.params, again.params)
    assert again.summary["params_sha256"] == straight.summary["params_sha256"]
    assert again.results == straight.results
    for name in ("best/model.safetensors", "best/metrics.json", "predictions/RTE.tsv"):
        assert (tmp_path / "run" / name).read_bytes() == (workdir / name).read_bytes()
    monkeypatch.setattr(measures, "conclude", None)  # a finished run returns at once
    assert run(config, workdir=tmp_path / "run").summary == json.loads(json.dumps(again.summary))


def test_squad_is_answered(checkpoint, tmp_path):
    """Checks windows, null odds and the threshold, which is computed again from the run's files.

    With a rate of 0 the parameters stay those that the run began with: the checkpoint's encoder.
    """
    small_tasks.write_squad(tmp_path)
    config = small(
        tmp_path, checkpoint, task="squad2", length=80, stride=24, query_length=16, batch_size=8, epochs=1,
        lr=0.0, eval_batch_size=8,
    )  # fmt: skip
    result = run(config, workdir=tmp_path / "run")
    found = result.results
    assert result.step == 2
    assert 9 < found["rows"]["train"] <= 16  # windows, of nine questions
    assert found["predictions"] == [
        "predictions/squad2_validation.json",
        "predictions/squad2_validation_null_odds.json",
    ]
    answers, odds = (json.loads((tmp_path / "run" / name).read_text()) for name in found["predictions"])
    assert set(answers) == set(odds) == {f"q{number}" for number in range(9)}
    threshold = found["best"]["f1/best_threshold"]
    assert all((text == "") == (odds[index] > threshold) for index, text in answers.items())
    assert found["best"]["main"] == found["best"]["f1/best"] >= found["best"]["f1"]
    tuned, _ = FOLNetForQuestionAnswering.from_pretrained(tmp_path / "run/best")
    assert tuned.config.hidden_size == 16
    chex.assert_trees_all_equal(dict(result.params), model.begin(config, tuned))
    begun = parameters.flatten(FOLNet.from_pretrained(checkpoint)[1])
    for name, array in parameters.flatten(result.params["folnet"]).items():
        np.testing.assert_array_equal(array, begun[name], err_msg=name)


@pytest.mark.slow
def test_every_task_is_learned_from(checkpoint, tmp_path):
    """Trains a few steps on files in the published format of each task."""
    small_tasks.glue(tmp_path)
    small_finetune.write_folio(tmp_path)
    small_finetune.write_clutrr(tmp_path)
    for task in tasks.TASKS:
        if task not in ("rte", "squad2", "clutrr234"):
            learn(small(tmp_path, checkpoint, task=task, epochs=2), tmp_path / task)


def learn(config, folder):
    task = config.task
    config.model.dtype = "bfloat16" if task == "folio" else "float32"  # the presets' and the tests'
    result = run(config, workdir=folder)
    assert result.step == config.resolved(result.results["rows"]["train"]).steps
    assert np.isfinite(result.metrics["loss"])
    assert all((folder / name).is_file() for name in result.results["predictions"])
    if task == "clutrr23":
        assert len([name for name in result.results["test"] if name.startswith("accuracy/k=")]) == 9
        assert not (folder / "best").exists()
    else:
        assert result.results["best"]["main"] == max(
            row["eval/main"] for row in runtime.metrics.read(folder / "metrics.jsonl")
        )
    splits = tasks.TASKS[task].splits
    assert len(result.results["predictions"]) == len(splits) - 1 - (task == "clutrr23")


@pytest.mark.slow
def test_a_transformer_stands_under_the_same_heads(tmp_path):
    """The Transformer baseline, with absolute positions."""
    bert = {"name": "transformer", "relative_position": "none", "absolute_position": True}
    checkpoint = small_finetune.checkpoint(tmp_path / "checkpoint", **bert)
    config = small(small_finetune.write_rte(tmp_path), checkpoint, epochs=1)
    result = run(config, workdir=None)
    assert result.step == 2
    names = jax.tree_util.tree_leaves_with_path(result.params["folnet"])
    assert any("position" in jax.tree_util.keystr(path) for path, _ in names)
    longer = dataclasses.replace(config, length=17)
    with pytest.raises(runtime.WorkdirError, match="length: got 17, expected at most 16"):
        run(longer, workdir=None)


@pytest.mark.slow
def test_it_learns_from_scratch_and_with_shorter_lengths(tmp_path):
    """The label depends on one word; the best model and its prediction files are correct in the end."""
    small_finetune.write_rte(tmp_path, train=64, dev=16, test=4)
    small_tasks.tokenizer().save(tmp_path / "vocab.txt")
    config = small(
        tmp_path, None, vocabulary=str(tmp_path / "vocab.txt"), epochs=30, batch_size=8, lr=0.001,
        lengths=(24,), length=32, mask_padding=True, weight_decay=0.0,
    )  # fmt: skip
    config.model = dataclasses.replace(small_finetune.MODEL, vocab_size=small_finetune.ROWS)
    config.model.hidden_dropout_prob = 0.1
    result = run(config, workdir=tmp_path / "run")
    assert result.results["best"]["accuracy"] == 1.0
    text = (tmp_path / "run/predictions/RTE.tsv").read_text()
    assert text == "index\tprediction\n" + "".join(
        f"{number}\t{('entailment', 'not_entailment')[number % 2]}\n" for number in range(4)
    )


@pytest.mark.slow
def test_several_seeds_and_settings_are_one_command(tmp_path, checkpoint):
    """There is a directory per run; only a run whose summary was removed is trained again."""
    config = small(
        small_finetune.write_rte(tmp_path), checkpoint, sweep="16gb", seeds=2, epochs=1,
        grid=GridConfig(lr=(0.01, 0.02), batch_size=(2,), epochs=(1,), warmup=(0.06,)),
    )  # fmt: skip
    report = run(config, workdir=tmp_path / "runs")
    assert len(report.runs) == 4
    first, second = (tmp_path / "runs" / report.runs[place].directory for place in (0, 1))
    hashes = [json.loads((of / "summary.json").read_text())["params_sha256"] for of in (first, second)]
    assert hashes[0] != hashes[1]
    before = (second / "summary.json").stat().st_mtime_ns
    (first / "summary.json").unlink()
    assert train.main(config, workdir=tmp_path / "runs") == report
    assert json.loads((first / "summary.json").read_text())["params_sha256"] == hashes[0]
    assert (second / "summary.json").stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="workdir: got None"):
        train.main(config, workdir=None)


@pytest.mark.slow
def test_a_batch_in_parts_is_the_batch(rte, tmp_path):
    config, _, whole = rte
    parts = run(dataclasses.replace(config, accumulate=2), workdir=tmp_path / "run")
    chex.assert_trees_all_close(whole.params, parts.params, rtol=2e-3, atol=2e-5)


@pytest.mark.slow
def test_four_devices_fine_tune_as_one_in_every_mode():
    """SGD from a checkpoint with an incomplete batch gives the same metrics and files."""
    ways = ("jit", "split", "shard_map", "pmap")
    four, one = on_devices.outcomes(Path(__file__).with_name("parity.py"), (4, ways), (1, ("jit",)))
    expected = one["jit"]
    for way in ways:
        found = four[way]
        np.testing.assert_allclose(found["params"], expected["params"], rtol=1e-5, atol=1e-6, err_msg=way)
        assert (found["best"], found["predictions"]) == (expected["best"], expected["predictions"]), way
