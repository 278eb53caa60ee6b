"""The mathematics experiment as a user starts it: mistakes, a run, its files, a continued run; its loss."""

import dataclasses
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.mathematics import measures, train
from experiments.mathematics.config import ModelConfig, get_config
from tests import on_devices
from tests.experiments.mathematics.small import MODEL, small, with_data, with_model
from tests.tp_transformer.small import draw
from tp_transformer import mathematics

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_eight_devices_train_as_one_in_every_mode():
    """By SGD on batches whose answers differ in length, copied and split parameters."""
    ways = ("jit", "shard_map", "pmap", "split")
    script = Path(__file__).with_name("parity.py")
    eight, one = on_devices.outcomes(script, (8, ways), (1, ("jit",)))
    expected = one["jit"]
    for way in ways:
        found = eight[way]
        np.testing.assert_allclose(found["params"], expected["params"], rtol=1e-5, atol=1e-6, err_msg=way)
        for name, value in expected["metrics"].items():
            if name != "train_seconds":
                assert found["metrics"][name] == pytest.approx(value, rel=1e-4, abs=1e-6), (way, name)


def test_mistakes_on_the_command_line_end_in_one_line_before_anything_is_written(tmp_path):
    config = "--config=quick"
    empty = tmp_path / "empty"
    empty.mkdir()
    mistakes = {
        (f"--config.data.directory={empty}",): "expected at least one of the folders",
        ("--config.data.buckets=('20x4',)", "--config.data.train=30", "--config.data.test=2"): (
            "expected room for question"
        ),
    }
    workdir = tmp_path / "run"
    started = {
        flags: subprocess.Popen(
            [sys.executable, "-m", "experiments.mathematics", config, *flags, f"--workdir={workdir}"],
            cwd=ROOT,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for flags in mistakes
    }
    for flags, process in started.items():
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 2, (flags, errors)
        assert mistakes[flags] in errors
        assert output == ""
        assert len(errors.strip().splitlines()) == 1, errors
    assert not (workdir / "config.json").exists()


def test_a_run_leaves_its_record_results_and_pictures(mathematics_run):
    config, workdir, results = mathematics_run
    assert list(results) == ["tp_transformer", "baseline"]
    files = {path.name for path in workdir.iterdir() if not path.name.startswith(".")}
    assert files == {
        "config.json", "metrics.jsonl", "summary.json", "checkpoints", "baseline", "learning.png",
        "accuracy_interpolate.png", "accuracy_extrapolate.png", "accuracy_validation.png", "roles.png",
    }  # fmt: skip
    rows = runtime.metrics.read(workdir / "metrics.jsonl")
    assert [row["step"] for row in rows] == [2, 4]
    for module in config.data.modules:
        assert f"eval/interpolate/{module}" in rows[-1]
    assert {"eval/extrapolate/numbers__place_value_big", "eval/validation"} < set(rows[-1])
    assert rows[-1]["loss"] < rows[0]["loss"]
    for row in rows:  # modules have equal weights
        own = [row[f"eval/interpolate/{module}"] for module in config.data.modules]
        assert row["eval/interpolate"] == pytest.approx(sum(own) / 2)
        assert all(share * 4 == int(share * 4) for share in own)  # of four questions each
    for result in results.values():
        of_split = result.results["interpolate"]["modules"]
        assert {module: entry["total"] for module, entry in of_split.items()} == dict.fromkeys(
            config.data.modules, 12
        )
        held_back = result.results["validation"]["modules"]
        assert {entry["total"] for entry in held_back.values()} == {config.data.validation}
        assert all(entry["bits"] > 0 for entry in (*of_split.values(), *held_back.values()))
        always = measures.commonest_answers(config, config.data.open())
        batches = measures.test_batches(config, config.data.open(), 0)
        for split, questions in batches.items():
            scores = measures.always(always, questions).to_json()["modules"]
            recorded = result.results["commonest_answer"][split]["modules"]
            assert {name: entry["right"] for name, entry in recorded.items()} == {
                name: entry["right"] for name, entry in scores.items()
            }
        assert result.results["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(result.params))
    counts = [result.results["parameters"] for result in results.values()]
    assert abs(counts[1] / counts[0] - 1) < 0.02
    questions = {path.name for path in (workdir / train.QUESTIONS / "interpolate").iterdir()}
    assert questions == {f"{module}.txt" for module in config.data.modules}


def test_a_finished_run_returns_at_once_and_draws_no_questions_again(mathematics_run, monkeypatch):
    config, workdir, results = mathematics_run
    monkeypatch.setattr(measures, "measure", None)  # calling it would fail
    drawn = []
    monkeypatch.setattr(
        train.figures, "draw", lambda workdir, configs, results, source: drawn.append(configs)
    )
    again = train.main(config, workdir=workdir)
    assert [list(configs) for configs in drawn] == [["tp_transformer", "baseline"]]
    assert {name: result.summary for name, result in again.items()} == json.loads(
        json.dumps({name: result.summary for name, result in results.items()})
    )


@pytest.mark.slow
def test_a_continued_run_is_the_same_run_whatever_shapes_its_batches_have(tmp_path):
    """Two sessions of two steps against one of four, with batches of two buckets."""
    config = with_data(buckets=("36x8", "54x8"))
    batches = train.training_batches(config, config.data.open())
    assert len({batches[step].source.shape for step in range(4)}) == 2
    straight = train.main(config, workdir=None)["tp_transformer"]
    train.main(dataclasses.replace(config, steps=2), workdir=tmp_path)
    again = train.main(config, workdir=tmp_path)["tp_transformer"]
    assert again.step == straight.step == 4
    chex.assert_trees_all_equal(straight.params, again.params)


def test_the_loss_is_the_mean_over_symbols_of_the_answers():
    """Against log-probabilities summed question by question, without padding."""
    config = small()
    model, batch = config.model.make(), train.training_batches(config, config.data.open())[0]
    params = draw(model)
    loss = jax.jit(train.make_loss(model))
    sums = loss(params, {"source": batch.source, "target": batch.target}, jax.random.key(1))
    apply = jax.jit(lambda *given: jax.nn.log_softmax(measures.logits(model, params, *given)))
    total, count, right, symbols = 0.0, 0, 0, 0
    for source, target in zip(batch.source, batch.target, strict=True):
        # The padding of a question alone is kept, so that one program does for all.
        target = target[target != 0]
        given = np.pad(target[:-1], (0, 9 - len(target)))
        logs = np.asarray(apply(source[None], given[None]), np.float64)[0, : len(target) - 1]
        total -= sum(logs[place, symbol] for place, symbol in enumerate(target[1:]))
        count += len(target) - 1
        right += bool((logs.argmax(-1) == target[1:]).all())
        symbols += int((logs.argmax(-1) == target[1:]).sum())
    assert int(sums.denominator) == count
    assert float(sums.numerator) == pytest.approx(total, rel=1e-5)
    assert [int(part) for part in sums.metrics["exact_match"]] == [right, len(batch.source)]
    assert [int(part) for part in sums.metrics["symbols_right"]] == [symbols, count]


def test_padding_is_the_models():
    config = small()
    model, batch = config.model.make().clone(pad=5), train.training_batches(config, config.data.open())[0]
    params = draw(model)
    arrays, loss = {"source": batch.source, "target": batch.target}, train.make_loss(model)
    count = jax.jit(lambda key: loss(params, arrays, key).denominator)  # without the model, which is not used
    assert int(count(jax.random.key(1))) == np.sum(batch.target[:, 1:] != 5)


def test_dropout_takes_part_in_training_alone():
    config = with_model(dropout_rate=0.5)
    model, batch = config.model.make(), train.training_batches(config, config.data.open())[0]
    params = draw(model)
    arrays = {"source": batch.source, "target": batch.target}
    loss = jax.jit(train.make_loss(model))
    losses = [float(loss(params, arrays, jax.random.key(seed)).numerator) for seed in (1, 2, 1)]
    assert losses[0] == losses[2] != losses[1]


def test_mistakes_in_the_data_are_reported_before_anything_is_written(tmp_path):
    with pytest.raises(runtime.WorkdirError, match=r"config\.data: .*expected room for question"):
        train.main(with_data(buckets=("20x4",)), workdir=tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(runtime.WorkdirError, match=r"config\.data: .*at least one of the folders"):
        train.main(with_data(directory=str(tmp_path / "empty")), workdir=None)
    questions = [mathematics.Question(f"What is {number} + 1?", str(number + 1)) for number in range(40)]
    (tmp_path / "alone" / "train").mkdir(parents=True)
    mathematics.write_questions(tmp_path / "alone" / "train" / "numbers__gcd.txt", questions)
    alone = with_data(directory=str(tmp_path / "alone"), modules=(), buckets=("32x8",))
    with pytest.raises(runtime.WorkdirError, match=r"config\.data: directory: .*expected .* interpolate/"):
        train.main(alone, workdir=None)


@pytest.mark.parametrize(
    ("session", "step", "trained"), [(0, 4, 2), (5, 2, 1), (5, 4, 2)], ids=["no limit", "ended", "over"]
)
def test_a_session_that_ended_early_leaves_the_baseline_for_the_next(monkeypatch, session, step, trained):
    """The run of the model has four steps; the baseline differs from it in the model alone."""
    seen, clock = [], [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def one(config, source, workdir, parallel):
        seen.append((config, parallel))
        clock[0] += 2
        return types.SimpleNamespace(step=step, train_seconds=5.0)

    monkeypatch.setattr(train, "train", one)
    baseline = dataclasses.replace(MODEL, name="transformer", num_heads=1)
    config = small(session_seconds=session, baseline=baseline, role_head=1)
    found = train.main(config, workdir=None, parallel="shard_map")
    assert list(found) == ["tp_transformer", "baseline"][:trained]
    assert seen[0] == (config, "shard_map")
    if trained == 2:
        none = ModelConfig(name="none")
        assert seen[1][0] == dataclasses.replace(
            config, model=baseline, baseline=none, role_head=0, session_seconds=session and session - 2.0
        )


def test_a_run_of_one_model_is_as_its_config_and_its_caller_say(monkeypatch, tmp_path):
    """Its batches are those of the config's seed."""
    given = {}
    monkeypatch.setattr(train.runtime, "fit", lambda config, **fields: given.update(fields))
    config = small(seed=3)
    source = config.data.open()
    train.train(config, source, tmp_path, "shard_map")
    assert (given["parallel"], given["workdir"], given["name"]) == ("shard_map", tmp_path, "TP-Transformer")
    names, buckets = config.data.modules, config.data.shapes()
    batch = mathematics.Batches(source, "train", names, seed=3, batch_size=8, buckets=buckets)[1]
    chex.assert_trees_all_equal(given["batches"](1), {"source": batch.source, "target": batch.target})


@pytest.mark.parametrize(("train_each", "workers", "shown"), [(1500, 1, False), (1503, None, True)])
def test_few_questions_are_drawn_without_workers_and_progress(
    monkeypatch, tmp_path, train_each, workers, shown
):
    drawn = []
    monkeypatch.setattr(train.mathematics, "generate", lambda *given, **how: drawn.append((given, how)))
    config = with_data(train=train_each)
    train.open_questions(config, tmp_path)
    ((given, how),) = drawn
    assert given == (tmp_path / train.QUESTIONS, config.data.open())
    assert how == {"processes": workers, "show": shown}


def test_pictures_are_drawn_by_the_first_process_where_they_can_be(monkeypatch, tmp_path):
    finished = types.SimpleNamespace(step=4, train_seconds=1.0)
    monkeypatch.setattr(train, "train", lambda *given: finished)
    drawn = []
    monkeypatch.setattr(train.figures, "draw", lambda *given: drawn.append(given))
    for first, can in ((False, True), (True, False), (True, True)):
        assert drawn == []
        monkeypatch.setattr(train.runtime, "is_first", lambda first=first: first)
        monkeypatch.setattr(train.runtime, "can_draw", lambda can=can: can)
        train.main(small(), workdir=tmp_path)
    assert len(drawn) == 1


def test_drawn_questions_of_another_kind_are_not_taken(tmp_path, capsys):
    train.open_questions(small(), tmp_path)
    assert capsys.readouterr().err == ""  # no progress of what takes no time
    with pytest.raises(runtime.WorkdirError, match=r"config.data: .*contains another set"):
        train.main(with_data(seed=1), workdir=tmp_path)


@pytest.mark.slow
def test_the_preset_quick_learns(tmp_path):
    """At least 15 points above the most frequent answer in every module, outside the interval."""
    (result,) = train.main(get_config("quick"), workdir=tmp_path / "run").values()
    always = result.results["commonest_answer"]["interpolate"]["modules"]
    for module, entry in result.results["interpolate"]["modules"].items():
        share = always[module]["right"] / always[module]["total"]
        assert entry["right"] / entry["total"] > share + 0.15, module
        assert entry["interval"][0] > share, module
