"""Counting correct answers, reading records and writing predictions."""

import dataclasses
import json
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.kinship import measures, train
from folnet import kinship
from folnet.heads import SequenceClassifierOutput
from tests.experiments.kinship.small import SIZES, small, with_data


@pytest.fixture(scope="module")
def tests():
    return measures.Tests(small(), "j.a")


def test_answers_are_counted_by_test(tests):
    config = small()
    assert list(tests.sources) == ["2", "3", "4"]
    assert len(tests.labels) == 3 * 7
    given = tests.labels.copy()
    given[[0, 7, 8, 20]] = (given[[0, 7, 8, 20]] + 1) % 18
    right = tests.right(given)
    assert right == {"2": (6, 7), "3": (5, 7), "4": (6, 7)}
    found = measures.accuracies(config, right)
    assert found == pytest.approx(
        {"metric": (5 / 7 + 6 / 7) / 2, "accuracy/2": 6 / 7, "accuracy/3": 5 / 7, "accuracy/4": 6 / 7}
    )
    results = measures.summarize(config, right)
    assert results["metric"] == {"name": config.metric, "value": pytest.approx(found["metric"])}
    assert results["tests"]["3"] == {
        "right": 5,
        "total": 7,
        "accuracy": 5 / 7,
        "interval": list(runtime.intervals.wilson_interval(5, 7)),
    }


def test_batches_cover_every_problem_once_in_order(tests):
    """With 21 problems in batches of 8, the last batch has padding, which is not counted; none has labels."""
    seen, numbers = [], iter(range(100))
    read = [small().reader("j.a", source)(source, range(7)) for source in tests.sources.values()]
    width = max(arrays["input_ids"].shape[1] for arrays in read)

    def answer(batch):
        assert set(batch) == {"input_ids", "attention_mask", "relation_ids"}
        assert {len(array) for array in batch.values()} == {8}
        seen.append(batch)
        return np.asarray([next(numbers) for _ in range(8)])

    assert tests.answers(answer).tolist() == list(range(21))
    assert len(seen) == 3
    for name in ("input_ids", "attention_mask", "relation_ids"):
        found = np.concatenate([batch[name] for batch in seen])
        assert found.shape[1] == width
        np.testing.assert_array_equal(found[21:], np.broadcast_to(found[20], found[21:].shape))
        for row, array in zip(found, (array for arrays in read for array in arrays[name]), strict=False):
            corner = tuple(map(slice, array.shape))
            np.testing.assert_array_equal(row[corner], array)


@pytest.mark.parametrize(("size", "spec"), [(8, ("data",)), (6, ())])
def test_answers_are_the_models_and_batches_are_split_where_they_divide(monkeypatch, size, spec):
    """A model that answers with the kind of the first person; as on four devices."""

    class Four(runtime.Layout):
        def mesh_to_measure(self) -> Any:
            return jax.sharding.AbstractMesh((4,), ("data",))

    config, specs = small(eval_batch_size=size), []

    def put(batch, where):
        specs.append(tuple(where.spec))
        return batch

    def apply(variables, ids, segments, mask, deterministic, *, relation_ids, rngs):
        assert (segments, deterministic, rngs) == (None, True, None)
        facts = ((relation_ids >= 0).sum((1, 2)) + mask.sum(1) + variables["params"]) % 18
        return SequenceClassifierOutput(jax.nn.one_hot(facts, 18))

    tests = measures.Tests(config, "j.a")
    model: Any = types.SimpleNamespace(apply=apply)
    answer = measures.make_answer(config, model, tests, Four())
    monkeypatch.setattr(measures.jax, "device_put", put)
    # k facts and the question, k + 1 people and [CLS].
    assert answer(3).tolist() == [(2 * k + 3 + 3) % 18 for k in (2, 3, 4) for _ in range(7)]
    assert set(specs) == {spec}


