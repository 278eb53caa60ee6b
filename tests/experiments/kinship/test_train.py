"""Kinship training: its batches, the loss, a run and its files."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments import runtime
from experiments.kinship import measures, train
from experiments.kinship.config import get_config
from experiments.kinship.inputs import Graph
from experiments.kinship.load import of_kinship
from folnet import kinship
from tests import on_devices
from tests.experiments.kinship.small import looped, published_problems, small, with_data
from tests.folnet import small as small_folnet

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.slow
def test_eight_devices_train_as_one_in_every_mode():
    """SGD with copied and split parameters and with split rows of pairs."""
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


def test_a_batch_is_a_function_of_seed_and_step():
    config = small(seed=3)
    batches, again = train.make_batches(config), train.make_batches(config)
    source = kinship.Kinship(3, (2, 3))
    for step in (0, 5):
        wanted = kinship.symbols(source.draw(range(4 * step, 4 * step + 4)), num_people=4)
        for batch in (batches(step), again(step)):
            np.testing.assert_array_equal(batch["relation_ids"], wanted.relation_ids)
            np.testing.assert_array_equal(batch["labels"], wanted.labels)
    other = train.make_batches(dataclasses.replace(config, seed=4))(0)
    assert not np.array_equal(other["relation_ids"], batches(0)["relation_ids"])


def test_a_run_on_published_graphs(finished):
    """It reads files as the authors write them, and measures each test by all of its problems."""
    config, workdir, results = finished
    wanted, result = published_problems(), results["j.a"]
    batch = train.make_batches(config)(0)
    assert set(batch["labels"]) <= {problem.label for problem in wanted["1.2,1.3_train"]}
    read = config.reader("j.a", config.data.train(0))
    assert isinstance(read, Graph)
    assert read.rules == {
        kinship.relations_of(problem): problem.answer
        for problem in wanted["1.2,1.3_train"]
        if problem.length == 2
    }
    totals = {"2": 3, "3": 5, "4": 1}
    assert {name: test["total"] for name, test in result.results["tests"].items()} == totals
    given = [json.loads(line) for line in (workdir / measures.PREDICTIONS).read_text().splitlines()]
    tests = [problem for k in (2, 3, 4) for problem in wanted[f"1.{k}_test"]]
    assert [line["answer"] for line in given] == [problem.answer_name for problem in tests]
    assert [len(line["chain"]) for line in given] == [problem.length for problem in tests]
    assert measures.line(config, result, workdir)["test_problems"] == totals


def test_a_model_of_published_problems_is_measured_on_generated_ones(monkeypatch):
    """One that is right about every second problem."""
    data = dataclasses.replace(small().data, clutrr="nowhere", joined=True)
    config = small(data=data, match="")

    def make_answer(config, model, tests):
        assert (config.data, model) == (small().data, config.make("j.a"))
        return lambda every: np.where(np.arange(len(tests.labels)) % every, -1, tests.labels)

    monkeypatch.setattr(measures, "make_answer", make_answer)
    assert measures.of_generated(config, 2) == (3 / 7 + 4 / 7) / 2


def test_missing_files_are_named_before_anything_is_written(tmp_path):
    data = dataclasses.replace(small().data, clutrr=str(tmp_path / "nowhere"), joined=True)
    with pytest.raises(runtime.WorkdirError, match=r"data\.clutrr: .*nowhere \(no such directory\)"):
        train.main(small(data=data, match=""), workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_of_a_pool_has_problems_of_the_pool():
    config = with_data(pool=6)
    batches, whole = train.make_batches(config), config.reader("j.a", config.data.train(0))
    pool = whole(config.data.train(0), range(6))["relation_ids"]
    met = set()
    for step in range(8):
        for row in batches(step)["relation_ids"]:
            (place,) = np.flatnonzero((pool == row).all(axis=(1, 2)))[:1]
            met.add(int(place))
    assert met == set(range(6))
    np.testing.assert_array_equal(batches(3)["labels"], train.make_batches(config)(3)["labels"])
    other = train.make_batches(dataclasses.replace(config, seed=1))
    assert any((other(step)["labels"] != batches(step)["labels"]).any() for step in range(4))


def test_the_loss_is_cross_entropy_and_counts_right_answers():
    config = small()
    model, batch = config.make("j.a"), train.make_batches(config)(0)
    params = small_folnet.draw(model)

    exported = of_kinship(config, params).function

    @jax.jit
    def every(params, batch):
        sums = train.make_loss(config, model)(params, batch, jax.random.key(1))
        texts = batch["input_ids"], None, batch["attention_mask"]
        out: Any = model.apply({"params": params}, *texts, relation_ids=batch["relation_ids"])
        return sums, out.logits, exported(params, batch)["logits"]

    sums, logits, found = every(params, batch)
    logits = np.asarray(logits, np.float64)
    np.testing.assert_allclose(found, logits, rtol=1e-5)
    assert logits.shape == (4, 18)
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(4), batch["labels"]]
    np.testing.assert_allclose(sums.numerator, losses.sum(), rtol=1e-5)
    assert int(sums.denominator) == 4
    right, count = sums.metrics["accuracy"]
    assert (int(right), int(count)) == ((logits.argmax(axis=1) == batch["labels"]).sum(), 4)


def test_the_loops_ahead_of_a_batch_are_those_of_each_row(monkeypatch):
    """They are for the model and for the loss."""
    config = looped()
    config.pairs.ahead = 3
    seen = []

    def note(*given, ahead):
        seen.append(int(ahead))

    monkeypatch.setattr(measures, "apply", note)
    monkeypatch.setattr(train.pairs, "loss", note)
    batches = train.make_batches(config)
    drawn = [batches(step)["ahead"] for step in range(40)]
    for ahead in drawn:
        assert ahead.tolist() == [ahead[0]] * 4
        train.make_loss(config, config.make(config.model))({}, {"ahead": ahead}, jax.random.key(0))
    assert seen == [ahead[0] for ahead in drawn for _ in range(2)]
    assert set(seen) == {0, 1, 2, 3}


def test_a_run_leaves_its_record(finished):
    _, workdir, results = finished
    assert list(results) == ["j.a"]
    _check_record(workdir, results)


def test_each_baseline_is_trained_below_with_its_own_rate(tmp_path, monkeypatch):
    """In order, in one session; when it is over no further model is trained and nothing drawn."""
    asked, drawn, clock = [], [], [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def fake(config, workdir, parallel):
        asked.append((config, workdir, parallel))
        clock[0] += 4
        return runtime.FitResult(None, {}, steps[config.model], {}, {}, 3.0, {})

    monkeypatch.setattr(train, "train", fake)
    monkeypatch.setattr(train.figures, "draw", lambda *arguments: drawn.append(arguments))
    config = small(baselines=("bert", "t5"), lrs=(1e-3, 5e-4), session_seconds=9.0)
    run = tmp_path / "run"
    steps = {"j.a": 4, "bert": 4, "t5": 4}
    results = train.main(config, workdir=run, parallel="pmap")
    assert asked == [
        (config, run, "pmap"),
        (dataclasses.replace(config.for_model("bert"), session_seconds=5.0), run / "bert", "pmap"),
        (dataclasses.replace(config.for_model("t5"), session_seconds=1.0), run / "t5", "pmap"),
    ]
    assert list(results) == ["j.a", "bert", "t5"]
    assert drawn == [(config, run, results)]
    steps["bert"] = 2  # the session has ended it
    assert list(train.main(config, workdir=run)) == ["j.a", "bert"]
    timed = dataclasses.replace(config, max_seconds=3.0)  # the run's own time has
    assert list(train.main(timed, workdir=None)) == ["j.a", "bert", "t5"]
    assert len(drawn) == 1
    with pytest.raises(ValueError, match=r"lrs: got \(0\.001,\), expected"):
        train.main(dataclasses.replace(config, lrs=(1e-3,)), workdir=None)


@pytest.mark.parametrize("pool", [0, 6])
def test_processes_share_a_batch(monkeypatch, pool):
    """Their rows together are the batch of one process."""
    config = with_data(pool=pool)
    whole = train.make_batches(config)
    monkeypatch.setattr(train.jax, "process_count", lambda: 2)
    parts = []
    for index in (0, 1):
        monkeypatch.setattr(train.jax, "process_index", lambda index=index: index)
        parts.append(train.make_batches(config))
    for step in (0, 3):
        for name, array in whole(step).items():
            np.testing.assert_array_equal(np.concatenate([part(step)[name] for part in parts]), array)


@pytest.mark.slow
def test_baselines_run_below_with_rates_of_their_own(tmp_path):
    config = small(baselines=("bert", "relation_aware"), lrs=(1e-3, 5e-4))
    results = train.main(config, workdir=tmp_path / "run")
    assert list(results) == ["j.a", "bert", "relation_aware"]
    _check_record(tmp_path / "run", results)
    for name, lr in zip(config.baselines, config.lrs, strict=True):
        found = json.loads((tmp_path / "run" / name / "config.json").read_text())
        assert (found["model"], found["lr"], found["baselines"]) == (name, lr, [])


def _check_record(workdir, results):
    """Checks the records of a run and of its baselines."""
    for name, result in results.items():
        below = workdir if name == "j.a" else workdir / name
        assert result.step == 4
        rows = runtime.metrics.read(below / "metrics.jsonl")
        assert [row["step"] for row in rows] == [2, 4]
        assert {f"eval/accuracy/{k}" for k in (2, 3, 4)} | {"eval/metric", "accuracy"} <= set(rows[-1])
        summary = json.loads((below / "summary.json").read_text())["results"]
        assert summary["model"] == name
        assert summary["parameters"] == sum(leaf.size for leaf in jax.tree.leaves(result.params))
        assert summary["metric"] == {
            "name": "mean accuracy over k = 3, 4, at the last step",
            "value": pytest.approx(rows[-1]["eval/metric"]),
        }
        lines = [json.loads(text) for text in (below / measures.PREDICTIONS).read_text().splitlines()]
        for k in ("2", "3", "4"):
            right = sum(line["right"] for line in lines if line["test"] == k)
            assert right == summary["tests"][k]["right"]
    for figure in ("by_length", "by_steps", "by_seconds"):
        assert (workdir / f"{figure}.png").stat().st_size > 5000


def test_a_finished_run_returns_at_once(finished, monkeypatch):
    config, workdir, results = finished
    monkeypatch.setattr(measures, "write_predictions", pytest.fail)
    again = train.main(config, workdir=workdir)
    for name, result in results.items():
        assert again[name].summary == result.summary


def test_predictions_are_those_of_the_last_session(tmp_path, monkeypatch):
    """The end of each session concludes the run."""
    given = {}
    monkeypatch.setattr(runtime, "fit", lambda config, **fields: given.update(fields))

    def make_answer(config, model, tests, parallel):
        return lambda params: np.full(len(tests.labels), params["answer"])

    monkeypatch.setattr(measures, "make_answer", make_answer)
    path = tmp_path / measures.PREDICTIONS
    train.train(small(), tmp_path)
    assert not path.exists()
    for answer in (3, 5):
        given["conclude"]({"answer": np.asarray(answer)})
        found = {json.loads(line)["given"] for line in path.read_text().splitlines()}
        assert found == {kinship.TARGET_NAMES[answer]}


def test_a_line_tells_a_run(finished):
    config, workdir, results = finished
    line = measures.line(config, results["j.a"], workdir)
    assert [point[0] for point in line["curve"]] == [2, 4]
    assert line["curve"][-1][2] == pytest.approx(line["metric"]["value"], abs=1e-4)
    assert set(line["accuracies"]) == {"2", "3", "4"}
    assert line == json.loads(json.dumps(line))


def test_errors_are_reported_in_one_line_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"^model='jq\.at': operators: got 'jq\.at'.*$"):
        train.main(small(model="jq.at"), workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_parameters(finished, tmp_path):
    config, _, results = finished
    config = dataclasses.replace(config, baselines=(), lrs=())
    train.main(dataclasses.replace(config, steps=2), workdir=tmp_path / "run")
    again = train.main(config, workdir=tmp_path / "run")
    assert again["j.a"].summary["params_sha256"] == results["j.a"].summary["params_sha256"]


@pytest.mark.slow
def test_every_family_runs_in_every_form():
    for model, form in itertools.product(("relation_aware", "t5", "jmc.atp"), ("graph", "text")):
        config = with_data(form=form, inverses=form == "graph", pool=9)
        config = dataclasses.replace(config, model=model, match="jmc.atp")
        (result,) = train.main(config, workdir=None).values()
        assert np.isfinite(result.metrics["loss"]), (model, form)
        assert result.results["tests"]["4"]["total"] == 7


@pytest.mark.slow
def test_short_chains_are_learned_and_something_of_longer_ones():
    """After two hundred steps, all of k = 2 and 3 is solved, and k = 4 better than by guessing."""
    quick = get_config("quick")
    config = dataclasses.replace(quick, baselines=(), steps=250, max_seconds=0.0, eval_every=0)
    (result,) = train.main(config, workdir=None).values()
    tests = result.results["tests"]
    assert min(tests["2"]["accuracy"], tests["3"]["accuracy"]) > 0.95
    assert tests["4"]["interval"][0] > 0.5
    assert tests["10"]["interval"][0] > 1 / 18
