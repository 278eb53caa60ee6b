"""Counting correct answers, reading records and writing predictions."""

import json

import numpy as np
import pytest

from experiments import runtime
from experiments.kinship import measures
from folnet import kinship
from tests.experiments.kinship.small import small, with_data


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
    assert right == {"2": 6, "3": 5, "4": 6}
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
    """With 21 problems in batches of 8, the last batch has padding, which is not counted."""
    seen = []

    def answer(batch):
        assert len(batch["labels"]) == 8
        seen.append(batch["labels"])
        return batch["labels"]

    np.testing.assert_array_equal(tests.answers(answer), tests.labels)
    assert len(seen) == 3


def test_labels_are_those_of_the_problems(tests):
    wanted = [source[number].label for source in tests.sources.values() for number in range(7)]
    assert tests.labels.tolist() == wanted


def test_what_is_held_out_has_a_metric_of_its_own():
    config = with_data(held_out_pairs=8)
    right = {"2": 7, "3": 7, "4": 7, "held_out/2": 0, "held_out/3": 0, "held_out/4": 7}
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
