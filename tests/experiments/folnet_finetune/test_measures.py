"""Evaluation of fine-tuned models: the order of rows, the main metric, the best model, files."""

import dataclasses
import json
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.folnet_finetune import kinds, measures
from experiments.folnet_finetune.data import open_data
from folnet import tasks
from folnet.heads import QuestionAnsweringOutput, SequenceClassifierOutput
from tests.experiments.folnet_finetune import small as small_finetune
from tests.folnet import small_tasks

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SETTINGS = types.SimpleNamespace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def knowing(params, ids, segments, mask, *_, **__):
    """A model that answers by the presence of one word, the rule of `write_rte`."""
    found = (ids == params["params"]["word"]).any(axis=1)
    return SequenceClassifierOutput(jnp.stack([found, ~found], axis=1).astype(jnp.float32))


def opened(folder, **fields):
    config = small_finetune.small(folder, folder, **fields)
    return config, open_data(config, small_tasks.tokenizer())


@pytest.mark.parametrize("lengths", [(), (8, 12)])
def test_every_row_is_measured_in_its_place(tmp_path, lengths):
    """A model that knows the answer is evaluated in incomplete batches of one or several lengths."""
    small_finetune.write_rte(tmp_path, dev=9)
    config, data = opened(tmp_path, lengths=lengths, mask_padding=bool(lengths), eval_batch_size=4)
    model = types.SimpleNamespace(config=SETTINGS, apply=knowing)
    measure = measures.Measure(config, model, data)
    dog, cat = (jnp.asarray(ids[0]) for ids in data.tokenizer.ids(["dog", "cat"]))
    assert measure.development({"word": dog}) == {"accuracy": 1.0, "main": 1.0}
    assert measure.development({"word": cat}) == {"accuracy": 0.0, "main": 0.0}
    found = measure({"word": dog}, data.test[0])
    assert (found.metrics, found.predictions.tolist()) == ({}, [0])


def test_answers_are_tuned_on_the_development_split(tmp_path):
    """A model finds "Zürich" everywhere, preferably for questions with "was", and prefers not to answer.

    At 0 nothing is answered, which is right of two of nine (one gold answer is an article); at the best
    threshold two are, of which one is right.
    """
    small_tasks.write_squad(tmp_path)
    config, data = opened(tmp_path, task="squad2", length=88, stride=24, query_length=16, eval_batch_size=4)
    zurich, was = (ids[0] for ids in data.tokenizer.ids(["z", "was"]))

    def apply(params, ids, *_, **__):
        none = jnp.where((ids[:, :8] == was).any(axis=1), 1.125, 1.5)
        first = jnp.where(ids == zurich, 1.0, -9.0).at[:, 0].set(none)
        last = jnp.where(jnp.roll(ids, 5, axis=1) == zurich, 1.0, -9.0).at[:, 0].set(none)
        return QuestionAnsweringOutput(first, last)

    measure = measures.Measure(config, types.SimpleNamespace(config=SETTINGS, apply=apply), data)
    found = measure({}, data.dev[0])
    scores, answers = found.metrics, {answer.index: answer.text for answer in found.predictions}
    assert (scores["f1"], scores["f1/best"]) == pytest.approx((2 / 9, 3 / 9))
    assert scores["f1/best_threshold"] == 0.25
    assert {index: text for index, text in answers.items() if text} == {"q0": "Zürich", "q2": "Zürich"}
    assert measure.development({})["main"] == scores["f1/best"]
    assert not any(answer.text for answer in measure({}, data.dev[0], threshold=0.0).predictions)
    answers = measure({}, data.dev[0], threshold=0.25).predictions
    assert [answer.index for answer in answers if answer.text] == ["q0", "q2"]
    # A test split is scored and answered at the threshold of the record, whatever is best for its labels.
    tested, best = data._replace(dev=(), test=data.dev), measures.Best(None, None, data)
    for split, threshold, score, answered in (
        (tested, 0.0, 2 / 9, set()),
        (tested, 0.25, 3 / 9, {"q0", "q2"}),
        (data, 0.0, None, {"q0", "q2"}),
    ):
        last = {"step": 1, kinds.THRESHOLD: threshold}
        found = measures.conclude(config, measure, best, split, {}, last, tmp_path)
        assert found["test"].get("f1") == (score and pytest.approx(score))
        assert not [name for name in found["test"] if "/best" in name]
        texts = json.loads((tmp_path / found["predictions"][0]).read_text(encoding="utf-8"))
        assert {index for index, text in texts.items() if text} == answered