@pytest.mark.parametrize("form", ["graph", "text"])
def test_a_model_gets_all_of_a_problem_and_dropout_with_a_key_alone(form):
    """Relations of a graph, segments of a text, and the mask of either."""
    config = with_data(form=form)
    source = config.data.train(0)
    batch, seen = config.reader("j.a", source)(source, range(3)), []

    def apply(variables, ids, segments, mask, deterministic, **more):
        seen.append((variables, ids, segments, mask, deterministic, more))
        return SequenceClassifierOutput(jnp.zeros((3, 18)))

    model: Any = types.SimpleNamespace(apply=apply)
    key = jax.random.key(1)
    measures.logits(model, "p", batch)
    measures.logits(model, "p", batch, key)
    for found, dropout in zip(seen, (None, {"dropout": key}), strict=True):
        assert found[0] == {"params": "p"}
        assert found[1] is batch["input_ids"]
        assert found[2] is batch.get("token_type_ids")
        assert found[3] is batch["attention_mask"]
        assert found[4] is (dropout is None)
        assert found[5].pop("rngs") == dropout
        assert set(found[5]) == ({"relation_ids"} if form == "graph" else set())
        assert all(array is batch[name] for name, array in found[5].items())
    assert (batch.get("token_type_ids") is None) == (form == "graph")


@pytest.mark.parametrize(("hidden", "attention"), [(0.0, 0.0), (0.1, 0.0), (0.0, 0.1)])
def test_training_drops_if_there_is_dropout_of_either_kind(hidden, attention):
    rates = {"hidden_dropout_prob": hidden, "attention_probs_dropout_prob": attention}
    config = small(sizes=dataclasses.replace(SIZES, **rates))
    seen = []

    def apply(*arguments, rngs, **more):
        seen.append(rngs)
        return SequenceClassifierOutput(jnp.zeros((4, 18)))

    model: Any = types.SimpleNamespace(apply=apply)
    key = jax.random.key(5)
    train.make_loss(config, model)({}, train.make_batches(config)(0), key)
    assert seen == [{"dropout": key} if hidden or attention else None]


def test_labels_are_those_of_the_problems(tests):
    wanted = [source[number].label for source in tests.sources.values() for number in range(7)]
    assert tests.labels.tolist() == wanted


def test_what_is_held_out_has_a_metric_of_its_own():
    config = with_data(held_out_pairs=8)
    right = dict.fromkeys(["2", "3", "4", "held_out/4"], measures.Count(7, 7))
    right |= dict.fromkeys(["held_out/2", "held_out/3"], measures.Count(0, 7))
    found = measures.accuracies(config, right)
    assert (found["metric"], found["held_out/metric"], found["accuracy/held_out/4"]) == (1, 0.5, 1)


def test_a_record_is_read_where_something_was_measured(tmp_path):
    rows = [
        {"step": 1, "train_seconds": 0.5},
        {"step": 2, "train_seconds": 1.0, "eval/metric": 0.25},
        {"step": 4, "train_seconds": 2.0, "eval/metric": 0.5},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = measures.curve(tmp_path)
    assert found == [(2, 1.0, 0.25), (4, 2.0, 0.5)]
    assert measures.points({"curve": [[2, 1.0, 0.25], [4, 2.0, 0.5]]}) == found


def test_lines_of_a_preset_by_model_and_seed(tmp_path):
    file = tmp_path / "learning.jsonl"
    assert measures.of_preset(file, "ablation") == {}
    lines = [
        {"preset": preset, "model": model, "seed": seed, "curve": []}
        for preset, model, seed in [("ablation", "b", 1), ("ablation", "a", 0), ("quick", "b", 0)]
    ]
    lines.append({"preset": "ablation", "model": "b", "seed": 0, "curve": [[1, 0.5, 0.25]]})
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = measures.of_preset(file, "ablation")
    assert {model: [line["seed"] for line in runs] for model, runs in found.items()} == {
        "a": [0],
        "b": [0, 1],
    }


@pytest.mark.parametrize("line", ['{"preset"', "[]", '{"preset": "a", "model": "b", "seed": null}', "{}"])
def test_a_damaged_line_is_named(tmp_path, line):
    file = tmp_path / "learning.jsonl"
    file.write_text('{"preset": "a", "model": "b", "seed": 0, "curve": []}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"learning\.jsonl, line 2: not the record of a run"):
        measures.of_preset(file, "a")


def test_predictions_say_which_problem_it_was(tests, tmp_path):
    given = tests.labels.copy()
    given[8] = (given[8] + 1) % 18
    path = tmp_path / measures.PREDICTIONS
    measures.write_predictions(path, tests, given)
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert len(lines) == 21
    line = lines[8]
    problem = kinship.Kinship(line["seed"], (int(line["test"]),))[line["number"]]
    assert (line["test"], line["number"], line["right"]) == ("3", 1, False)
    assert line["answer"] == problem.answer_name != line["given"]
    assert line["chain"] == [kinship.RELATIONS[fact.relation] for fact in problem.chain]
    assert sum(line["right"] for line in lines) == 20
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
