"""Measures of recurrent models against loops over lengths, sequences and steps."""

import itertools

import jax
import numpy as np
import pytest

from experiments.llrnn import measures
from experiments.llrnn.config import CellConfig
from llrnn import tasks
from tests.experiments.llrnn.small import short


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
    found = measures.make_evaluation(task, model, 12)(params)
    assert set(found) == {f"{split}/error_{length}" for split in task.splits for length in (3, 8, 9)}
    for split, length in itertools.product(task.splits, (3, 8, 9)):
        counts = found[f"{split}/error_{length}"]
        key = jax.random.fold_in(jax.random.key(measures.EVALUATION_SEED), length)
        batch = task.sample(key, 12, length, max_length=9, split=split)
        answers = np.argmax(np.asarray(measures.predict(model, params, task.encode(batch.tokens))), axis=-1)
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
    summary = measures.summarize(counts)
    assert summary["error"] == pytest.approx(0.05)
    assert summary["sequences_right"] == pytest.approx(10 / 12)
    low, high = summary["sequences_right_interval"]
    assert low < 10 / 12 < high


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
        key = jax.random.fold_in(jax.random.key(measures.EVALUATION_SEED), length)
        batch = task.sample(key, 20, length, max_length=43)
        mask = np.asarray(batch.mask)
        shares.append(np.mean(np.asarray(batch.targets)[mask] == 0))
    assert measures.score(task, model, params, 20, range(41, 44)) == pytest.approx(np.mean(shares))