def test_the_best_parameters_predict_not_the_last(tmp_path):
    """The best ones know the answer, the last ones are always wrong; without a workdir nothing is written."""
    small_finetune.write_rte(tmp_path, dev=5)
    config, data = opened(tmp_path, eval_batch_size=4)
    measure = measures.Measure(config, types.SimpleNamespace(config=SETTINGS, apply=knowing), data)
    dog, cat = ({"word": np.asarray(ids[0])} for ids in data.tokenizer.ids(["dog", "cat"]))
    best = measures.Best(None, None, data)
    best.offer(2, measure.development(dog), dog)
    last = {"step": 4, **measure.development(cat)}
    found = measures.conclude(config, measure, best, data, cat, last, tmp_path)
    assert (found["best"], found["last"]) == ({"step": 2, "accuracy": 1.0, "main": 1.0}, last)
    path = tmp_path / "predictions/RTE_validation.tsv"
    task, examples = tasks.SEQUENCE_TASKS["rte"], data.dev[0].examples
    assert task.score(examples, task.read_predictions(path, examples)) == {"accuracy": 1.0}
    assert (found["task"], found["parameters"], found["left_out"]) == ("rte", 1, [])
    assert found["rows"] == {"train": 3, "validation": 5, "test": 1}
    assert found["vocabulary"] == data.tokenizer.fingerprint
    assert (found["test"], "cut_off" in found) == ({}, False)
    long = data.dev[0]._replace(features=data.dev[0].features._replace(cut_off=2))
    short = measures.conclude(config, measure, best, data._replace(dev=(long,)), cat, last, None)
    assert short["cut_off"] == {"train": 0, "validation": 2, "test": 0}
    path.unlink()
    assert measures.conclude(config, measure, best, data, cat, last, None)["predictions"] == []
    assert not path.exists()


@pytest.mark.parametrize(("size", "spec"), [(8, ("data",)), (6, ())])
def test_batches_are_split_over_devices_where_they_divide_evenly(tmp_path, monkeypatch, size, spec):
    """As for four devices; otherwise every device has the whole batch."""
    small_finetune.write_rte(tmp_path)
    config, data = opened(tmp_path, eval_batch_size=size)
    seen = []

    class Four(runtime.Layout):
        def mesh_to_measure(self) -> Any:
            return jax.sharding.AbstractMesh((4,), ("data",))

    measure = measures.Measure(config, types.SimpleNamespace(config=SETTINGS, apply=knowing), data, Four())

    def put(batch, where):
        seen.append(tuple(where.spec))
        return batch

    monkeypatch.setattr(measures.jax, "device_put", put)
    measure.logits({"word": jnp.int32(1)}, data.dev[0])
    assert seen == [spec]


def test_what_decides_is_what_the_authors_chose_by():
    two = {"accuracy": 0.8, "f1": 0.6}
    assert measures.main_metric(tasks.SEQUENCE_TASKS["mrpc"], {"validation": two}) == pytest.approx(0.7)
    halves = {"validation_matched": {"accuracy": 0.5}, "validation_mismatched": {"accuracy": 0.7}}
    assert measures.main_metric(tasks.SEQUENCE_TASKS["mnli"], halves) == pytest.approx(0.6)
    assert measures.named(halves) == {"matched/accuracy": 0.5, "mismatched/accuracy": 0.7}
    assert measures.named({"validation": two}) == two
    spans = {"f1": 0.1, "f1/best": 0.4, "exact": 0.2, "exact/best": 0.3}
    assert measures.main_metric(tasks.SQUAD, {"validation": spans}) == 0.4


class Saved:
    """A model with a single number as parameter."""

    @staticmethod
    def save_pretrained(directory, params):
        directory.mkdir(exist_ok=True)
        (directory / "number").write_text(str(params))

    @classmethod
    def from_pretrained(cls, directory):
        return cls(), int((directory / "number").read_text())


@pytest.mark.parametrize("kept", [True, False])
def test_the_first_of_the_best_is_kept(tmp_path, kept):
    """It is stored in a directory, where a continued run finds it, or in memory."""
    folder = tmp_path / "best" if kept else None
    data: Any = types.SimpleNamespace(tokenizer=small_tasks.tokenizer())
    best = measures.Best(folder, Saved(), data)
    for step, score in ((1, 0.5), (2, 0.7), (3, 0.7), (4, 0.6)):
        best.offer(step, {"main": score, "accuracy": score}, step)
    assert best.record == {"step": 2, "main": 0.7, "accuracy": 0.7}
    assert best.params() == 2
    again = measures.Best(folder, Saved(), data)
    assert again.record == (best.record if kept else None)
    again.offer(5, {"main": 0.65}, 5)
    assert again.params() == (2 if kept else 5)
    files = sorted(path.name for path in tmp_path.glob("best/*"))
    tokenizer = ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert files == (["metrics.json", "number", *tokenizer] if kept else [])


@pytest.mark.parametrize("text", ["{", "[]", '{"step": 2, "main": "best"}', '{"main": 0.5}'])
def test_a_damaged_record_of_the_best_is_named(tmp_path, text):
    (tmp_path / "metrics.json").write_text(text)
    data: Any = types.SimpleNamespace()
    with pytest.raises(runtime.WorkdirError, match=r"metrics\.json.*(JSON|damaged|expected)"):
        measures.Best(tmp_path, Saved(), data)


def test_predictions_are_in_each_benchmarks_format(tmp_path):
    small_tasks.glue(tmp_path)
    small_finetune.write_folio(tmp_path)
    small_finetune.write_clutrr(tmp_path)
    _, glue = opened(tmp_path, task="mnli")
    measured = kinds.Measured({}, np.asarray([2, 0]), (np.zeros((2, 3)),))
    assert kinds.of(glue.task).write(tmp_path, glue.test[1], measured) == ["MNLI-mm.tsv"]
    assert (tmp_path / "MNLI-mm.tsv").read_text() == "index\tprediction\n0\tcontradiction\n1\tentailment\n"

    _, folio = opened(tmp_path, task="folio")
    logits = np.log([[0.2, 0.7, 0.1], [0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    measured = kinds.Measured({}, logits.argmax(1), (logits,))
    (name,) = kinds.of(folio.task).write(tmp_path, folio.dev[0], measured)
    assert name == "folio_validation.jsonl"
    rows = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
    assert rows == [
        {"index": "0", "prediction": "False", "label": "True", "probability": 0.7},
        {"index": "1", "prediction": "True", "label": "False", "probability": 0.5},
        {"index": "2", "prediction": "Unknown", "label": "Unknown", "probability": 0.8},
    ]

    _, clutrr = opened(tmp_path, task="clutrr23")
    logits = np.zeros((18, 21))
    logits[:, 3] = 99.0
    measured = kinds.Measured({}, logits.argmax(1), (logits,))
    (name,) = kinds.of(clutrr.task).write(tmp_path, clutrr.test[0], measured)
    first = json.loads((tmp_path / name).read_text().splitlines()[0])
    assert first == {
        "index": "0",
        "prediction": "brother",
        "label": "grandfather",
        "group": "k=2",
        "probability": 1.0,
    }


def test_without_a_development_split_the_last_is_the_best(tmp_path):
    """For CLUTRR as published by its authors, the test split is evaluated with the last parameters."""
    small_finetune.write_clutrr(tmp_path)
    config, data = opened(tmp_path, task="clutrr23")

    def apply(params, ids, *_, **__):
        return SequenceClassifierOutput(jnp.zeros((ids.shape[0], 21)).at[:, 3].set(params["params"]["x"]))

    measure = measures.Measure(config, types.SimpleNamespace(config=SETTINGS, apply=apply), data)
    assert measure.development({"x": jnp.ones(())}) == {}
    best = measures.Best(None, None, data)
    found = measures.conclude(config, measure, best, data, {"x": jnp.ones(())}, {"step": 9}, tmp_path)
    assert found["best"] == found["last"] == {"step": 9}
    assert found["test"]["accuracy/k=2"] == 0.5  # the second of two is "brother"
    assert found["test"]["accuracy/k=9"] == 0.0
    assert found["predictions"] == ["predictions/clutrr23_test.jsonl"]
    silent = dataclasses.replace(config, predict=False)
    found = measures.conclude(silent, measure, best, data, {"x": jnp.ones(())}, {"step": 9}, tmp_path)
    assert found["predictions"] == []
    assert found["test"]["accuracy/k=2"] == 0.5
